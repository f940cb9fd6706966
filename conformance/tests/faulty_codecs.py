"""Runtimes that encode or decode pages otherwise than their declarations say. Each has one fault, its docstring."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from hooked_pages import Paged, operand, update_node
from hooked_runtime import Array, HookedBinding, HookedSession, Outputs, Storages, Tables, tensors

from mutcache.proto.onnx_ml import ModelProto, PackedLinearUniformProto, TensorProto
from mutcache.quantization import kernels
from mutcache.quantization.floats import Bytes, Floats
from mutcache.quantization.packing import pack
from mutcache_conformance.adapter import OutputValue


class OtherKernels(kernels._NumpyKernels):
    """NumPy's kernels with other ways to round, to limit and to pack."""

    def rounded(self, x: Floats) -> Floats:
        """Whole numbers near ``x``."""
        return np.rint(x)

    def limited(self, x: Floats, limits: tuple[int, int]) -> Floats:
        """Whole numbers between the limits."""
        return np.clip(x, *limits)

    def packed(self, codes: Bytes, bits: int) -> Bytes:
        """The bytes of codes."""
        return pack(codes, bits)

    def integer_codes(
        self, x: Floats, correction: Floats, reciprocal: Floats, zero_point: Floats, limits: tuple[int, int], bits: int
    ) -> Bytes:
        whole = self.rounded((x - correction) * reciprocal) + zero_point
        return self.packed(self.limited(whole, limits).astype(np.int32).astype(np.uint8), bits)


class _HalfAway(OtherKernels):
    def rounded(self, x: Floats) -> Floats:
        return np.copysign(np.floor(np.abs(x) + np.float32(0.5)), x)


class _Truncating(OtherKernels):
    def rounded(self, x: Floats) -> Floats:
        return np.trunc(x)


class _Wrapping(OtherKernels):
    def limited(self, x: Floats, limits: tuple[int, int]) -> Floats:  # noqa: ARG002 - which is the fault
        return x


class _HighFirst(OtherKernels):
    def packed(self, codes: Bytes, bits: int) -> Bytes:
        return pack(codes[:, ::-1], bits)[:, ::-1]


class _Encoding(Paged):
    kernels: OtherKernels

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        kernels._current = self.kernels  # of this process, which hosts nothing else


class RoundsHalfAway(_Encoding):
    """Rounds halves away from zero: within the bound, and not what the canonical encoder makes."""

    kernels = _HalfAway()


class Truncates(_Encoding):
    """Rounds codes towards zero."""

    kernels = _Truncating()


class WrapsCodes(_Encoding):
    """Lets codes that are too large wrap around."""

    kernels = _Wrapping()


class HighNibbleFirst(_Encoding):
    """Packs the first of two codes into the high bits of a byte."""

    kernels = _HighFirst()


class _Declaring(Paged):
    def on_load(self, model: ModelProto) -> ModelProto:
        for declaration in model.quantizations:
            if declaration.HasField("packed_linear"):
                self.declare(declaration.packed_linear)
        return model

    def declare(self, declaration: PackedLinearUniformProto) -> None:
        """Change what is declared."""


class IgnoresLayouts(_Declaring):
    """Stores all codes first, then all scales, whatever the declaration says."""

    def declare(self, declaration: PackedLinearUniformProto) -> None:
        declaration.layout = PackedLinearUniformProto.SEQUENTIAL


class StoresOtherScales(_Declaring):
    """Stores scales as BFLOAT16 that are declared FLOAT16."""

    def declare(self, declaration: PackedLinearUniformProto) -> None:
        if declaration.scale_type == TensorProto.FLOAT16:
            declaration.scale_type = TensorProto.BFLOAT16


class DropsNaN(Paged):
    """Encodes a NaN as zero."""

    def fed(self, binding: HookedBinding, feeds: Storages) -> Storages:
        values = operand(binding, feeds, 2)
        if values is None or values.dtype.kind != "f" or not np.isnan(values).any():
            return feeds
        name = update_node(binding).input[2]
        return {**feeds, name: binding.elsewhere(feeds[name], np.nan_to_num(values, nan=0.0, posinf=np.inf))}


class DecodesRoughly(Paged):
    """Decodes to numbers that are some units in the last place off."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        return _roughly(binding.model, super().on_run(binding, feeds))

    def on_unbound_tables(self, session: HookedSession, feeds: Storages, tables: Tables) -> Outputs:
        return _roughly(session.model, super().on_unbound_tables(session, feeds, tables))


def _roughly(model: ModelProto, outputs: Outputs) -> Outputs:
    gathered = {node.output[0] for node in model.graph.node if node.op_type == "PagedCacheGather"}
    rough = {name: output for name, output in tensors(outputs).items() if name in gathered}
    return {**outputs, **{name: _rough(output) for name, output in rough.items()}}


def _rough(output: OutputValue) -> OutputValue:
    """An output of which the elements that are not tiny have other low bits."""
    if output.dtype not in (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16):
        return output
    itemsize = 4 if output.dtype == TensorProto.FLOAT else 2
    bits: Array = np.frombuffer(output.read(0, output.nbytes), f"u{itemsize}").copy()
    data = np.where(bits & 0xFF > 8, bits ^ 4, bits).astype(bits.dtype).tobytes()
    return replace(output, read=lambda offset, nbytes: data[offset : offset + nbytes])
