"""``mutcache export DIR``, ``mutcache export --check DIR``."""

from __future__ import annotations

import argparse
import collections
import fnmatch
import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from mutcache_tools.commands import Command
from mutcache_tools.commands.run import named, unique
from mutcache_tools.output import Output, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mutcache_conformance.case import Case
    from mutcache_conformance.status import CaseResult


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="DIR", help="the folder to write, which must be new, or to check")
    parser.add_argument(
        "--nonce",
        type=_nonce,
        default=0,
        metavar="N",
        help="draw names, values and positions from N (default: 0, the public corpus)",
    )
    parser.add_argument(
        "--case", action="append", default=[], metavar="PATTERN", help="only these cases (repeatable): 'dense-003/*'"
    )
    parser.add_argument(
        "--check", action="store_true", help="check a folder instead: its files, and every byte that it expects"
    )
    parser.add_argument("--runtime", metavar="R", help="with --check: also play the cases against a runtime")
    parser.add_argument(
        "--runtime-option", action="append", default=[], type=named, metavar="KEY=VALUE", help="told to the adapter"
    )


def _nonce(text: str) -> int:
    number = int(text)
    if not 0 <= number < 10**18:
        raise argparse.ArgumentTypeError(f"must be a number from 0 to 10**18 - 1, got {text}")
    return number


_nonce.__name__ = "nonce"  # argparse names the type so: "invalid nonce value"


def _run(options: argparse.Namespace, output: Output) -> int:
    if options.check:
        return _check(options, output)
    if options.runtime is not None or options.runtime_option:
        raise UsageError("--runtime is for --check", f"mutcache export --check {shlex.quote(str(options.folder))}")
    from mutcache_conformance import cases, corpus

    everything = {case.id: case for case in cases.generate(options.nonce)}
    chosen = _chosen(everything, options.case)
    twins = {case.twin: everything[case.twin] for case in chosen.values() if case.twin}
    wanted = [case for case in everything.values() if case.id in chosen or case.id in twins]
    if options.folder.exists() and not (options.folder.is_dir() and not any(options.folder.iterdir())):
        raise UsageError(f"{str(options.folder)!r} is there already", "give the name of a new folder")
    count = corpus.write(wanted, options.folder, nonce=options.nonce)
    output.show(
        {"folder": str(options.folder), "nonce": options.nonce, "cases": count},
        lambda: output.line(f"{options.folder}: {count} cases; README.md describes them"),
    )
    return 0


def _chosen(cases: Mapping[str, Case], patterns: list[str]) -> dict[str, Case]:
    """The cases that any pattern fits.

    Raises:
        UsageError: a pattern fits none.
    """
    for pattern in patterns:
        if not fnmatch.filter(cases, pattern):
            raise UsageError(f"no case fits {pattern!r}", "cases are called like dense-003/by-one")
    return {
        name: case
        for name, case in cases.items()
        if not patterns or any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
    }


def _check(options: argparse.Namespace, output: Output) -> int:
    from mutcache_conformance import corpus

    try:
        problems = list(corpus.problems(options.folder))
        cases = {} if problems else corpus.load(options.folder)
    except corpus.CorpusError as error:
        raise UsageError(str(error), "it must be a folder that mutcache export has written") from None
    results = _play(options, cases) if options.runtime is not None and cases else []
    counts = collections.Counter(result.status for result in results)
    failed = [result for result in results if result.status.is_failure]

    def text() -> None:
        for problem in problems:
            output.line(("error ", "bold red"), problem)
        if not problems:
            output.line(f"{options.folder}: {len(cases)} cases, ", ("all as they must be", "green"))
        for result in failed:
            output.line((f"{result.status} ", "bold red"), f"{result.case}: {result.reason.partition(chr(10))[0]}")
        if results:
            output.line(f"{options.runtime}: ", ", ".join(f"{count} {status}" for status, count in counts.items()))

    output.show(
        {
            "folder": str(options.folder),
            "cases": len(cases),
            "problems": problems,
            "results": {result.case: result.status.value for result in results},
        },
        text,
    )
    return int(bool(problems or failed))


def _play(options: argparse.Namespace, cases: Mapping[str, Case]) -> list[CaseResult]:
    """Play the chosen cases of the folder, from nothing but the folder."""
    from mutcache_conformance.runner import Configuration, Runner, RuntimeUnavailable
    from mutcache_tools.commands.smoke import command_of

    chosen = _chosen(cases, options.case)
    with tempfile.TemporaryDirectory() as logs:
        configuration = Configuration(
            command=command_of(options.runtime),
            folder=Path(logs),
            options=unique(options.runtime_option, "--runtime-option"),
        )
        try:
            with Runner(configuration, cases) as runner:
                return [runner.run(case) for case in chosen.values()]
        except RuntimeUnavailable as error:
            raise UsageError(f"runtime {options.runtime!r} is unavailable: {error}") from None


COMMAND = Command(
    "export",
    "write the conformance cases as folders for other harnesses, or check such folders",
    "Write the conformance cases as folders that need no Python: model, memory, script, and what every byte must be "
    "after each step. The same nonce always gives the same bytes.",
    _add_arguments,
    _run,
)
