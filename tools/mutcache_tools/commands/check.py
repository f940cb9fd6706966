"""``mutcache check MODEL``."""

from __future__ import annotations

import argparse

from mutcache_tools.commands import Command
from mutcache_tools.output import Output


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="the .onnx file")
    parser.add_argument(
        "--explain", action="store_true", help="also say which bounds of updates are left to run time, and why"
    )


def _run(options: argparse.Namespace, output: Output) -> int:
    from mutcache.check import diagnose

    diagnostics = diagnose(options.model, explain=options.explain)
    output.diagnostics(options.model, diagnostics)
    return int(any(diagnostic.is_error for diagnostic in diagnostics))


COMMAND = Command(
    "check",
    "report everything that is wrong with a model",
    "Check a model against the specification and against ONNX itself, and report all findings.",
    _add_arguments,
    _run,
)
