"""An update through a binding, all checks included, against a runtime that is handed one buffer twice."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper

from mutcache.errors import MutcacheError
from mutcache.executor import Session
from mutcache.lower import LOWERED_IR_VERSION, LOWERED_OPSET
from mutcache.model import DOMAIN, DOMAIN_VERSION
from mutcache.proto import IR_VERSION, from_onnx
from mutcache.proto.onnx_ml import ModelProto, ValueAliasProto, ValueInfoProto
from mutcache_tools.bench import Goal, Peer, Row, Unit
from mutcache_tools.bench.timing import Work, compare

Array = NDArray[Any]

#: Key and value, batch, heads, capacity, head size.
SHAPE: Final = (2, 1, 32, 4096, 128)
AXIS: Final = 3
POSITION: Final = 1000
#: Update lengths whose goal is set by the runtime; that of the long one is set by a copy.
SHORT: Final = (1, 16)
LONG: Final = 512


def measure() -> Iterator[Row]:
    """Updates of one row, of a few, and of a whole prompt."""
    cache = np.zeros(SHAPE, np.float16)
    for length in (*SHORT, LONG):
        what = f"binding.run, FLOAT16{list(SHAPE)}, length {length}"
        ours, copy, runtime, absence = _time(cache, length)
        peer = Peer("onnxruntime TensorScatter, io binding", runtime, absence)
        yield Row(what, Unit.SECONDS, ours, peer, Goal(1.0) if length in SHORT else None)
        if length == LONG:
            yield Row(what, Unit.SECONDS, ours, Peer("memcpy, one call per head", copy), Goal(1.05))


def _time(cache: Array, length: int) -> tuple[float, float, float | None, str]:
    """Seconds of an update of ``length`` rows: ours, by memcpy, by the runtime (or None, and why)."""
    random = np.random.default_rng(length)
    values = random.standard_normal((*SHAPE[:AXIS], length, *SHAPE[AXIS + 1 :]), np.float32).astype(np.float16)
    feeds = {"values": values, "position": np.array(POSITION)}
    work: list[Work] = [_copy_rows(cache, values)]
    absence = ""
    try:
        work.append(_runtime(cache, values))
    except ImportError as error:
        absence = f"{error.name or 'onnxruntime'} is not installed"
    with Session(_model()) as session, session.bind({"cache": cache}) as binding:
        work.insert(0, lambda: binding.run(feeds))
        for competitor in work:
            _verify(competitor, cache, values)
        times = compare(work, rounds=41, warm_up=5, calls=max(1, LONG // length))
    return times[0], times[1], times[2] if len(times) > 2 else None, absence


def _verify(work: Work, cache: Array, values: Array) -> None:
    """See that a competitor does the work before it is timed."""
    cache.fill(0)
    work()
    stop = POSITION + values.shape[AXIS]
    if not np.array_equal(cache[:, :, :, POSITION:stop], values) or np.count_nonzero(cache) != np.count_nonzero(values):
        raise MutcacheError("a competitor wrote something else than the values: there is nothing to compare")


def _copy_rows(cache: Array, values: Array) -> Work:
    """C's memcpy of the rows of each head, which lie together."""
    memcpy = ctypes.CDLL(None).memcpy
    memcpy.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    targets = cache.reshape(-1, *SHAPE[AXIS:])
    sources = values.reshape(-1, *values.shape[AXIS:])
    nbytes = sources[0].nbytes
    copies = [
        (target[POSITION:].ctypes.data, source.ctypes.data, nbytes)
        for target, source in zip(targets, sources, strict=True)
    ]

    def copy() -> None:
        for target, source, size in copies:
            memcpy(target, source, size)

    return copy


def _runtime(cache: Array, values: Array) -> Work:
    """ONNX Runtime's TensorScatter, the cache bound as input and as output. ImportError if it is not installed."""
    import onnxruntime

    tensor, half = helper.make_tensor_value_info, TensorProto.FLOAT16
    node = helper.make_node("TensorScatter", ["cache", "values", "position"], ["updated"], axis=AXIS)
    graph = helper.make_graph(
        [node],
        "update",
        [
            tensor("cache", half, SHAPE),
            tensor("values", half, values.shape),
            tensor("position", TensorProto.INT64, SHAPE[:1]),
        ],
        [tensor("updated", half, SHAPE)],
    )
    opset = helper.make_opsetid("", LOWERED_OPSET)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=LOWERED_IR_VERSION)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    arrays = {"cache": cache, "values": values, "position": np.full(SHAPE[0], POSITION)}
    binding = session.io_binding()
    for name, array in arrays.items():
        binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(array))
    binding.bind_ortvalue_output("updated", onnxruntime.OrtValue.ortvalue_from_numpy(cache))

    def run(_: object = arrays) -> None:  # the arrays live as long as the binding that points to them
        session.run_with_iobinding(binding)

    return run


def _model() -> ModelProto:
    """``updated = CacheUpdate(cache, values, position)``, as in the proposal's own example."""
    tensor, half = helper.make_tensor_value_info, TensorProto.FLOAT16
    cache_dims = list(SHAPE)
    values_dims: list[int | str] = [*SHAPE]
    values_dims[AXIS] = "length"
    graph = helper.make_graph(
        [helper.make_node("CacheUpdate", ["cache", "values", "position"], ["updated"], domain=DOMAIN, axis=AXIS)],
        "update",
        [
            tensor("cache", half, cache_dims),
            tensor("values", half, values_dims),
            tensor("position", TensorProto.INT64, []),
        ],
        [tensor("updated", half, cache_dims)],
    )
    opset = helper.make_opsetid(DOMAIN, DOMAIN_VERSION)
    model = from_onnx(helper.make_model(graph, opset_imports=[opset], ir_version=IR_VERSION))
    model.graph.input[0].access = ValueInfoProto.READ_WRITE
    model.graph.output[0].alias_of = "cache"
    model.graph.node[0].output_alias.add(output_index=0, input_index=0, kind=ValueAliasProto.MUST_ALIAS)
    return model
