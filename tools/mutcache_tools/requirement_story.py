"""A requirement's whole story: its text, and where it is specified, implemented and tested.

One ID is spelled ``MC-ALIAS-007`` in text, ``MC_ALIAS_007`` in code, ``mc_alias_007`` in names of functions and
``alias-007`` in names of cases. So the story is found by searching for it; nobody keeps a list.
"""

from __future__ import annotations

import ast
import difflib
import functools
import importlib.util
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.text import Text

from mutcache.errors import MutcacheError
from mutcache.requirements import Req

#: Where a checkout keeps its packages, and what they hold.
_PACKAGES: Final = {
    "reference": "reference/mutcache",
    "conformance": "conformance/mutcache_conformance",
    "kernels": "cupy_kernels/mutcache_cupy",
}
_TESTS: Final = ("reference/tests", "conformance/tests", "cupy_kernels/tests", "tools/tests")
_SUFFIXES: Final = frozenset({".py", ".cu", ".cuh", ".cpp"})
_GENERATED: Final = "do not edit"
_IDENTIFIER: Final = re.compile(r"(?:MC-)?([A-Z]+)-?(\d{1,3})")


@dataclass(frozen=True, slots=True)
class Place:
    """Where the ID stands: a file, a line from 1, and the function or class around it ("" at module level)."""

    path: str
    line: int
    symbol: str

    def to_json(self) -> dict[str, str | int]:
        """The place for programs."""
        return {"path": self.path, "line": self.line, "symbol": self.symbol}

    def __str__(self) -> str:
        return f"{self.path}:{self.line}" + (f"  {self.symbol}" if self.symbol else "")


@dataclass(frozen=True, slots=True)
class Story:
    """A requirement and its places by section: specification, reference, conformance, kernels, tests."""

    requirement: Req
    places: dict[str, tuple[Place, ...]]

    def to_json(self) -> dict[str, object]:
        """The story as ``mutcache req --format json`` prints it."""
        entry = self.requirement.entry
        return {
            "requirement": self.requirement.value,
            "level": entry.level.value,
            "subject": entry.subject.value,
            "phases": [phase.value for phase in entry.phases],
            "profile": entry.profile.value,
            "status": entry.status.value,
            "sentence": entry.sentence,
            "text_hash": entry.text_hash,
            "chapter": entry.chapter,
            "places": {section: [place.to_json() for place in places] for section, places in self.places.items()},
        }

    def render(self) -> Text:
        """The story for people: one line for the text and one for each place, to be searched and cut by other tools."""
        entry = self.requirement.entry
        phases = ", ".join(entry.phases)
        text = Text.assemble(
            (self.requirement.value, "bold"),
            (f"  {entry.level}, {entry.subject}, {phases}, profile {entry.profile}, {entry.status}", "dim"),
            "\n\n",
            _literals(entry.sentence),
            "\n",
        )
        for section, places in self.places.items():
            for index, place in enumerate(places):
                text.append(f"\n{'' if index else section:15}", "cyan").append(str(place))
        return text


def _literals(sentence: str) -> Text:
    """The sentence with its inline literals styled and without its reStructuredText markup."""
    text = Text()
    for index, part in enumerate(sentence.split("``")):
        text.append(part, "bold" if index % 2 else "")
    return text


def story(identifier: str) -> Story:
    """The story of the requirement that a user names, in any of its spellings.

    Raises MutcacheError when there is no such requirement, with the closest ones as hint.
    """
    spelled = identifier.strip().upper().replace("_", "-")
    if match := _IDENTIFIER.fullmatch(spelled):
        spelled = f"MC-{match[1]}-{int(match[2]):03d}"
    try:
        return requirement_story(Req(spelled), _checkout())
    except ValueError:
        close = difflib.get_close_matches(spelled, list(Req), n=3, cutoff=0.6)
        areas = ", ".join(dict.fromkeys(requirement.split("-")[1] for requirement in Req))
        raise MutcacheError(
            f"there is no requirement {identifier!r}",
            hint=f"did you mean {', '.join(close)}?" if close else f"an ID is MC-AREA-NNN; the areas are {areas}",
        ) from None


def requirement_story(requirement: Req, root: Path | None) -> Story:
    """The story of a requirement in the checkout at ``root``, or with None in the installed packages."""
    places: dict[str, tuple[Place, ...]] = {}
    if root is not None:
        chapter = root / "spec" / requirement.entry.chapter
        directive = re.compile(rf"\s*\.\. req:: {requirement.value}\s*")
        lines = chapter.read_text(encoding="utf-8").splitlines() if chapter.is_file() else []
        places["specification"] = tuple(
            Place(f"spec/{chapter.name}", number, "")
            for number, line in enumerate(lines, start=1)
            if directive.fullmatch(line)
        )
    pattern = _spellings(requirement)
    for section, folder in _folders(root):
        base = root if root is not None else folder.parent
        found = [place for path in sorted(folder.rglob("*")) for place in _places(path, base, pattern)]
        places[section] = places.get(section, ()) + tuple(found)
    return Story(requirement, {section: found for section, found in places.items() if found})


def _checkout() -> Path | None:
    root = Path(__file__).resolve().parents[2]
    return root if (root / "spec" / "requirements.lock.json").is_file() else None


def _folders(root: Path | None) -> Iterator[tuple[str, Path]]:
    if root is not None:
        for section, package in _PACKAGES.items():
            yield section, root / package
        for tests in _TESTS:
            yield "tests", root / tests
        return
    for section, package in _PACKAGES.items():
        specification = importlib.util.find_spec(package.rpartition("/")[2])
        for folder in (specification.submodule_search_locations or ()) if specification else ():
            yield section, Path(folder)


def _spellings(requirement: Req) -> re.Pattern[str]:
    _, area, number = requirement.split("-")
    return re.compile(rf"(?<![a-z0-9])(?:mc[-_])?{area}[-_]{number}(?!\d)", re.IGNORECASE)


def _places(path: Path, base: Path, pattern: re.Pattern[str]) -> Iterator[Place]:
    """Where the pattern occurs in one source file: once for each function or class, and never in a generated file."""
    if path.suffix not in _SUFFIXES or not path.is_file():
        return
    text = _text(path, path.stat().st_mtime_ns)
    if _GENERATED in text.partition("\n")[0] or not pattern.search(text):
        return
    seen = set()
    symbols = _symbols(text) if path.suffix == ".py" else ()
    for number, line in enumerate(text.splitlines(), start=1):
        if not pattern.search(line):
            continue
        symbol = next((name for name, first, last in symbols if first <= number <= last), "")
        if symbol not in seen:
            seen.add(symbol)
            yield Place(path.relative_to(base).as_posix(), number, symbol)


# The site asks for the story of every requirement: each file is read and parsed once.
@functools.cache
def _text(path: Path, time: int) -> str:  # noqa: ARG001 - a file that has changed since is another one
    return path.read_text(encoding="utf-8", errors="replace")


@functools.cache
def _symbols(text: str) -> tuple[tuple[str, int, int], ...]:
    """Functions and classes with their first and last line, decorators included, innermost first."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return ()
    return tuple(sorted(_definitions(tree, ""), key=lambda definition: definition[2] - definition[1]))


def _definitions(parent: ast.AST, prefix: str) -> Iterator[tuple[str, int, int]]:
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            yield f"{prefix}{node.name}", first, node.end_lineno or first
            yield from _definitions(node, f"{prefix}{node.name}.")
        else:
            yield from _definitions(node, prefix)
