"""Models of page tables for the cases, and tables for them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from onnx import TensorProto as Stock

from mutcache.model import DOMAIN, DOMAIN_VERSION, Dim
from mutcache.proto.onnx_ml import ModelProto, NodeProto, QuantizationProto, TypeProto, ValueInfoProto
from mutcache_conformance.case import Page, PageTable, Storage
from mutcache_conformance.cases.builder import aliased, model, node, tensor
from mutcache_conformance.cases.draw import Draw, int64
from mutcache_conformance.cases.formats import FORMATS, VARIANTS, nbytes, payload
from mutcache_conformance.cases.scene import Program, Table
from mutcache_conformance.dtypes import dtype_of

#: Usual shape of a page: keys and values, rows, width.
DIMS: Final = (2, 4, 32)
#: What a runtime declares that runs page tables through If, Loop and functions, and one whose allocations of pages can
#: be refused.
CONTROL_FLOW: Final = frozenset({"control-flow"})
PAGE_BUDGET: Final = frozenset({"page-budget"})

Kind = Literal["sequence", "map"]
#: Steps: the page, the position, the number of rows, and the type if one is given.
Step = tuple[int, int, int] | tuple[int, int, int, str]


def container(
    name: str,
    elem_type: int,
    dims: Sequence[Dim],
    allowed: Iterable[int] = (),
    *,
    kind: str = "sequence",
    mutable: bool = False,
    root: str = "",
) -> ValueInfoProto:
    """A value that is a container of pages."""
    value = tensor(name, elem_type, dims, mutable=mutable, alias_of=root)
    shape = value.type.tensor_type.shape
    made = TypeProto()
    element = made.sequence_type.elem_type if kind == "sequence" else made.map_type.value_type
    element.quantized_tensor_type.elem_type = elem_type
    element.quantized_tensor_type.allowed_quantized_type.extend(allowed)
    element.quantized_tensor_type.shape.CopyFrom(shape)
    if kind == "map":
        made.map_type.key_type = Stock.INT64
    value.type.CopyFrom(made)
    return value


def paged_update(
    cache: str,
    page_id: str,
    values: str,
    position: str,
    output: str,
    quantized_type: str = "",
    attributes: Mapping[str, int | str] | None = None,
) -> NodeProto:
    """A PagedCacheUpdate that carries its alias."""
    operands = [cache, page_id, values, position, *([quantized_type] if quantized_type else [])]
    return aliased(node("PagedCacheUpdate", operands, [output], attributes or {}, domain=DOMAIN))


def paged_gather(
    cache: str, page_ids: str, output: str, attributes: Mapping[str, int | str] | None = None
) -> NodeProto:
    """A PagedCacheGather."""
    return node("PagedCacheGather", [cache, page_ids], [output], attributes or {}, domain=DOMAIN)


def importing(made: ModelProto) -> ModelProto:
    """The model, with the domain imported that only nodes of its bodies use."""
    if all(one.domain != DOMAIN for one in made.opset_import):
        made.opset_import.add(domain=DOMAIN, version=DOMAIN_VERSION)
    return made


@dataclass(frozen=True)
class Paged:
    """A model of one update of a table and one gather of it afterwards, with tables and feeds.

    Attributes:
        draw: names and contents.
        formats: names of the declarations of the model, in order.
        allowed: those that the container allows; none is any.
        elem: what pages decode to.
        dims: their dimensions.
        axis: the axis of rows, counted from the end.
        kind: ``sequence`` or ``map``.
        typed: whether the model has the input ``quantized_type``.
        gathers: whether it gathers pages.
        declared: the declared dimensions, if not those in numbers; a word is a symbol.
    """

    draw: Draw
    formats: tuple[str, ...]
    allowed: tuple[str, ...] = ()
    elem: int = Stock.FLOAT16
    dims: tuple[int, ...] = DIMS
    axis: int = -2
    kind: Kind = "sequence"
    typed: bool = False
    gathers: bool = True
    declared: tuple[Dim, ...] = ()

    def declaration(self, name: str) -> QuantizationProto:
        """The declaration of a type."""
        return {**FORMATS, **VARIANTS}[name](self.elem, len(self.dims))

    def number(self, name: str) -> int:
        """The index of a type."""
        return self.formats.index(name)

    def nbytes(self, name: str) -> int:
        """Bytes of a page of a type."""
        return nbytes(self.declaration(name), self.dims)

    # The model

    def container(self, role: str, *, mutable: bool = False, root: str = "") -> ValueInfoProto:
        """A value of the table's type."""
        name = self.draw.name
        dims = [name(dim) if isinstance(dim, str) else dim for dim in self.declared or self.dims]
        allowed = [self.number(one) for one in self.allowed]
        named = name(root) if root else ""
        return container(name(role), self.elem, dims, allowed, kind=self.kind, mutable=mutable, root=named)

    def scalar(self, role: str) -> ValueInfoProto:
        """An INT64 scalar."""
        return tensor(self.draw.name(role), Stock.INT64, [])

    def rows(self, role: str = "values") -> ValueInfoProto:
        """Rows of a page, as many as are given."""
        name = self.draw.name
        dims: list[Dim] = [name(dim) if isinstance(dim, str) else dim for dim in self.declared or self.dims]
        dims[self.axis] = name(role.replace("values", "new_length"))
        return tensor(name(role), self.elem, dims)

    def decoded(self, role: str = "gathered") -> ValueInfoProto:
        """What a gather returns."""
        return tensor(self.draw.name(role), self.elem, [None] * len(self.dims))

    def vector(self, role: str = "page_ids") -> ValueInfoProto:
        """Page numbers."""
        return tensor(self.draw.name(role), Stock.INT64, [self.draw.name(f"count_of_{role}")])

    def attributes(self) -> dict[str, int | str]:
        """The attributes of the operators; defaults are left out."""
        return {} if self.axis == -2 else {"axis": self.axis}

    def update(self, cache: str, output: str, tag: str = "", *, typed: bool | None = None) -> NodeProto:
        """An update whose other operands have this tag."""
        name = self.draw.name
        kind = f"quantized_type{tag}" if (self.typed if typed is None else typed) else ""
        operands = (name(f"{role}{tag}") for role in ("page_id", "values", "position"))
        page_id, values, position = operands
        return paged_update(name(cache), page_id, values, position, name(output), name(kind), self.attributes())

    def gather(self, cache: str, output: str = "gathered", page_ids: str = "page_ids") -> NodeProto:
        """A gather."""
        name = self.draw.name
        return paged_gather(name(cache), name(page_ids), name(output), self.attributes())

    def operands(self, tag: str = "") -> list[ValueInfoProto]:
        """The inputs of an update beside its table."""
        kinds = [self.scalar(f"quantized_type{tag}")] if self.typed else []
        return [self.scalar(f"page_id{tag}"), self.rows(f"values{tag}"), self.scalar(f"position{tag}"), *kinds]

    def declare(self, made: ModelProto) -> ModelProto:
        """Add the declarations to a model."""
        made.quantizations.extend(self.declaration(one) for one in self.formats)
        return made

    def model(self) -> ModelProto:
        """The model."""
        inputs = [self.container("cache", mutable=True), *self.operands()]
        nodes, outputs = [self.update("cache", "updated_cache")], [self.container("updated_cache", root="cache")]
        if self.gathers:
            inputs.append(self.vector())
            nodes.append(self.gather("updated_cache"))
            outputs.append(self.decoded())
        return self.declare(model(inputs, nodes, outputs))

    def reader(self) -> ModelProto:
        """A model that gathers pages of a READ_ONLY table."""
        nodes = [self.gather("cache")]
        return self.declare(model([self.container("cache"), self.vector()], nodes, [self.decoded()]))

    # Tables

    def numbers(self, label: str, count: int) -> list[float]:
        """Numbers as caches have them: of either sign, none far from 1 by more than some powers of two."""
        drawn = self.draw.content(f"{label} numbers", Stock.INT16, (count,))
        units, exponents = drawn[::2], drawn[1::2]
        return [(unit - 128) * 2.0 ** (exponent % 4 - 8) for unit, exponent in zip(units, exponents, strict=True)]

    def page(
        self, kind: str, storage: str, *, key: int | None = None, content: bytes | None = None
    ) -> tuple[Page, Storage]:
        """A page of drawn numbers, or with such a payload."""
        if content is None:
            numbers = self.numbers(f"page {storage}", math.prod(self.dims))
            content = payload(self.declaration(kind), numbers, self.dims)
        made = Storage(storage, Stock.UINT8, (len(content),), content)
        return Page(self.number(kind), self.dims, storage, key=key), made

    def table(
        self,
        *kinds: str,
        name: str = "table",
        keys: Sequence[int] = (),
        budget: int | None = None,
        contents: Mapping[int, bytes] | None = None,
    ) -> Table:
        """A table with a page of each of these types."""
        made = [
            self.page(kind, f"{name}_{n}", key=keys[n] if keys else None, content=(contents or {}).get(n))
            for n, kind in enumerate(kinds)
        ]
        pages, payloads = tuple(page for page, _ in made), tuple(storage for _, storage in made)
        return Table(PageTable(name, pages, self.kind, budget), payloads)

    # Feeds

    def values_shape(self, length: int) -> tuple[int, ...]:
        """The shape of ``length`` rows."""
        shape = list(self.dims)
        shape[self.axis] = length
        return tuple(shape)

    def values(self, storage: str, length: int, numbers: Sequence[float] | None = None) -> Storage:
        """Rows of drawn numbers, or of the given ones."""
        shape = self.values_shape(length)
        chosen = self.numbers(f"values {storage}", math.prod(shape)) if numbers is None else numbers
        content = np.array(chosen, np.float32).astype(dtype_of(self.elem)).tobytes()
        return Storage(storage, self.elem, shape, content)

    def number_storage(self, storage: str, *numbers: int, scalar: bool = True) -> Storage:
        """A storage of INT64 elements."""
        return Storage(storage, Stock.INT64, () if scalar else (len(numbers),), int64(*numbers))

    def operands_of(self, step: Step, tag: str = "", role_tag: str = "") -> dict[str, Storage]:
        """Storage for the operands of an update; ``tag`` is for its storages, ``role_tag`` for its values' names."""
        name = self.draw.name
        page_id, position, length = step[:3]
        feeds = {
            name(f"page_id{role_tag}"): self.number_storage(f"page_id{tag}", page_id),
            name(f"values{role_tag}"): self.values(f"values{tag}", length),
            name(f"position{role_tag}"): self.number_storage(f"position{tag}", position),
        }
        if len(step) == 4:
            feeds[name(f"quantized_type{role_tag}")] = self.number_storage(f"type{tag}", self.number(step[3]))
        return feeds

    def step(self, step: Step, gathered: Sequence[int] = (), tag: str = "") -> dict[str, Storage]:
        """Feeds of one run."""
        feeds = self.operands_of(step, tag)
        if self.gathers:
            chosen = gathered or [step[0]]
            feeds[self.draw.name("page_ids")] = self.number_storage(f"page_ids{tag}", *chosen, scalar=False)
        return feeds

    def program(self, table: Table, step: Step, gathered: Sequence[int] = ()) -> Program:
        """The model with a table and storage for one run."""
        return Program(self.model(), {self.draw.name("cache"): table}, self.step(step, gathered))
