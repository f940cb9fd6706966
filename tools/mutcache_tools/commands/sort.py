"""``mutcache sort IN OUT``."""

from __future__ import annotations

import argparse

from mutcache_tools.commands import Command
from mutcache_tools.output import Output


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="IN", help="the .onnx file to sort")
    parser.add_argument("out", metavar="OUT", help="the .onnx file to write; may be IN")


def _run(options: argparse.Namespace, output: Output) -> int:
    from mutcache.transform import sort
    from mutcache_tools.model_files import read_model, write_model

    model = read_model(options.model)
    before = [node.output[:] for node in model.graph.node]
    result = sort(model)
    moved = sum(old != new.output[:] for old, new in zip(before, result.graph.node, strict=True))
    write_model(result, options.out, source=options.model)
    output.show(
        {"model": options.model, "out": options.out, "moved": moved},
        lambda: output.line(
            f"{options.out}: {moved} of {len(before)} nodes moved" if moved else f"{options.out}: was in order"
        ),
    )
    return 0


COMMAND = Command(
    "sort",
    "reorder nodes so that every read of a cache stands before the update that overwrites it",
    "Sort the nodes of a model by data and by write-after-read. The sort is stable: nodes move only where they must.",
    _add_arguments,
    _run,
)
