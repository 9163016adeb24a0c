"""Networks: modules, layers, losses and initial values."""
from .._remat import KvCache, Parameter
from . import _layers, activation, containers, functional, init, loss, parametrize, pooling, similarity, utils
from ._layers import *
from .activation import *
from .containers import *
from .loss import *
from .module import Module, RemovableHandle
from .parametrize import *
from .pooling import *
from .similarity import *

__all__ = ["Parameter", "init", "utils", "KvCache", "Module", "RemovableHandle"]
__all__ += _layers.__all__
__all__ += activation.__all__
__all__ += containers.__all__
__all__ += loss.__all__
__all__ += parametrize.__all__
__all__ += pooling.__all__
__all__ += similarity.__all__
