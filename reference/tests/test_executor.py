"""What a run computes and where it leaves it."""

from __future__ import annotations

import ctypes

import ml_dtypes
import numpy as np
import onnx
import pytest
from seed_example import refusal, seed_arrays, seed_model

from mutcache.errors import CheckError, MutcacheError, PlanError, RunError
from mutcache.executor import Session
from mutcache.proto import serialize
from mutcache.proto.onnx_ml import ModelProto, TensorProto
from mutcache.requirements import Req
from mutcache.storage import Array
from mutcache_conformance.cases.builder import aliased, initializer, model, node, tensor, update
from mutcache_conformance.oracle import run_model

FLOAT, FLOAT16, INT64 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64


def test_the_example_of_the_specification() -> None:
    cache, values = seed_arrays()
    expected = cache.copy()
    expected[..., 5:8, :] = values
    with Session(seed_model()) as session, session.bind({"cache": cache}) as binding:
        outputs = binding.run({"values": values, "position": np.array(5)})
        assert outputs["updated_cache"] is cache
        assert cache.tobytes() == expected.tobytes()
        with pytest.raises(RunError, match=r"position 6 \+ length 3 of 'values' > capacity 8 of 'cache'") as refused:
            binding.run({"values": values, "position": 6})
        assert refusal(refused) is Req.MC_DENSE_003
        assert cache.tobytes() == expected.tobytes()
        binding.run({"values": values, "position": 0})
        expected[..., 0:3, :] = values
        assert cache.tobytes() == expected.tobytes()


def test_later_runs_see_what_the_caller_wrote() -> None:
    made = model(
        [tensor("cache", FLOAT, [4, 2], mutable=True), tensor("values", FLOAT, [1, 2]), tensor("position", INT64, [])],
        [update("cache", "values", "position", "updated"), node("Add", ["updated", "updated"], ["twice"])],
        [tensor("twice", FLOAT, [4, 2])],
    )
    cache = np.zeros((4, 2), np.float32)
    with Session(made).bind({"cache": cache}) as binding:
        cache[...] = 3
        outputs = binding.run({"values": np.ones((1, 2), np.float32), "position": 0})
    np.testing.assert_array_equal(outputs["twice"], [[2, 2], [6, 6], [6, 6], [6, 6]])


def test_a_chain_of_updates_with_passes_between() -> None:
    made = model(
        [tensor("cache", FLOAT, [4, 2], mutable=True), tensor("values", FLOAT, [1, 2]), tensor("position", INT64, [])],
        [
            update("cache", "values", "position", "first"),
            aliased(node("Identity", ["first"], ["same"])),
            node("Add", ["position", "one"], ["next"]),
            update("same", "values", "next", "second"),
        ],
        [tensor("second", FLOAT, [4, 2], alias_of="cache")],
        initializers=[initializer("one", INT64, [], np.array(1).tobytes())],
    )
    cache = np.zeros((4, 2), np.float32)
    with Session(made).bind({"cache": cache}) as binding:
        feeds = {"values": np.ones((1, 2), np.float32), "position": np.array(1)}
        wanted = run_model(serialize(made), {"cache": cache, **feeds}).classes["cache"]
        assert binding.run(feeds)["second"] is cache
        np.testing.assert_array_equal(cache, wanted[2])
        with pytest.raises(RunError):  # the second update overflows, the first stays
            binding.run({"values": 5 * feeds["values"], "position": 3})
        np.testing.assert_array_equal(cache, [[0, 0], [1, 1], [1, 1], [5, 5]])
        binding.run(feeds)


def test_an_update_that_nobody_reads_happens() -> None:
    made = model(
        [tensor("cache", FLOAT, [2, 2], mutable=True), tensor("values", FLOAT, [1, 2]), tensor("position", INT64, [])],
        [update("cache", "values", "position", "unread"), node("Neg", ["values"], ["y"])],
        [tensor("y", FLOAT, [1, 2])],
    )
    cache = np.zeros((2, 2), np.float32)
    with Session(made).bind({"cache": cache}) as binding:
        binding.run({"values": np.ones((1, 2), np.float32), "position": 1})
    np.testing.assert_array_equal(cache, [[0, 0], [1, 1]])


