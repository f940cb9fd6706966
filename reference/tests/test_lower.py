"""Lowering: the same values from stock ONNX, or a refusal that names the node."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import checker, parser
from onnx.reference import ReferenceEvaluator

from mutcache.errors import MutcacheError
from mutcache.lower import lower
from mutcache.proto import from_onnx, serialize, to_onnx
from mutcache.proto.onnx_ml import ModelProto, ValueAliasProto, ValueInfoProto

CACHE = np.arange(48, dtype=np.float32).reshape(2, 6, 4)
VALUES = -np.ones((2, 2, 4), np.float32)


def cache_model(attributes: str = "axis = 1", position: str = "int64", opset: int = 24) -> ModelProto:
    model = from_onnx(
        parser.parse_model(
            f"""<ir_version: 15, opset_import: ["": {opset}, "onnx.mutable_cache": 1]>
            g (float[2,6,4] cache, float[2,2,4] values, {position} position, bool full) => (float[2,6,4] updated)
            {{ updated = If (full) <
                then_branch = t () => (float[2,6,4] kept) {{ kept = Identity(cache) }},
                else_branch = e () => (float[2,6,4] written)
                  {{ [update] written = onnx.mutable_cache.CacheUpdate<{attributes}>(cache, values, position) }}> }}"""
        )
    )
    model.graph.input[0].access = ValueInfoProto.READ_WRITE
    model.graph.output[0].alias_of = "cache"
    for branch in (attribute.g for attribute in model.graph.node[0].attribute):
        branch.node[0].output_alias.add(output_index=0, input_index=0, kind=ValueAliasProto.MUST_ALIAS)
        branch.output[0].alias_of = "cache"
    return model


@pytest.mark.parametrize(
    ("attributes", "position", "start", "rows"),
    [
        ("axis = 1", "int64", np.array(3), [[3, 4], [3, 4]]),
        ('axis = 1, mode = "circular"', "int64", np.array(5), [[5, 0], [5, 0]]),
        ("axis = 1, batch_axis = 0", "int64[2]", np.array([4, 0]), [[4, 5], [0, 1]]),
    ],
)
def test_stock_onnx_computes_the_same(
    attributes: str, position: str, start: NDArray[np.int64], rows: list[list[int]]
) -> None:
    lowered = to_onnx(lower(cache_model(attributes, position)))
    checker.check_model(lowered, full_check=True)
    expected = CACHE.copy()
    for batch, written in enumerate(rows):
        expected[batch, written] = VALUES[batch]
    run = ReferenceEvaluator(lowered).run
    feeds = {"cache": CACHE, "values": VALUES, "position": start}
    for full, after in ((False, expected), (True, CACHE)):
        (updated,) = run(None, feeds | {"full": np.array(full)})
        np.testing.assert_array_equal(updated, after)


def test_nothing_of_the_delta_is_left() -> None:
    model = cache_model()
    data = serialize(model)
    lowered = lower(model)
    text = str(lowered)
    assert not [word for word in ("alias", "access", "mutable_cache") if word in text]
    assert lowered.ir_version == 11
    assert serialize(model) == data


def test_a_negative_axis_needs_a_declared_rank() -> None:
    model = cache_model("axis = -2")
    with pytest.raises(MutcacheError, match="rank of 'cache' is not declared"):
        lower(model)
    branch = model.graph.node[0].attribute[1].g
    branch.value_info.add(name="cache").CopyFrom(model.graph.input[0])
    scatter = lower(model).graph.node[0].attribute[1].g.node[-1]
    assert next(attribute.i for attribute in scatter.attribute if attribute.name == "axis") == 1


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (cache_model("axis = 0"), "CacheUpdate 'update': axis is 0"),
        (cache_model("axis = 1, batch_axis = 2"), "CacheUpdate 'update': batch_axis is 2"),
        (cache_model(opset=21), "version 21"),
    ],
    ids=["axis", "batch axis", "operator set"],
)
def test_what_stock_onnx_cannot_say_is_refused(model: ModelProto, message: str) -> None:
    with pytest.raises(MutcacheError, match=message):
        lower(model)


def test_functions_and_pages_are_refused() -> None:
    model = cache_model()
    model.functions.add(name="f", domain="d")
    with pytest.raises(MutcacheError, match="functions"):
        lower(model)
    model = cache_model()
    model.quantizations.add()
    with pytest.raises(MutcacheError, match="quantized pages"):
        lower(model)
    model = cache_model()
    model.graph.node.add(op_type="PagedCacheGather", domain="onnx.mutable_cache", input=["cache"], output=["rows"])
    with pytest.raises(MutcacheError, match="'rows': stock ONNX has no such operator"):
        lower(model)
