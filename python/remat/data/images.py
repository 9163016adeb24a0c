"""Images in folders, one folder for each class."""
import os
from typing import Any, Callable, List, Optional, Sequence, Tuple

from .datasets import Dataset

EXTENSIONS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".tif", ".tiff")


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise ImportError("reading images needs Pillow: pip install pillow") from None
    return Image


class ImageFolder(Dataset):
    """Images below `root/CLASS/`, at any depth, with the class's number as label; classes are the folders in alphabetical order.

    An example is an image `uint8 [3, h, w]`, red, green and blue, and an integer. `size=(h, w)` resizes all images to
    this size, by Pillow's bilinear filter. `transform` gets Pillow's RGB image instead, and returns the array. Pillow
    decodes images without the interpreter's lock, so threads work side by side. Errors: FileNotFoundError for a folder
    without classes or images; ImportError without Pillow; at the example, OSError with the path for a file that is no
    image.

    Attributes:
        classes: names of the classes.
        class_to_idx: their numbers.
        samples: pairs of a path and a class's number, in order.

    >>> import remat
    >>> def load(root):
    ...     images = remat.data.ImageFolder(root, size=(224, 224))
    ...     return remat.data.DataLoader(images, batch_size=32, shuffle=True, workers=2)
    """

    def __init__(
        self, root: Any, transform: Optional[Callable[[Any], Any]] = None, size: Optional[Tuple[int, int]] = None,
        extensions: Sequence[str] = EXTENSIONS,
    ):
        self._image = _pillow()
        self.root, self.transform, self.size = os.fspath(root), transform, size
        self.classes: List[str] = sorted(e.name for e in os.scandir(self.root) if e.is_dir())
        if not self.classes:
            raise FileNotFoundError(f"{self.root} has no folders: each class of images is one")
        self.class_to_idx = {name: i for i, name in enumerate(self.classes)}
        ends = tuple(e.lower() for e in extensions)
        self.samples: List[Tuple[str, int]] = []
        for i, name in enumerate(self.classes):
            for folder, folders, files in os.walk(os.path.join(self.root, name)):
                folders.sort()
                self.samples += [(os.path.join(folder, f), i) for f in sorted(files) if f.lower().endswith(ends)]
        if not self.samples:
            raise FileNotFoundError(f"{self.root} has no files that end in one of {', '.join(ends)}")

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, i: int) -> Tuple[Any, int]:
        path, label = self.samples[i]
        try:
            with self._image.open(path) as file:
                image = file.convert("RGB")
        except OSError as e:
            raise OSError(f"{path} is no image that Pillow reads: {e}") from e
        if self.size is not None:
            h, w = self.size
            image = image.resize((w, h), self._image.Resampling.BILINEAR)
        if self.transform is not None:
            return self.transform(image), label
        import numpy

        return numpy.ascontiguousarray(numpy.asarray(image).transpose(2, 0, 1)), label

    def __repr__(self) -> str:
        return f"ImageFolder({self.root!r}, {len(self)} images of {len(self.classes)} classes)"
