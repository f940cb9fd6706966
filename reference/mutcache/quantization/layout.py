"""Where the bytes of a page lie: sizes, and the parts of a payload as views.

A page is a C-ordered run of *groups*, the smallest runs of elements that own whole bytes and share nothing: the groups
of ``packed_linear``, elsewhere one element, or as many as fill a byte (FLOAT6: three bytes). Groups lie along the last
axis.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from mutcache.errors import MutcacheError
from mutcache.model import Dim
from mutcache.quantization.declaration import WIDTHS, Declaration, Kind, Layout, type_name
from mutcache.requirements import Phase, Req

Bytes = NDArray[np.uint8]
Array = NDArray[Any]

_INT64_MAX: Final = (1 << 63) - 1


class PageShapeError(MutcacheError):
    """Dims, element type or bytes of a page do not agree with each other or with its declaration (MC-PAGED-007)."""

    phase: ClassVar[Phase] = Phase.BIND

    def __init__(self, message: str, *, hint: str = "", **values: object) -> None:
        super().__init__(message, requirement=Req.MC_PAGED_007, hint=hint, **values)


def group_size(declaration: Declaration) -> int:
    """How many elements a group has."""
    if declaration.kind is Kind.PACKED_LINEAR:
        return declaration.block_size
    return 8 // math.gcd(8, declaration.bits)


def part_widths(declaration: Declaration) -> tuple[int, ...]:
    """Bytes of the parts of one group, in their order: codes, scale, zero point, correction; absent parts left out."""
    codes = group_size(declaration) * declaration.bits // 8
    terms = (declaration.scale_type, declaration.zero_point_type, declaration.correction_type)
    return (codes, *(WIDTHS[term] // 8 for term in terms if term is not None))


def page_problems(declaration: Declaration, dims: Sequence[Dim], axis: int | None = None) -> list[str]:
    """Why pages of ``dims`` cannot have this declaration, or not be written in rows along ``axis``.

    Args:
        declaration: the declaration of the page.
        dims: the page's dims; a symbol or None is a size that is not known, and accepted.
        axis: the non-negative axis along which an operator writes or gathers rows, if any.
    """
    dims = [dim if dim is None or isinstance(dim, str) else operator.index(dim) for dim in dims]
    negative = [dim for dim in dims if isinstance(dim, int) and dim < 0]
    if negative:
        return [f"dims {_show(dims)} have the negative size {negative[0]}"]
    found = []
    last = dims[-1] if dims else 1
    size = group_size(declaration)
    if declaration.kind is Kind.PACKED_LINEAR and declaration.axis != len(dims) - 1:
        found.append(f"the group axis {declaration.axis} is not the last one of dims {_show(dims)} of rank {len(dims)}")
    elif isinstance(last, int) and last % size:
        what = "block_size" if declaration.kind is Kind.PACKED_LINEAR else f"elements of {declaration.bits} bits a byte"
        found.append(f"the last size {last} of dims {_show(dims)} is no multiple of {size}, the {what}")
    if axis is not None:
        if not 0 <= axis < len(dims):
            found.append(f"axis {axis} is outside dims {_show(dims)} of rank {len(dims)}")
        elif axis == len(dims) - 1 and declaration.kind is Kind.PACKED_LINEAR:
            found.append(f"axis {axis} is the group axis, along which rows do not own whole groups")
        elif axis == len(dims) - 1 and size > 1:
            found.append(f"axis {axis} is the last one, along which elements of {declaration.bits} bits share bytes")
    sizes = [dim for dim in dims if isinstance(dim, int)]
    if not found and len(sizes) == len(dims) and _count_bytes(declaration, sizes) > _INT64_MAX:
        found.append(
            f"dims {_show(dims)} need {_count_bytes(declaration, sizes)} bytes > {_INT64_MAX}, the most there can be"
        )
    return found


def n_bytes(declaration: Declaration, dims: Sequence[int]) -> int:
    """The bytes of the payload of a page.

    Raises:
        PageShapeError: pages of ``dims`` cannot have this declaration (MC-PAGED-007).
    """
    require_dims(declaration, dims)
    return _count_bytes(declaration, dims)


def require_dims(declaration: Declaration, dims: Sequence[int], axis: int | None = None) -> None:
    """Raise PageShapeError if pages of ``dims`` cannot have this declaration, or not be written along ``axis``."""
    found = page_problems(declaration, dims, axis)
    if found:
        raise PageShapeError(
            "; ".join(found),
            hint="the last size is a multiple of the group's, and rows run along another axis",
            dims=tuple(dims),
            axis=axis,
        )


def require_payload(payload: Bytes, declaration: Declaration, dims: Sequence[int], *, to_write: bool) -> None:
    """Raise PageShapeError if ``payload`` is not the bytes of such a page."""
    expected = n_bytes(declaration, dims)
    if payload.dtype != np.uint8 or payload.ndim != 1 or not payload.flags.c_contiguous:
        raise PageShapeError(
            f"the payload is an array of {payload.dtype} of rank {payload.ndim}, not one contiguous run of uint8"
        )
    if payload.size != expected:
        raise PageShapeError(
            f"the payload has {payload.size} bytes != {expected}, what dims {_show(dims)} need as "
            f"{declaration.kind} of {type_name(declaration.storage_type)}",
            n_bytes=payload.size,
            expected=expected,
        )
    if to_write and not payload.flags.writeable:
        raise PageShapeError("the payload is read-only", hint="pass a writable array")


def parts(payload: Bytes, declaration: Declaration, groups: int) -> tuple[Bytes, ...]:
    """The parts of all groups as views of ``payload``, each of shape [groups, bytes of the part]."""
    widths = part_widths(declaration)
    found = []
    start = 0
    if declaration.layout is Layout.INTERLEAVED:
        records = payload.reshape(groups, sum(widths))
        for width in widths:
            found.append(records[:, start : start + width])
            start += width
    else:
        for width in widths:
            found.append(payload[start : start + groups * width].reshape(groups, width))
            start += groups * width
    return tuple(found)


def _count_bytes(declaration: Declaration, dims: Sequence[int]) -> int:
    return math.prod(dims) // group_size(declaration) * sum(part_widths(declaration))


def _show(dims: Sequence[Dim]) -> str:
    return f"[{', '.join('?' if dim is None else str(dim) for dim in dims)}]"
