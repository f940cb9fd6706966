"""``mutcache merge DIR ... --out DIR``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from mutcache_tools.commands import Command
from mutcache_tools.output import Output, UsageError


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "parts", nargs="+", type=Path, metavar="DIR", help="the report folders of --shard 1/N to --shard N/N"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="the folder to write; must be new")


def _run(options: argparse.Namespace, output: Output) -> int:
    from mutcache_conformance import merge, summary

    if options.out.exists() and not (options.out.is_dir() and not any(options.out.iterdir())):
        raise UsageError(f"{str(options.out)!r} is there already", "give the name of a new folder")
    try:
        run = merge.merge(options.parts, options.out)
    except merge.MergeError as error:
        raise UsageError(str(error)) from None

    def text() -> None:
        sys.stdout.write(
            summary.render(run, str(options.out), width=output.console.width, color=output.console.is_terminal)
        )

    verdicts = [verdict.to_json() for verdict in run.verdicts()]
    output.show({"out": str(options.out), "profiles": verdicts}, text)
    return 0 if run.succeeded else 1


COMMAND = Command(
    "merge",
    "make one conformance report of the parts of a run",
    "Merge the reports of all parts of one run (--shard 1/N to --shard N/N) into one with a verdict. Parts of "
    "different runs are refused, as are missing and overlapping ones. The exit code is that of the whole run.",
    _add_arguments,
    _run,
)
