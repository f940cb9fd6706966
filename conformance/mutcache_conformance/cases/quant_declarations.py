"""QUANT: declarations that version 1 does not have."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from onnx import TensorProto as Stock

from mutcache.proto.onnx_ml import ModelProto, QuantizationProto
from mutcache.requirements import Req
from mutcache_conformance.case import Case
from mutcache_conformance.cases.draw import Draw
from mutcache_conformance.cases.edits import Edit
from mutcache_conformance.cases.paged_words import Paged
from mutcache_conformance.cases.scene import Fault, family

Declare = Callable[[QuantizationProto], object]


def cases(nonce: int) -> Iterator[Case]:
    """All cases of the module."""
    for kind, title, faults in (
        ("int8", "A symmetric packed type.", _SYMMETRIC),
        ("uint8-zero-point", "A packed type with a zero point.", _ZERO_POINT),
        ("uint8-correction", "A packed type with a correction.", _CORRECTION),
        ("scaled-fp8", "A packed type with float codes.", _FLOAT_CODES),
        ("nvfp4", "A packed type with 4-bit float codes.", _FP4),
        ("static-int8", "A static linear type.", _STATIC),
        ("fp8", "A cast.", _CAST),
    ):
        yield from _refused(nonce, kind, title, faults)


def _refused(nonce: int, kind: str, title: str, faults: dict[str, tuple[str, Declare]]) -> Iterator[Case]:
    requirement = (Req.MC_QUANT_006,)
    paged = Paged(Draw(nonce, f"quant declarations {kind}"), (kind,), gathers=False)
    yield from family(
        f"quant-006/{kind}",
        requirement,
        f"{title[:-1]}, declared as version 1 has it.",
        paged.program(paged.table(kind), (0, 1, 2)),
        *[
            Fault(f"quant-006/{kind}-{what}", requirement, sentence, _edit(declare))
            for what, (sentence, declare) in faults.items()
        ],
    )


def _edit(declare: Declare) -> Edit:
    def edit(made: ModelProto) -> None:
        declare(made.quantizations[0])

    return edit


def _packed(**fields: float) -> Declare:
    def declare(made: QuantizationProto) -> None:
        for field, value in fields.items():
            setattr(made.packed_linear, field, value)

    return declare


def _linear(**fields: float) -> Declare:
    def declare(made: QuantizationProto) -> None:
        for field, value in fields.items():
            setattr(made.linear, field, value)

    return declare


def _codebook(made: QuantizationProto) -> None:
    made.codebook.scale_float = 1.0
    made.codebook.codebook.extend([-1.0, 0.0, 1.0, 2.0])


def _scale_int(made: QuantizationProto) -> None:
    made.linear.scale_int = 1


def _unscaled(made: QuantizationProto) -> None:
    made.linear.ClearField("scale_float")


def _no_kind(made: QuantizationProto) -> None:
    made.ClearField("packed_linear")


_SYMMETRIC = {
    "no-kind": ("It has no kind at all.", _no_kind),
    "codebook": ("It is a codebook.", _codebook),
    "not-symmetric": ("Signed codes that are not symmetric.", _packed(symmetric=False)),
    "bits": ("bits is not the width of the codes.", _packed(bits=4)),
    "no-bits": ("bits is 0.", _packed(bits=0)),
    "block-zero": ("Groups of no elements.", _packed(block_size=0)),
    "block-negative": ("Groups of -32 elements.", _packed(block_size=-32)),
    "scale-int8": ("Scales of INT8.", _packed(scale_type=Stock.INT8)),
    "scale-double": ("Scales of DOUBLE.", _packed(scale_type=Stock.DOUBLE)),
    "scale-e8m0": ("Scales of FLOAT8E8M0 with integer codes.", _packed(scale_type=Stock.FLOAT8E8M0)),
    "scale-e4m3": ("Scales of FLOAT8E4M3FN with integer codes.", _packed(scale_type=Stock.FLOAT8E4M3FN)),
    "scale-none": ("No scales.", _packed(scale_type=Stock.UNDEFINED)),
    "zero-point": ("Signed codes with a zero point.", _packed(zero_point_type=Stock.UINT8)),
    "correction": ("Signed codes with a correction.", _packed(correction_type=Stock.FLOAT16)),
    "int16": ("Codes of INT16.", _packed(storage_type=Stock.INT16, bits=16)),
}
_ZERO_POINT = {
    "int8": ("Zero points of INT8.", _packed(zero_point_type=Stock.INT8)),
    "float16": ("Zero points of FLOAT16.", _packed(zero_point_type=Stock.FLOAT16)),
    "and-correction": ("A zero point and a correction.", _packed(correction_type=Stock.FLOAT16)),
    "neither": ("Unsigned codes with neither.", _packed(zero_point_type=Stock.UNDEFINED)),
    "symmetric": ("Unsigned codes that are symmetric.", _packed(symmetric=True)),
}
_CORRECTION = {
    "int8": ("Corrections of INT8.", _packed(correction_type=Stock.INT8)),
    "e4m3": ("Corrections of FLOAT8E4M3FN.", _packed(correction_type=Stock.FLOAT8E4M3FN)),
}
_FLOAT_CODES = {
    "e5m2": ("Codes of FLOAT8E5M2.", _packed(storage_type=Stock.FLOAT8E5M2)),
    "fnuz": ("Codes of FLOAT8E4M3FNUZ.", _packed(storage_type=Stock.FLOAT8E4M3FNUZ)),
    "scale-e4m3": ("8-bit codes with scales of FLOAT8E4M3FN.", _packed(scale_type=Stock.FLOAT8E4M3FN)),
    "zero-point": ("Float codes with a zero point.", _packed(zero_point_type=Stock.UINT8)),
    "correction": ("Float codes with a correction.", _packed(correction_type=Stock.FLOAT)),
    "not-symmetric": ("Float codes that are not symmetric.", _packed(symmetric=False)),
}
_FP4 = {
    "bits": ("bits is not the width of the codes.", _packed(bits=8)),
    "odd-block": ("Groups that do not fill bytes.", _packed(block_size=1)),
}
_STATIC = {
    "scale-int": ("An integer scale.", _scale_int),
    "scale-none": ("No scale.", _unscaled),
    "scale-zero": ("A scale of 0.", _linear(scale_float=0.0)),
    "scale-negative": ("A negative scale.", _linear(scale_float=-0.5)),
    "scale-infinite": ("An infinite scale.", _linear(scale_float=math.inf)),
    "scale-nan": ("A scale that is NaN.", _linear(scale_float=math.nan)),
    "scale-tiny": ("A scale whose reciprocal is infinite.", _linear(scale_float=2.0**-149)),
    "zero-point-high": ("A zero point above the codes.", _linear(zero_point=128)),
    "zero-point-low": ("A zero point below the codes.", _linear(zero_point=-129)),
    "float-codes": ("Codes of FLOAT8E4M3FN.", _linear(storage_type=Stock.FLOAT8E4M3FN)),
    "bits": ("bits is not the width of the codes.", _linear(bits=4)),
}


def _casts(number: int) -> Declare:
    def declare(made: QuantizationProto) -> None:
        made.cast.storage_type = number

    return declare


_CAST = {
    "e5m2": ("A cast to FLOAT8E5M2.", _casts(Stock.FLOAT8E5M2)),
    "fnuz": ("A cast to FLOAT8E4M3FNUZ.", _casts(Stock.FLOAT8E4M3FNUZ)),
    "int8": ("A cast to INT8.", _casts(Stock.INT8)),
    "float16": ("A cast to FLOAT16.", _casts(Stock.FLOAT16)),
    "none": ("A cast to nothing.", _casts(Stock.UNDEFINED)),
}