def test_storage_that_moves_is_noticed() -> None:
    made = model(
        [tensor("cache", FLOAT, ["n"], mutable=True), tensor("values", FLOAT, ["m"]), tensor("position", INT64, [])],
        [update("cache", "values", "position", "updated", {"axis": 0})],
        [tensor("updated", FLOAT, ["n"], alias_of="cache")],
    )
    cache, other = np.zeros(4, np.float32), np.zeros(4, np.float32)
    feeds = {"values": np.ones(1, np.float32), "position": 0}
    with Session(made).bind({"cache": cache}) as binding:
        # NumPy moves no array that is bound. An extension that writes to the header of an array could.
        pointer = ctypes.c_void_p.from_address(id(cache) + object.__basicsize__)
        bound, pointer.value = pointer.value, other.__array_interface__["data"][0]
        try:
            with pytest.raises(RunError, match="'updated' would be at") as refused:
                binding.run(feeds)
        finally:
            pointer.value = bound
        assert refusal(refused) is Req.MC_BIND_009
        assert not cache.any()
        assert not other.any()
        binding.run(feeds)
    assert cache.tolist() == [1, 0, 0, 0]


def test_a_failing_kernel_names_its_node() -> None:
    made = model(
        [tensor("cache", FLOAT, [4], mutable=True), tensor("position", INT64, []), tensor("index", INT64, [1])],
        [
            update("cache", "ones", "position", "updated", {"axis": 0}),
            node("Gather", ["updated", "index"], ["picked"]),
            update("updated", "picked", "position", "last", {"axis": 0}),
        ],
        [tensor("last", FLOAT, [4], alias_of="cache")],
        initializers=[initializer("ones", FLOAT, [2], np.ones(2, np.float32).tobytes())],
    )
    cache = np.zeros(4, np.float32)
    with Session(made).bind({"cache": cache}) as binding:
        with pytest.raises(RunError, match=r"Gather \(#1\) failed"):
            binding.run({"position": 0, "index": np.array([9])})
        np.testing.assert_array_equal(cache, [1, 1, 0, 0])
        binding.run({"position": 2, "index": np.array([0])})
        np.testing.assert_array_equal(cache, [1, 1, 1, 1])


def test_kernels_cannot_write_to_what_is_not_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    from onnx.reference.ops.op_neg import Neg

    def write(_: Neg, x: Array) -> tuple[Array]:
        x[...] = -5
        return (x,)

    monkeypatch.setattr(Neg, "_run", write)
    made = model(
        [tensor("cache", FLOAT, [2], mutable=True), tensor("x", FLOAT, [2]), tensor("which", TensorProto.BOOL, [])],
        [node("Neg", ["cache"], ["a"]), node("Neg", ["x"], ["b"]), node("Neg", ["weight"], ["c"])],
        [tensor(name, FLOAT, [2]) for name in "abc"],
        initializers=[initializer("weight", FLOAT, [2], bytes(8))],
    )
    cache, x = np.zeros(2, np.float32), np.zeros(2, np.float32)
    for kept in range(3):
        one = ModelProto()
        one.CopyFrom(made)
        del one.graph.node[:]
        one.graph.node.append(made.graph.node[kept])
        del one.graph.output[:]
        one.graph.output.append(made.graph.output[kept])
        with Session(one).bind({"cache": cache}) as binding, pytest.raises(RunError, match="read-only"):
            binding.run({"x": x, "which": True})
    assert not cache.any()
    assert not x.any()


def test_optional_operands_and_several_outputs() -> None:
    made = model(
        [tensor("x", FLOAT, [4])],
        [
            node("Clip", ["x", "", "high"], ["clipped"]),
            node("Split", ["clipped", "sizes"], ["", "end"], {"axis": 0}),
            node("TopK", ["x", "two"], ["", "indices"]),
        ],
        [tensor("end", FLOAT, [1]), tensor("indices", INT64, [2])],
        initializers=[
            initializer("high", FLOAT, [], np.float32(2).tobytes()),
            initializer("sizes", INT64, [2], np.array([3, 1]).tobytes()),
            initializer("two", INT64, [1], np.array([2]).tobytes()),
        ],
    )
    made.graph.node[1].output[0] = "start"
    made.graph.node[2].output[0] = "largest"
    outputs = Session(made).run({"x": np.array([1, 2, 3, 4], np.float32)})
    np.testing.assert_array_equal(outputs["end"], [2])
    np.testing.assert_array_equal(outputs["indices"], [3, 2])


