"""Runtimes that ``--runtime`` knows by name, and how any ``--runtime`` becomes a command."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import Final

#: Registered runtimes: name -> ``module:Class`` of the adapter.
REGISTERED: Final = {
    "reference": "mutcache_conformance.adapters.reference:ReferenceAdapter",
    "cupy": "mutcache_conformance.adapters.cupy:CupyAdapter",
    "llama.cpp": "mutcache_conformance.adapters.llama_cpp:LlamaCppAdapter",
    "onnx-reference": "mutcache_conformance.adapters.onnx_reference:OnnxReferenceAdapter",
    "onnxruntime": "mutcache_conformance.adapters.onnxruntime:OnnxRuntimeAdapter",
    "onnxruntime-genai": "mutcache_conformance.adapters.onnxruntime_genai:GenAiAdapter",
    "onnxruntime-lowered": "mutcache_conformance.adapters.onnxruntime_lowered:OnnxRuntimeLoweredAdapter",
}
#: What registered runtimes need beside this distribution: name -> the module, and the extra that installs it.
_NEEDS: Final = {
    "llama.cpp": ("llama_cpp", "llama-cpp"),
    "onnxruntime": ("onnxruntime", "onnxruntime"),
    "onnxruntime-genai": ("onnxruntime_genai", "onnxruntime-genai"),
    "onnxruntime-lowered": ("onnxruntime", "onnxruntime"),
}
_TARGET: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


class UnknownRuntime(ValueError):  # noqa: N818 - it says what is unknown
    """``--runtime`` names nothing that can be started."""


def command_of(runtime: str) -> list[str]:
    """The command line that starts the child for ``--runtime``.

    Args:
        runtime: a registered name, ``module:Class``, or ``cmd:`` and a command line.

    Raises:
        UnknownRuntime: it is none of them, the command does not exist, or the runtime's package is not installed.
    """
    if runtime.startswith("cmd:"):
        try:
            command = shlex.split(runtime.removeprefix("cmd:"))
        except ValueError as error:
            raise UnknownRuntime(f"--runtime {runtime!r}: {error}") from None
        if not command or shutil.which(command[0]) is None:
            raise UnknownRuntime(f"--runtime {runtime!r}: {_why_no_command(command[0] if command else '')}")
        return command
    module, extra = _NEEDS.get(runtime, ("", ""))
    if module and importlib.util.find_spec(module) is None:
        raise UnknownRuntime(
            f"--runtime {runtime!r} needs the package {module}, which is not installed: pip install 'mutcache[{extra}]'"
        )
    target = REGISTERED.get(runtime, runtime)
    if not _TARGET.fullmatch(target):
        raise UnknownRuntime(
            f"--runtime {runtime!r} is not known: give one of {', '.join(REGISTERED)}, "
            "a Python adapter as module:Class, or an executable as cmd:COMMAND"
        )
    return [sys.executable, "-m", "mutcache_conformance.host", target]


def _why_no_command(name: str) -> str:
    path = Path(name)
    if not name or not path.exists():
        return f"there is no command {name!r}"
    if path.is_dir():
        return f"{name!r} is a folder"
    if not os.access(path, os.X_OK):
        return f"{name!r} is not executable: chmod +x, or name its interpreter, as in cmd:python3 {name}"
    return f"there is no command {name!r} on PATH; the file of that name here is './{name}'"
