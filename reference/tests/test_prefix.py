"""Prefixing: every name and every reference to it, and a model that means the same (MC-FLOW-008)."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import checker, compose, parser
from onnx.reference import ReferenceEvaluator

from mutcache.check import check_model
from mutcache.errors import DecodeError, MutcacheError
from mutcache.executor import Session
from mutcache.prefix import add_prefix
from mutcache.proto import from_onnx, serialize, to_onnx
from mutcache.proto.onnx_ml import ModelProto, NodeProto, ValueAliasProto, ValueInfoProto


def mark(node: NodeProto) -> None:
    node.output_alias.add(output_index=0, input_index=0, kind=ValueAliasProto.MUST_ALIAS)


def cache_model() -> ModelProto:
    """An update in a branch, with an initializer that the branches capture, and an update of what the If returns."""
    model = from_onnx(
        parser.parse_model(
            """<ir_version: 15, opset_import: ["": 21, "onnx.mutable_cache": 1]>
            g (float[4,2] cache, float[1,2] values, bool full) => (float[4,2] final, float[4,2] before)
            <int64 first = {0}, int64 last = {3}>
            { before = Neg(cache)
              [choice] middle = If (full) <
                then_branch = then_graph () => (float[4,2] kept) { kept = Identity(cache) },
                else_branch = else_graph () => (float[4,2] written)
                  { twice = Add(values, values)
                    [update] written = onnx.mutable_cache.CacheUpdate(cache, twice, first) }>
              final = onnx.mutable_cache.CacheUpdate(middle, values, last) }"""
        )
    )
    graph = model.graph
    graph.input[0].access = ValueInfoProto.READ_WRITE
    graph.output[0].alias_of = "cache"
    graph.value_info.add(name="middle", alias_of="cache")
    mark(graph.node[2])
    for branch in (attribute.g for attribute in graph.node[1].attribute):
        mark(branch.node[-1])
        branch.output[0].alias_of = "cache"
    return model


def names_of(model: ModelProto) -> set[str]:
    """Every name of the main graph and its subgraphs, wherever it stands."""
    names: set[str] = set()
    pending = [model.graph]
    while pending:
        graph = pending.pop()
        for entry in (*graph.input, *graph.output, *graph.value_info):
            names.update((entry.name, entry.alias_of))
        names.update(tensor.name for tensor in graph.initializer)
        for node in graph.node:
            names.update((node.name, *node.input, *node.output))
            pending.extend(attribute.g for attribute in node.attribute if attribute.HasField("g"))
    return names - {""}


def test_every_name_gets_the_prefix() -> None:
    model = cache_model()
    prefixed = add_prefix(model, "layer/")
    assert names_of(prefixed) == {f"layer/{name}" for name in names_of(model)}


def test_the_verdict_stays_the_same() -> None:
    model = cache_model()
    prefixed = add_prefix(model, "p.")
    assert check_model(model) == []
    assert check_model(prefixed) == []


def test_a_prefixed_cache_is_updated_in_place() -> None:
    model = from_onnx(
        parser.parse_model(
            """<ir_version: 15, opset_import: ["onnx.mutable_cache": 1]>
            g (float[4,2] cache, float[1,2] values, int64 position) => (float[4,2] updated)
            { updated = onnx.mutable_cache.CacheUpdate(cache, values, position) }"""
        )
    )
    model.graph.input[0].access = ValueInfoProto.READ_WRITE
    model.graph.output[0].alias_of = "cache"
    mark(model.graph.node[0])
    cache = np.zeros((4, 2), np.float32)
    with Session(add_prefix(model, "p.")) as session, session.bind({"p.cache": cache}) as binding:
        binding.run({"p.values": np.ones((1, 2), np.float32), "p.position": np.array(2)})
    np.testing.assert_array_equal(cache, [[0, 0], [0, 0], [1, 1], [0, 0]])


def test_functions_and_their_calls_get_the_prefix_and_operators_do_not() -> None:
    model = from_onnx(
        parser.parse_model(
            """<ir_version: 10, opset_import: ["": 21, "f": 1]>
            g (float[2] a, bool c) => (float[2] r)
            { s = Add(a, a)
              r = If (c) <then_branch = t () => (float[2] z) { z = f.Add(s) },
                          else_branch = e () => (float[2] w) { w = Neg(a) }> }
            <domain: "f", opset_import: ["": 21]> Neg (x) => (o) { o = Neg(x) }
            <domain: "f", opset_import: ["": 21, "f": 1]> Add (x) => (o) { t = f.Neg(x) o = Add(t, t) }"""
        )
    )
    prefixed = to_onnx(add_prefix(model, "p_"))
    checker.check_model(prefixed, full_check=True)
    assert [function.name for function in prefixed.functions] == ["p_Neg", "p_Add"]
    a = np.array([1.0, 2.0], np.float32)
    feeds = {"p_a": a, "p_c": np.array(True)}
    (result,) = ReferenceEvaluator(prefixed).run(None, feeds)
    np.testing.assert_array_equal(result, -4 * a)


def test_prefixed_copies_can_be_merged_by_stock_onnx() -> None:
    io_map = [("one/before", "two/values")]
    same = to_onnx(cache_model()).graph
    with pytest.raises(ValueError, match="overlapping"):
        compose.merge_graphs(same, same, io_map=[("before", "values")])
    first, second = (to_onnx(add_prefix(cache_model(), prefix)).graph for prefix in ("one/", "two/"))
    merged = ModelProto()
    merged.graph.ParseFromString(compose.merge_graphs(first, second, io_map=io_map).SerializeToString())
    stated = {value.name: value.alias_of for value in merged.graph.output if value.alias_of}
    assert stated == {"one/final": "one/cache", "two/final": "two/cache"}


def test_the_model_itself_stays_as_it_is() -> None:
    model = cache_model()
    data = serialize(model)
    add_prefix(model, "p.")
    assert serialize(model) == data


def test_less_common_references_are_renamed() -> None:
    model = cache_model()
    graph = model.graph
    annotation = graph.quantization_annotation.add(tensor_name="before")
    annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="scale")
    sparse = graph.sparse_initializer.add(dims=[4])
    sparse.values.name, sparse.indices.name = "sparse", "indices"
    graph.node[0].device_configurations.add().sharding_spec.add(tensor_name="cache")
    graph.node[0].input.append("")
    graph = add_prefix(model, "p.").graph
    assert graph.quantization_annotation[0].tensor_name == "p.before"
    assert graph.quantization_annotation[0].quant_parameter_tensor_names[0].key == "SCALE_TENSOR"
    assert graph.quantization_annotation[0].quant_parameter_tensor_names[0].value == "p.scale"
    assert (graph.sparse_initializer[0].values.name, graph.sparse_initializer[0].indices.name) == (
        "p.sparse",
        "p.indices",
    )
    assert graph.node[0].device_configurations[0].sharding_spec[0].tensor_name == "p.cache"
    assert graph.node[0].input[1] == ""


def test_what_cannot_be_renamed_is_refused() -> None:
    model = cache_model()
    model.training_info.add()
    with pytest.raises(MutcacheError, match="training"):
        add_prefix(model, "p.")
    deep = cache_model()
    graph = deep.graph
    for _ in range(101):
        node = graph.node.add(op_type="If", input=["full"])
        node.attribute.add(name="then_branch", type="GRAPH").g.name = "inner"
        graph = node.attribute[0].g
    with pytest.raises(DecodeError, match="levels deep"):
        add_prefix(deep, "p.")
    bad = serialize(cache_model()).replace(b"twice", b"tw\xffce")
    with pytest.raises(DecodeError, match="UTF-8"):
        add_prefix(ModelProto.FromString(bad), "p.")
