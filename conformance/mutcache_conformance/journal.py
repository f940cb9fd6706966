"""The results of a run as they come, so that a run which was interrupted can be taken up again.

``journal.jsonl`` in the report folder has one JSON value a line: first what the run is, then a result after the other.
A line that was cut short when the run died is no result. What has its place in the journal is not run again; what was
not run, or what the harness itself could not do, is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Self

from mutcache_conformance.report_folder import JOURNAL
from mutcache_conformance.status import CaseResult, Status

NAME: Final = JOURNAL
FORMAT: Final = 1
_AGAIN: Final = frozenset({Status.HARNESS_ERROR, Status.NOT_RUN})


class JournalError(ValueError):
    """A run cannot be taken up again."""


class Journal:
    """The journal of a run that goes on. Each result is handed to the system at once; only the system's end loses it.

    Args:
        folder: the report folder.
        identity: what the run is: everything that its results depend on, and what it was asked for.

    Attributes:
        results: the results so far, by case id.
        resumed: how often the run was taken up again.
    """

    def __init__(self, folder: Path, identity: Mapping[str, Any]) -> None:
        self.results: dict[str, CaseResult] = {}
        self.resumed = 0
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / NAME
        self._file = self._path.open("w", encoding="utf-8")
        self._write({"journal": FORMAT, "identity": identity})

    @classmethod
    def resume(cls, folder: Path, identity: Mapping[str, Any]) -> Self:
        """The journal of an interrupted run, to go on with.

        Raises:
            JournalError: there is none, it is damaged, or it is another run's.
        """
        lines = read_lines(folder)
        before = lines[0]["identity"]
        if before != identity:
            differences = _differences(before, json.loads(json.dumps(identity)))
            raise JournalError("\n".join(["the interrupted run was another one:", *differences]))
        journal = cls.__new__(cls)
        journal.results = results_in(lines)
        journal.resumed = 1 + sum("resumed" in line for line in lines)
        journal._path = folder / NAME
        journal._path.write_text("".join(f"{_line(line)}\n" for line in lines), encoding="utf-8")
        journal._file = journal._path.open("a", encoding="utf-8")
        journal._write({"resumed": journal.resumed})
        return journal

    def add(self, result: CaseResult) -> None:
        """Note a result, unless it is one that the journal has."""
        if result.case not in self.results:
            self.results[result.case] = result
            self._write({"result": result.to_json()})

    def close(self) -> None:
        """Keep what is there."""
        self._file.close()

    def remove(self) -> None:
        """The run has come to its end, and its report is written."""
        self._file.close()
        self._path.unlink(missing_ok=True)

    def _write(self, value: Mapping[str, Any]) -> None:
        self._file.write(f"{_line(value)}\n")
        self._file.flush()


def read_lines(folder: Path) -> list[dict[str, Any]]:
    """What a journal says; a last line that is incomplete is left out.

    Raises:
        JournalError: there is none, or it is damaged.
    """
    path = folder / NAME
    try:
        *whole, _ = path.read_bytes().split(b"\n")  # what follows the last line break was cut short, or is nothing
    except FileNotFoundError:
        what = "its report is complete" if (folder / "report.json").is_file() else "no run has begun there"
        raise JournalError(f"there is nothing to resume in {str(folder)!r}: {what}") from None
    except OSError as error:
        raise JournalError(f"{path} cannot be read: {error.strerror or error}") from None
    lines = []
    for number, line in enumerate(whole, 1):
        try:
            lines.append(json.loads(line))
        except ValueError as error:
            if number == len(whole):  # the system went down: the line has its length, and not all of its bytes
                break
            raise JournalError(f"{path}, line {number}, is damaged: {error}") from None
    if not lines or not isinstance(lines[0], dict) or lines[0].get("journal") != FORMAT or "identity" not in lines[0]:
        raise JournalError(f"{path} is no journal of format {FORMAT}")
    return lines


def nonce_of(folder: Path) -> int:
    """The nonce of an interrupted run, which may have been drawn when it began.

    Raises:
        JournalError: there is no run to take up again.
    """
    nonce = read_lines(folder)[0]["identity"].get("nonce")
    if not isinstance(nonce, int):
        raise JournalError(f"{folder / NAME} names no nonce")
    return nonce


def results_in(lines: Iterable[Mapping[str, Any]]) -> dict[str, CaseResult]:
    """The results in a journal that need not be had again, by case id.

    Raises:
        JournalError: one of them is none.
    """
    try:
        results = [CaseResult.from_json(line["result"]) for line in lines if "result" in line]
    except (KeyError, TypeError, ValueError) as error:
        raise JournalError(f"a result in the journal is damaged: {type(error).__name__}: {error}") from None
    return {result.case: result for result in results if result.status not in _AGAIN}


def _line(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False)


def _differences(before: Any, now: Any, name: str = "") -> Iterator[str]:
    """What is not the same, by its name in both."""
    if before == now:
        return
    if isinstance(before, dict) and isinstance(now, dict) and before and now:
        for key in {**before, **now}:
            yield from _differences(before.get(key), now.get(key), f"{name}: {key}" if name else key)
        return
    yield f"  - {name}: {json.dumps(before)} then, {json.dumps(now)} now"
