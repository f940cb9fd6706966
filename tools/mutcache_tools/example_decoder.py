"""A small decoder with the caches that ``torch.onnx.export`` writes, for tests and for trying the tools.

``python -m mutcache_tools.example_decoder decoder.onnx`` writes it. Its weights are random but always the same.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import onnx
from numpy.typing import DTypeLike, NDArray
from onnx import helper, numpy_helper


def build(
    *, layers: int = 2, heads: int = 2, head_size: int = 8, vocabulary: int = 64, dtype: DTypeLike = np.float32
) -> onnx.ModelProto:
    """The decoder, of opset 18 and IR version 8.

    Inputs: ``input_ids`` INT64 [batch, sequence], ``past.L.key`` and ``past.L.value`` [batch, heads, past, head_size].
    Outputs: ``logits`` [batch, sequence, vocabulary], ``present.L.key`` and ``present.L.value``, which are the past
    with the keys and values of the new tokens appended. Positions come from the shape of the past, and end at 511.
    """
    builder = _Builder(heads, head_size, np.dtype(dtype))
    hidden = heads * head_size
    embedding = builder.weight("embedding", (vocabulary, hidden), scale=1.0)
    positions = builder.weight("positions", (512, hidden), scale=1.0)

    past_length = builder.node("Shape", "past.0.key", start=2, end=3)
    sequence = builder.node("Shape", "input_ids", start=1, end=2)
    first = builder.node("Squeeze", past_length)
    total = builder.node("Squeeze", builder.node("Add", past_length, sequence))
    one = builder.constant("one", np.array(1, np.int64))
    rows = builder.node("Range", first, total, one)
    columns = builder.node("Range", builder.constant("zero", np.array(0, np.int64)), total, one)
    causal = builder.node(
        "LessOrEqual", columns, builder.node("Unsqueeze", rows, builder.constant("last", np.array([1])))
    )

    x = builder.node("Add", builder.node("Gather", embedding, "input_ids"), builder.node("Gather", positions, rows))
    for layer in range(layers):
        x = builder.node("Add", x, builder.attention(layer, x, causal))
    builder.node("MatMul", x, builder.node("Transpose", embedding, perm=[1, 0]), output="logits")

    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    tensor = helper.make_tensor_value_info
    caches = [f"{layer}.{kind}" for layer in range(layers) for kind in ("key", "value")]
    graph = helper.make_graph(
        builder.nodes,
        "example_decoder",
        [
            tensor("input_ids", onnx.TensorProto.INT64, ["batch", "sequence"]),
            *(tensor(f"past.{cache}", element, ["batch", heads, "past", head_size]) for cache in caches),
        ],
        [
            tensor("logits", element, ["batch", "sequence", vocabulary]),
            *(tensor(f"present.{cache}", element, ["batch", heads, "past + sequence", head_size]) for cache in caches),
        ],
        builder.initializers,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


class _Builder:
    """Collects nodes and weights."""

    def __init__(self, heads: int, head_size: int, dtype: np.dtype[np.generic]) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self._heads = heads
        self._head_size = head_size
        self._dtype = dtype
        self._random = np.random.default_rng(2026)

    def node(self, op_type: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        output = output or f"{op_type.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, list(inputs), [output], f"node_{output}", **attributes))
        return output

    def constant(self, name: str, array: NDArray[Any]) -> str:
        self.initializers.append(numpy_helper.from_array(array, name))
        return name

    def weight(self, name: str, shape: tuple[int, int], scale: float = 0.0) -> str:
        values = self._random.standard_normal(shape) * (scale or shape[0] ** -0.5)
        return self.constant(name, values.astype(self._dtype))

    def attention(self, layer: int, x: str, causal: str) -> str:
        """Causal attention of one layer over its past and the new tokens."""
        hidden = self._heads * self._head_size
        split = self.constant(f"split.{layer}", np.array([0, 0, self._heads, self._head_size]))
        join = self.constant(f"join.{layer}", np.array([0, 0, hidden]))

        def project(kind: str) -> str:
            flat = self.node("MatMul", x, self.weight(f"w.{layer}.{kind}", (hidden, hidden)))
            return self.node("Transpose", self.node("Reshape", flat, split), perm=[0, 2, 1, 3])

        query, key, value = (project(kind) for kind in ("query", "key", "value"))
        keys = self.node("Concat", f"past.{layer}.key", key, output=f"present.{layer}.key", axis=-2)
        values = self.node("Concat", f"past.{layer}.value", value, output=f"present.{layer}.value", axis=-2)
        scores = self.node("MatMul", query, self.node("Transpose", keys, perm=[0, 1, 3, 2]))
        far = self.constant(f"far.{layer}", np.array(-1e4, self._dtype))
        weights = self.node("Softmax", self.node("Where", causal, scores, far), axis=-1)
        mixed = self.node("Transpose", self.node("MatMul", weights, values), perm=[0, 2, 1, 3])
        return self.node("MatMul", self.node("Reshape", mixed, join), self.weight(f"w.{layer}.out", (hidden, hidden)))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m mutcache_tools.example_decoder OUT.onnx")
    onnx.save(build(), sys.argv[1])
