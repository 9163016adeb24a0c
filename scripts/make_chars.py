"""Makes the text of `remat train chars` from the Debian package r-cran-janeaustenr.

    apt-get download r-cran-janeaustenr && dpkg-deb -x r-cran-janeaustenr_1.0.0-1_all.deb package
    python3 scripts/make_chars.py package            writes crates/cli/data/chars.txt.gz and prints its figures
    python3 scripts/make_chars.py package --check    compares instead of writing

The package keeps each novel as an R vector of lines. `Rdata.rdb` is a sequence of records: the size of the data as a
big-endian u32, and the data as a zlib stream; the data are R's serialisation ("XDR", version 3) of the vector.
"""

import argparse
import collections
import gzip
import hashlib
import math
import pathlib
import struct
import sys
import zlib

DATA = "usr/lib/R/site-library/janeaustenr/data/Rdata.rdb"
TITLE = "PRIDE AND PREJUDICE"
OUT = pathlib.Path(__file__).parent.parent / "crates/cli/data/chars.txt.gz"
STRING_VECTOR, STRING = 16, 9


def records(raw):
    at = 0
    while at < len(raw):
        stream = zlib.decompressobj()
        data = stream.decompress(raw[at + 4 :])
        assert len(data) == struct.unpack(">I", raw[at : at + 4])[0]
        yield data
        at = len(raw) - len(stream.unused_data)


def lines(data):
    """The strings of a serialised vector."""
    assert data[:2] == b"X\n", "R's XDR form"
    version, _, _, name = struct.unpack(">4I", data[2:18])
    assert version == 3
    at = 18 + name
    kind, count = struct.unpack(">2I", data[at : at + 8])
    assert kind & 255 == STRING_VECTOR
    at += 8
    for _ in range(count):
        flags, size = struct.unpack(">2I", data[at : at + 8])
        assert flags & 255 == STRING
        yield data[at + 8 : at + 8 + size].decode("ascii")
        at += 8 + size


def paragraphs(text):
    """Chapters' headings and paragraphs, a line each: where the book broke its lines does not matter."""
    body = text[text.index("Chapter 1\n") :]
    return "".join(" ".join(p.split()) + "\n" for p in body.split("\n\n") if p.strip())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("package", type=pathlib.Path)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    novels = ("\n".join(lines(data)) for data in records((args.package / DATA).read_bytes()) if TITLE.encode() in data)
    text = next(n for n in novels if n.startswith(TITLE))
    text = paragraphs(text).encode("ascii")
    counts = collections.Counter(text)
    entropy = -sum(n / len(text) * math.log(n / len(text)) for n in counts.values())
    print(f"{len(text)} bytes, {len(counts)} characters, entropy {entropy:.4f} nats a character")
    print("uncompressed sha256", hashlib.sha256(text).hexdigest())
    if args.check:
        if gzip.decompress(OUT.read_bytes()) != text:
            sys.exit(f"{OUT} holds another text")
        return
    packed = gzip.compress(text, 9, mtime=0)
    OUT.write_bytes(packed)
    print("compressed", len(packed), "bytes, sha256", hashlib.sha256(packed).hexdigest())


if __name__ == "__main__":
    main()
