"""Codes of 2, 4 and 6 bits in bytes: the first element in the low-order bits. Wider ones stay as they are."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]


def pack(codes: Bytes, bits: int) -> Bytes:
    """Codes of shape [groups, n], of which only the low ``bits`` count, as bytes [groups, n * bits / 8]."""
    if bits >= 8:
        return codes
    if bits == 6:
        bit_planes = np.unpackbits(codes[..., None], axis=-1, bitorder="little")[..., :bits]
        return np.packbits(bit_planes.reshape(len(codes), -1), axis=-1, bitorder="little")
    low = codes & np.uint8((1 << bits) - 1)
    if bits == 4:
        words = low.view("<u2")
        words |= words >> np.uint16(4)  # now the low byte has both codes
    else:
        words = low.view("<u4")
        words |= words >> np.uint32(6)
        words |= words >> np.uint32(12)
    return words.astype(np.uint8)


def unpack(packed: Bytes, bits: int, *, signed: bool = False) -> Bytes:
    """The codes [groups, n] in bytes [groups, n * bits / 8]; ``signed`` extends the sign to the whole byte."""
    if bits >= 8:
        return packed
    if bits == 6:
        bit_planes = np.unpackbits(packed, axis=-1, bitorder="little").reshape(len(packed), -1, bits)
        return np.packbits(bit_planes, axis=-1, bitorder="little")[..., 0]
    codes = packed[..., None] >> np.arange(0, 8, bits, dtype=np.uint8)
    if signed:
        codes <<= np.uint8(8 - bits)
        codes = (codes.view(np.int8) >> np.int8(8 - bits)).view(np.uint8)
    else:
        codes &= np.uint8((1 << bits) - 1)
    return codes.reshape(len(packed), -1)
