"""Random sound models of dense caches, for the laws that any of them must keep."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import hypothesis.strategies as st
import numpy as np
from hypothesis.extra import numpy as hnp

from mutcache.proto.onnx_ml import ModelProto, NodeProto, TensorProto, ValueInfoProto
from mutcache.storage import dtype_of
from mutcache_conformance.cases.builder import aliased, initializer, model, node, tensor, update

Shape = tuple[int, ...]
INT64 = TensorProto.INT64


class Feed(NamedTuple):
    """An ordinary input: values, or positions that have to fit."""

    elem_type: int
    shape: Shape
    is_position: bool

    @property
    def dtype(self) -> np.dtype[Any]:
        """Its element type."""
        return dtype_of(self.elem_type)


@dataclass
class Recipe:
    """A sound model in the making, and what a caller has to know of it."""

    elem_type: int
    caches: dict[str, Shape]
    feeds: dict[str, Feed] = field(default_factory=dict)
    nodes: list[NodeProto] = field(default_factory=list)
    #: The newest name of each cache, and the shape of every value outside the classes.
    newest: dict[str, str] = field(default_factory=dict)
    values: dict[str, Shape] = field(default_factory=dict)
    #: Every name of a cache, stale ones too.
    names: dict[str, Shape] = field(default_factory=dict)
    outputs: list[ValueInfoProto] = field(default_factory=list)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type of the caches, and of the values that are read from them."""
        return dtype_of(self.elem_type)

    def readable(self) -> dict[str, Shape]:
        """What a node may read now."""
        return {name: self.caches[root] for root, name in self.newest.items()} | self.values

    def proto(self) -> ModelProto:
        """The model."""
        constants = {"flat": -1, "zero": 0, "one": 1}
        return model(
            [
                *(tensor(name, self.elem_type, shape, mutable=True) for name, shape in self.caches.items()),
                *(tensor(name, feed.elem_type, feed.shape) for name, feed in self.feeds.items()),
            ],
            self.nodes,
            self.outputs,
            initializers=[initializer(name, INT64, [1], np.array([n]).tobytes()) for name, n in constants.items()],
        )


@st.composite
def recipes(draw: st.DrawFn) -> Recipe:
    """Several caches; chains of every kind of update; passes; views of old and new contents, and views of views."""
    shapes = draw(st.lists(hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=3), min_size=1, max_size=3))
    caches = {f"cache{number}": shape for number, shape in enumerate(shapes)}
    recipe = Recipe(draw(st.sampled_from([TensorProto.UINT8, TensorProto.FLOAT, INT64])), caches)
    recipe.newest.update({name: name for name in caches})
    recipe.names.update(caches)
    for number in range(draw(st.integers(1, 10))):
        root = draw(st.sampled_from(sorted(caches)))
        match draw(st.sampled_from(["read", "update", "read", "update", "read", "pass", "shape"])):
            case "update":
                _add_update(draw, recipe, root, f"updated{number}")
            case "pass":
                recipe.nodes.append(aliased(node("Identity", [recipe.newest[root]], [f"same{number}"])))
                recipe.newest[root] = f"same{number}"
                recipe.names[f"same{number}"] = caches[root]
            case "read":
                _add_read(draw, recipe, f"value{number}")
            case "shape":
                name = draw(st.sampled_from(sorted(recipe.names)))
                recipe.nodes.append(node("Shape", [name], [f"shape{number}"]))
                recipe.outputs.append(tensor(f"shape{number}", INT64, [len(recipe.names[name])]))
    for name, shape in recipe.values.items():
        if draw(st.integers(0, 3)):
            recipe.outputs.append(tensor(name, recipe.elem_type, shape))
    for root, name in recipe.newest.items():
        if name != root and draw(st.booleans()):
            recipe.outputs.append(tensor(name, recipe.elem_type, caches[root], alias_of=root))
    if not recipe.outputs:  # ONNX wants one
        recipe.nodes.append(node("Size", ["cache0"], ["size"]))
        recipe.outputs.append(tensor("size", INT64, []))
    return recipe


def _add_update(draw: st.DrawFn, recipe: Recipe, root: str, output: str) -> None:
    shape = recipe.caches[root]
    axis = draw(st.integers(0, len(shape) - 1))
    batch_axis = draw(st.sampled_from([None, *(other for other in range(len(shape)) if other != axis)]))
    attributes: dict[str, int | str] = {"axis": axis, "mode": draw(st.sampled_from(["linear", "circular"]))}
    if batch_axis is not None:
        attributes["batch_axis"] = batch_axis

    def fits(other: Shape) -> bool:
        return (
            len(other) == len(shape)
            and other[axis] <= shape[axis]
            and other[:axis] == shape[:axis]
            and other[axis + 1 :] == shape[axis + 1 :]
        )

    own = recipe.newest[root]
    operands = sorted(name for name, other in recipe.readable().items() if name != own and fits(other))
    values = draw(st.sampled_from(["", *operands]))
    if not values:
        values = f"values_of_{output}"
        length = draw(st.integers(0, shape[axis]))
        recipe.feeds[values] = Feed(recipe.elem_type, (*shape[:axis], length, *shape[axis + 1 :]), is_position=False)
    rows = () if batch_axis is None else (shape[batch_axis],)
    used = [name for name, feed in recipe.feeds.items() if feed.is_position and feed.shape == rows]
    position = draw(st.sampled_from([f"position_of_{output}", *used]))
    recipe.feeds.setdefault(position, Feed(INT64, rows, is_position=True))
    recipe.nodes.append(update(own, values, position, output, attributes))
    recipe.newest[root] = output
    recipe.names[output] = shape


def _add_read(draw: st.DrawFn, recipe: Recipe, output: str) -> None:
    readable = recipe.readable()
    source = draw(st.sampled_from(sorted(readable)))
    shape = readable[source]
    operands, recipe.values[output] = {
        "Identity": ([source], shape),
        "Transpose": ([source], shape[::-1]),
        "Reshape": ([source, "flat"], (int(np.prod(shape)),)),
        "Slice": ([source, "zero", "one", "zero"], (min(1, shape[0]), *shape[1:])),
        "Add": ([source, source], shape),
    }[kind := draw(st.sampled_from(["Identity", "Transpose", "Reshape", "Slice", "Add"]))]
    recipe.nodes.append(node(kind, operands, [output]))
