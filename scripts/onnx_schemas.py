#!/usr/bin/env python3
"""Makes crates/onnx/src/schema/generated/mod.rs: what each version of each operator that has a rule takes.

Needs the packages `onnx` and `onnxruntime`, which carry the schemas of the standard and of the domain `com.microsoft`.

    python3 scripts/onnx_schemas.py
"""

import pathlib
import re

import onnx
import onnx.defs
import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as runtime

ROOT = pathlib.Path(__file__).resolve().parent.parent
CRATE = ROOT / "crates/onnx/src"
OUT = CRATE / "schema/generated/mod.rs"
# a formal input of any number takes this many
ANY = "ANY"
# `max_input` of a schema with such an input
NO_END = 2**31 - 1


def rules():
    """Domain and name of each operator that has a rule."""
    found = set()
    for path in sorted((CRATE / "rules").glob("*.rs")):
        text = path.read_text()
        domains = dict(re.findall(r'const (\w+): &str = "([\w.]+)";', text))
        for name in re.findall(r'\b(?:row|free)\("(\w+)"', text):
            found.add(("", name))
        for domain, name in re.findall(r'\bof\(\s*("[\w.]+"|[A-Z]+),\s*"(\w+)"', text):
            found.add((domain.strip('"') if domain.startswith('"') else domains[domain], name))
        for domain, name in re.findall(r'Row \{ domain: "([\w.]+)", \.\.(?:row|free)\("(\w+)"', text):
            found.discard(("", name))
            found.add((domain, name))
    return found


def text_of(parameter):
    return parameter.type_str if hasattr(parameter, "type_str") else parameter.typeStr


def is_variadic(parameter):
    return str(parameter.option).endswith("Variadic")


def groups(schema):
    """For each formal input a number: inputs of one number are of one type, and those of 0 of any."""
    inputs = list(schema.inputs)
    names = [text_of(p) for p in inputs]
    same = lambda p: p.is_homogeneous if hasattr(p, "is_homogeneous") else p.isHomogeneous
    numbers, result = {}, []
    for parameter, name in zip(inputs, names):
        is_type = "(" in name
        shared = names.count(name) > 1 or (is_variadic(parameter) and same(parameter))
        if is_type or not shared or (is_variadic(parameter) and not same(parameter)):
            result.append(0)
        else:
            result.append(numbers.setdefault(name, len(numbers) + 1))
    # what the last one of any number stands for is known by its place
    while result and result[-1] == 0 and not is_variadic(inputs[-1]):
        result.pop()
    return result


def fields(schema):
    attributes = ", ".join(f'"{a}"' for a in sorted(schema.attributes))
    most = [ANY if n >= NO_END else str(n) for n in (schema.max_input, schema.max_output)]
    types = ", ".join(map(str, groups(schema)))
    repeats = "true" if len(schema.inputs) > 0 and is_variadic(schema.inputs[len(schema.inputs) - 1]) else "false"
    return f"attributes: &[{attributes}], most_inputs: {most[0]}, most_outputs: {most[1]}, types: &[{types}], repeats: {repeats}"


def main():
    known = {}
    own = [s for s in runtime.get_all_operator_schema() if s.domain == "com.microsoft" or s.name == "SimplifiedLayerNormalization"]
    for schema in [*onnx.defs.get_all_schemas_with_history(), *own]:
        domain = "" if schema.domain == "ai.onnx" else schema.domain
        if not schema.deprecated:
            known.setdefault((domain, schema.name), {})[schema.since_version] = fields(schema)
    wanted = rules()
    missing = sorted(wanted - known.keys())
    if missing:
        raise SystemExit(f"no schema of {missing}")
    lines = []
    for domain, op in sorted(wanted):
        before = None
        for since, of in sorted(known[(domain, op)].items()):
            # a version that takes more types takes the same otherwise
            if of != before:
                lines.append(f'    Schema {{ domain: "{domain}", op: "{op}", since: {since}, {of} }},')
            before = of
    OUT.write_text(
        f"""// The schemas of operators, from the packages `onnx` {onnx.__version__} and `onnxruntime` {onnxruntime.__version__}, by `scripts/onnx_schemas.py`.
// Do not edit. A version whose row would equal the one before has no row.
//
// Copyright (c) ONNX Project Contributors
// Copyright (c) Microsoft Corporation
//
// SPDX-License-Identifier: Apache-2.0 AND MIT

use super::{{ANY, Schema}};

#[rustfmt::skip]
pub(super) static SCHEMAS: &[Schema] = &[
"""
        + "\n".join(lines)
        + "\n];\n"
    )
    print(f"{OUT.relative_to(ROOT)}: {len(lines)} rows of {len(wanted)} operators")


if __name__ == "__main__":
    main()
