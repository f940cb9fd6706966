"""The way to a device."""

from __future__ import annotations

from mutcache_cupy.device import Device


def connect(name: str = "cuda") -> Device:
    """The device to run kernels on.

    Args:
        name: ``cuda``: CuPy's current device. ``host``: the CPU, by the host shim; slow, for tests.

    Raises:
        DeviceUnavailable: it is not there; the message says in one line what is missing and what to do.
        ValueError: there is no such kind of device.
    """
    if name == "host":
        from mutcache_cupy.host import HostDevice

        return HostDevice()
    if name != "cuda":
        raise ValueError(f"there is no device {name!r}: cuda or host")
    from mutcache_cupy.cupy_device import CupyDevice

    return CupyDevice()
