"""Encoding and decoding of pages on the CPU, against ggml's own quantizers in Python and in C."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module, util
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mutcache.errors import MutcacheError
from mutcache.proto.onnx_ml import QuantizationProto, TensorProto
from mutcache.quantization import Declaration, decode, encode, encode_rows, n_bytes, parse_declaration, use_numba
from mutcache_tools.bench import Goal, Peer, Row, Unit
from mutcache_tools.bench.timing import Work, compare

#: Rows of a page, and its head size.
SHAPE: Final = (1 << 15, 128)
GROUP: Final = 32
#: Names of the formats of ggml that are nearest to each storage type, with the bytes of a block of 32.
NEAREST: Final = {"INT8": ("q8_0", 34), "INT4": ("q4_0", 18)}
ROUNDS: Final = 7
CALLS: Final = 4

Floats = NDArray[np.float32]


def measure() -> Iterator[Row]:
    """Symmetric codes of 8 and 4 bits with float16 scales, from float32."""
    x = np.random.default_rng(0).standard_normal(SHAPE, np.float32)
    for storage, (name, nbytes) in NEAREST.items():
        yield from _against_python(x, storage, name)
        yield _against_c(x, storage, name, nbytes)


def _against_python(x: Floats, storage: str, name: str) -> Iterator[Row]:
    declaration = _declaration(storage)
    payload = encode(x, declaration)
    ours: list[Work] = [lambda: encode(x, declaration), lambda: decode(payload, declaration, x.shape)]
    whats = (f"encode FLOAT{list(SHAPE)} as {storage}, NumPy", f"decode {storage} to FLOAT{list(SHAPE)}, NumPy")
    goals = (Goal(1 / 3), None)
    _verify(decode(payload, declaration, x.shape), x)
    try:
        theirs = _python_peer(x, name)
    except ImportError as error:
        absence = f"{error.name or 'gguf'} is not installed"
        for what, work, goal in zip(whats, ours, goals, strict=True):
            yield Row(
                what,
                Unit.SECONDS,
                compare([work], rounds=ROUNDS, calls=CALLS)[0],
                Peer(f"gguf {name}", absence=absence),
                goal,
            )
        return
    for what, *works, goal in zip(whats, ours, theirs, goals, strict=True):
        mine, other = compare(works, rounds=ROUNDS, calls=CALLS)
        yield Row(what, Unit.SECONDS, mine, Peer(f"gguf {name} (Python)", other), goal)


def _python_peer(x: Floats, name: str) -> list[Work]:
    quants, constants = import_module("gguf.quants"), import_module("gguf.constants")
    kind = constants.GGMLQuantizationType[name.upper()]
    blocks = quants.quantize(x, kind)
    _verify(quants.dequantize(blocks, kind).reshape(x.shape), x)
    return [lambda: quants.quantize(x, kind), lambda: quants.dequantize(blocks, kind)]


def _against_c(x: Floats, storage: str, name: str, nbytes: int) -> Row:
    what = f"encode FLOAT{list(SHAPE)} as {storage}, numba"
    goal = Goal(1 / 2) if storage == "INT4" else None
    declaration = _declaration(storage)
    try:
        with _compiled():
            payload = np.zeros(n_bytes(declaration, SHAPE), np.uint8)  # both write into memory that is there
            works: list[Work] = [lambda: encode_rows(payload, declaration, SHAPE, 0, 0, x)]
            works[0]()
            _verify(decode(payload, declaration, SHAPE), x)
            peer = _c_peer(x, name, nbytes)
            absence = "" if peer is not None else "llama_cpp, whose library has it, is not installed"
            times = compare([*works, *([peer] if peer is not None else [])], rounds=ROUNDS, calls=CALLS)
    except MutcacheError as error:
        return Row(what, Unit.SECONDS, None, goal=goal, note=error.message)
    return Row(what, Unit.SECONDS, times[0], Peer(f"ggml {name} (C)", times[1] if peer else None, absence), goal)


@contextmanager
def _compiled() -> Iterator[None]:
    use_numba()
    try:
        yield
    finally:
        use_numba(False)


def _c_peer(x: Floats, name: str, nbytes: int) -> Work | None:
    """The reference quantizer of ggml's C library, one thread; None without the library."""
    package = util.find_spec("llama_cpp")
    library = Path(package.origin or "").parent / "lib" / "libggml-base.so" if package is not None else None
    if library is None or not library.exists():
        return None
    quantize: Any = getattr(ctypes.CDLL(str(library)), f"quantize_row_{name}_ref")
    quantize.argtypes, quantize.restype = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64), None
    blocks = np.zeros((x.size // GROUP, nbytes), np.uint8)

    def work() -> None:
        quantize(x.ctypes.data, blocks.ctypes.data, x.size)

    work()
    scales = blocks[:, :2].copy().view(np.float16).astype(np.float32)
    if not np.allclose(
        np.abs(scales) * (8 if nbytes == 18 else 127), np.abs(x.reshape(-1, GROUP)).max(1)[:, None], 1e-3
    ):
        raise MutcacheError(f"ggml's {name} made scales that do not belong to the values: there is nothing to compare")
    return work


def _verify(found: NDArray[Any], x: Floats) -> None:
    """See that a competitor does the work before it is timed."""
    if np.abs(found - x).max() > np.abs(x).max() / 7:
        raise MutcacheError("a competitor encoded something else than the values: there is nothing to compare")


def _declaration(storage: str) -> Declaration:
    proto = QuantizationProto(data_type=TensorProto.FLOAT)
    packed = proto.packed_linear
    packed.storage_type = TensorProto.DataType.Value(storage)
    packed.bits = int(storage.removeprefix("INT"))
    packed.symmetric = True
    packed.block_size, packed.axis = GROUP, 1
    packed.scale_type = TensorProto.FLOAT16
    return parse_declaration(proto)
