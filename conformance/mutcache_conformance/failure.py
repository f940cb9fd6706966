"""A failing case as a folder: the case itself, and the memory before, as it must be and as it was found."""

from __future__ import annotations

import shutil
from pathlib import Path

from mutcache_conformance import case_json
from mutcache_conformance.case import Case
from mutcache_conformance.observe import Observer

#: Larger storages are not copied; the reason tells what differs.
_LARGEST = 64 << 20


def save_failure(case: Case, observer: Observer, reason: str, report: Path) -> str:
    """Write ``failures/CASE/`` into the report folder, and return that path relative to it.

    The folder holds the case (``case.json``, models, storages before the script), ``reason.txt``, and for each storage
    its bytes at the time of the failure, ``NAME.expected.bin`` and ``NAME.found.bin``, gaps included.
    """
    relative = Path("failures") / case.id
    folder = report / relative
    shutil.rmtree(folder, ignore_errors=True)
    case_json.save(case, folder)
    (folder / "reason.txt").write_text(f"{case.id}: {case.title}\n{reason}\n", encoding="utf-8")
    for name, place in observer.memory.placements.items():
        if place.nbytes <= _LARGEST:
            (folder / f"{name}.expected.bin").write_bytes(observer.expected_bytes(place))
            (folder / f"{name}.found.bin").write_bytes(place.file.bytes[place.offset : place.end].tobytes())
    return relative.as_posix()


def add_rerun(folder: Path, command: str) -> None:
    """Note in a saved case how to run it again."""
    with (folder / "reason.txt").open("a", encoding="utf-8") as file:
        file.write(f"\nrun it again with\n  {command}\n")
