"""Operator schemas of the domain, registered with ``onnx.defs`` so that stock onnx can check and infer our nodes.

Stock onnx sees plain tensors here: that the output is the storage of the cache, the rules check.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import onnx
from onnx import defs, helper, shape_inference

from mutcache.model import DOMAIN, DOMAIN_VERSION
from mutcache.proto.onnx_ml import AttributeProto, NodeProto
from mutcache.quantization.declaration import WIDTHS
from mutcache.stock_pages import SUBSTITUTES

#: Element types of fixed width: no strings, and nothing that shares a byte with its neighbour.
FIXED_WIDTH_TYPES: Final = frozenset(
    getattr(onnx.TensorProto, name)
    for name in (
        "FLOAT",
        "UINT8",
        "INT8",
        "UINT16",
        "INT16",
        "INT32",
        "INT64",
        "BOOL",
        "FLOAT16",
        "DOUBLE",
        "UINT32",
        "UINT64",
        "COMPLEX64",
        "COMPLEX128",
        "BFLOAT16",
        "FLOAT8E4M3FN",
        "FLOAT8E4M3FNUZ",
        "FLOAT8E5M2",
        "FLOAT8E5M2FNUZ",
        "FLOAT8E8M0",
    )
)

#: Values of the attribute ``mode`` of CacheUpdate.
LINEAR: Final = "linear"
CIRCULAR: Final = "circular"
#: Default of the attribute ``axis``.
DEFAULT_AXIS: Final = -2


@dataclass(frozen=True, slots=True)
class UpdateAttributes:
    """The attributes of a CacheUpdate as written; one of a wrong type, which the base check reports, is left out."""

    axis: int = DEFAULT_AXIS
    mode: str = LINEAR
    batch_axis: int | None = None


def update_attributes(node: NodeProto) -> UpdateAttributes:
    """Read the attributes of a CacheUpdate."""
    axis, mode, batch_axis = DEFAULT_AXIS, LINEAR, None
    for attribute in node.attribute:
        if attribute.name == "axis" and attribute.type == AttributeProto.INT:
            axis = attribute.i
        elif attribute.name == "mode" and attribute.type == AttributeProto.STRING:
            mode = attribute.s.decode("utf-8", "backslashreplace")
        elif attribute.name == "batch_axis" and attribute.type == AttributeProto.INT:
            batch_axis = attribute.i
    return UpdateAttributes(axis, mode, batch_axis)


def page_axis(node: NodeProto) -> int:
    """The attribute ``axis`` of a PagedCacheUpdate or PagedCacheGather as written."""
    return next(
        (one.i for one in node.attribute if one.name == "axis" and one.type == AttributeProto.INT), DEFAULT_AXIS
    )


_CACHE_UPDATE_DOC: Final = """
Writes ``values`` into ``cache`` at ``position`` along ``axis``, in place: the output is the storage of the
first input (``output_alias`` must be ``{0, 0, MUST_ALIAS}``), nothing of the cache's size is allocated.
In linear mode ``position + length <= capacity``; in circular mode rows are written modulo the capacity, and
``length <= capacity``. With ``batch_axis``, ``position`` holds one start per row of that axis.
"""


_TENSORS: Final = tuple(
    sorted(f"tensor({onnx.TensorProto.DataType.Name(elem_type).lower()})" for elem_type in FIXED_WIDTH_TYPES)
)


def _infer_cache_update(context: shape_inference.InferenceContext) -> None:
    """The output has the type of the cache. Must not raise: an exception would end the whole inference."""
    if context.get_num_inputs() == 0 or context.get_num_outputs() == 0:
        return
    cache = context.get_input_type(0)
    if isinstance(cache, onnx.TypeProto) and cache.HasField("tensor_type"):
        context.set_output_type(0, cache)


def _cache_update() -> defs.OpSchema:
    formal = defs.OpSchema.FormalParameter
    schema = defs.OpSchema(
        "CacheUpdate",
        DOMAIN,
        DOMAIN_VERSION,
        _CACHE_UPDATE_DOC,
        inputs=[
            formal("cache", "T", "The cache; its storage is modified."),
            formal("values", "T", "What is written; the cache's shape except along ``axis``."),
            formal("position", "tensor(int64)", "Where writing starts: a scalar, or one start per batch row."),
        ],
        outputs=[formal("updated_cache", "T", "The storage of ``cache`` after the update.")],
        type_constraints=[("T", list(_TENSORS), "Tensors of every type whose elements occupy whole bytes.")],
        attributes=[
            defs.OpSchema.Attribute("axis", helper.make_attribute("axis", DEFAULT_AXIS), "The axis of positions."),
            defs.OpSchema.Attribute("mode", helper.make_attribute("mode", LINEAR), '"linear" or "circular".'),
            defs.OpSchema.Attribute(
                "batch_axis",
                defs.OpSchema.AttrType.INT,
                "The axis of ``position``; absent: one position for all.",
                required=False,
            ),
        ],
    )
    schema.set_type_and_shape_inference_function(_infer_cache_update)
    return schema


#: Tensors that pages can decode to: elements of every fixed width.
_PAGES: Final = tuple(sorted(f"tensor({onnx.TensorProto.DataType.Name(elem_type).lower()})" for elem_type in WIDTHS))

_PAGED_CACHE_UPDATE_DOC: Final = """
Encodes ``values`` into the rows ``position``, ``position + 1``, ... along ``axis`` of the page ``page_id`` of
``cache``, in place: the output is the page table of the first input (``output_alias`` must be ``{0, 0, MUST_ALIAS}``).
A page that is missing is created; ``page_id`` of a sequence is then its length. ``quantized_type``, an index into
``ModelProto.quantizations``, is the type of the page after the update; without it a page keeps its type.
"""

_PAGED_CACHE_GATHER_DOC: Final = """
Decodes the pages ``page_ids`` of ``cache`` and concatenates them along ``axis``.
"""


def _page_of(container: object) -> onnx.TypeProto.Tensor | None:
    """The tensor that a page of a projected container decodes to; maps are projected as sequences."""
    if isinstance(container, onnx.TypeProto) and container.sequence_type.elem_type.HasField("tensor_type"):
        return container.sequence_type.elem_type.tensor_type
    return None


def _vector_length(known: object) -> int | None:
    """How many elements a vector has, or None."""
    if isinstance(known, onnx.TypeProto) and len(known.tensor_type.shape.dim) == 1:
        (dim,) = known.tensor_type.shape.dim
        return dim.dim_value if dim.HasField("dim_value") else None
    return None


def _infer_paged_cache_update(context: shape_inference.InferenceContext) -> None:
    """The output has the type of the cache. Must not raise."""
    if context.get_num_inputs() == 0 or context.get_num_outputs() == 0:
        return
    cache = context.get_input_type(0)
    if _page_of(cache) is not None:
        context.set_output_type(0, cache)


def _infer_paged_cache_gather(context: shape_inference.InferenceContext) -> None:
    """The output is as many pages long along ``axis`` as there are ids. Must not raise."""
    if context.get_num_inputs() == 0 or context.get_num_outputs() == 0:
        return
    page = _page_of(context.get_input_type(0))
    if page is None:
        return
    output = onnx.TypeProto()
    output.tensor_type.CopyFrom(page)
    if output.tensor_type.HasField("shape"):
        dims = output.tensor_type.shape.dim
        attribute = context.get_attribute("axis")
        axis = attribute.i if isinstance(attribute, onnx.AttributeProto) else DEFAULT_AXIS
        if not -len(dims) <= axis < len(dims):
            return
        count = _vector_length(context.get_input_type(1)) if context.get_num_inputs() > 1 else None
        size = dims[axis].dim_value * count if dims[axis].HasField("dim_value") and count is not None else -1
        dims[axis].Clear()
        if 0 <= size < 1 << 63:
            dims[axis].dim_value = size
    context.set_output_type(0, output)


def _paged_schema(
    name: str, doc: str, inputs: list[defs.OpSchema.FormalParameter], output: defs.OpSchema.FormalParameter
) -> defs.OpSchema:
    return defs.OpSchema(
        name,
        DOMAIN,
        DOMAIN_VERSION,
        doc,
        inputs=inputs,
        outputs=[output],
        type_constraints=[
            (
                "C",
                [f"seq({tensor})" for tensor in _PAGES],
                "Sequences of or maps to quantized tensors; stock onnx sees sequences of what their pages decode to.",
            ),
            ("T", list(_PAGES), "Tensors of the type that the pages decode to."),
        ],
        attributes=[
            defs.OpSchema.Attribute("axis", helper.make_attribute("axis", DEFAULT_AXIS), "The axis of the rows."),
        ],
    )


def _paged_cache_update() -> defs.OpSchema:
    formal = defs.OpSchema.FormalParameter
    optional = defs.OpSchema.FormalParameterOption.Optional
    schema = _paged_schema(
        "PagedCacheUpdate",
        _PAGED_CACHE_UPDATE_DOC,
        [
            formal("cache", "C", "The page table; one of its pages is modified, created or replaced."),
            formal("page_id", "tensor(int64)", "Which page: a scalar."),
            formal("values", "T", "What is written; the page's shape except along ``axis``."),
            formal("position", "tensor(int64)", "The first row that is written: a scalar."),
            formal(
                "quantized_type",
                "tensor(int64)",
                "The type of the page after the update: a scalar.",
                param_option=optional,
            ),
        ],
        formal("updated_cache", "C", "The page table ``cache`` after the update."),
    )
    schema.set_type_and_shape_inference_function(_infer_paged_cache_update)
    return schema


def _paged_cache_gather() -> defs.OpSchema:
    formal = defs.OpSchema.FormalParameter
    schema = _paged_schema(
        "PagedCacheGather",
        _PAGED_CACHE_GATHER_DOC,
        [
            formal("cache", "C", "The page table."),
            formal("page_ids", "tensor(int64)", "Which pages, in order: a vector."),
        ],
        formal("pages", "T", "The pages, decoded and concatenated along ``axis``."),
    )
    schema.set_type_and_shape_inference_function(_infer_paged_cache_gather)
    return schema


def _infer_pages_identity(context: shape_inference.InferenceContext) -> None:
    """The output has the type of the input. Must not raise."""
    if context.get_num_inputs() and context.get_num_outputs():
        known = context.get_input_type(0)
        if isinstance(known, onnx.TypeProto) and known.WhichOneof("value") is not None:
            context.set_output_type(0, known)


def _infer_pages_length(context: shape_inference.InferenceContext) -> None:
    """The output is an INT64 scalar. Must not raise."""
    if context.get_num_outputs():
        context.set_output_type(0, helper.make_tensor_type_proto(onnx.TensorProto.INT64, []))


def _substitutes() -> Iterator[defs.OpSchema]:
    """What the projection has in place of standard operators that take pages."""
    formal = defs.OpSchema.FormalParameter
    every = sorted({*_PAGES, "tensor(string)", *(f"seq({tensor})" for tensor in _PAGES)})
    constraint = ("V", every, "Containers of pages, and what bears the name of one in another graph.")
    same, length = SUBSTITUTES["Identity"], SUBSTITUTES["SequenceLength"]
    for name, output, infer in (
        (same, formal("output", "V"), _infer_pages_identity),
        (length, formal("length", "tensor(int64)"), _infer_pages_length),
    ):
        schema = defs.OpSchema(
            name,
            DOMAIN,
            DOMAIN_VERSION,
            "Stands in for a standard operator; no model contains it.",
            inputs=[formal("input", "V")],
            outputs=[output],
            type_constraints=[constraint],
        )
        schema.set_type_and_shape_inference_function(infer)
        yield schema


def register() -> None:
    """Make the schemas known to ``onnx.defs``; later calls change nothing."""
    for schema in (_cache_update(), _paged_cache_update(), _paged_cache_gather(), *_substitutes()):
        if not defs.has(schema.name, DOMAIN):
            defs.register_schema(schema)


register()
