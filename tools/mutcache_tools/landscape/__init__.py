"""The landscape: how runtimes that exist do on the requirements, measured and committed.

``python -m mutcache_tools.landscape`` runs the suite and the probes of each runtime that is installed, and writes what
came of it under ``docs/landscape/``; ``python -m mutcache_tools.generate landscape`` makes the pages of that. A probe
asks what the suite cannot ask through its protocol: a runtime that owns its caches takes no storage of the suite's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Final

#: The folder of the committed results, below the root of a checkout.
FOLDER: Final = Path("docs/landscape")


@dataclass(frozen=True, slots=True, eq=False)
class Runtime:
    """A runtime of the landscape.

    Attributes:
        name: what ``--runtime`` calls it.
        title: what people call it.
        packages: the distributions that it needs, its own first.
        probes: the module of its probes below ``mutcache_tools.landscape``, or "".
        options: options for its adapter.
    """

    name: str
    title: str
    packages: tuple[str, ...]
    probes: str = ""
    options: Mapping[str, str] = field(default_factory=dict)

    def missing(self) -> str:
        """The first distribution that is not installed, or ""."""
        return next((package for package in self.packages if not _is_installed(package)), "")

    def versions(self) -> dict[str, str]:
        """The versions of the distributions that are installed."""
        return {package: metadata.version(package) for package in self.packages if _is_installed(package)}


RUNTIMES: Final = (
    Runtime("reference", "mutcache reference", ("mutcache",)),
    Runtime("onnxruntime", "ONNX Runtime, models as they are", ("onnxruntime",), "probe_onnxruntime"),
    Runtime("onnxruntime-lowered", "ONNX Runtime, lowered models", ("onnxruntime",), "probe_lowered"),
    Runtime("onnxruntime-genai", "ONNX Runtime GenAI", ("onnxruntime-genai", "onnxruntime"), "probe_genai"),
    Runtime("llama.cpp", "llama.cpp", ("llama-cpp-python", "gguf"), "probe_llama_cpp"),
    Runtime("onnx-reference", "onnx.reference, lowered models", ("onnx",)),
)


def _is_installed(package: str) -> bool:
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True