def test_local_functions_and_control_flow_without_caches() -> None:
    stock = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 21, "local" : 1]>
        main (float[n] x, bool flag, int64 trips) => (float[n] y, float[n] z) {
            doubled = local.twice(x)
            y = If (flag) <
                then_branch = yes () => (float[n] a) { a = Neg(doubled) },
                else_branch = no () => (float[n] b) { b = Identity(doubled) }
            >
            z = Loop (trips, flag, x) <body = step (int64 i, bool go, float[n] v) => (bool on, float[n] w) {
                on = Identity(go)
                w = Add(v, doubled)
            }>
        }
        <domain: "local", opset_import: ["" : 21]>
        twice (v) => (w) { w = Add(v, v) }
    """)
    made = ModelProto.FromString(stock.SerializeToString())
    x = np.array([1, 2], np.float32)
    outputs = Session(made).run({"x": x, "flag": True, "trips": 3})
    np.testing.assert_array_equal(outputs["y"], -2 * x)
    np.testing.assert_array_equal(outputs["z"], 7 * x)


def test_an_operator_without_a_kernel() -> None:
    made = model([tensor("x", FLOAT, [2])], [node("Mystery", ["x"], ["y"], domain="nobody")], [tensor("y", FLOAT, [2])])
    made.opset_import.add(domain="nobody", version=1)
    with pytest.raises((PlanError, CheckError), match="Mystery"):
        Session(made)


def test_sparse_initializers_have_no_kernel() -> None:
    made = model([tensor("x", FLOAT, [2])], [node("Neg", ["x"], ["y"])], [tensor("y", FLOAT, [2])])
    sparse = made.graph.sparse_initializer.add(dims=[3])
    sparse.values.CopyFrom(initializer("weight", FLOAT, [1], bytes(4)))
    sparse.indices.CopyFrom(initializer("", INT64, [1], bytes(8)))
    with pytest.raises(PlanError, match="'weight'"):
        Session(made)


def test_alias_of_an_ordinary_input_is_that_input() -> None:
    made = model(
        [tensor("x", FLOAT, [2])],
        [aliased(node("Identity", ["x"], ["same"])), node("Neg", ["same"], ["y"])],
        [tensor("same", FLOAT, [2], alias_of="x"), tensor("y", FLOAT, [2])],
    )
    x = np.ones(2, np.float32)
    outputs = Session(made).run({"x": x})
    assert outputs["same"] is x
    np.testing.assert_array_equal(outputs["y"], -x)


def test_a_model_of_the_stock_package_is_refused_with_a_hint() -> None:
    with pytest.raises(MutcacheError, match="from_onnx"):
        Session(onnx.ModelProto())  # type: ignore[arg-type]


def test_a_bad_model_is_refused() -> None:
    made = seed_model()
    made.ir_version = 14
    with pytest.raises(CheckError) as refused:
        Session(made)
    assert refusal(refused) is Req.MC_PROTO_002


def test_bfloat16_cache() -> None:
    made = model(
        [
            tensor("cache", TensorProto.BFLOAT16, [4, 2], mutable=True),
            tensor("values", TensorProto.BFLOAT16, [1, 2]),
            tensor("position", INT64, []),
        ],
        [update("cache", "values", "position", "updated")],
        [tensor("updated", TensorProto.BFLOAT16, [4, 2], alias_of="cache")],
    )
    cache = np.zeros((4, 2), ml_dtypes.bfloat16)
    values = np.array([[0x7F81, 0xFFFF]], np.uint16).view(ml_dtypes.bfloat16)
    with Session(made).bind({"cache": cache}) as binding:
        assert binding.run({"values": values, "position": 2})["updated"] is cache
    assert cache.view(np.uint16).tolist() == [[0, 0], [0, 0], [0x7F81, 0xFFFF], [0, 0]]
