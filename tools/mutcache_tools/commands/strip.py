"""``mutcache strip IN OUT``."""

from __future__ import annotations

import argparse

from mutcache_tools.commands import Command
from mutcache_tools.output import Output


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="IN", help="the .onnx file to strip")
    parser.add_argument("out", metavar="OUT", help="the .onnx file to write; may be IN")


def _run(options: argparse.Namespace, output: Output) -> int:
    from mutcache.lower import strip
    from mutcache_tools.model_files import read_model, write_model

    result = strip(read_model(options.model))
    write_model(result, options.out, source=options.model)
    output.show(
        {"model": options.model, "out": options.out, "ir_version": result.ir_version},
        lambda: output.line(f"{options.out}: no annotations, IR version {result.ir_version}"),
    )
    return 0


COMMAND = Command(
    "strip",
    "remove the annotations of mutable caches, and nothing else",
    "Remove access, alias_of and output_alias from every graph and function, and set an IR version that stock ONNX "
    "reads. Operators stay, CacheUpdate included: see `mutcache lower` for a model that stock runtimes can run.",
    _add_arguments,
    _run,
)
