"""A small decoder with the caches that ``torch.onnx.export`` writes, for tests and for trying the tools.

``python -m mutcache_tools.example_decoder decoder.onnx`` writes it. Its weights are random but always the same.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from numpy.typing import DTypeLike, NDArray
from onnx import helper, numpy_helper

#: Keeps the new keys and values of a layer, ``[batch, heads, sequence, head_size]``: gets its number and their names,
#: and returns the names of all keys and values so far.
Cached = Callable[[int, str, str], tuple[str, str]]


def build(
    *, layers: int = 2, heads: int = 2, head_size: int = 8, vocabulary: int = 64, dtype: DTypeLike = np.float32
) -> onnx.ModelProto:
    """The decoder, of opset 18 and IR version 8.

    Inputs: ``input_ids`` INT64 [batch, sequence], ``past.L.key`` and ``past.L.value`` [batch, heads, past, head_size].
    Outputs: ``logits`` [batch, sequence, vocabulary], ``present.L.key`` and ``present.L.value``, which are the past
    with the keys and values of the new tokens appended. Positions come from the shape of the past, and end at 511.
    """
    builder = DecoderBuilder(heads, head_size, np.dtype(dtype))

    def append(layer: int, key: str, value: str) -> tuple[str, str]:
        keys, values = (
            builder.node("Concat", f"past.{layer}.{kind}", rows, output=f"present.{layer}.{kind}", axis=-2)
            for kind, rows in (("key", key), ("value", value))
        )
        return keys, values

    first = builder.node("Squeeze", builder.node("Shape", "past.0.key", start=2, end=3))
    builder.decoder(layers, vocabulary, first, builder.total(first), append)

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


class DecoderBuilder:
    """Collects the nodes and weights of a decoder, which may keep its keys and values in any way."""

    def __init__(self, heads: int, head_size: int, dtype: np.dtype[np.generic]) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self._heads = heads
        self._head_size = head_size
        self._dtype = dtype
        self._random = np.random.default_rng(2026)

    def node(self, op_type: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        """Add a node; returns its output."""
        output = output or f"{op_type.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, list(inputs), [output], f"node_{output}", **attributes))
        return output

    def constant(self, name: str, array: NDArray[Any]) -> str:
        """Add an initializer; returns its name."""
        self.initializers.append(numpy_helper.from_array(array, name))
        return name

    def total(self, first: str) -> str:
        """How many tokens there are after the step, a scalar, from the position of its first one."""
        return self.node("Add", first, self.node("Squeeze", self.node("Shape", "input_ids", start=1, end=2)))

    def decoder(self, layers: int, vocabulary: int, first: str, total: str, cached: Cached) -> None:
        """All from ``input_ids`` to ``logits``.

        Args:
            layers: how many.
            vocabulary: how many different tokens there are.
            first: the position of the first new token, a scalar.
            total: how many tokens there are after the step, a scalar.
            cached: adds the nodes that keep the keys and values of a layer.
        """
        hidden = self._heads * self._head_size
        embedding = self._weight("embedding", (vocabulary, hidden), scale=1.0)
        positions = self._weight("positions", (512, hidden), scale=1.0)
        one = self.constant("one", np.array(1, np.int64))
        rows = self.node("Range", first, total, one)
        columns = self.node("Range", self.constant("zero", np.array(0, np.int64)), total, one)
        causal = self.node("LessOrEqual", columns, self.node("Unsqueeze", rows, self.constant("last", np.array([1]))))

        x = self.node("Add", self.node("Gather", embedding, "input_ids"), self.node("Gather", positions, rows))
        for layer in range(layers):
            x = self.node("Add", x, self._attention(layer, x, causal, cached))
        self.node("MatMul", x, self._weight("head", (hidden, vocabulary)), output="logits")

    def _weight(self, name: str, shape: tuple[int, int], scale: float = 0.0) -> str:
        values = self._random.standard_normal(shape) * (scale or shape[0] ** -0.5)
        return self.constant(name, values.astype(self._dtype))

    def _attention(self, layer: int, x: str, causal: str, cached: Cached) -> str:
        """Causal attention of one layer over its past and the new tokens."""
        hidden = self._heads * self._head_size
        split = self.constant(f"split.{layer}", np.array([0, 0, self._heads, self._head_size]))
        join = self.constant(f"join.{layer}", np.array([0, 0, hidden]))

        def project(kind: str, scale: float = 1.0) -> str:
            flat = self.node("MatMul", x, self._weight(f"w.{layer}.{kind}", (hidden, hidden), hidden**-0.5 * scale))
            return self.node("Transpose", self.node("Reshape", flat, split), perm=[0, 2, 1, 3])

        # The scale of the scores is in the weights of the query.
        query, key, value = project("query", self._head_size**-0.5), project("key"), project("value")
        keys, values = cached(layer, key, value)
        scores = self.node("MatMul", query, self.node("Transpose", keys, perm=[0, 1, 3, 2]))
        far = self.constant(f"far.{layer}", np.array(-1e4, self._dtype))
        weights = self.node("Softmax", self.node("Where", causal, scores, far), axis=-1)
        mixed = self.node("Transpose", self.node("MatMul", weights, values), perm=[0, 2, 1, 3])
        return self.node("MatMul", self.node("Reshape", mixed, join), self._weight(f"w.{layer}.out", (hidden, hidden)))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m mutcache_tools.example_decoder OUT.onnx")
    onnx.save(build(), sys.argv[1])
