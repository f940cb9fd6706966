"""``mutcache smoke --runtime R``."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from mutcache_tools.commands import Command
from mutcache_tools.commands.run import named, unique
from mutcache_tools.output import Format, Output, UsageError

if TYPE_CHECKING:
    from mutcache_conformance.smoke import Check


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_runtime(parser)
    parser.add_argument(
        "--start-timeout",
        type=seconds,
        default=10.0,
        metavar="S",
        help="seconds for the host to start and describe itself (default: 10)",
    )


def add_runtime(parser: argparse.ArgumentParser) -> None:
    """``--runtime`` and ``--runtime-option``, as the suite has them."""
    parser.add_argument(
        "--runtime",
        required=True,
        metavar="R",
        help="a registered name, module:Class, or cmd:COMMAND, as for the suite",
    )
    parser.add_argument(
        "--runtime-option", action="append", default=[], type=named, metavar="KEY=VALUE", help="told to the adapter"
    )


def command_of(runtime: str) -> list[str]:
    """The command line that starts a runtime.

    Raises:
        UsageError: there is no such runtime.
    """
    from mutcache_conformance import adapters

    try:
        return adapters.command_of(runtime)
    except adapters.UnknownRuntime as error:
        raise UsageError(str(error)) from None


def seconds(text: str) -> float:
    """A number of seconds that is more than none."""
    value = float(text)
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds")
    return value


def _run(options: argparse.Namespace, output: Output) -> int:
    from mutcache_conformance.smoke import Outcome, smoke

    command = command_of(options.runtime)
    told = unique(options.runtime_option, "--runtime-option")
    checks = []
    with tempfile.TemporaryDirectory() as folder:
        for check in smoke(command, told, Path(folder), start_timeout=options.start_timeout):
            checks.append(check)
            if output.form is Format.TEXT:  # as they come: the next may take its time
                _print(check, output)
    is_right = all(check.outcome is not Outcome.WRONG for check in checks)
    words = "speaks the protocol" if is_right else "does not speak the protocol"
    output.show(
        {"runtime": options.runtime, "speaks": is_right, "checks": [check.to_json() for check in checks]},
        lambda: output.line(f"{options.runtime}: ", (words, "bold green" if is_right else "bold red")),
    )
    return 0 if is_right else 1


def _print(check: Check, output: Output) -> None:
    styles = {"ok": "green", "remark": "yellow", "wrong": "bold red"}
    first, *more = check.message.splitlines() or [""]
    output.line((f"{check.outcome:<7}", styles[check.outcome.value]), (check.what, "bold"), f": {first}")
    for line in more:
        output.line(f"        {line}")
    if check.hint:
        output.line(f"        hint: {check.hint}")
    for line in check.log:
        output.line((f"        | {line}", "dim"))


COMMAND = Command(
    "smoke",
    "say in seconds whether an adapter speaks the protocol of the conformance suite",
    "Start a runtime's host, ask who it is, give it two small cases, and say plainly what is wrong with its answers. "
    "It is no verdict: that is what certify is for.",
    _add_arguments,
    _run,
)
