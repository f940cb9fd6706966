"""``mutcache show MODEL``."""

from __future__ import annotations

import argparse

from mutcache_tools.commands import Command
from mutcache_tools.output import Output


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="the .onnx file")
    parser.add_argument(
        "--all", action="store_true", help="show long graphs in full, not only the nodes that have to do with a cache"
    )


def _run(options: argparse.Namespace, output: Output) -> int:
    from dataclasses import asdict

    from mutcache.check import diagnose
    from mutcache.decode import decode
    from mutcache_tools.model_files import read_model
    from mutcache_tools.show import view
    from mutcache_tools.show_text import ModelText

    model = decode(read_model(options.model))
    shown = view(model, diagnose(model))
    output.show(
        {"model": options.model, **asdict(shown)},
        lambda: output.render(ModelText(shown, options.model, show_all=options.all)),
    )
    return 0


COMMAND = Command(
    "show",
    "show the graph with its caches, who updates them, and under which names",
    "Show a model as text: types, access, alias roots, and what every node does with the caches. Long graphs are "
    "folded to the nodes that have to do with a cache.",
    _add_arguments,
    _run,
)
