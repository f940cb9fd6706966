"""The registry of kernels: what each one computes and mutates, its NumPy counterpart, and what builds its input.

All kernels take a table of transfers (:mod:`mutcache_cupy.records`) and a status word for each; blockIdx.y is the
number of the transfer. Bytes that they write equal those of the counterpart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from mutcache import quantization
from mutcache.ops.dense import CacheUpdate
from mutcache.requirements import Req
from mutcache_cupy import transfers
from mutcache_cupy.nvrtc import unit_of_kernel

#: Names of encoded pages in kernel names, and what they are.
CODECS: Final = {
    "cast_e4m3": "FLOAT8E4M3FN by a cast",
    "static_8": "8-bit codes with one static scale",
    "static_4": "4-bit codes with one static scale",
    "static_2": "2-bit codes with one static scale",
    "symmetric_8": "INT8 with a scale a group",
    "symmetric_4": "INT4 with a scale a group",
    "symmetric_2": "INT2 with a scale a group",
    "zero_point_8": "UINT8 with a scale and a zero point a group",
    "zero_point_4": "UINT4 with a scale and a zero point a group",
    "zero_point_2": "UINT2 with a scale and a zero point a group",
    "correction_8": "UINT8 with a scale and a correction a group",
    "correction_4": "UINT4 with a scale and a correction a group",
    "correction_2": "UINT2 with a scale and a correction a group",
    "scaled_e4m3": "FLOAT8E4M3FN with a scale a group",
    "scaled_e2m1": "FLOAT4E2M1 with a scale a group: MXFP4, NVFP4-like",
}
#: Names of element types in kernel names.
ELEMENTS: Final = ("f16", "bf16", "f32")

_DENSE: Final = (Req.MC_DENSE_001, Req.MC_DENSE_002, Req.MC_DENSE_003, Req.MC_DENSE_004, Req.MC_DENSE_005)
_DENSE_ALL: Final = (*_DENSE, Req.MC_DENSE_007, Req.MC_DENSE_008, Req.MC_DENSE_012, Req.MC_DENSE_013, Req.MC_DENSE_014)
_ENCODE: Final = (Req.MC_QUANT_001, Req.MC_QUANT_003, Req.MC_QUANT_004, Req.MC_QUANT_005)
_PAGED: Final = (Req.MC_PAGED_001, Req.MC_PAGED_002, Req.MC_PAGED_004, Req.MC_PAGED_005, Req.MC_PAGED_012)
_GATHER: Final = (Req.MC_QUANT_002, Req.MC_PAGED_016)


@dataclass(frozen=True)
class Kernel:
    """A kernel.

    Attributes:
        name: without the prefix ``mutcache_`` that it has in the binary.
        summary: what it does.
        mutates: the memory that it writes to; everything else that its transfers name is only read.
        requirements: those that it is part of.
        counterpart: the NumPy function that computes the same bytes.
        builders: what make its transfers.
    """

    name: str
    summary: str
    mutates: tuple[str, ...]
    requirements: tuple[Req, ...]
    counterpart: Callable[..., Any]
    builders: tuple[Callable[..., Any], ...]

    @property
    def unit(self) -> str:
        """The source file that it stands in."""
        return unit_of_kernel(self.name)


def _kernels() -> tuple[Kernel, ...]:
    page = ("the rows of the payload that the position names", "the status words")
    values = ("the decoded values", "the status words")
    return (
        Kernel(
            "dense_update",
            "rows of a dense cache, or of an identity page",
            ("the rows of the cache that the positions name", "the status words"),
            _DENSE_ALL,
            CacheUpdate.write,
            (transfers.dense_update, transfers.encode_rows),
        ),
        *(
            Kernel(
                f"encode_{codec}_{element}",
                f"rows of a page: {what}, from {element}",
                page,
                (*_ENCODE, *_PAGED),
                quantization.encode_rows,
                (transfers.encode_rows,),
            )
            for codec, what in CODECS.items()
            for element in ELEMENTS
        ),
        Kernel(
            "step",
            "a whole decode step: rows of dense caches and pages of all types, of all layers, in one launch",
            ("the rows that the positions name, of the caches and payloads of the table", "the status words"),
            (*_DENSE_ALL, *_ENCODE, *_PAGED),
            quantization.encode_rows,
            (transfers.dense_update, transfers.encode_rows, transfers.encode_rows_of),
        ),
        *(
            Kernel(
                f"decode_{codec}_{element}",
                f"rows of a page: {what}, to {element}",
                values,
                _GATHER,
                quantization.decode_rows,
                (transfers.decode_rows,),
            )
            for codec, what in CODECS.items()
            for element in ELEMENTS
        ),
        Kernel(
            "gather",
            "rows of pages of all types, side by side",
            values,
            _GATHER,
            quantization.decode_rows,
            (transfers.decode_rows,),
        ),
        Kernel(
            "reencode",
            "a page under another declaration",
            ("the payload of the new type", "the status words"),
            (Req.MC_PAGED_008, Req.MC_PAGED_009, *_ENCODE),
            quantization.reencode,
            (transfers.reencode,),
        ),
        Kernel("empty", "nothing: the floor that launches are compared with", (), (), lambda: None, ()),
    )


#: Every kernel by its name.
KERNELS: Final = {kernel.name: kernel for kernel in _kernels()}
