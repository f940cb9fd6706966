"""Changes of the aliases of a model. Nodes, inputs and outputs are counted."""

from __future__ import annotations

from collections.abc import Callable

from mutcache.proto.onnx_ml import ModelProto
from mutcache_conformance.cases.builder import aliased

Edit = Callable[[ModelProto], object]


def entry(output_index: int, input_index: int) -> Edit:
    """Change the first entry of the first node."""

    def edit(model: ModelProto) -> None:
        changed = model.graph.node[0].output_alias[0]
        changed.output_index, changed.input_index = output_index, input_index

    return edit


def more_entries(*entries: tuple[int, int]) -> Edit:
    """Add entries to the first node."""
    return lambda model: [aliased(model.graph.node[0], *one) for one in entries]


def no_entry(number: int = 0) -> Edit:
    """Take the entries of a node away."""
    return lambda model: model.graph.node[number].ClearField("output_alias")


def operand(number: int, index: int, name: str) -> Edit:
    """Name another operand."""

    def edit(model: ModelProto) -> None:
        model.graph.node[number].input[index] = name

    return edit


def result(number: int, name: str) -> Edit:
    """Give the first result of a node another name."""

    def edit(model: ModelProto) -> None:
        model.graph.node[number].output[0] = name

    return edit


def alias_of(**named: str) -> Edit:
    """Set ``alias_of``: of ``input_N``, ``output_N`` or ``value_info_N``."""

    def edit(model: ModelProto) -> None:
        for place, name in named.items():
            field, _, number = place.rpartition("_")
            getattr(model.graph, field)[int(number)].alias_of = name

    return edit
