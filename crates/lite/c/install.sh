#!/bin/sh
# Installs Remat for C and C++: headers, the shared and the static library, files for pkg-config and CMake.
#
#   install.sh PREFIX             builds a release with cargo
#   install.sh PREFIX FOLDER      takes libremat_lite.so and libremat_lite.a of a folder, as they are
set -eu

if [ $# -lt 1 ] || [ $# -gt 2 ]; then
    sed -n '2,5s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
mkdir -p "$1"
prefix=$(cd "$1" && pwd)
[ $# -eq 1 ] || from=$(cd "$2" && pwd)
cd "$(dirname "$0")/.."

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml ../../Cargo.toml | head -n 1)
abi=$(sed -n 's/^#define REMAT_ABI_VERSION //p' include/remat.h)
shared=libremat_lite.so.$version

if [ $# -eq 1 ]; then
    cargo build --locked --release --package remat-lite
    from=$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/release
fi

mkdir -p "$prefix/include" "$prefix/lib/pkgconfig" "$prefix/lib/cmake/Remat"
cp include/remat.h include/remat.hpp "$prefix/include/"
cp "$from/libremat_lite.a" "$prefix/lib/"
cp "$from/libremat_lite.so" "$prefix/lib/$shared"
for name in libremat_lite.so.$abi libremat_lite.so; do
    ln -sf "$shared" "$prefix/lib/$name"
done

filled() {
    sed -e "s|@PREFIX@|$prefix|" -e "s|@VERSION@|$version|" -e "s|@SHARED@|$shared|" "$1"
}
filled c/remat.pc.in >"$prefix/lib/pkgconfig/remat.pc"
for name in RematConfig RematConfigVersion; do
    filled "c/cmake/$name.cmake.in" >"$prefix/lib/cmake/Remat/$name.cmake"
done
echo "Remat $version is in $prefix"
