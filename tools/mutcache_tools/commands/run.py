"""``mutcache run MODEL --input NAME=VALUE ...``."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from mutcache_tools.commands import Command
from mutcache_tools.output import Output, UsageError

if TYPE_CHECKING:
    from mutcache.model import Graph, Value
    from mutcache.proto.onnx_ml import ModelProto
    from mutcache_tools.arrays import Array

_T = TypeVar("_T")


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="the .onnx file")
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        type=named,
        metavar="NAME=VALUE",
        help="value of an input: FILE.npy, or a JSON number or list (position=7); for a container of pages a file "
        "with a SequenceProto or MapProto. A mutable input is bound to memory with the file's content; the file itself "
        "stays as it is",
    )
    parser.add_argument(
        "--zeros",
        action="append",
        default=[],
        metavar="NAME",
        help="fill this input with zeros of its declared shape; a container of pages is then empty",
    )
    parser.add_argument(
        "--dim",
        action="append",
        default=[],
        type=named_size,
        metavar="NAME=N",
        help="size of a symbolic dimension, for --zeros",
    )
    parser.add_argument(
        "--schedule",
        type=schedule,
        default="node-order",
        metavar="ORDER",
        help="order in which nodes run: node-order, or random:SEED for one that data and the reads before each update "
        "allow; results are the same (default: node-order)",
    )
    parser.add_argument(
        "--output",
        action="append",
        default=[],
        type=named,
        metavar="NAME=FILE.npy",
        help="write an output, or a mutable input as the run left it; pages as a SequenceProto or MapProto",
    )


def schedule(text: str) -> str:
    """A schedule that there is."""
    from mutcache.errors import PlanError
    from mutcache.schedule import seed_of

    try:
        seed_of(text)
    except PlanError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def named(text: str) -> tuple[str, str]:
    """``NAME=VALUE`` in its two parts."""
    name, separator, value = text.partition("=")
    if not (name and separator and value):
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE, got {text!r}")
    return name, value


def named_size(text: str) -> tuple[str, int]:
    """``NAME=N`` with a size that is not negative."""
    name, value = named(text)
    if not (value.isascii() and value.isdigit()):
        raise argparse.ArgumentTypeError(f"expected NAME=N with a number N >= 0, got {text!r}")
    return name, int(value)


def _run(options: argparse.Namespace, output: Output) -> int:
    from mutcache.decode import decode
    from mutcache.executor import Session
    from mutcache.paging import PageTable
    from mutcache.proto import load
    from mutcache_tools.arrays import type_text, write_npy
    from mutcache_tools.page_files import table_words, write_pages

    model = load(options.model)
    session = Session(model, schedule=options.schedule)
    graph = decode(model).graph
    values = _inputs(model, graph, options)
    mutable = {value.name: values.pop(value.name) for value in graph.inputs if value.is_mutable}
    files = unique(options.output, "--output")
    _require_known(files, [*(value.name for value in graph.outputs), *mutable], "output")
    for path in files.values():
        if not Path(path).parent.is_dir():
            raise UsageError(f"{path!r} cannot be written: its folder does not exist")

    if mutable:
        with session.bind(mutable) as binding:
            results = binding.run(values)
    else:
        results = session.run(values)
    for name, path in files.items():
        written = results[name] if name in results else mutable[name]
        if isinstance(written, PageTable):
            write_pages(path, written)
        else:
            write_npy(path, written)

    rows = [
        {
            "name": name,
            "type": "page table" if isinstance(array, PageTable) else type_text(array),
            "shape": [len(array)] if isinstance(array, PageTable) else list(array.shape),
            "storage": _storage(array, mutable),
            "file": files.get(name),
        }
        for name, array in results.items()
    ]

    def text() -> None:
        table = [
            (
                str(row["name"]),
                str(row["type"]),
                str(row["shape"]),
                f"in place: {row['storage']}" if row["storage"] else "own",
            )
            for row in rows
        ]
        output.table(
            ("output", "type", "shape", "storage", "value"),
            [
                (
                    *row,
                    table_words(value, model) if isinstance(value := results[row[0]], PageTable) else _preview(value),
                )
                for row in table
            ],
        )

    output.show({"model": options.model, "outputs": rows}, text)
    return 0


def _inputs(model: ModelProto, graph: Graph, options: argparse.Namespace) -> dict[str, Any]:
    """A value for every input that the command line names; raises UsageError when one that is needed is missing."""
    from mutcache.model import page_type
    from mutcache_tools.arrays import parse_value, zeros
    from mutcache_tools.page_files import empty_table, read_pages

    inputs: dict[str, Value] = {value.name: value for value in graph.inputs}
    given = unique(options.input, "--input")
    dims = unique(options.dim, "--dim")
    _require_known([*given, *options.zeros], inputs, "input")
    _require_known(
        dims,
        [dim for value in graph.inputs for dim in getattr(value.type, "dims", None) or () if dim],
        "symbolic dimension",
    )
    for name in options.zeros:
        if name in given:
            raise UsageError(f"{name!r} is given twice: by --input and by --zeros")
    for value in graph.inputs:
        if value.name not in given and value.name not in options.zeros and value.name not in graph.initializers:
            raise UsageError(
                f"no value for the {'mutable ' if value.is_mutable else ''}input {value.name!r}",
                f"--input {value.name}=FILE.npy, or --zeros {value.name}",
            )
    tables = {value.name for value in graph.inputs if page_type(value.type) is not None}
    values: dict[str, Any] = {}
    for name in options.zeros:
        values[name] = empty_table(model, inputs[name]) if name in tables else zeros(inputs[name], dims)
    for name, text in given.items():
        values[name] = read_pages(text, model, inputs[name]) if name in tables else parse_value(inputs[name], text)
    return values


def unique(pairs: Sequence[tuple[str, _T]], option: str) -> dict[str, _T]:
    """The pairs by name; raises UsageError when a name is given twice."""
    result: dict[str, _T] = {}
    for name, value in pairs:
        if name in result:
            raise UsageError(f"{option} names {name!r} twice")
        result[name] = value
    return result


def _require_known(
    names: Sequence[str] | Mapping[str, object], known: Sequence[object] | Mapping[str, object], what: str
) -> None:
    for name in names:
        if name not in known:
            raise UsageError(
                f"the model has no {what} {name!r}", f"it has {', '.join(map(str, dict.fromkeys(known))) or 'none'}"
            )


def _storage(array: Any, mutable: Mapping[str, Any]) -> str | None:
    """The mutable input whose memory the output occupies, as its address shows, or whose page table it is."""
    for name, cache in mutable.items():
        if cache is array:
            return name
    if not hasattr(array, "__array_interface__"):
        return None
    mutable = {name: cache for name, cache in mutable.items() if hasattr(cache, "__array_interface__")}
    address = array.__array_interface__["data"][0]
    return next(
        (name for name, cache in mutable.items() if array.nbytes and cache.__array_interface__["data"][0] == address),
        None,
    )


def _preview(array: Array) -> str:
    import numpy as np

    return " ".join(np.array2string(array, threshold=6, edgeitems=2, precision=4).split())


COMMAND = Command(
    "run",
    "run a model once on the reference",
    "Run a model once on the reference runtime. Mutable inputs are bound to memory of the command and updated in "
    "place.",
    _add_arguments,
    _run,
)
