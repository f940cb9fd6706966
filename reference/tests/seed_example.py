"""The specification's own example, and what tests of bindings and runs ask of a refusal."""

from __future__ import annotations

import numpy as np
import pytest

from mutcache.errors import MutcacheError
from mutcache.model import Dim
from mutcache.proto.onnx_ml import ModelProto, TensorProto
from mutcache.requirements import Req
from mutcache.storage import Array
from mutcache_conformance.cases.builder import model, tensor, update

FLOAT16, INT64 = TensorProto.FLOAT16, TensorProto.INT64


def seed_model() -> ModelProto:
    """The specification's own example."""
    dims: list[Dim] = [2, "batch", "heads", "max_length", "head_size"]
    return model(
        [
            tensor("cache", FLOAT16, dims, mutable=True),
            tensor("values", FLOAT16, [2, "batch", "heads", "new_length", "head_size"]),
            tensor("position", INT64, []),
        ],
        [update("cache", "values", "position", "updated_cache")],
        [tensor("updated_cache", FLOAT16, dims, alias_of="cache")],
    )


def seed_arrays(length: int = 3, capacity: int = 8) -> tuple[Array, Array]:
    rng = np.random.default_rng(7)
    cache = rng.standard_normal((2, 1, 2, capacity, 4)).astype(np.float16)
    return cache, rng.standard_normal((2, 1, 2, length, 4)).astype(np.float16)


def refusal(error: pytest.ExceptionInfo[MutcacheError]) -> Req | None:
    return error.value.requirement
