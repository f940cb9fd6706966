"""A small decoder whose keys and values lie in pages of quantized tensors, for tests and for trying the tools.

``python -m mutcache_tools.example_paged_decoder paged.onnx --pages int8`` writes it. Its weights are those of
:mod:`mutcache_tools.example_decoder`; attention reads what ``PagedCacheGather`` decodes.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Self

import numpy as np
from numpy.typing import DTypeLike
from onnx import helper

import mutcache
from mutcache.proto.onnx_ml import (
    ModelProto,
    PackedLinearUniformProto,
    QuantizationProto,
    TensorProto,
    TypeProto,
    ValueAliasProto,
    ValueInfoProto,
)
from mutcache_tools.arrays import Array
from mutcache_tools.example_decoder import DecoderBuilder

#: The types that pages can have besides ``identity``: of their codes, the width of a code, and of their scales.
PACKED: Final[Mapping[str, tuple[TensorProto.DataType.ValueType, int, TensorProto.DataType.ValueType]]] = {
    "int8": (TensorProto.INT8, 8, TensorProto.FLOAT16),
    "int4": (TensorProto.INT4, 4, TensorProto.FLOAT16),
    "int2": (TensorProto.INT2, 2, TensorProto.FLOAT16),
    "fp8": (TensorProto.FLOAT8E4M3FN, 8, TensorProto.FLOAT16),
    "mxfp4": (TensorProto.FLOAT4E2M1, 4, TensorProto.FLOAT8E8M0),
}
PAGE_TYPES: Final = ("identity", *PACKED)


def build(
    pages: str = "identity",
    old_pages: str | None = None,
    *,
    recent: int = 1,
    page_size: int = 8,
    layers: int = 2,
    heads: int = 2,
    head_size: int = 32,
    vocabulary: int = 64,
    dtype: DTypeLike = np.float32,
) -> ModelProto:
    """The decoder, with one page table for each layer.

    A page is ``[2, heads, page_size, head_size]``: the keys, then the values, of ``page_size`` tokens. Quantized pages
    have one scale for each row of a head.

    Inputs: ``input_ids`` INT64 [1, sequence]; ``length`` INT64, how many tokens the tables hold; ``cache.L``, the
    tables. Outputs: ``logits`` [1, sequence, vocabulary], and the tables as ``updated.L``. The step that fills a page
    ends there: its tokens have to lie in one page. Positions end at 511.

    Args:
        pages: the type of new pages, one of PAGE_TYPES.
        old_pages: the type that pages get when they are no longer recent; None if they keep theirs.
        recent: how many pages are recent: the one that is written, and those right before it.
        page_size: tokens a page.
        layers: how many layers.
        heads: heads of a layer.
        head_size: elements of a head.
        vocabulary: how many different tokens there are.
        dtype: of weights, logits, and decoded pages.
    """
    builder = _PagedBuilder(page_size, heads, head_size, np.dtype(dtype))
    builder.start(recent=None if old_pages is None else recent)
    builder.decoder(layers, vocabulary, "length", builder.valid, builder.paged)
    model = mutcache.from_onnx(
        helper.make_model(
            helper.make_graph(builder.nodes, "example_paged_decoder", [], [], builder.initializers),
            opset_imports=[helper.make_opsetid("", 24), helper.make_opsetid(mutcache.DOMAIN, mutcache.DOMAIN_VERSION)],
        )
    )
    model.ir_version = mutcache.IR_VERSION

    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    types = (pages,) if old_pages is None else (pages, old_pages)
    model.quantizations.extend(_quantization(name, element, head_size) for name in types)
    graph = model.graph
    _declare(graph.input.add(name="input_ids").type, TensorProto.INT64, (1, "sequence"))
    _declare(graph.input.add(name="length").type, TensorProto.INT64, ())
    _declare(graph.output.add(name="logits").type, element, (1, "sequence", vocabulary))
    for layer in range(layers):
        cache = graph.input.add(name=f"cache.{layer}", access=ValueInfoProto.READ_WRITE)
        updated = graph.output.add(name=f"updated.{layer}", alias_of=cache.name)
        page = cache.type.sequence_type.elem_type.quantized_tensor_type
        page.elem_type = element
        page.allowed_quantized_type.extend(range(len(types)))
        for size in (2, heads, page_size, head_size):
            page.shape.dim.add(dim_value=size)
        updated.type.CopyFrom(cache.type)
    for node in graph.node:
        if node.op_type == "PagedCacheUpdate":
            node.output_alias.add(output_index=0, input_index=0, kind=ValueAliasProto.MUST_ALIAS)
    return model


class _PagedBuilder(DecoderBuilder):
    """Adds the nodes around the page tables."""

    def __init__(self, page_size: int, heads: int, head_size: int, dtype: np.dtype[np.generic]) -> None:
        super().__init__(heads, head_size, dtype)
        self._page_size = page_size
        self._no_rows = np.zeros((2, heads, 0, head_size), dtype)
        #: Names: how many tokens there are after the step, and what the updates and the gathers get.
        self.valid = ""
        self._write: tuple[str, ...] = ()
        self._convert: tuple[str, ...] = ()
        self._page_ids = ""
        self._stop = ""

    def start(self, recent: int | None) -> None:
        """What all layers share: which page is written, from which row, and which are read."""

        def number(name: str, value: int) -> str:
            return self.constant(name, np.array(value, np.int64))

        zero, one, size = number("page.zero", 0), number("page.one", 1), number("page.size", self._page_size)
        page_id = self.node("Div", "length", size, output="page.id")
        self._write = (page_id, self.node("Mod", "length", size, output="page.position"))
        self._page_ids = self.node("Range", zero, self.node("Add", page_id, one), one, output="page.ids")
        self.valid = self.total("length")
        self._stop = self.node("Unsqueeze", self.valid, self.constant("page.axis_0", np.array([0])))
        self.constant("page.rows", np.array([2]))
        self.constant("page.keys", np.array([0]))
        self.constant("page.values", np.array([1]))
        if recent is not None:
            # An update of no rows converts a page. Before any page is old, it names the type that page 0 has.
            kept = number("page.recent", recent)
            old = self.node("Max", self.node("Sub", page_id, kept), zero, output="page.old")
            is_old = self.node("GreaterOrEqual", page_id, kept)
            old_type = self.node("Where", is_old, one, zero, output="page.old_type")
            self._write += (zero,)
            self._convert = (old, self.constant("page.no_rows", self._no_rows), zero, old_type)

    def paged(self, layer: int, key: str, value: str) -> tuple[str, str]:
        """Keep the new keys and values of a layer in its pages, and read all of them from there."""
        page_id, position, *quantized_type = self._write
        rows = self.node("Concat", key, value, axis=0)
        written = f"written.{layer}" if self._convert else f"updated.{layer}"
        self._update(f"cache.{layer}", page_id, rows, position, *quantized_type, output=written)
        if self._convert:
            self._update(written, *self._convert, output=f"updated.{layer}")
        pages = self.node("PagedCacheGather", f"updated.{layer}", self._page_ids, domain=mutcache.DOMAIN)
        valid = self.node("Slice", pages, "page.keys", self._stop, "page.rows")
        keys, values = (self.node("Gather", valid, f"page.{part}", axis=0) for part in ("keys", "values"))
        return keys, values

    def _update(self, *inputs: str, output: str) -> None:
        self.node("PagedCacheUpdate", *inputs, output=output, domain=mutcache.DOMAIN)


def _quantization(name: str, element: int, head_size: int) -> QuantizationProto:
    made = QuantizationProto(data_type=element)
    if name == "identity":
        made.identity.SetInParent()
        return made
    storage, bits, scale = PACKED[name]
    packed = PackedLinearUniformProto(storage_type=storage, bits=bits, symmetric=True, scale_type=scale)
    packed.block_size, packed.axis = head_size, 3
    made.packed_linear.CopyFrom(packed)
    return made


def _declare(kind: TypeProto, elem_type: int, dims: Sequence[int | str]) -> None:
    kind.tensor_type.elem_type = elem_type
    kind.tensor_type.shape.SetInParent()
    for dim in dims:
        if isinstance(dim, int):
            kind.tensor_type.shape.dim.add(dim_value=dim)
        else:
            kind.tensor_type.shape.dim.add(dim_param=dim)


class PagedDecoder:
    """The decoder on the reference runtime, with tables that are empty at first; see `mutcache_tools.greedy`.

    Attributes:
        tables: the page table of each layer, by the name of its input.
        length: how many tokens they hold.
    """

    def __init__(self, model: ModelProto) -> None:
        names = [entry.name for entry in model.graph.input if entry.access == ValueInfoProto.READ_WRITE]
        page = next(entry for entry in model.graph.input if entry.name == names[0]).type.sequence_type.elem_type
        self._page_size = page.quantized_tensor_type.shape.dim[2].dim_value
        self.tables = {name: mutcache.PageTable([], model=model, value=name) for name in names}
        self.length = 0
        self._binding = mutcache.Session(model).bind(self.tables)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the tables."""
        self._binding.release()

    def step(self, tokens: Sequence[int]) -> Array:
        """Append ``tokens``, page by page; the logits ``[vocabulary]`` after the last of them."""
        for part in self._parts(tokens):
            feeds = {"input_ids": np.array([part], np.int64), "length": np.array(self.length, np.int64)}
            logits: Array = self._binding.run(feeds)["logits"][0, -1]
            self.length += len(part)
        return logits

    def _parts(self, tokens: Sequence[int]) -> Iterator[Sequence[int]]:
        """The tokens, cut where a page ends."""
        start = 0
        while start < len(tokens):
            room = self._page_size - (self.length % self._page_size)
            yield tokens[start : start + room]
            start += room


def main() -> None:
    """Write the decoder that the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m mutcache_tools.example_paged_decoder", allow_abbrev=False)
    parser.add_argument("out", metavar="OUT.onnx")
    parser.add_argument("--pages", choices=PAGE_TYPES, default="identity", help="type of new pages")
    parser.add_argument("--old-pages", choices=PAGE_TYPES, help="type that all pages but the last one get")
    arguments = parser.parse_args()
    mutcache.save(build(arguments.pages, arguments.old_pages), arguments.out)


if __name__ == "__main__":
    main()
