"""Converted decoders compute what the originals computed, on caches that never move.

The original is the oracle: evaluated by onnx, and by ONNX Runtime where it is installed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import DTypeLike, NDArray
from onnx import parser
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from mutcache.check import diagnose
from mutcache.errors import RunError
from mutcache.proto import from_onnx, load, save, to_onnx
from mutcache.proto.onnx_ml import ModelProto, ValueInfoProto
from mutcache_tools import example_decoder
from mutcache_tools.convert import convert
from mutcache_tools.greedy import (
    GrowingDecoder,
    MutableDecoder,
    greedy_tokens,
    onnx_reference_evaluator,
    onnxruntime_evaluator,
)
from mutcache_tools.output import UsageError

Array = NDArray[Any]

LLAMA = Path(__file__).parents[2].parent / "shared" / "models" / "llama_torch23.onnx"
PROMPT = [1, 5, 9, 7]


class CacheUpdate(OpRun):
    """The update as a function: what the new nodes mean to an evaluator that knows no storage."""

    op_domain = "onnx.mutable_cache"

    def _run(
        self,
        cache: Array,
        values: Array,
        position: Array,
        axis: int,
        mode: str = "linear",
        batch_axis: int | None = None,
    ) -> tuple[Array]:
        assert (position.shape, mode, batch_axis) == ((), "linear", None)
        assert 0 <= position <= cache.shape[axis] - values.shape[axis]
        rows = [slice(None)] * cache.ndim
        rows[axis] = slice(int(position), int(position) + values.shape[axis])
        updated = cache.copy()
        updated[tuple(rows)] = values
        return (updated,)


def functional(model: ModelProto) -> Callable[[Mapping[str, Array]], dict[str, Array]]:
    evaluator = ReferenceEvaluator(to_onnx(model), new_ops=[CacheUpdate])
    return lambda feeds: dict(zip(evaluator.output_names, evaluator.run(None, dict(feeds)), strict=True))


def original(model: onnx.ModelProto) -> Callable[[Mapping[str, Array]], dict[str, Array]]:
    evaluator = ReferenceEvaluator(model)
    return lambda feeds: dict(zip(evaluator.output_names, evaluator.run(None, dict(feeds)), strict=True))


def garbage(shape: tuple[int, ...], dtype: DTypeLike) -> Array:
    """A cache whose unwritten rows poison every result that reads them."""
    return np.full(shape, np.nan, dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_logits_keep_their_bits_through_prefill_and_decoding(dtype: DTypeLike) -> None:
    model = example_decoder.build(dtype=dtype)
    before, after = original(model), functional(convert(model, 16))
    names = [f"{layer}.{kind}" for layer in range(2) for kind in ("key", "value")]
    pasts = {f"past.{name}": np.zeros((3, 2, 0, 8), dtype) for name in names}
    caches = {f"past.{name}": garbage((3, 2, 16, 8), dtype) for name in names}
    random = np.random.default_rng(7)
    position = 0
    for length in (4, 1, 1, 3, 7):
        tokens = random.integers(0, 64, (3, length))
        expected = before({"input_ids": tokens, **pasts})
        actual = after({"input_ids": tokens, "position": np.array(position), **caches})
        assert actual["logits"].dtype == dtype
        assert actual["logits"].tobytes() == expected["logits"].tobytes()
        position += length
        for name in names:
            present, updated = expected[f"present.{name}"], actual[f"present.{name}"]
            assert updated[:, :, :position].tobytes() == present.tobytes()
            assert updated[:, :, position:].tobytes() == caches[f"past.{name}"][:, :, position:].tobytes()
            pasts[f"past.{name}"], caches[f"past.{name}"] = present, updated


def parse(graph: str) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 8, opset_import: ["": 18]> g {graph}')


#: Models in which the past and the present are read in every way. Each is: inputs besides the past, nodes.
READERS = {
    "past before the update": (
        "float[2,S,4] new",
        "a = Neg(past) present = Concat<axis=1>(past, new) y = ReduceSum<keepdims=0>(a)",
    ),
    "past after the update": (
        "float[2,S,4] new",
        "present = Concat<axis=1>(past, new) a = Neg(past) y = ReduceSum<keepdims=0>(a)",
    ),
    "past and present together": (
        "float[2,S,4] new",
        """present = Concat<axis=-2>(past, new)
           s = ReduceSum<keepdims=0>(past) t = ReduceMax<keepdims=0>(present) y = Sub(s, t)""",
    ),
    "shapes only": (
        "float[2,S,4] new",
        """a = Shape(past) present = Concat<axis=-2>(past, new) b = Shape(present)
           c = Concat<axis=0>(a, b) y = Identity(c)""",
    ),
    "past behind an Identity": (
        "float[2,S,4] new",
        "same = Identity(past) present = Concat<axis=1>(same, new) y = ReduceSum<keepdims=0>(same)",
    ),
    "new rows computed from the past": (
        "float[2,S,4] unused",
        """k = Constant<value_ints=[1]>() m = ReduceMean(past, k) new = Expand(m, k)
           present = Concat<axis=1>(past, new) y = ReduceSum<keepdims=0>(present)""",
    ),
    "captured by branches": (
        "float[2,S,4] new, bool cond",
        """present = Concat<axis=1>(past, new)
           y = If(cond) <then_branch = a () => (float t) { t = ReduceSum<keepdims=0>(past) },
                         else_branch = b () => (float e) { n = Neg(present) e = ReduceSum<keepdims=0>(n) }>""",
    ),
    "captured by a loop body": (
        "float[2,S,4] new, int64 trips",
        """yes = Constant<value = bool {1}>() start = Constant<value = float {1.0}>()
           present = Concat<axis=1>(past, new)
           y = Loop(trips, yes, start) <body = b (int64 i, bool c, float acc) => (bool again, float sum) {
               again = Identity(c) p = ReduceSum<keepdims=0>(present) sum = Add(acc, p) }>""",
    ),
}


@pytest.mark.parametrize("max_length", [9, "capacity"])
@pytest.mark.parametrize("reader", READERS)
def test_every_reader_gets_the_tensor_it_had(reader: str, max_length: int | str) -> None:
    inputs, nodes = READERS[reader]
    y = "int64[N] y" if reader == "shapes only" else "float y"
    model = parse(f"(float[2,P,4] past, {inputs}) => (float[2,T,4] present, {y}) {{ {nodes} }}")
    converted = convert(model, max_length)
    assert not [finding for finding in diagnose(converted) if finding.is_error]
    before, after = original(model), functional(converted)
    random = np.random.default_rng(3)
    for position, length in ((5, 2), (1, 1), (8, 1), (3, 0)):
        past = random.standard_normal((2, position, 4)).astype(np.float32)
        cache = garbage((2, 9, 4), np.float32)
        cache[:, :position] = past
        feeds: dict[str, Array] = {
            "new": random.standard_normal((2, length, 4)).astype(np.float32),
            "unused": np.zeros((2, length, 4), np.float32),
            "trips": np.array(2),
        }
        for cond in (True, False):
            given = {**feeds, "cond": np.array(cond)}
            wanted = {value.name: given[value.name] for value in model.graph.input if value.name != "past"}
            expected = before({**wanted, "past": past})
            actual = after({**wanted, "past": cache, "position": np.array(position)})
            end = expected["present"].shape[1]
            assert actual["y"].tobytes() == expected["y"].tobytes()
            assert actual["present"][:, :end].tobytes() == expected["present"].tobytes()


def test_axis_zero_and_integer_elements() -> None:
    model = parse("(int8[P] past, int8[S] new) => (int8[T] present) { present = Concat<axis=-1>(past, new) }")
    after = functional(convert(model, 5))
    cache = np.array([1, 2, 3, 4, 5], np.int8)
    assert after({"past": cache, "new": np.array([9], np.int8), "position": np.array(2)})["present"].tolist() == [
        1,
        2,
        9,
        4,
        5,
    ]


def test_everything_else_of_the_model_stays() -> None:
    model = example_decoder.build()
    model.producer_name, model.doc_string = "exporter", "a decoder"
    model.metadata_props.add(key="license", value="none")
    concat = next(node for node in model.graph.node if node.op_type == "Concat")
    concat.doc_string = "grows"
    concat.metadata_props.add(key="scope", value="layer 0")
    tensor = onnx.helper.make_tensor_value_info
    stale = tensor(concat.output[0], onnx.TensorProto.FLOAT, ["batch", 2, "total", 8])
    model.graph.value_info.extend([stale, tensor("node_kept", onnx.TensorProto.FLOAT, ["batch"])])
    result = convert(model, 16)

    assert (result.producer_name, result.doc_string, result.ir_version) == ("exporter", "a decoder", 15)
    assert [(prop.key, prop.value) for prop in result.metadata_props] == [("license", "none")]
    assert {(opset.domain, opset.version) for opset in result.opset_import} == {("", 18), ("onnx.mutable_cache", 1)}
    update = next(node for node in result.graph.node if node.op_type == "CacheUpdate")
    assert (update.name, update.doc_string) == (concat.name, "grows")
    assert [(prop.key, prop.value) for prop in update.metadata_props] == [("scope", "layer 0")]
    names = [value.name for value in result.graph.value_info]
    assert concat.output[0] not in names
    assert "node_kept" in names
    assert [value.name for value in result.graph.input] == [*(value.name for value in model.graph.input), "position"]
    assert [value.name for value in result.graph.output] == [value.name for value in model.graph.output]
    mutable = {value.name for value in result.graph.input if value.access == ValueInfoProto.READ_WRITE}
    assert mutable == {value.alias_of for value in result.graph.output if value.alias_of}
    assert len(mutable) == 4
    kept = {node.name: node for node in result.graph.node}
    for node in model.graph.node:
        if node.op_type == "MatMul":
            assert list(kept[node.name].output) == list(node.output)


def test_converted_example_generates_the_same_tokens_in_place() -> None:
    model = from_onnx(example_decoder.build())
    expected = greedy_tokens(GrowingDecoder(model, onnx_reference_evaluator(model)), PROMPT, 20)
    with MutableDecoder(convert(model, 32)) as decoder:
        assert greedy_tokens(decoder, PROMPT, 20) == expected
        assert decoder.addresses == {name: {cache.ctypes.data} for name, cache in decoder.caches.items()}
    assert len(set(expected)) > 5, "tokens that never change would show nothing"


def test_tokens_beyond_the_capacity_are_refused_and_the_cache_is_intact() -> None:
    with MutableDecoder(convert(from_onnx(example_decoder.build()), 6)) as decoder:
        decoder.step([1, 2, 3, 4, 5])
        contents = {name: cache.tobytes() for name, cache in decoder.caches.items()}
        with pytest.raises(RunError) as caught:
            decoder.step([6, 7])
        assert caught.value.requirement == "MC-DENSE-003"
        assert {name: cache.tobytes() for name, cache in decoder.caches.items()} == contents
        decoder.step([6])


def test_open_capacity_is_given_when_caches_are_made() -> None:
    model = from_onnx(example_decoder.build())
    converted = convert(model, "max_length")
    with pytest.raises(UsageError, match="'max_length'"):
        MutableDecoder(converted)
    with MutableDecoder(converted, dims={"max_length": 24}) as decoder:
        assert {cache.shape for cache in decoder.caches.values()} == {(1, 2, 24, 8)}
        expected = greedy_tokens(GrowingDecoder(model, onnx_reference_evaluator(model)), PROMPT, 3)
        assert greedy_tokens(decoder, PROMPT, 3) == expected


def test_example_generates_the_tokens_of_onnx_runtime(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    model = from_onnx(example_decoder.build())
    save(model, tmp_path / "decoder.onnx")
    expected = greedy_tokens(GrowingDecoder(model, onnxruntime_evaluator(tmp_path / "decoder.onnx")), PROMPT, 20)
    with MutableDecoder(convert(model, 32)) as decoder:
        assert greedy_tokens(decoder, PROMPT, 20) == expected


@pytest.mark.skipif(not LLAMA.is_file(), reason="the exported Llama decoder is not beside the checkout")
def test_exported_llama_generates_the_tokens_of_onnx_runtime_in_place() -> None:
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    model = load(LLAMA)
    expected = greedy_tokens(GrowingDecoder(model, onnxruntime_evaluator(LLAMA)), PROMPT, 12)
    converted = convert(model, 16)
    assert diagnose(converted) == []
    with MutableDecoder(converted) as decoder:
        for cache in decoder.caches.values():
            cache.fill(np.nan)  # whoever reads a row beyond the valid length gets no token
        assert greedy_tokens(decoder, PROMPT, 12) == expected
        assert decoder.addresses == {name: {cache.ctypes.data} for name, cache in decoder.caches.items()}
        assert len(decoder.addresses) == 4
