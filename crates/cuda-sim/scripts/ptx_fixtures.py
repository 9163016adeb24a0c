"""Compiles fixtures/*.cu of this crate to fixtures/*.ptx with NVRTC.

    REMAT_CUDA_LIBRARIES=.../nvidia/cuda_nvrtc/lib python crates/cuda-sim/scripts/ptx_fixtures.py

The folder is that of libnvrtc.so.12 of the wheel nvidia-cuda-nvrtc-cu12 12.9.86 (`pip download` it and unzip it). It needs no
GPU and no driver.
"""

import ctypes
import os
import pathlib
import sys

OPTIONS = [b"--gpu-architecture=compute_80", b"--fmad=false", b"--std=c++17"]
NOTE = "// Made of {name} by crates/cuda-sim/scripts/ptx_fixtures.py with NVRTC {version}; options: {options}.\n"


def compile_to_ptx(nvrtc: ctypes.CDLL, source: bytes, name: str) -> str:
    """The PTX of a source. Exits with the compiler's log if it refuses it."""
    program = ctypes.c_void_p()
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, name.encode(), 0, None, None) == 0
    options = (ctypes.c_char_p * len(OPTIONS))(*OPTIONS)
    if nvrtc.nvrtcCompileProgram(program, len(OPTIONS), options) != 0:
        sys.exit(fetch_text(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program))
    return fetch_text(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, program)


def fetch_text(size_of, text_of, program: ctypes.c_void_p) -> str:
    size = ctypes.c_size_t()
    assert size_of(program, ctypes.byref(size)) == 0
    text = ctypes.create_string_buffer(size.value)
    assert text_of(program, text) == 0
    return text.value.decode()


def main() -> None:
    nvrtc = ctypes.CDLL(str(pathlib.Path(os.environ["REMAT_CUDA_LIBRARIES"]) / "libnvrtc.so.12"))
    major, minor = ctypes.c_int(), ctypes.c_int()
    nvrtc.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    folder = pathlib.Path(__file__).resolve().parent.parent / "fixtures"
    for path in sorted(folder.glob("*.cu")):
        options = " ".join(option.decode() for option in OPTIONS)
        note = NOTE.format(name=path.name, version=f"{major.value}.{minor.value}", options=options)
        ptx = note + compile_to_ptx(nvrtc, path.read_bytes(), path.name)
        path.with_suffix(".ptx").write_text(ptx)
        print(f"{path.stem}.ptx: {len(ptx.splitlines())} lines")


if __name__ == "__main__":
    main()
