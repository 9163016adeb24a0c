#!/usr/bin/env python3
"""Runs the backend test data of the ONNX standard, and with --write makes the page of the book.

Needs pip and, the first time, the network: the data come with the wheel of the package `onnx`, which is kept in target/onnx-data.

    python3 scripts/onnx_conformance.py [--write] [--only TEXT] [--compiled] [--verbose]
"""

import argparse
import pathlib
import subprocess
import sys
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
# the newest wheel that carries the data
ONNX = "onnx==1.22.0"
DATA = ROOT / "target/onnx-data"
CASES = DATA / "onnx/backend/test/data"
PAGE = ROOT / "docs/src/onnx-conformance.md"


def fetch():
    if CASES.is_dir():
        return
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "-d", str(DATA), ONNX]
    subprocess.run(command, check=True)
    for wheel in DATA.glob("onnx-*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(DATA, [n for n in archive.namelist() if n.startswith("onnx/backend/test/data/")])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    parser.add_argument("--only", help="cases whose names have this text")
    parser.add_argument("--compiled", action="store_true", help="also compiled, with equal bits")
    parser.add_argument("--verbose", action="store_true", help="every case, not those alone that fail")
    args = parser.parse_args()
    fetch()
    command = ["cargo", "run", "--release", "--quiet", "-p", "remat-onnx", "--example", "conformance", "--", str(CASES)]
    command += ["--write", str(PAGE)] if args.write else []
    command += ["--only", args.only] if args.only else []
    command += ["--compiled"] if args.compiled else []
    command += ["--verbose"] if args.verbose else []
    sys.exit(subprocess.run(command, cwd=ROOT).returncode)


if __name__ == "__main__":
    main()
