"""Where a run took place, as the report records it."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any, Final

_PACKAGES: Final = ("mutcache", "numpy", "onnx", "ml_dtypes", "protobuf", "jsonschema", "pytest", "pytest-xdist")


def describe() -> dict[str, Any]:
    """Python, operating system, processor and package versions."""
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "os": platform.platform(),
        "machine": platform.machine(),
        "cpu": _cpu(),
        "cpus": os.cpu_count() or 1,
        "packages": {name: version for name in _PACKAGES if (version := _version(name))},
    }


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
