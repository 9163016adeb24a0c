#!/usr/bin/env python3
"""Makes crates/onnx/src/proto/generated/mod.rs anew from the messages of the ONNX standard.

Needs cargo, pip and the network: the messages come from the wheel of the package `onnx`, the compiler from `grpcio-tools`. A crate
under target/ runs `prost-build`, so that the workspace does not depend on it.

    python3 scripts/onnx_proto.py [--check]

With --check the file is compared and not written.
"""

import argparse
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "crates/onnx/src/proto/generated/mod.rs"
WORK = ROOT / "target/onnx-proto"
# the newest wheel whose messages the reader knows; grpcio-tools carries protoc
ONNX, PROTOC, PROST = "onnx==1.22.0", "grpcio-tools", "0.14"

HEAD = """\
// The messages of an ONNX file, made from `onnx-ml.proto` and `onnx-data.proto` of the ONNX standard, release {version}, by
// `scripts/onnx_proto.py`. Do not edit.
//
// Copyright (c) ONNX Project Contributors
//
// SPDX-License-Identifier: Apache-2.0

#![allow(missing_docs, unreachable_pub, dead_code, clippy::all, clippy::pedantic)]

"""

MANIFEST = """\
[package]
name = "onnx-proto"
version = "0.0.0"
edition = "2024"
[workspace]
[dependencies]
prost-build = "{prost}"
"""

MAIN = """\
fn main() -> std::io::Result<()> {
    let mut args = std::env::args().skip(1);
    let (from, to) = (args.next().expect("a folder"), args.next().expect("a folder"));
    let mut config = prost_build::Config::new();
    // parts of the buffer that the file was read into
    config.bytes(["."]);
    // rare and large: what attributes are mostly without
    for field in ["t", "g", "sparse_tensor", "tp"] {
        config.boxed(format!(".onnx.AttributeProto.{field}"));
    }
    config.disable_comments(["."]);
    config.out_dir(to);
    config.compile_protos(&[format!("{from}/onnx/onnx-data.proto"), format!("{from}/onnx/onnx-ml.proto")], &[from])
}
"""


def run(*command, **more):
    subprocess.run([str(c) for c in command], check=True, **more)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare, do not write")
    check = parser.parse_args().check
    packages, crate = WORK / "packages", WORK / "crate"
    run(sys.executable, "-m", "pip", "install", "--quiet", "--upgrade", "--no-deps", "--target", packages, ONNX)
    run(sys.executable, "-m", "pip", "install", "--quiet", "--upgrade", "--target", packages, PROTOC)
    (crate / "src").mkdir(parents=True, exist_ok=True)
    (crate / "Cargo.toml").write_text(MANIFEST.format(prost=PROST))
    (crate / "src/main.rs").write_text(MAIN)
    protoc = WORK / "protoc"
    protoc.write_text(f"#!/bin/sh\nPYTHONPATH={packages} exec {sys.executable} -m grpc_tools.protoc \"$@\"\n")
    protoc.chmod(0o755)
    made = WORK / "made"
    made.mkdir(exist_ok=True)
    env = dict(os.environ, PROTOC=str(protoc), CARGO_TARGET_DIR=str(WORK / "target"))
    run("cargo", "run", "--quiet", "--manifest-path", crate / "Cargo.toml", "--", packages, made, env=env)
    new = made / "mod.rs"
    new.write_text(HEAD.format(version=ONNX.split("==")[1]) + (made / "onnx.rs").read_text())
    run("rustfmt", "--edition", "2024", "--config-path", ROOT, new)
    text = new.read_text()
    if check:
        sys.exit(0 if OUT.read_text() == text else f"{OUT.relative_to(ROOT)} is not what this script makes")
    OUT.write_text(text)


if __name__ == "__main__":
    main()
