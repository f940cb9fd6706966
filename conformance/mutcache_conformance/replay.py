"""``python -m mutcache_conformance.replay FOLDER --runtime=R``: run one saved case again, from nothing but its folder.

The folder is one that a failing case was saved in, ``failures/CASE`` of a report, or ``cases/CASE`` of an exported
corpus. Logs, and the case as it fails this time, go to ``FOLDER/replay``, or to ``--out``.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from mutcache_conformance import case_json
from mutcache_conformance.adapters import UnknownRuntime, command_of
from mutcache_conformance.case import Case
from mutcache_conformance.options import CASE_TIMEOUT, STEP_TIMEOUT, USAGE
from mutcache_conformance.runner import Configuration, Runner, RuntimeUnavailable
from mutcache_conformance.status import CaseResult, Status
from mutcache_conformance.wording import printable

#: Characters of a line that are shown.
_LONGEST: Final = 10_000


def main(arguments: list[str] | None = None) -> int:
    """Run the case; returns 0 when it passes, 1 when it does not, 2 for wrong usage or a runtime that cannot start."""
    parser = argparse.ArgumentParser(prog="python -m mutcache_conformance.replay", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="folder of a saved case")
    parser.add_argument("--runtime", default="reference", metavar="R", help="as for the suite (default: reference)")
    parser.add_argument(
        "--runtime-option", action="append", default=[], metavar="KEY=VALUE", help="told to the adapter"
    )
    parser.add_argument("--step-timeout", type=_seconds, default=STEP_TIMEOUT, metavar="S", help="seconds per step")
    parser.add_argument("--case-timeout", type=_seconds, default=CASE_TIMEOUT, metavar="S", help="seconds per case")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder of the logs (default: FOLDER/replay)")
    options = parser.parse_args(arguments)
    pairs = [pair.partition("=") for pair in options.runtime_option]
    if not all(key and equals for key, equals, _ in pairs):
        parser.error(f"--runtime-option {options.runtime_option[-1]!r} is not KEY=VALUE")
    try:
        command = command_of(options.runtime)
    except UnknownRuntime as error:
        parser.error(str(error))
    try:
        case, cases = _cases(options.folder)
    except (OSError, ValueError) as error:
        parser.error(f"{options.folder} is no folder of a saved case: {error}")
    configuration = Configuration(
        command=command,
        folder=options.out or options.folder / "replay",
        options={key: value for key, _, value in pairs},
        step_timeout=options.step_timeout,
        case_timeout=options.case_timeout,
    )
    try:
        with Runner(configuration, cases) as runner:
            result = runner.run(case)
            twin = runner.run(cases[case.twin]) if case.twin in cases else None
    except RuntimeUnavailable as error:
        print(f"runtime {options.runtime!r} is unavailable: {error}", file=sys.stderr)
        return USAGE
    _print(result, case, configuration.folder)
    if twin is not None and twin.status is not Status.PASS:
        _print(twin, cases[case.twin], configuration.folder)
    return 0 if result.status is Status.PASS else 1


def _seconds(text: str) -> float:
    value = float(text)
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds")
    return value


def _cases(folder: Path) -> tuple[Case, dict[str, Case]]:
    """The case, and all that belong to it by id."""
    case = case_json.load(folder)
    cases = {case.id: case}
    # A saved failure has its twin in it, an exported case in the place that the corpus has for it.
    for home in (folder / "twin", folder.resolve().parent.parent / case.twin):
        if case.twin and case.twin not in cases and (home / "case.json").is_file():
            twin = case_json.load(home)
            cases[twin.id] = twin
    return case, cases


def _print(result: CaseResult, case: Case, folder: Path) -> None:
    _say(f"{result.status} {case.id} ({case.requirements[0].value}): {case.title}")
    for step in result.evidence.steps:
        allowed = f" (may be refused: {', '.join(step.allowed)})" if step.allowed else ""
        _say(f"  step {step.index + 1} {step.operation}{allowed}: {step.answer}")
        for one in step.observations:
            sides = f"expected {one.expected}, found {one.found}" if not one.holds else one.found
            _say(f"    {'ok   ' if one.holds else 'WRONG'} {one.kind} of {one.subject}: {sides} ({one.basis})")
    for line in result.reason.splitlines():
        _say(f"  {line}")
    if result.failure:
        _say(f"  saved in {folder / result.failure}")


def _say(line: str) -> None:
    """Print what a case that others wrote says."""
    print(printable(line, _LONGEST))


if __name__ == "__main__":
    sys.exit(main())
