"""What a forger who seals a report again can change in it without being noticed."""

from __future__ import annotations

import collections
import fnmatch
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sealed_reports as sealed
from toy_cases import OVERFLOW, VALID

from mutcache_conformance.schema import SchemaError, validate
from mutcache_conformance.verify import UNVERIFIABLE


def altered(value: Any) -> Any:
    """Another value of the same type."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str():
            return value[:-1] + ("1" if value[-1] == "0" else "0") if value else "x"
        case None:
            return 0
        case list():
            return ["x"]
    return {"x": "x"}


def _pattern(path: sealed.Path_) -> str:
    return ".".join(map(str, path))


def _is_unverifiable(path: sealed.Path_) -> str:
    """The entry of the list that a member falls under, or ""."""
    words = _pattern(path).split(".")
    for entry in UNVERIFIABLE:
        parts = entry.split(".")
        if len(parts) == len(words) and all(map(fnmatch.fnmatchcase, words, parts)):
            return entry
    return ""


_VALUES: dict[str, tuple[Any, ...]] = {
    "status": ("pass", "fail", "not-run"),
    "verdict": ("conformant", "not conformant"),
    "kind": ("contents", "output"),
    "basis": ("observed", "reported"),
    "device": ("cpu", "cuda:0"),
    "operation": ("run", "load"),
    "answer": ("ok", "done", "rejected"),
    "phase": ("", "run"),
    "requirement": ("", "MC-DENSE-001", "MC-DENSE-002"),
    "profile": ("dense", "flow"),
    "level": ("MUST", "SHOULD"),
    "date": ("2020-01-01",),
    "issue": ("https://example.com/2",),
    "url": ("https://example.com/2",),
    "case": (VALID.id, OVERFLOW.id),
    "phase_observed": ("", "run"),
    "order": ("random:1",),
    "shard": ("2/2",),
    "unwaived": ("", "fail"),
}


def _forgeries(path: sealed.Path_, value: Any) -> Iterator[Any]:
    """Other values of a member that its schema may allow."""
    name = next((part for part in reversed(path) if isinstance(part, str)), "")
    if name in _VALUES:
        yield from (other for other in _VALUES[name] if other != value)
    elif value is None:
        yield from ("x", 0.5, True)
    elif value in ({}, []):
        yield {} if isinstance(value, dict) else ["x"]
    else:
        yield altered(value)


def unnoticed(folder: Path, below: str = "") -> set[str]:
    """The members of a report that can be forged: entries of the list, or others.

    Args:
        folder: the report's; it is forged.
        below: only members whose path has this name in it.
    """
    report = sealed.read(folder)
    found = set()
    seen: collections.Counter[str] = collections.Counter()
    for path in list(sealed.members(report)):
        if below and below not in path:
            continue
        shape = re.sub(r"\d+", "*", _pattern(path))
        seen[shape] += 1
        if path[0] == "footer" or seen[shape] > 4:  # the footer is made again; of a kind some will do
            continue
        value = sealed.get(report, path)
        for forged in _forgeries(path, value):
            copy = json.loads(json.dumps(report))
            sealed.put(copy, path, forged)
            try:
                validate({**copy, "footer": report["footer"]}, "report")
                sealed.reseal(folder, copy)
            except (SchemaError, ValueError):
                continue  # not even a report any more
            if copy != report and not sealed.problems(folder):
                found.add(_is_unverifiable(path) or _pattern(path))
    return found
