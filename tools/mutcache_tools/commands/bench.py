"""``mutcache bench [NAME ...]``."""

from __future__ import annotations

import argparse

from mutcache_tools.bench import BENCHMARKS
from mutcache_tools.commands import Command
from mutcache_tools.output import Output, UsageError


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"what to measure, all if none is named: {', '.join(BENCHMARKS)}"
    )


def _run(options: argparse.Namespace, output: Output) -> int:
    from mutcache_tools.bench import measure
    from mutcache_tools.bench.table import machine, to_json, to_table

    unknown = [name for name in options.names if name not in BENCHMARKS]
    if unknown:
        raise UsageError(f"there is no benchmark {unknown[0]!r}", f"there are {', '.join(BENCHMARKS)}")
    chosen = [name for name in BENCHMARKS if name in (options.names or BENCHMARKS)]
    rows = {name: list(measure(name)) for name in chosen}
    where = machine()

    def text() -> None:
        for what, value in where.items():
            output.line((f"{what:<10}{value}", "dim"))
        output.render(to_table(rows))

    output.show({"machine": where, "rows": to_json(rows)}, text)
    return 0


COMMAND = Command(
    "bench",
    "measure this installation against its peers",
    "Measure the figures that this project sets itself, each as a ratio to a peer on the same machine in the same run.",
    _add_arguments,
    _run,
)
