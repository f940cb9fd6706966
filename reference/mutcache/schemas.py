"""Operator schemas of the domain, registered with ``onnx.defs`` so that stock onnx can check and infer our nodes.

Stock onnx sees plain tensors here: that the output is the storage of the cache, the rules check.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import onnx
from onnx import defs, helper, shape_inference

from mutcache.model import DOMAIN, DOMAIN_VERSION
from mutcache.proto.onnx_ml import AttributeProto, NodeProto

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


_CACHE_UPDATE_DOC: Final = """
Writes ``values`` into ``cache`` at ``position`` along ``axis``, in place: the output is the storage of the
first input (``output_alias`` must be ``{0, 0, MUST_ALIAS}``), nothing of the cache's size is allocated.
In linear mode ``position + length <= capacity``; in circular mode rows are written modulo the capacity, and
``length <= capacity``. With ``batch_axis``, ``position`` holds one start per row of that axis.
"""


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
        type_constraints=[
            (
                "T",
                sorted(
                    f"tensor({onnx.TensorProto.DataType.Name(elem_type).lower()})" for elem_type in FIXED_WIDTH_TYPES
                ),
                "Tensors of every type whose elements occupy whole bytes.",
            )
        ],
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


def register() -> None:
    """Make the schemas known to ``onnx.defs``; later calls change nothing."""
    if not defs.has("CacheUpdate", DOMAIN):
        defs.register_schema(_cache_update())


register()
