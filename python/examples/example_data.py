"""Data of the example programs, as NumPy arrays: what ships with the repository, or is drawn from a seed."""
import gzip
import pathlib

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
DIGITS = ROOT / "crates/digits/data/digits.bin.gz"
TEXT = ROOT / "crates/cli/data/chars.txt.gz"


def digits(train=True):
    """Handwritten digits: images `float32 [n, 1, 28, 28]` in 0 .. 1, and labels `int64 [n]`; 9000 to train, 1000 to test."""
    data = gzip.decompress(DIGITS.read_bytes())
    n_train, n_test, rows, cols = np.frombuffer(data, "<u4", 4, offset=12).tolist()
    n = n_train + n_test
    labels = np.frombuffer(data, np.uint8, n, offset=28).astype(np.int64)
    images = np.frombuffer(data, np.uint8, n * rows * cols, offset=28 + n).reshape(n, 1, rows, cols)
    images = images.astype(np.float32) / 255
    part = slice(0, n_train) if train else slice(n_train, n)
    return images[part], labels[part]


def text():
    """A novel in English."""
    return gzip.decompress(TEXT.read_bytes()).decode("ascii")


def masks(n, size=64, seed=0):
    """Images `float32 [n, 1, size, size]` of up to four discs in noise over a slope, and their masks in 0 and 1, alike."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:size, :size].astype(np.float32)
    images = np.empty((n, 1, size, size), np.float32)
    targets = np.zeros((n, 1, size, size), np.float32)
    for image, target in zip(images[:, 0], targets[:, 0]):
        image[:] = rng.uniform(-0.5, 0.5) * x / size + rng.uniform(-0.5, 0.5) * y / size
        for _ in range(rng.integers(1, 5)):
            cx, cy = rng.uniform(0, size, 2)
            inside = (x - cx) ** 2 + (y - cy) ** 2 < rng.uniform(size / 16, size / 5) ** 2
            image[inside] += rng.uniform(0.4, 1.0)
            target[inside] = 1
        image += rng.normal(0, 0.3, image.shape).astype(np.float32)
    return images, targets
