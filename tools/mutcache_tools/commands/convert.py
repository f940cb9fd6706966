"""``mutcache convert IN OUT --max-length N``."""

from __future__ import annotations

import argparse

from mutcache_tools.commands import Command
from mutcache_tools.output import Output


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="IN", help="the decoder: its caches grow by present = Concat(past, new)")
    parser.add_argument("out", metavar="OUT", help="the .onnx file to write; may be IN")
    parser.add_argument(
        "--max-length",
        type=_capacity,
        required=True,
        metavar="N",
        help="capacity of every cache: a number of rows, or a name to leave it open until the caches are bound",
    )
    parser.add_argument(
        "--position-name",
        default="position",
        metavar="NAME",
        help="name of the new input, the valid length before the step (default: position)",
    )
    parser.add_argument(
        "--keep",
        action="append",
        default=[],
        metavar="NAME",
        help="an input that is no cache although a Concat extends it; may be repeated",
    )


def _capacity(text: str) -> int | str:
    if text.isidentifier():
        return text
    number = int(text)
    if not 0 < number < 2**63:
        raise argparse.ArgumentTypeError(f"must be at least 1 and fit INT64, got {number}")
    return number


_capacity.__name__ = "capacity"  # argparse names the type so: "invalid capacity value"


def _run(options: argparse.Namespace, output: Output) -> int:
    from mutcache.decode import decode
    from mutcache.model import TensorType
    from mutcache.storage import show_dims
    from mutcache_tools.convert import convert
    from mutcache_tools.model_files import read_model, write_model

    result = convert(
        read_model(options.model), options.max_length, position_name=options.position_name, keep=options.keep
    )
    write_model(result, options.out, source=options.model)
    graph = decode(result).graph
    types = {value.name: value.type for value in graph.inputs}
    caches = [
        {"input": value.alias_of, "output": value.name, "dims": list(kind.dims or ())}
        for value in graph.outputs
        if value.alias_of and isinstance(kind := types[value.alias_of], TensorType)
    ]

    def text() -> None:
        output.line(
            f"{options.out}: {len(caches)} mutable caches; the valid length goes in as {options.position_name!r}"
        )
        rows = [(str(cache["input"]), str(cache["output"]), show_dims(cache["dims"])) for cache in caches]
        output.table(("input", "output", "dims"), rows)

    output.show({"model": options.model, "out": options.out, "position": options.position_name, "caches": caches}, text)
    return 0


COMMAND = Command(
    "convert",
    "turn a past/present decoder into a model with mutable caches",
    "Turn every cache that grows by present = Concat(past, new) into a READ_WRITE input updated in place. "
    "All other outputs keep their bits.",
    _add_arguments,
    _run,
)
