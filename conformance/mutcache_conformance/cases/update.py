"""The model of one update, which most cases start from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onnx import TensorProto

from mutcache.model import Dim
from mutcache.proto.onnx_ml import ModelProto, ValueInfoProto
from mutcache_conformance.case import Storage
from mutcache_conformance.cases.builder import model, tensor, update
from mutcache_conformance.cases.draw import Draw, int64
from mutcache_conformance.cases.scene import Program


@dataclass(frozen=True)
class Update:
    """A model of one update, ``updated = CacheUpdate(cache, values, position)``, and storage for its values.

    Attributes:
        draw: names and contents.
        dtype: element type of the cache.
        shape: shape of the cache that is bound.
        length: rows that a step writes, unless it says otherwise.
        axis: where the rows lie.
        attributes: attributes of the node; the axis among them only when it is not the default.
        static: whether the model states the cache's shape in numbers.
        declared: the declared dimensions, a number or the role of a symbol each; by default a symbol for each.
    """

    draw: Draw
    dtype: int = TensorProto.FLOAT
    shape: tuple[int, ...] = (2, 8, 4)
    length: int = 3
    axis: int = -2
    mode: str = ""
    batch_axis: int | None = None
    static: bool = False
    declared: tuple[int | str, ...] = ()

    @property
    def capacity(self) -> int:
        """Rows of the cache."""
        return self.shape[self.axis]

    def attributes(self) -> dict[str, int | str]:
        """The node's attributes; defaults are left out, as exporters do."""
        named = {"axis": None if self.axis == -2 else self.axis, "mode": self.mode, "batch_axis": self.batch_axis}
        return {name: value for name, value in named.items() if value not in (None, "")}

    def dims(self, rows: Dim) -> list[Dim]:
        """The declared shape, with ``rows`` along the axis."""
        declared = self.shape if self.static else self.declared or [f"d{n}" for n in range(len(self.shape))]
        dims: list[Dim] = [dim if isinstance(dim, int) else self.draw.name(dim) for dim in declared]
        dims[self.axis] = rows
        return dims

    def values_shape(self, length: int) -> tuple[int, ...]:
        """The shape of ``length`` rows."""
        shape = list(self.shape)
        shape[self.axis] = length
        return tuple(shape)

    def inputs(self) -> list[ValueInfoProto]:
        """The graph inputs: cache, values, position."""
        name = self.draw.name
        batch = [] if self.batch_axis is None else [self.dims(None)[self.batch_axis]]
        return [
            tensor(name("cache"), self.dtype, self.dims(self._rows), mutable=True),
            tensor(name("values"), self.dtype, self.dims(name("new_length"))),
            tensor(name("position"), TensorProto.INT64, batch),
        ]

    @property
    def _rows(self) -> Dim:
        return self.capacity if self.static else self.draw.name("max_length")

    def output(self) -> ValueInfoProto:
        """The graph output: the cache after the update."""
        name = self.draw.name
        return tensor(name("updated_cache"), self.dtype, self.dims(self._rows), alias_of=name("cache"))

    def model(self) -> ModelProto:
        """The model."""
        name = self.draw.name
        made = update(name("cache"), name("values"), name("position"), name("updated_cache"), self.attributes())
        return model(self.inputs(), [made], [self.output()])

    def cache(self, storage: str = "cache") -> dict[str, Storage]:
        """Storage for the mutable input; its content is the same under every storage name."""
        return {self.draw.name("cache"): self.draw.storage(storage, self.dtype, self.shape, label="cache")}

    def step(self, position: int | Sequence[int], *, length: int | None = None, tag: str = "") -> dict[str, Storage]:
        """Feeds of one run. ``tag`` tells the storages of several runs apart."""
        shape = self.values_shape(self.length if length is None else length)
        starts = (position,) if isinstance(position, int) else tuple(position)
        position_shape = () if isinstance(position, int) else (len(starts),)
        return {
            self.draw.name("values"): self.draw.storage(f"values{tag}", self.dtype, shape),
            self.draw.name("position"): Storage(f"position{tag}", TensorProto.INT64, position_shape, int64(*starts)),
        }

    def program(self, position: int | Sequence[int], *, length: int | None = None) -> Program:
        """The model with storage for one run."""
        return Program(self.model(), self.cache(), self.step(position, length=length))
