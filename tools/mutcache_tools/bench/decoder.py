"""A decoder as exporters write it, as large as wanted: what the time of the checker is measured on.

Layers are those of a Llama (RMSNorm, rotary embedding, grouped-query attention, SwiGLU), in small operators and with
the shape arithmetic that exporters leave in: about 200 nodes each. The weights are tiny: it is the graph that counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mutcache.model import DOMAIN, DOMAIN_VERSION
from mutcache.proto import IR_VERSION
from mutcache.proto.onnx_ml import ModelProto, TensorProto, ValueAliasProto, ValueInfoProto

HEADS: Final = 4
KV_HEADS: Final = 2
HEAD_SIZE: Final = 8
HIDDEN: Final = HEADS * HEAD_SIZE
INTERMEDIATE: Final = 2 * HIDDEN
VOCABULARY: Final = 64
MAX_POSITIONS: Final = 64

Dims = Sequence[int | str]


def build(layers: int) -> ModelProto:
    """The decoder; each layer has a key and a value cache, [batch, KV_HEADS, max_length, HEAD_SIZE] of FLOAT16.

    Inputs beside the caches: ``input_ids`` and ``position_ids`` INT64 [batch, sequence], ``position`` INT64 [batch],
    the valid length of each row before the step, and ``mask`` FLOAT16 [batch, 1, sequence, max_length], added to the
    attention scores. Outputs: ``logits`` FLOAT16 [batch, sequence, VOCABULARY], and the updated caches.
    """
    decoder = _Decoder()
    decoder.prologue()
    for layer in range(layers):
        decoder.layer(layer)
    decoder.epilogue()
    return decoder.model


class _Decoder:
    """Builds the model, node after node; ``_x`` is the value that runs through the layers."""

    def __init__(self) -> None:
        self.model = ModelProto(ir_version=IR_VERSION)
        self.model.opset_import.add(domain="", version=24)
        self.model.opset_import.add(domain=DOMAIN, version=DOMAIN_VERSION)
        self._graph = self.model.graph
        self._graph.name = "decoder"
        self._random = np.random.default_rng(2026)
        self._scope = ""
        self._x = ""

    # What a graph is made of.

    def _node(self, op_type: str, *inputs: str, output: str = "", domain: str = "", **attributes: object) -> str:
        name = f"{self._scope}/{op_type}_{len(self._graph.node)}"
        output = output or f"{name}_output_0"
        node = self._graph.node.add(op_type=op_type, domain=domain, name=name, input=inputs, output=[output])
        for key, value in attributes.items():
            if isinstance(value, int):
                node.attribute.add(name=key, i=value, type="INT")
            elif isinstance(value, TensorProto):
                node.attribute.add(name=key, t=value, type="TENSOR")
            elif isinstance(value, list):
                node.attribute.add(name=key, ints=value, type="INTS")
        return output

    def _constant(self, value: float | list[int], dtype: str = "INT64") -> str:
        array = np.array(value, np.int64 if dtype == "INT64" else np.float16 if dtype == "FLOAT16" else np.float32)
        return self._node("Constant", value=_tensor(array))

    def _weight(self, name: str, *shape: int) -> str:
        array = (self._random.standard_normal(shape) * shape[0] ** -0.5).astype(np.float16)
        self._graph.initializer.append(_tensor(array, name))
        return name

    def _input(self, name: str, elem_type: int, dims: Dims) -> ValueInfoProto:
        _declare(entry := self._graph.input.add(name=name), elem_type, dims)
        return entry

    def _output(self, name: str, elem_type: int, dims: Dims) -> ValueInfoProto:
        _declare(entry := self._graph.output.add(name=name), elem_type, dims)
        return entry

    # The model.

    def prologue(self) -> None:
        """Embedding, rotary angles, and the number of rows to attend to."""
        ids = self._input("input_ids", TensorProto.INT64, ["batch", "sequence"]).name
        position_ids = self._input("position_ids", TensorProto.INT64, ["batch", "sequence"]).name
        position = self._input("position", TensorProto.INT64, ["batch"]).name
        self._input("mask", TensorProto.FLOAT16, ["batch", 1, "sequence", "max_length"])
        self._x = self._node("Gather", self._weight("embed_tokens", VOCABULARY, HIDDEN), ids)
        one = self._constant([1])
        tables = [self._weight(name, MAX_POSITIONS, HEAD_SIZE) for name in ("cos", "sin")]
        self._cos, self._sin = (
            self._node("Unsqueeze", self._node("Gather", table, position_ids), one) for table in tables
        )
        first = self._node("ReduceMax", position, keepdims=1)
        self._total = self._node("Add", first, self._node("Shape", ids, start=1, end=2))

    def epilogue(self) -> None:
        """The logits."""
        self._scope = ""
        head = self._weight("lm_head", HIDDEN, VOCABULARY)
        logits = self._node("MatMul", self._norm("norm"), head, output="logits")
        self._output(logits, TensorProto.FLOAT16, ["batch", "sequence", VOCABULARY])

    def layer(self, number: int) -> None:
        """One layer."""
        self._scope = f"/layers.{number}"
        weights = f"layers.{number}"
        normed = self._norm(f"{weights}.input_norm")
        query, key, value = (
            self._split_heads(self._linear(normed, f"{weights}.{kind}", HIDDEN, heads * HEAD_SIZE), heads)
            for kind, heads in (("query", HEADS), ("key", KV_HEADS), ("value", KV_HEADS))
        )
        keys = self._cached(self._rotate(key), f"{number}.key")
        values = self._cached(value, f"{number}.value")
        mixed = self._attend(self._rotate(query), self._repeat(keys), self._repeat(values))
        projected = self._node("MatMul", self._join_heads(mixed), self._weight(f"{weights}.out", HIDDEN, HIDDEN))
        self._x = self._node("Add", self._x, projected)
        self._x = self._node("Add", self._x, self._mlp(self._norm(f"{weights}.post_norm"), weights))

    def _linear(self, x: str, name: str, rows: int, columns: int) -> str:
        product = self._node("MatMul", x, self._weight(name, rows, columns))
        return self._node("Add", self._weight(f"{name}.bias", columns), product)

    def _norm(self, name: str) -> str:
        wide = self._node("Cast", self._x, to=TensorProto.FLOAT)
        square = self._node("Pow", wide, self._constant(2.0, "FLOAT"))
        mean = self._node("ReduceMean", square, self._constant([-1]), keepdims=1)
        root = self._node("Sqrt", self._node("Add", mean, self._constant(1e-5, "FLOAT")))
        normed = self._node("Mul", wide, self._node("Reciprocal", root))
        return self._node("Mul", self._weight(name, HIDDEN), self._node("Cast", normed, to=TensorProto.FLOAT16))

    def _size(self, x: str, axis: int) -> str:
        """One size of ``x`` as a vector of one element."""
        size = self._node("Gather", self._node("Shape", x), self._constant(axis), axis=0)
        return self._node("Unsqueeze", size, self._constant([0]))

    def _split_heads(self, x: str, heads: int) -> str:
        sizes = (self._size(x, 0), self._size(x, 1), self._constant([heads]), self._constant([HEAD_SIZE]))
        return self._node(
            "Transpose", self._node("Reshape", x, self._node("Concat", *sizes, axis=0)), perm=[0, 2, 1, 3]
        )

    def _join_heads(self, x: str) -> str:
        rows = self._node("Transpose", x, perm=[0, 2, 1, 3])
        sizes = (self._size(rows, 0), self._size(rows, 1), self._constant([HIDDEN]))
        return self._node("Reshape", rows, self._node("Concat", *sizes, axis=0))

    def _rotate(self, x: str) -> str:
        """Rotary embedding of [batch, heads, sequence, HEAD_SIZE]."""
        half = self._node("Div", self._size(x, 3), self._constant([2]))
        axis = self._constant([3])
        front = self._node("Slice", x, self._constant([0]), half, axis, self._constant([1]))
        back = self._node("Slice", x, half, self._constant([2**63 - 1]), axis, self._constant([1]))
        turned = self._node("Concat", self._node("Neg", back), front, axis=-1)
        return self._node("Add", self._node("Mul", x, self._cos), self._node("Mul", turned, self._sin))

    def _cached(self, rows: str, name: str) -> str:
        """Update the cache ``past.NAME`` and return its valid rows."""
        shape: Dims = ["batch", KV_HEADS, "max_length", HEAD_SIZE]
        cache = self._input(f"past.{name}", TensorProto.FLOAT16, shape)
        cache.access = ValueInfoProto.READ_WRITE
        updated = self._node(
            "CacheUpdate", cache.name, rows, "position", output=f"present.{name}", domain=DOMAIN, axis=2, batch_axis=0
        )
        self._graph.node[-1].output_alias.add(output_index=0, input_index=0, kind=ValueAliasProto.MUST_ALIAS)
        self._output(updated, TensorProto.FLOAT16, shape).alias_of = cache.name
        return self._slice_total(updated, 2)

    def _slice_total(self, x: str, axis: int) -> str:
        return self._node("Slice", x, self._constant([0]), self._total, self._constant([axis]), self._constant([1]))

    def _repeat(self, x: str) -> str:
        """Every key-value head once for each query head that uses it."""
        batch, rows = self._size(x, 0), self._size(x, 2)
        heads, times, size = (self._constant([n]) for n in (KV_HEADS, HEADS // KV_HEADS, HEAD_SIZE))
        wide = self._node("Unsqueeze", x, self._constant([2]))
        repeated = self._node("Expand", wide, self._node("Concat", batch, heads, times, rows, size, axis=0))
        shape = self._node("Concat", batch, self._constant([HEADS]), rows, size, axis=0)
        return self._node("Reshape", repeated, shape)

    def _attend(self, query: str, keys: str, values: str) -> str:
        scores = self._node("MatMul", query, self._node("Transpose", keys, perm=[0, 1, 3, 2]))
        scaled = self._node("Mul", scores, self._constant(HEAD_SIZE**-0.5, "FLOAT16"))
        masked = self._node("Add", scaled, self._slice_total("mask", 3))
        weights = self._node("Softmax", self._node("Cast", masked, to=TensorProto.FLOAT), axis=-1)
        return self._node("MatMul", self._node("Cast", weights, to=TensorProto.FLOAT16), values)

    def _mlp(self, x: str, weights: str) -> str:
        gate = self._node("MatMul", x, self._weight(f"{weights}.gate", HIDDEN, INTERMEDIATE))
        up = self._node("MatMul", x, self._weight(f"{weights}.up", HIDDEN, INTERMEDIATE))
        gated = self._node("Mul", self._node("Mul", gate, self._node("Sigmoid", gate)), up)
        return self._node("MatMul", gated, self._weight(f"{weights}.down", INTERMEDIATE, HIDDEN))


def _tensor(array: NDArray[np.generic], name: str = "") -> TensorProto:
    types = {"i8": TensorProto.INT64, "f4": TensorProto.FLOAT, "f2": TensorProto.FLOAT16}
    return TensorProto(
        name=name, data_type=types[array.dtype.str[1:]], dims=array.shape, raw_data=array.astype(array.dtype).tobytes()
    )


def _declare(entry: ValueInfoProto, elem_type: int, dims: Dims) -> None:
    entry.type.tensor_type.elem_type = elem_type
    for dim in dims:
        if isinstance(dim, int):
            entry.type.tensor_type.shape.dim.add(dim_value=dim)
        else:
            entry.type.tensor_type.shape.dim.add(dim_param=dim)
