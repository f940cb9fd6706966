"""``mutcache verify REPORT``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from mutcache_tools.commands import Command
from mutcache_tools.output import Output, UsageError

if TYPE_CHECKING:
    from mutcache_conformance.rerun import Sample
    from mutcache_conformance.verify import Verification

_HONESTY = (
    "Digests prove integrity, not honesty: who makes a report can make its whole record. A signature (--key) says who "
    "answers for it; a rerun (--rerun 20 --runtime R) shows whether it is true."
)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("report", metavar="REPORT", help="the report folder")
    parser.add_argument("--key", metavar="PUB", help="the Ed25519 public key (PEM) that it must be signed with")
    parser.add_argument("--rerun", type=_count, metavar="N", help="also run N of its cases again; needs --runtime")
    parser.add_argument("--runtime", metavar="R", help="the runtime for --rerun")
    parser.add_argument("--seed", type=_count, metavar="S", help="draws the cases of --rerun (default: drawn, too)")


def _count(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 on")
    return int(text)


def _run(options: argparse.Namespace, output: Output) -> int:
    from mutcache_conformance import verify
    from mutcache_conformance.cases import generate
    from mutcache_tools import certification

    folder = Path(options.report)
    if not folder.is_dir():
        raise UsageError(f"{options.report!r} is no folder", "give the folder that mutcache certify wrote")
    if (options.rerun is None) != (options.runtime is None):
        raise UsageError("--rerun and --runtime belong together", "--rerun 20 --runtime reference")
    made = verify.verify(folder, generate, certification.public_key(options.key))
    sample = None
    if options.rerun is not None and made.is_sound and made.report is not None:
        seed = certification.draw_nonce() if options.seed is None else options.seed
        sample = certification.rerun(made.report, options.runtime, options.rerun, seed)
    is_sound = made.is_sound and (sample is None or not sample.differences)
    document = {
        "report": str(folder),
        "sound": is_sound,
        "problems": made.problems,
        "notes": made.notes,
        "rerun": None if sample is None else certification.sample_document(sample),
        "honesty": _HONESTY,
    }
    output.show(document, lambda: _tell(output, folder, made, sample, is_sound=is_sound))
    return 0 if is_sound else 1


def _tell(output: Output, folder: Path, made: Verification, sample: Sample | None, *, is_sound: bool) -> None:
    for check, found in made.problems.items():
        _line(output, (f"{check:<10}", "bold"), ("wrong", "bold red") if found else ("as it must be", "green"))
        for problem in found:
            _line(output, "  ", problem)
    if sample is not None:
        word = ("differs", "bold red") if sample.differences else ("as the report says", "green")
        _line(output, ("rerun".ljust(10), "bold"), word, (f"  {len(sample.cases)} cases, seed {sample.seed}", "dim"))
        for line in (*sample.differences, *sample.notes):
            _line(output, "  ", line)
    for note in made.notes:
        _line(output, ("note: ", "yellow"), note)
    if made.report is not None:
        from mutcache_conformance import wording

        for verdict in made.report["claim"]["profiles"]:
            told = f"{verdict['profile']}: {verdict['verdict']}, {verdict['passed']} of {verdict['required']}"
            if verdict["rests_on_reported_evidence"]:
                told += f", {wording.on_reported(wording.device_of(made.report))}"
            _line(output, (told, "" if is_sound else "dim"))
    _line(output, f"{folder}: ", ("sound", "bold green") if is_sound else ("not sound", "bold red"))
    _line(output, (_HONESTY, "dim"))


def _line(output: Output, *parts: str | tuple[str, str]) -> None:
    """Print words of a report, which anybody can have made, so that they forge no other line."""
    from mutcache_conformance.wording import one_line

    output.line(*(one_line(part) if isinstance(part, str) else (one_line(part[0]), part[1]) for part in parts))


COMMAND = Command(
    "verify",
    "check a conformance report without the runtime",
    "Check a conformance report: that no file of it was changed, that its cases are those of this suite, and that its "
    "verdicts follow from the evidence that was recorded. Exit code 0 when it is sound, 1 when it is not. " + _HONESTY,
    _add_arguments,
    _run,
)
