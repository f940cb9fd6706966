"""Generated files: one module per family of files, and one command that writes or checks them all.

``python -m mutcache_tools.generate`` rewrites every generated file of a checkout;
``--check`` writes nothing and fails when a committed file differs from what would be written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

#: Root of the checkout. Generation makes sense only there, never in an installed wheel.
ROOT = Path(__file__).resolve().parents[3]

#: Text files that one generator owns: path relative to the checkout -> content.
Files = Mapping[Path, str]
Generator = Callable[[], Files]


class SourceError(ValueError):
    """The hand-written source of a generated file is malformed; the message has one problem a line."""


def generators() -> dict[str, Generator]:
    """The generators by name, in the order in which they depend on one another."""
    from mutcache_tools.generate import faults, kernels, landscape, mustpass, proto, protocol_doc, requirements, wire

    return {
        "requirements": requirements.generate,
        "proto": proto.generate,
        "wire": wire.generate,
        "mustpass": mustpass.generate,
        "faults": faults.generate,
        "protocol": protocol_doc.generate,
        "landscape": landscape.generate,
        "kernels": kernels.generate,
    }


def stale_files(files: Files, root: Path = ROOT) -> list[Path]:
    """Paths whose committed content is missing or differs from the generated content."""
    return [
        path
        for path, content in files.items()
        if not (root / path).is_file() or (root / path).read_text(encoding="utf-8") != content
    ]


def write_files(files: Files, root: Path = ROOT) -> None:
    """Write every file, creating its folders."""
    for path, content in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(content, encoding="utf-8")
