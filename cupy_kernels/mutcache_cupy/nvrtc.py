"""Compiles the CUDA sources with NVRTC, with or without a device.

The same cubins are disassembled in the tests and loaded on a device. CuPy's own compilation appends ``-ftz=true``,
which flushes subnormal numbers, whatever it is told; so this module compiles, and CuPy loads.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from mutcache_cupy.device import DeviceUnavailable
from mutcache_cupy.sources import FOLDER, UNITS, cached, digest, headers

#: Every operation rounded by itself, as the canonical codec does it: nothing fused, nothing flushed, divisions exact.
OPTIONS: Final = (
    "--std=c++17",
    "--fmad=false",
    "--ftz=false",
    "--prec-div=true",
    "--prec-sqrt=true",
    "--ptxas-options=-v",
)
#: The least compute capability: conversions between floats that kernels use are instructions from it on.
_LEAST: Final = 80
#: The architectures that every kernel is compiled for in the tests.
ARCHITECTURES: Final = ("sm_80", "sm_90", "sm_100", "sm_120")


@dataclass(frozen=True)
class Compiled:
    """A translation unit, compiled.

    Attributes:
        unit: its file name.
        architecture: such as ``sm_90``.
        cubin: the binary.
        log: the compiler's report: registers, stack and spills of each kernel.
    """

    unit: str
    architecture: str
    cubin: bytes
    log: str


class Nvrtc:
    """The library.

    Attributes:
        version: such as ``13.0``; ``major`` is its first number.
        architectures: the compute capabilities that it compiles for, such as 90.

    Raises:
        DeviceUnavailable: it is not installed.
    """

    def __init__(self) -> None:
        self._library = _load()
        major, minor, count = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
        self._call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        self.major = major.value
        self.version = f"{major.value}.{minor.value}"
        self._call("nvrtcGetNumSupportedArchs", ctypes.byref(count))
        architectures = (ctypes.c_int * count.value)()
        self._call("nvrtcGetSupportedArchs", architectures)
        self.architectures = tuple(architectures)

    def compile(self, unit: str, architecture: str) -> Compiled:
        """Compile one of the units; the cache is neither read nor written.

        Raises:
            RuntimeError: it does not compile; the message has the compiler's report.
        """
        included = headers()
        names = (ctypes.c_char_p * len(included))(*(name.encode() for name in included))
        contents = (ctypes.c_char_p * len(included))(*included.values())
        program = ctypes.c_void_p()
        source = (FOLDER / unit).read_bytes()
        self._call("nvrtcCreateProgram", ctypes.byref(program), source, unit.encode(), len(included), contents, names)
        try:
            options = [option.encode() for option in (f"--gpu-architecture={architecture}", *OPTIONS)]
            failed = self._library.nvrtcCompileProgram(
                program, len(options), (ctypes.c_char_p * len(options))(*options)
            )
            log = self._text(program)
            if failed:
                raise RuntimeError(f"NVRTC {self.version} does not compile {unit} for {architecture}:\n{log}")
            return Compiled(unit, architecture, self._bytes("CUBIN", program), log)
        finally:
            self._call("nvrtcDestroyProgram", ctypes.byref(program))

    def _text(self, program: ctypes.c_void_p) -> str:
        return self._bytes("ProgramLog", program).rstrip(b"\0").decode()

    def _bytes(self, what: str, program: ctypes.c_void_p) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self._call(f"nvrtcGet{what}", program, buffer)
        return buffer.raw

    def _call(self, function: str, *arguments: Any) -> None:
        code = getattr(self._library, function)(*arguments)
        if code:
            self._library.nvrtcGetErrorString.restype = ctypes.c_char_p
            raise RuntimeError(f"{function}: {self._library.nvrtcGetErrorString(code).decode()}")


@cache
def nvrtc() -> Nvrtc:
    """The library, loaded once.

    Raises:
        DeviceUnavailable: it is not installed.
    """
    return Nvrtc()


def target(capability: str, driver: int) -> str:
    """The architecture to compile for: the newest that runs on a device.

    Args:
        capability: the device's compute capability, such as ``90``.
        driver: the CUDA version that the driver is for, such as 13000 for 13.0.

    Raises:
        DeviceUnavailable: NVRTC is not installed, or what it compiles cannot be loaded; the message says why.
    """
    number, library = int(capability), nvrtc()
    device = f"a device of compute capability {number // 10}.{number % 10}"
    if number < _LEAST:
        raise DeviceUnavailable(f"{device}: the kernels need {_LEAST // 10}.{_LEAST % 10} and later")
    if driver // 1000 < library.major:
        version = f"{driver // 1000}.{driver % 1000 // 10}"
        raise DeviceUnavailable(
            f"the driver is for CUDA {version}, and loads nothing that NVRTC {library.version} compiles: update it"
        )
    # A binary runs on later devices of the same major number.
    suitable = [known for known in library.architectures if known // 10 == number // 10 and known <= number]
    if not suitable:
        raise DeviceUnavailable(f"{device}: NVRTC {library.version} does not know it, install a later one")
    return f"sm_{max(suitable)}"


def compiled(unit: str, architecture: str) -> Compiled:
    """A unit for an architecture: out of the cache, or compiled and put there.

    Raises:
        DeviceUnavailable: NVRTC is not installed.
        RuntimeError: it does not compile.
    """
    cubin = _cubin_path(unit, architecture)
    log = cubin.with_suffix(".log")
    if cubin.exists() and log.exists():
        return Compiled(unit, architecture, cubin.read_bytes(), log.read_text(encoding="utf-8"))
    found = nvrtc().compile(unit, architecture)
    for path, content in ((log, found.log.encode()), (cubin, found.cubin)):
        part = path.with_suffix(f".{os.getpid()}")
        part.write_bytes(content)
        os.replace(part, path)
    return found


def cubin_file(unit: str, architecture: str) -> Path:
    """A file of the cache that holds a compiled unit.

    Raises:
        DeviceUnavailable: NVRTC is not installed.
        RuntimeError: it does not compile.
    """
    compiled(unit, architecture)
    return _cubin_path(unit, architecture)


def unit_of_kernel(kernel: str) -> str:
    """The unit that has a kernel.

    Raises:
        ValueError: none has.
    """
    for prefix, unit in (
        ("dense", 0),
        ("encode", 0),
        ("step", 0),
        ("decode", 1),
        ("gather", 1),
        ("reencode", 2),
        ("empty", 3),
    ):
        if kernel.startswith(prefix):
            return UNITS[unit]
    raise ValueError(f"there is no kernel {kernel!r}")


def _cubin_path(unit: str, architecture: str) -> Path:
    return cached(f"{digest(unit, architecture, nvrtc().version, *OPTIONS)}.cubin")


def _load() -> ctypes.CDLL:
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib
    except ImportError:
        hint = "pip install 'mutcache[cupy]' or 'mutcache[kernels-dev]'"
        raise DeviceUnavailable(f"NVRTC is not installed: {hint}") from None
    try:
        path = Path(str(load_nvidia_dynamic_lib("nvrtc").abs_path))
        # Some releases look for this part of theirs on the search path only, where wheels are not.
        for part in path.parent.glob("libnvrtc-builtins.so.*"):
            ctypes.CDLL(str(part))
        return ctypes.CDLL(str(path))
    except (RuntimeError, OSError) as error:
        first_line = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DeviceUnavailable(f"NVRTC cannot be loaded: {first_line}") from None
