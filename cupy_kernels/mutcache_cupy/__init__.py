"""CUDA kernels that write and quantize cache rows in place, and what runs them.

The package needs no GPU to be imported: its sources, its registry of kernels and the host shim work without one. What
needs one is had from :func:`connect`, which says in one line what is missing.
"""

from mutcache_cupy.connect import connect
from mutcache_cupy.device import Device, DeviceUnavailable

__all__ = ["Device", "DeviceUnavailable", "connect"]
