"""The standard's inspection interface: the capabilities of this implementation."""
from typing import Any, Dict, List, Optional, Tuple, Union

from .._remat import Device, bool as boolean, dtype, float32, int64
from .._support import default_device
from ._dtypes import FLOATS, SIGNED, UNSIGNED, of_kind

__all__ = ["__array_namespace_info__"]


class Info:
    """The result of `__array_namespace_info__`.

    >>> from remat import array_api as xp
    >>> xp.__array_namespace_info__().default_dtypes()["integral"]
    remat.int64
    """

    def capabilities(self) -> Dict[str, Any]:
        """Boolean masks index, shapes may depend on data, and the number of axes has no limit.

        >>> from remat import array_api as xp
        >>> xp.__array_namespace_info__().capabilities()["boolean indexing"]
        True
        """
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": None}

    def default_device(self) -> Device:
        """The device of arrays that are made without one.

        >>> from remat import array_api as xp
        >>> xp.__array_namespace_info__().default_device() == xp.ones(1).device
        True
        """
        return default_device()

    def devices(self) -> List[Device]:
        """The default device. A program opens other devices itself, with budgets of their own.

        >>> from remat import array_api as xp
        >>> len(xp.__array_namespace_info__().devices())
        1
        """
        return [default_device()]

    def default_dtypes(self, *, device: Optional[Device] = None) -> Dict[str, dtype]:
        """The dtypes of arrays that are made without one, by kind. There are no complex ones.

        >>> from remat import array_api as xp
        >>> xp.__array_namespace_info__().default_dtypes()["real floating"]
        remat.float32
        """
        return {"real floating": float32, "integral": int64, "indexing": int64}

    def dtypes(self, *, device: Optional[Device] = None, kind: Union[str, Tuple[str, ...], None] = None) -> Dict[str, dtype]:
        """The standard's dtypes, or those of a kind, by name.

        >>> from remat import array_api as xp
        >>> list(xp.__array_namespace_info__().dtypes(kind="real floating"))
        ['float32', 'float64']
        """
        kinds = ("bool", "numeric") if kind is None else (kind,) if isinstance(kind, str) else kind
        wanted = [d for k in kinds for d in of_kind(k)]
        return {d.name: d for d in (boolean, *SIGNED, *UNSIGNED, *FLOATS) if d in wanted}


def __array_namespace_info__() -> Info:
    """The capabilities of this implementation, as methods: `capabilities`, `default_device`, `default_dtypes`,
    `devices`, `dtypes`.

    >>> from remat import array_api as xp
    >>> xp.__array_namespace_info__().capabilities()["data-dependent shapes"]
    True
    """
    return Info()
