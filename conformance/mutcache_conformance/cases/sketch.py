"""Graphs of standard operators around caches, written in one chain of calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Self

from onnx import TensorProto as Stock

from mutcache.model import Dim
from mutcache.proto.onnx_ml import ModelProto, NodeProto, TensorProto, ValueInfoProto
from mutcache.requirements import Req
from mutcache_conformance.case import Case, Storage
from mutcache_conformance.cases.builder import aliased, initializer, model, node, tensor, update
from mutcache_conformance.cases.draw import Draw, int64
from mutcache_conformance.cases.scene import Program, Scene

#: Usual shape, and type, of the caches of a sketch, and the rows of an update.
SHAPE: Final = (8, 4)
DTYPE: Final = Stock.INT32
LENGTH: Final = 3

#: Operands and result of the update of a sketch with one cache.
OPERANDS: Final = ("cache", "values", "position", "updated")


class Sketch:
    """A graph in the making; every name goes through the draw. Caches are INT32."""

    def __init__(self, nonce: int, family: str, *caches: str, shape: tuple[int, int] = SHAPE) -> None:
        self.draw = Draw(nonce, family)
        self.shape = shape
        self._caches = caches
        self._feeds: list[str] = []
        self._nodes: list[NodeProto] = []
        self._outputs: list[ValueInfoProto] = []
        self._value_info: list[ValueInfoProto] = []
        self._constants: list[TensorProto] = []

    def _value(
        self, role: str, *dims: Dim, dtype: int = DTYPE, mutable: bool = False, root: str = ""
    ) -> ValueInfoProto:
        name = self.draw.name
        named = [name(dim) if isinstance(dim, str) else dim for dim in dims]
        return tensor(name(role), dtype, named, mutable=mutable, alias_of=name(root) if root else "")

    def feed(self, *roles: str) -> Self:
        """Make graph inputs: scalars for roles that begin with ``position``, rows for the others."""
        self._feeds += roles
        return self

    def constant(self, role: str, *values: int, scalar: bool = False) -> Self:
        """Make an INT64 initializer."""
        dims = [] if scalar else [len(values)]
        self._constants.append(initializer(self.draw.name(role), Stock.INT64, dims, int64(*values)))
        return self

    def node(self, op_type: str, inputs: Sequence[str], *outputs: str, **attributes: int | str) -> Self:
        """Add a standard operator; roles stand for names."""
        name = self.draw.name
        operands, results = [name(role) for role in inputs], [name(role) for role in outputs]
        self._nodes.append(node(op_type, operands, results, attributes))
        return self

    def slice(self, data: str, start: int, stop: int, output: str, step: int = 1) -> Self:
        """Add a Slice of rows."""
        bounds = {"start": start, "stop": stop, "axis": 0, "step": step}
        for word, number in bounds.items():
            self.constant(f"{output}_{word}", number)
        return self.node("Slice", [data, *(f"{output}_{word}" for word in bounds)], output)

    def update(self, cache: str, values: str, position: str, updated: str, *, root: str = "") -> Self:
        """Add an update whose result is an output of the graph."""
        self.unread_update(cache, values, position, updated)
        return self.cache_output(updated, root=root or cache)

    def cache_output(self, role: str, *, root: str = "") -> Self:
        """Make a name of a cache's storage an output; a pass-through needs no ``root``."""
        self._outputs.append(self._value(role, "max_length", "width", root=root))
        return self

    def unread_update(self, cache: str, values: str, position: str, updated: str) -> Self:
        """Add an update whose result is no output of the graph."""
        name = self.draw.name
        self._nodes.append(update(name(cache), name(values), name(position), name(updated)))
        return self

    def alias(self, output_index: int, input_index: int) -> Self:
        """Add an alias entry to the last node."""
        aliased(self._nodes[-1], output_index, input_index)
        return self

    def value_info(self, role: str, *, root: str = "") -> Self:
        """Annotate an intermediate value of the cache's type."""
        self._value_info.append(self._value(role, "max_length", "width", root=root))
        return self

    def output(self, role: str, rank: int) -> Self:
        """Make a value an ordinary output, of unknown dimensions."""
        self._outputs.append(self._value(role, *[None] * rank))
        return self

    def model(self) -> ModelProto:
        """The model."""
        inputs = [self._value(cache, "max_length", "width", mutable=True) for cache in self._caches]
        for role in self._feeds:
            scalar = role.startswith("position")
            dims = () if scalar else ("new_length", "width")
            inputs.append(self._value(role, *dims, dtype=Stock.INT64 if scalar else DTYPE))
        return model(inputs, self._nodes, self._outputs, initializers=self._constants, value_info=self._value_info)

    def mutable(self) -> dict[str, Storage]:
        """Storage for the caches."""
        return {self.draw.name(cache): self.draw.small_integers(cache, DTYPE, self.shape) for cache in self._caches}

    def step(self, positions: Sequence[int], *, tag: str, length: int = LENGTH) -> dict[str, Storage]:
        """Feeds of one run: the positions, in the order in which they were made inputs, and drawn rows."""
        remaining = iter(positions)
        feeds = {}
        for role in self._feeds:
            name = role + tag
            if role.startswith("position"):
                feeds[self.draw.name(role)] = Storage(name, Stock.INT64, (), int64(next(remaining)))
            else:
                feeds[self.draw.name(role)] = self.draw.small_integers(name, DTYPE, (length, self.shape[1]))
        return feeds

    def program(self, *positions: int) -> Program:
        """The model with storage for one run."""
        return Program(self.model(), self.mutable(), self.step(positions, tag=""))

    def case(self, what: str, requirements: tuple[Req, ...], title: str, *steps: Sequence[int]) -> Case:
        """The graph run in one binding, once for each of ``steps``, which are the positions fed."""
        scene = Scene().load(self.model()).bind(self.mutable())
        for number, positions in enumerate(steps, 1):
            scene.run(self.step(positions, tag=f"_{number}"))
        return scene.release().unload().case(what, requirements, title)


def one_cache(nonce: int, family: str, *, shape: tuple[int, int] = SHAPE) -> Sketch:
    """A graph with one cache, and values and a position for it."""
    return Sketch(nonce, family, "cache", shape=shape).feed("values", "position")


def chain(nonce: int, family: str, *, shape: tuple[int, int] = SHAPE) -> Sketch:
    """A graph with two updates of one cache, ``updated_a`` between them and ``updated_b`` its output."""
    sketch = Sketch(nonce, family, "cache", shape=shape).feed("values_a", "position_a", "values_b", "position_b")
    sketch.unread_update("cache", "values_a", "position_a", "updated_a").value_info("updated_a", root="cache")
    return sketch.update("updated_a", "values_b", "position_b", "updated_b", root="cache")


def two_caches(nonce: int, family: str, *, shape: tuple[int, int] = SHAPE) -> Sketch:
    """A graph with one update for each of two caches."""
    sketch = Sketch(nonce, family, "cache_a", "cache_b", shape=shape)
    sketch.feed("values_a", "position_a", "values_b", "position_b")
    sketch.update("cache_a", "values_a", "position_a", "updated_a")
    return sketch.update("cache_b", "values_b", "position_b", "updated_b")
