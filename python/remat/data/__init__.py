"""Datasets, and loaders that prepare batches beside the steps, within the device's budget.

A dataset is a set of arrays (`TensorDataset`), a class with `__getitem__` and `__len__` (`Dataset`), a class that is
iterated over (`IterableDataset`), or a folder of images (`ImageFolder`). `DataLoader` makes batches from any of them.
"""
from .collate import default_collate
from .datasets import ConcatDataset, Dataset, Digits, IterableDataset, Subset, TensorDataset, random_split
from .images import ImageFolder
from .loader import DataLoader
