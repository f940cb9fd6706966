"""The types that pages may have: the declarations of a model, and which of them a container accepts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mutcache.facts import show_elem_type
from mutcache.model import QuantizedTensorType
from mutcache.proto.onnx_ml import ModelProto
from mutcache.quantization import Declaration, parse_declaration, problems
from mutcache.requirements import Req

#: Those of a model, in order; None where version 1 accepts none, which no container may then allow (MC-QUANT-006).
Declarations = tuple[Declaration | None, ...]


def parse_declarations(model: ModelProto) -> Declarations:
    """The page types of a model."""
    return tuple(None if problems(proto) else parse_declaration(proto) for proto in model.quantizations)


class Problem(NamedTuple):
    """Why a table is refused, and what it violates."""

    requirement: Req
    message: str
    hint: str


def type_problem(
    quantized_type: int, declarations: Declarations, elements: Sequence[QuantizedTensorType]
) -> Problem | None:
    """Why no page of a container may have a quantized type, or None.

    Args:
        quantized_type: the type.
        declarations: those of the model.
        elements: what the names of the container declare.
    """
    if not 0 <= quantized_type < len(declarations):
        return Problem(
            Req.MC_PAGED_006,
            f"quantized type {quantized_type} is none of the {len(declarations)} declarations of the model",
            "it is an index into ModelProto.quantizations",
        )
    for element in elements:
        if element.allowed and quantized_type not in element.allowed:
            return Problem(
                Req.MC_PAGED_006,
                f"quantized type {quantized_type} is not allowed, only {', '.join(map(str, element.allowed))}",
                "use a type of allowed_quantized_type, or let the container allow it",
            )
    declaration = declarations[quantized_type]
    if declaration is None:
        return Problem(
            Req.MC_QUANT_006,
            f"quantized type {quantized_type} is a declaration that pages cannot have",
            "mutcache.quantization.problems says why",
        )
    data_type = declaration.data_type
    for element in elements:
        if element.elem_type and element.elem_type != data_type:
            return Problem(
                Req.MC_PAGED_007,
                f"quantized type {quantized_type} decodes to {show_elem_type(data_type)}, the container has pages of "
                f"{show_elem_type(element.elem_type)}",
                "all pages of a container decode to its element type",
            )
    return None
