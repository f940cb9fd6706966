"""Where a run took place, as the report records it."""

from __future__ import annotations

import functools
import os
import platform
import shutil
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any, Final

_PACKAGES: Final = (
    "mutcache",
    "numpy",
    "onnx",
    "ml_dtypes",
    "protobuf",
    "jsonschema",
    "jinja2",
    "pytest",
    "pytest-xdist",
    "onnxruntime",
    "cupy-cuda12x",
    "cupy-cuda13x",
)
#: Variables that change how runtimes and allocators behave; others are nobody's business.
_VARIABLES: Final = (
    "CUDA_VISIBLE_DEVICES",
    "GLIBC_TUNABLES",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "MALLOC_ARENA_MAX",
    "MKL_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "PYTHONHASHSEED",
    "PYTHONMALLOC",
)
_GPU_TIMEOUT: Final = 20.0


def describe() -> dict[str, Any]:
    """Python, operating system, processor, memory, GPUs, package versions and variables that can matter."""
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "os": platform.platform(),
        "machine": platform.machine(),
        "cpu": _cpu(),
        "cpus": os.cpu_count() or 1,
        "memory": _memory(),
        "gpus": list(_gpus()),
        "packages": {name: version for name in _PACKAGES if (version := _version(name))},
        "variables": {name: as_text(os.environ[name]) for name in _VARIABLES if name in os.environ},
    }


def as_text(told: str) -> str:
    r"""What the system told, with bytes that are not UTF-8 as ``\xff``: a report has nothing else than text."""
    return os.fsencode(told).decode(errors="backslashreplace")


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _cpu() -> str:
    """The processor's name, as Linux knows it."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def _memory() -> int:
    """Bytes of the machine's memory; 0 where nobody can tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return 0


@functools.cache
def _gpus() -> tuple[str, ...]:
    """Each GPU with its driver, as NVIDIA's tool tells; none where there is no such tool."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ()
    query = [tool, "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=_GPU_TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return ()
    if done.returncode:
        return ()
    return tuple(line.strip().replace(", ", ", driver ") for line in done.stdout.splitlines() if line.strip())
