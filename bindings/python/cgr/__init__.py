"""cgr, the CUDA graph runtime: steps of LLM engines as CUDA graph replays.

Names are those of the C headers without their prefixes, and so are the docstrings: where these say cgr_step_prepare, it is
cgr.Runtime.prepare here (cgr.FUNCTIONS has all of them). Arrays are whatever has the buffer protocol, such as numpy's; memory of a
GPU is whatever has DLPack or __cuda_array_interface__, such as PyTorch's tensors.
"""

import atexit as _atexit
import enum as _enum
import importlib.util as _util
import operator as _operator
import sysconfig as _sysconfig

if _sysconfig.get_config_var("Py_GIL_DISABLED"):
    raise ImportError("cgr needs a Python with the GIL, and this is a free-threaded build, which has no stable ABI")

import numpy as _numpy

try:
    from . import _cgr, enums
except ImportError as error:
    if _util.find_spec(__name__ + ".enums") is not None:
        raise
    raise ImportError(f"{__path__[0]} has only sources of cgr: install its wheel, and start Python elsewhere") from error
from ._bound import FUNCTIONS, LEFT_OUT, LEFT_OUT_FIELDS, LEFT_OUT_STRUCTS
from .engine import Device, Runtime
from .errors import Address, CgrError

_cgr._register(
    CgrError,
    Address,
    {
        name: {member.value: member for member in value}
        for name, value in vars(enums).items()
        if isinstance(value, type) and issubclass(value, _enum.Enum) and len(value) > 0
    },
)

_atexit.register(_cgr._finish_work)

__all__ = ["Address", "CgrError", "Device", "Runtime", "aligned", "on_demand"]
for _module in (enums, _cgr):
    for _name, _value in vars(_module).items():
        if not _name.startswith("_") and _name not in ("enum", "DeviceHandle", "RuntimeHandle"):
            globals()[_name] = _value
            __all__.append(_name)

__version__ = "{}.{}.{}".format(*divmod(_cgr.version() // 100, 100), _cgr.version() % 100)


def aligned(bytes: int, alignment: int = 64) -> "_numpy.typing.NDArray[_numpy.uint8]":
    """A numpy array of so many bytes at a multiple of `alignment`, as plans on the host want it."""
    memory = _numpy.empty(_operator.index(bytes) + alignment, _numpy.uint8)
    first = -memory.ctypes.data % alignment
    return memory[first : first + bytes]


def on_demand(*buffers: int) -> int:
    """The bits of on-demand buffers, for Config.on_demand and Backend.on_demand: CGR_ON_DEMAND of each."""
    bits = 0
    for buffer in buffers:
        bits |= 1 << (int(buffer) - int(enums.Buffer.KV_INDICES))
    return bits
