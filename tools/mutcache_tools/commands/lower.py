"""``mutcache lower IN OUT``."""

from __future__ import annotations

import argparse

from mutcache_tools.commands import Command
from mutcache_tools.output import Output


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="IN", help="the .onnx file to lower")
    parser.add_argument("out", metavar="OUT", help="the .onnx file to write; may be IN")


def _run(options: argparse.Namespace, output: Output) -> int:
    from mutcache.lower import lower, storage_of_outputs
    from mutcache.model import DOMAIN
    from mutcache.renaming import walk_nodes
    from mutcache_tools.model_files import read_model, write_model

    model = read_model(options.model)
    storage = storage_of_outputs(model)
    result = lower(model)
    bodies = [model.graph.node, *(function.node for function in model.functions)]
    updates = sum(node.domain == DOMAIN for nodes in bodies for node in walk_nodes(nodes))
    write_model(result, options.out, source=options.model)

    def text() -> None:
        output.line(
            f"{options.out}: {updates} update{'' if updates == 1 else 's'} lowered, IR version {result.ir_version}"
        )
        if storage:
            output.line("To have the caches updated in place, bind one buffer to both:")
            output.table(("input", "output"), [(root, name) for name, root in storage.items()])

    pairs = [{"input": root, "output": name} for name, root in storage.items()]
    output.show({"model": options.model, "out": options.out, "lowered": updates, "storage": pairs}, text)
    return 0


COMMAND = Command(
    "lower",
    "make a model of stock ONNX with the same results",
    "Turn every CacheUpdate into standard operators and remove the annotations. The result runs in stock runtimes; "
    "nothing in it promises that a cache is updated in place.",
    _add_arguments,
    _run,
)
