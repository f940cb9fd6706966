"""A failing case as a folder that replays alone, with both sides of each comparison."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import numpy as np

from mutcache_conformance import case_json
from mutcache_conformance.case import Case
from mutcache_conformance.findings import Comparison
from mutcache_conformance.observe import Observer

#: Larger storages are not copied; the reason tells what differs.
_LARGEST: Final = 64 << 20


def save_failure(
    case: Case, twin: Case | None, observer: Observer, reason: str, conversation: Iterable[str], report: Path
) -> str:
    """Write ``failures/CASE/`` into the report folder, and return that path relative to it.

    The folder holds

    - the case, as ``case_json.save`` writes it, and in ``twin/`` its valid twin;
    - ``reason.txt``;
    - ``conversation.txt``: the messages of the case, with ``>`` before requests and ``<`` before answers;
    - ``compared/``: for each storage its bytes at the time of the failure, gaps included, and for each output that
      was wrong its elements: ``NAME.expected.bin``, ``NAME.found.bin``;
    - ``compared.json``: for each of these the files, how many bytes differ, and which is the first.

    Raises:
        OSError: the disk is full, or the like.
    """
    relative = Path("failures") / case.id
    folder = report / relative
    shutil.rmtree(folder, ignore_errors=True)
    case_json.save(case, folder)
    if twin is not None:
        case_json.save(twin, folder / "twin")
    (folder / "reason.txt").write_text(f"{case.id}: {case.title}\n\n{reason}\n", encoding="utf-8")
    (folder / "conversation.txt").write_text("".join(f"{line}\n" for line in conversation), encoding="utf-8")
    (folder / "compared").mkdir()
    comparisons = [
        Comparison(name, observer.expected_bytes(place), place.file.bytes[place.offset : place.end].tobytes())
        for name, place in observer.memory.placements.items()
        if place.nbytes <= _LARGEST
    ]
    names: set[str] = set()
    told = [_write_sides(folder, comparison, names) for comparison in [*comparisons, *observer.comparisons]]
    (folder / "compared.json").write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
    return relative.as_posix()


def _write_sides(folder: Path, comparison: Comparison, names: set[str]) -> dict[str, Any]:
    """Write both sides, and return what ``compared.json`` says of them; names of values may hold any character."""
    name = re.sub(r"[^A-Za-z0-9_-]", "_", comparison.subject)[:80]
    while name in names:
        name += "_"
    names.add(name)
    sides = {"expected": comparison.expected, "found": comparison.found}
    told: dict[str, Any] = {"subject": comparison.subject}
    for side, data in sides.items():
        file = f"compared/{name}.{side}.bin"
        (folder / file).write_bytes(data)
        told[side] = file
    places = np.flatnonzero(np.frombuffer(sides["expected"], np.uint8) != np.frombuffer(sides["found"], np.uint8))
    told["bytes"], told["differing_bytes"] = len(comparison.expected), len(places)
    if len(places):
        first = int(places[0])
        told["first_difference"] = {"byte": first, **{side: data[first] for side, data in sides.items()}}
    return told


def add_rerun(folder: Path, command: str) -> None:
    """Note in a saved case how to run it again."""
    with (folder / "reason.txt").open("a", encoding="utf-8") as file:
        file.write(f"\nrun it again with\n  {command}\n")
