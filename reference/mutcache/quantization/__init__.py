"""Page codecs: declarations, layouts, and the canonical encoder and decoder in NumPy.

``parse_declaration`` reads a QuantizationProto; ``encode`` and ``decode`` turn whole pages into payloads and back,
``encode_rows`` and ``decode_rows`` rows of a page in place. Bit for bit as chapter QUANT of the specification says.
"""

from mutcache.quantization.codec import decode, decode_rows, encode, encode_rows, reencode
from mutcache.quantization.declaration import (
    Declaration,
    Kind,
    Layout,
    UnsupportedDeclaration,
    parse_declaration,
    problems,
)
from mutcache.quantization.kernels import use_numba
from mutcache.quantization.layout import PageShapeError, group_size, n_bytes, page_problems, part_widths

__all__ = [
    "Declaration",
    "Kind",
    "Layout",
    "PageShapeError",
    "UnsupportedDeclaration",
    "decode",
    "decode_rows",
    "encode",
    "encode_rows",
    "group_size",
    "n_bytes",
    "page_problems",
    "parse_declaration",
    "part_widths",
    "problems",
    "reencode",
    "use_numba",
]
