"""What the tests of kernels share: sizes of groups, and one launch on the host shim."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np
import pytest

from mutcache_cupy.device import Device
from mutcache_cupy.host import HostDevice, compiler
from mutcache_cupy.records import Status
from mutcache_cupy.step import Step
from mutcache_cupy.transfers import Transfer

Array = np.ndarray[Any, np.dtype[Any]]

LAYOUTS: Final = (0, 1)
#: 8 and 24 are no multiples of the 16 elements of a vector; 1024 needs more lanes than a warp has.
BLOCKS: Final = (4, 8, 16, 24, 32, 128, 512, 1024)

needs_compiler = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")


@cache
def host() -> HostDevice:
    """The CPU as the device; its kernels are compiled once."""
    return HostDevice()


def launch(device: Device, *transfers: Transfer, kernel: str | None = None) -> dict[int, Status]:
    """Launch a step of the transfers once; what it refused."""
    step = Step(device, transfers, kernel)
    step.launch()
    return step.refused()
