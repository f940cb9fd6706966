"""Sessions on a device, with the host shim in its place: what is bound, read, refused, and where it lies."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from kernel_cases import Array, host, needs_compiler
from onnx import TensorProto, helper

import mutcache
from mutcache import BindError, RunError, Session
from mutcache.ops.dense import Attributes, Names
from mutcache.proto.onnx_ml import ModelProto
from mutcache.requirements import Req
from mutcache.storage import storage_of
from mutcache_cupy.backend import KernelBackend

pytestmark = needs_compiler
DEVICE = "cuda:0"


def model(*, reads: bool = False, **attributes: Any) -> ModelProto:
    """A CacheUpdate, and with ``reads`` a sum of the updated cache."""
    nodes = [
        helper.make_node(
            "CacheUpdate", ["cache", "values", "position"], ["updated"], domain="onnx.mutable_cache", **attributes
        )
    ]
    outputs = [helper.make_tensor_value_info("updated", TensorProto.FLOAT, ["b", "n", "d"])]
    if reads:
        nodes.append(helper.make_node("ReduceSum", ["updated"], ["sum"], keepdims=0))
        outputs.append(helper.make_tensor_value_info("sum", TensorProto.FLOAT, []))
    position: list[str] = ["b"] if "batch_axis" in attributes else []
    graph = helper.make_graph(
        nodes,
        "main",
        [
            helper.make_tensor_value_info("cache", TensorProto.FLOAT, ["b", "n", "d"]),
            helper.make_tensor_value_info("values", TensorProto.FLOAT, ["b", "m", "d"]),
            helper.make_tensor_value_info("position", TensorProto.INT64, position),
        ],
        outputs,
    )
    opsets = [helper.make_opsetid("", 24), helper.make_opsetid("onnx.mutable_cache", 1)]
    made = mutcache.from_onnx(helper.make_model(graph, opset_imports=opsets, ir_version=onnx.IR_VERSION))
    made.ir_version = mutcache.IR_VERSION
    made.graph.node[0].output_alias.add(output_index=0, input_index=0, kind=1)
    made.graph.input[0].access = 1  # type: ignore[assignment]  # READ_WRITE
    made.graph.output[0].alias_of = "cache"
    return made


def device_array(array: Array) -> Any:
    """An array on the device, with a copy of these elements."""
    device = host()
    return device.view(device.upload(array), 0, array.dtype, array.shape, array.strides)


def session(made: ModelProto, **options: Any) -> Session:
    return Session(made, backend=KernelBackend(host()), **options)


def test_an_update_in_place_on_the_device() -> None:
    before = np.arange(24, dtype=np.float32).reshape(2, 4, 3)
    cache, values = device_array(before), np.full((2, 2, 3), 7, np.float32)
    with session(model()) as one, one.bind({"cache": cache}) as binding:
        outputs = binding.run({"values": values, "position": 1})
        assert outputs["updated"] is cache
    expected = before.copy()
    expected[:, 1:3] = values
    np.testing.assert_array_equal(cache.get(), expected)


def test_mc_dense_013_positions_of_a_batch() -> None:
    cache, values = device_array(np.zeros((2, 4, 3), np.float32)), np.ones((2, 1, 3), np.float32)
    with session(model(batch_axis=0)) as one, one.bind({"cache": cache}) as binding:
        binding.run({"values": values, "position": np.array([0, 3])})
    assert [np.flatnonzero(row.any(axis=1)).tolist() for row in cache.get()] == [[0], [3]]


def test_what_reads_a_cache_gets_a_copy_on_the_host() -> None:
    cache, values = device_array(np.zeros((2, 4, 3), np.float32)), np.ones((2, 1, 3), np.float32)
    with session(model(reads=True)) as one, one.bind({"cache": cache}) as binding:
        outputs = binding.run({"values": values, "position": 2})
    assert isinstance(outputs["sum"], np.ndarray)
    assert outputs["sum"] == 6


@pytest.mark.parametrize(
    ("position", "requirement"), [(3, Req.MC_DENSE_003), (-1, Req.MC_DENSE_004), (2**63 - 1, Req.MC_DENSE_003)]
)
def test_a_refused_update_changes_nothing(position: int, requirement: Req) -> None:
    cache, values = device_array(np.zeros((2, 4, 3), np.float32)), np.ones((2, 2, 3), np.float32)
    with session(model()) as one, one.bind({"cache": cache}) as binding:
        with pytest.raises(RunError) as caught:
            binding.run({"values": values, "position": np.int64(position)})
        assert caught.value.requirement is requirement
        assert not cache.get().any()
        binding.run({"values": values, "position": 0})
        assert cache.get().sum() == 12


def test_the_device_has_the_last_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """A position that changes between the judgement on the host and the launch is refused by the kernel."""
    monkeypatch.setattr("mutcache.ops.dense.CacheUpdate.check", lambda *_: None)
    cache, values = device_array(np.zeros((2, 4, 3), np.float32)), np.ones((2, 2, 3), np.float32)
    with session(model()) as one, one.bind({"cache": cache}) as binding:
        for position, requirement in ((3, Req.MC_DENSE_003), (-1, Req.MC_DENSE_004)):
            with pytest.raises(RunError, match="the device refuses 'position'") as caught:
                binding.run({"values": values, "position": position})
            assert caught.value.requirement is requirement
    assert not cache.get().any()


def test_mc_bind_007_host_and_device_are_never_mixed() -> None:
    on_host, on_device = np.zeros((2, 4, 3), np.float32), device_array(np.zeros((2, 4, 3), np.float32))
    with (
        session(model()) as one,
        pytest.raises(BindError, match="it is on cpu, the session needs it on cuda:0") as caught,
    ):
        one.bind({"cache": on_host})
    assert caught.value.requirement is Req.MC_BIND_007
    with Session(model()) as one, pytest.raises(BindError, match="it is on cuda:0, the session needs it on cpu"):
        one.bind({"cache": on_device})


def test_mc_bind_005_leases_of_device_memory() -> None:
    device = host()
    buffer = device.upload(np.zeros(48, np.float32))

    def view(offset: int) -> Any:
        return device.view(buffer, offset, np.dtype(np.float32), (2, 4, 3), (48, 12, 4))

    with session(model()) as one, session(model()) as other, one.bind({"cache": view(0)}):
        with pytest.raises(BindError) as caught:
            other.bind({"cache": view(48)})
        assert caught.value.requirement is Req.MC_BIND_005
        other.bind({"cache": view(96)}).release()


def test_storage_of_device_arrays() -> None:
    device = host()
    buffer = device.upload(np.zeros(64, np.uint8))
    start = device.address(buffer)
    dense = storage_of(device.view(buffer, 8, np.dtype(np.int16), (2, 3), (6, 2)))
    assert (dense.device, dense.address, dense.nbytes, dense.contiguous) == (DEVICE, start + 8, 12, True)
    assert (dense.byte_range.start, dense.byte_range.stop) == (start + 8, start + 20)
    strided = storage_of(device.view(buffer, 8, np.dtype(np.int16), (2, 3), (12, -2)))
    assert not strided.contiguous
    assert (strided.byte_range.start, strided.byte_range.stop) == (start + 4, start + 22)
    empty = storage_of(device.view(buffer, 0, np.dtype(np.int16), (0, 3), (6, 2)))
    assert empty.byte_range.is_empty
    assert empty.contiguous


def test_values_that_are_another_cache_are_read_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    uploads: list[int] = []
    device = host()
    cache, other = device_array(np.zeros((2, 4, 3), np.float32)), device_array(np.ones((2, 2, 3), np.float32))
    names = Names("node", "cache", "values", "position")
    update = KernelBackend(device).cache_update(cache, Attributes(1), names)
    upload = device.upload

    def counted(array: Array) -> Array:
        uploads.append(array.nbytes)
        return upload(array)

    monkeypatch.setattr(device, "upload", counted)
    update.write(other, np.array(1))
    assert cache.get()[:, 1:3].all()
    assert max(uploads) < 1024  # the position, the table and its pages: no values
    with pytest.raises(RunError) as caught:
        update.write(device_array(np.ones((2, 2, 3), np.float16)), np.array(1))
    assert caught.value.requirement is Req.MC_SHAPE_006
