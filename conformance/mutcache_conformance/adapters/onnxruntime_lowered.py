"""ONNX Runtime on lowered models: standard operators for updates, one value bound to each cache and its result."""

from __future__ import annotations

from mutcache_conformance.adapters.lowering import Prepared, lowered
from mutcache_conformance.adapters.onnxruntime import OnnxRuntimeAdapter


class OnnxRuntimeLoweredAdapter(OnnxRuntimeAdapter):
    """ONNX Runtime on lowered models."""

    name = "onnxruntime-lowered"

    def prepare(self, model: bytes) -> Prepared:
        """The lowered model."""
        return lowered(model)
