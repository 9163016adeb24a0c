#!/usr/bin/env python3
"""Prints the numbers of a test in crates/cli/src/model/preprocess.rs: what torchvision's transforms of ImageNet make of a picture.

Needs `pillow` and `numpy`. torchvision resizes pictures of Pillow's by Pillow's bilinear filter, and cuts the middle; its formulas for the
extents are those of `torchvision.transforms.functional`.

    python3 scripts/preprocess_reference.py
"""

import numpy as np
from PIL import Image

HEIGHT, WIDTH, SIZE, CROP = 300, 400, 256, 224
MEAN, STD = np.array([0.485, 0.456, 0.406], np.float32), np.array([0.229, 0.224, 0.225], np.float32)


def main():
    y, x, c = np.mgrid[0:HEIGHT, 0:WIDTH, 0:3]
    picture = Image.fromarray(((7 * y + 3 * x + 50 * c) % 256).astype(np.uint8))
    width, height = int(SIZE * WIDTH / HEIGHT), SIZE
    picture = picture.resize((width, height), Image.Resampling.BILINEAR)
    top, left = int(round((height - CROP) / 2.0)), int(round((width - CROP) / 2.0))
    part = np.asarray(picture, np.float32)[top : top + CROP, left : left + CROP] / np.float32(255)
    part = (part - MEAN) / STD
    for c in range(3):
        diagonal = ", ".join(f"{part[i * 50, i * 50, c]:.4f}" for i in range(5))
        print(f"        ({part[:, :, c].mean(dtype=np.float64):.5f}, [{diagonal}]),")


if __name__ == "__main__":
    main()
