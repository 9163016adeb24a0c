"""Sentences of the book about what is here, and what is not, held to the code and to what other libraries have.

`test_pages.py` runs the pages' programs; `test_array_api.py` has the page on the standard.
"""
import pathlib
import re

import pytest

import remat

ROOT = pathlib.Path(__file__).parents[2]
PAGES = ROOT / "docs" / "src"
CRATES = ROOT / "crates"
pytestmark = pytest.mark.skipif(not PAGES.exists(), reason="not in a clone of the repository")

CODE = re.compile(r"`([^`]+)`")


def page(name):
    return (PAGES / name).read_text()


def section(text, title):
    """What stands below a heading, up to the next of the same level or a higher one."""
    level = title.index(" ")
    found = re.search(rf"^{re.escape(title)}\n(.*?)(?=^#{{1,{level}}} |\Z)", text, re.M | re.S)
    assert found, f"no section `{title}`"
    return found[1]


def rows(text):
    """The rows of tables below their heads, as lists of cells."""
    found = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines() if line.startswith("| ")]
    return [row for row in found if not row[0].startswith("---")]


# ---- megengine.md: the graph


# of `ComputingGraph::Options` in MegEngine 1.13; a field of a struct within by its own name
OPTIONS = (
    "sublinear_memory_endpoint enable_mem_plan_opt enable_mem_reuse_alloc enable_seq_comp_node_opt jit jit_config tensorrt "
    "f16_io_f32_comp f16_io_comp fuse_conv_bias_nonlinearity fuse_conv_bias_with_z weight_preprocess fuse_preprocess fuse_grain "
    "layout_transform graph_opt_level disable_inplace_arith_opt allreduce_pack_max_size allreduce_pack_ignore_first log_level "
    "async_exec_level force_dynamic_alloc force_output_dynamic_alloc force_output_use_user_specified_memory "
    "var_sanity_check_first_run allocate_static_mem_after_graph_compile fake_next_exec enable_sublinear_memory_opt "
    "sublinear_mem_config enable_dtr_memory_opt dtr_config no_profiling_on_shape_change enable_var_mem_defragment "
    "enable_grad_var_static_reshape enable_memory_swap comp_node_seq_record_level eager_evaluation imperative_proxy_graph "
    "no_force_inplace comp_seq_sync_device extra_vardeps user_data fast_run_config"
)
FLAGS = (
    "NO_SYS_MEM_ALLOC NO_ALLOC_IF_UNUSED NO_SYS_STATIC_MEM_ALLOC NO_MEM_RECLAIM VOLATILE_CONTENT ALLOW_EMPTY_SHAPE "
    "PERSISTENT_DEVICE_VALUE DISALLOW_RT_FORCE_DYNAMIC_MEM_ALLOC DISALLOW_VAR_SANITY_CHECK RT_FORCE_DYNAMIC_MEM_ALLOC FLAG_FREEZED "
    "MEMORY_NO_NEED"
)
METHODS = (
    "id make assert_destroy compile compile_multi_part insert_opr current_comp_seq var_receiver_in_current_comp_seq "
    "get_mem_allocation_info find_var_by_id event options static_infer_manager seq_comp_node_optimizer share_device_memory_with "
    "set_device_memory_allocator get_device_memory_size clear_device_memory set_as_subgraph nr_oprs_in_graph prealloc_static_storage "
    "record_async_error"
)


@pytest.mark.parametrize("title, names", [
    ("## Options", OPTIONS), ("## Flags of a `VarNode`", FLAGS), ("## Methods of `ComputingGraph`", METHODS),
])
def test_every_option_flag_and_method_has_its_row(title, names):
    told = {part for row in rows(section(page("megengine.md"), title)) for code in CODE.findall(row[0]) for part in code.split(".")}
    lacking = [name for name in names.split() if name not in told]
    assert not lacking


def sources():
    """The Rust text of each crate, by its folder's name."""
    return {c.name: "\n".join(p.read_text() for p in c.rglob("*.rs")) for c in CRATES.iterdir() if c.is_dir()}


def cited(text):
    """The tests that tables cite, as `crate: a, b`: pairs of crate and test."""
    for row in rows(text):
        for cell in row:
            at = None
            for token in re.finditer(r"\b([a-z]+): (?=`)|`([a-z0-9_]+)`", cell):
                if token[1]:
                    at = token[1]
                elif at and "_" in token[2]:
                    yield at, token[2]


def test_every_test_that_the_graphs_page_cites_is_there():
    text, code = page("megengine.md"), sources()
    found = [(crate, name) for crate, name in cited(text) if crate in code]
    assert len(found) > 150
    assert not [f"{crate}: {name}" for crate, name in found if f"fn {name}(" not in code[crate]]


def test_defaults_of_the_graphs_page_are_the_librarys():
    """What needs a level above the default one is off; options that hold a limit are unset."""
    by_name = {code: row for row in rows(section(page("megengine.md"), "## Options")) for code in CODE.findall(row[0])}
    passes = "\n".join(sources().values())
    levels = {name: int(level) for name, level in re.findall(r'Pass \{\s+name: "(\w+)",\s+level: (\d)', passes)}
    default = int(by_name["graph_opt_level"][2])
    assert f"level: {default}," in re.search(r"impl Default for PassOptions \{.*?\n\}", passes, re.S)[0]
    for option, pass_name in (
        ("graph_opt.jit", "fuse"), ("graph_opt.fuse_conv_bias_nonlinearity", "pack_layouts"),
        ("graph_opt.weight_preprocess", "pack_layouts"), ("graph_opt.layout_transform", "pack_layouts"),
    ):
        row = by_name[option]
        assert f"`{pass_name}`" in row[1], option
        assert row[2] == ("on" if levels[pass_name] <= default else f"off: level {default}"), option


def test_what_upstreams_policy_is_called():
    """The policy has the form of MegEngine's, in seconds and not in its units, and the page says both."""
    text = page("memory.md")
    policy = (CRATES / "runtime" / "src" / "eager" / "eviction" / "policy.rs").read_text()
    body = re.search(r"PolicyKind::Upstream => \{(.*?)\n        \}", policy, re.S)[1]
    is_in_seconds = "ancestors_ns * 1e-9 + 1e-3" in body and "idle_ns * 1e-9 + 1e-3" in body
    assert is_in_seconds == ("says nothing about MegEngine" in text)
    assert "by MegEngine's formula" not in text
