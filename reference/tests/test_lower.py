"""Lowering: the same values from stock ONNX, or a refusal that names the node."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import checker, parser
from onnx.reference import ReferenceEvaluator

from mutcache.errors import MutcacheError
from mutcache.lower import lower, storage_of_outputs, strip
from mutcache.proto import from_onnx, serialize, to_onnx
from mutcache.proto.onnx_ml import GraphProto, ModelProto, NodeProto, ValueAliasProto, ValueInfoProto
from mutcache.renaming import walk_nodes

CACHE = np.arange(48, dtype=np.float32).reshape(2, 6, 4)
VALUES = -np.ones((2, 2, 4), np.float32)


def cache_model(
    attributes: str = "axis = 1",
    position: str = "int64",
    opset: int = 24,
    *,
    cache: str = "2,6,4",
    values: str = "2,2,4",
) -> ModelProto:
    model = from_onnx(
        parser.parse_model(
            f"""<ir_version: 15, opset_import: ["": {opset}, "onnx.mutable_cache": 1]>
            g (float[{cache}] cache, float[{values}] values, {position} position, bool full) => (float[{cache}] updated)
            {{ updated = If (full) <
                then_branch = t () => (float[{cache}] kept) {{ kept = Identity(cache) }},
                else_branch = e () => (float[{cache}] written)
                  {{ [update] written = onnx.mutable_cache.CacheUpdate<{attributes}>(cache, values, position) }}> }}"""
        )
    )
    model.graph.input[0].access = ValueInfoProto.READ_WRITE
    model.graph.output[0].alias_of = "cache"
    for branch in branches(model):
        branch.node[0].output_alias.add(output_index=0, input_index=0, kind=ValueAliasProto.MUST_ALIAS)
        branch.output[0].alias_of = "cache"
    return model


def branches(model: ModelProto) -> list[GraphProto]:
    return [attribute.g for attribute in model.graph.node[0].attribute]


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


@pytest.mark.parametrize(
    ("attributes", "start", "rows"), [("axis = -3", 3, [3, 4]), ('axis = 0, mode = "circular"', 5, [5, 0])]
)
def test_rows_of_a_cache_without_a_batch(attributes: str, start: int, rows: list[int]) -> None:
    lowered = to_onnx(lower(cache_model(attributes, cache="6,2,4", values="2,2,4")))
    checker.check_model(lowered, full_check=True)
    cache = CACHE.reshape(6, 2, 4)
    expected = cache.copy()
    expected[rows] = VALUES
    feeds = {"cache": cache, "values": VALUES, "position": np.array(start), "full": np.array(False)}
    (updated,) = map(np.asarray, ReferenceEvaluator(lowered).run(None, feeds))
    np.testing.assert_array_equal(updated, expected)


def scatters(model: ModelProto) -> list[NodeProto]:
    nodes = [*walk_nodes(model.graph.node)]
    nodes += [node for function in model.functions for node in walk_nodes(function.node)]
    return [node for node in nodes if node.op_type == "TensorScatter"]


def test_a_negative_axis_counts_from_the_rank_that_is_known_of_the_cache() -> None:
    (scatter,) = scatters(lower(cache_model("axis = -2, batch_axis = -3", "int64[2]")))
    assert next(attribute.i for attribute in scatter.attribute if attribute.name == "axis") == 1
    assert scatter.input == ["cache", "values", "position"]
    model = cache_model("axis = -2")
    for entry in (model.graph.input[0], model.graph.output[0], *(b.output[0] for b in branches(model))):
        entry.type.tensor_type.ClearField("shape")
    with pytest.raises(MutcacheError, match="axis is -2 of 'cache', and its rank is not known"):
        lower(model)


def test_older_operator_sets_are_converted() -> None:
    model = cache_model(opset=18)
    model.graph.node.add(op_type="ReduceMax", input=["values"], output=["most"])
    model.graph.output.add(name="most").type.tensor_type.elem_type = 1
    lowered = to_onnx(lower(model))
    assert [(opset.domain, opset.version) for opset in lowered.opset_import] == [("", 24)]
    checker.check_model(lowered, full_check=True)
    feeds = {"cache": CACHE, "values": VALUES, "position": np.array(3), "full": np.array(False)}
    updated, most = map(np.asarray, ReferenceEvaluator(lowered).run(None, feeds))
    assert most == -1
    np.testing.assert_array_equal(updated[:, 3:5], VALUES)
    model.functions.add(name="f", domain="d")
    with pytest.raises(MutcacheError, match="cannot be converted to version 24"):
        lower(model)


def test_a_model_without_updates_keeps_its_operator_set() -> None:
    model = cache_model(opset=18)
    branches(model)[1].node[0].CopyFrom(branches(model)[0].node[0])
    branches(model)[1].node[0].output[0] = "written"
    assert [(opset.domain, opset.version) for opset in lower(model).opset_import] == [("", 18)]


def test_new_names_are_new() -> None:
    model = cache_model()
    model.graph.input.add(name="written_batch").type.tensor_type.elem_type = 1
    (scatter,) = scatters(lower(model))
    assert scatter.input[2] == "written_positions"
    assert [node.output for node in branches(lower(model))[1].node[:-1]] == [
        ["written_batch__1"],
        ["written_positions"],
    ]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (cache_model("axis = 0, batch_axis = 0"), "CacheUpdate 'update': axis and batch_axis are both 0"),
        (cache_model("axis = 1, batch_axis = 2"), "CacheUpdate 'update': batch_axis is 2"),
    ],
    ids=["same axis", "batch axis"],
)
def test_what_stock_onnx_cannot_say_is_refused(model: ModelProto, message: str) -> None:
    with pytest.raises(MutcacheError, match=message):
        lower(model)


def test_pages_are_refused() -> None:
    for change in (lambda made: made.quantizations.add(), add_container):
        model = cache_model()
        change(model)
        for transform in (lower, strip):
            with pytest.raises(MutcacheError, match="quantized pages"):
                transform(model)
    model = cache_model()
    model.graph.node.add(op_type="PagedCacheGather", domain="onnx.mutable_cache", input=["cache"], output=["rows"])
    with pytest.raises(MutcacheError, match="'rows': stock ONNX has no such operator"):
        lower(model)


def add_container(model: ModelProto) -> None:
    model.graph.input.add(name="pages").type.sequence_type.elem_type.quantized_tensor_type.elem_type = 1


def test_strip_removes_annotations_and_nothing_else() -> None:
    model = cache_model()
    stripped = strip(model)
    text = str(stripped)
    assert not [word for word in ("alias", "access") if word in text]
    assert stripped.ir_version == 14
    restored = cache_model()
    restored.ir_version = 14
    for branch in branches(restored):
        branch.output[0].ClearField("alias_of")
        branch.node[0].ClearField("output_alias")
    restored.graph.input[0].ClearField("access")
    restored.graph.output[0].ClearField("alias_of")
    assert serialize(stripped) == serialize(restored)


def test_outputs_that_are_storage_of_an_input() -> None:
    model = cache_model()
    model.graph.output.add(name="full").type.tensor_type.elem_type = 9
    assert storage_of_outputs(model) == {"updated": "cache"}
    model.graph.input[0].ClearField("access")
    assert storage_of_outputs(model) == {}
