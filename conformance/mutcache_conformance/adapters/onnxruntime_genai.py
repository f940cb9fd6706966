"""ONNX Runtime GenAI: what its interface can express of a case, which is little, since it owns its caches.

GenAI runs folders with a decoder, not models with any inputs; it allocates the caches itself, and shows neither their
addresses nor a way to give it storage. So this adapter hosts what a decoder can be made of, one update of one cache, to
show that GenAI loads it, and says of the rest precisely why it cannot be asked. What can be asked in other ways, the
probes of the landscape measure with the same decoder.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Final, NoReturn

import numpy as np
import onnx
from onnx import numpy_helper, parser

from mutcache.errors import MutcacheError
from mutcache.model import DOMAIN
from mutcache.proto import parse
from mutcache.proto.onnx_ml import GraphProto, TensorProto
from mutcache.schemas import update_attributes
from mutcache_conformance.adapter import (
    Adapter,
    AdapterBinding,
    AdapterSession,
    Description,
    HostStorage,
    NotApplicable,
    OutputValue,
    Unsupported,
)

#: Tokens of the decoder; the last is the end of a sequence, which its own predictions never reach.
VOCABULARY: Final = 64
#: The names that the configuration gives the caches of the only layer.
KEY, VALUE = "present_key_0", "present_value_0"


def write_decoder(
    folder: Path,
    *,
    capacity: int,
    width: int = 8,
    shared: bool = True,
    grows: bool = False,
    beams: int = 1,
    element: str = "float",
) -> Path:
    """Write a decoder that GenAI runs: one layer, one head, whose rows of the cache are known.

    Token t puts ``t + 1`` into every element of its row of keys, and ``-t - 1`` into that of its row of values; the
    most likely token after t is t + 1, and after the last but one 0.

    Args:
        folder: where ``model.onnx`` and ``genai_config.json`` go.
        capacity: rows of the caches, GenAI's ``max_length``.
        width: elements of a row.
        shared: whether ``past_present_share_buffer`` asks for one buffer for a cache and its result.
        grows: whether a result is the old rows and the new ones, and not a cache of the full capacity.
        beams: ``num_beams``.
        element: element type of the caches, ``float`` or ``int8``.

    Returns:
        The folder.
    """
    write = "Concat<axis=2>({past}, {rows})" if grows else "TensorScatter<axis=2>({past}, {rows}, position)"
    key = write.format(past="past_key_0", rows="keys")
    value = write.format(past="past_value_0", rows="values")
    cache, rows = f"{element}[batch,1,held,{width}]", f"{element}[batch,1,capacity,{width}]"
    model = parser.parse_model(
        f"""<ir_version: 11, opset_import: ["": 24]>
        decoder (int64[batch,n] input_ids, int64[batch,total] attention_mask, {cache} past_key_0, {cache} past_value_0)
        => (float[batch,n,{VOCABULARY}] logits, {rows} {KEY}, {rows} {VALUE})
        {{
            one = Constant<value_ints=[1]>()
            found = Gather(table, input_ids)
            embedded = Cast<to={TensorProto.INT8 if element == "int8" else TensorProto.FLOAT}>(found)
            keys = Unsqueeze(embedded, one)
            values = Neg(keys)
            valid = ReduceSum<keepdims=0>(attention_mask, one)
            new = Shape<start=1, end=2>(input_ids)
            position = Sub(valid, new)
            {KEY} = {key}
            {VALUE} = {value}
            logits = Gather(predictions, input_ids)
        }}"""
    )
    tokens = np.arange(VOCABULARY)
    table = np.repeat(tokens[:, None] + 1, width, axis=1).astype(np.float32)
    predictions = 10 * np.eye(VOCABULARY, dtype=np.float32)[(tokens + 1) % (VOCABULARY - 1)]
    tensors = {"table": table, "predictions": predictions}
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in tensors.items())
    onnx.save(model, folder / "model.onnx")
    settings = configuration(capacity=capacity, width=width, shared=shared, beams=beams)
    (folder / "genai_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder


def configuration(*, capacity: int, width: int = 8, shared: bool = True, beams: int = 1) -> dict[str, Any]:
    """What ``genai_config.json`` says of the decoder of ``write_decoder``."""
    return {
        "model": {
            "type": "llama",
            "bos_token_id": 0,
            "eos_token_id": VOCABULARY - 1,
            "pad_token_id": VOCABULARY - 1,
            "vocab_size": VOCABULARY,
            "context_length": capacity,
            "decoder": {
                "session_options": {"provider_options": []},
                "filename": "model.onnx",
                "head_size": width,
                "hidden_size": width,
                "num_attention_heads": 1,
                "num_key_value_heads": 1,
                "num_hidden_layers": 1,
                "inputs": {
                    "input_ids": "input_ids",
                    "attention_mask": "attention_mask",
                    "past_key_names": "past_key_%d",
                    "past_value_names": "past_value_%d",
                },
                "outputs": {
                    "logits": "logits",
                    "present_key_names": "present_key_%d",
                    "present_value_names": "present_value_%d",
                },
            },
        },
        "search": {
            "max_length": capacity,
            "num_beams": beams,
            "past_present_share_buffer": shared,
            "do_sample": False,
            "num_return_sequences": 1,
        },
    }


def _refuse_what_is_no_decoder(graph: GraphProto, imports: set[str]) -> int:
    """The capacity of the cache, if a decoder can do what the graph does.

    Raises:
        Unsupported: it cannot; the words are the first reason.
    """
    updates = [node for node in graph.node if node.domain == DOMAIN]
    if DOMAIN not in imports or not updates:
        raise Unsupported("a model without caches: GenAI runs decoders only")
    if len(updates) > 1 or len(graph.node) > 1:
        raise Unsupported("a graph of its own around the updates: GenAI's decoder has one update for each cache")
    if updates[0].op_type != "CacheUpdate":
        raise Unsupported(f"{updates[0].op_type}: GenAI has no caches of quantized pages with types of their own")
    attributes = update_attributes(updates[0])
    if attributes.mode != "linear":
        raise Unsupported(f"mode {attributes.mode!r}: GenAI appends rows, it does not wrap around")
    types = {entry.name: entry.type.tensor_type for entry in graph.input}
    cache = types[updates[0].input[0]]
    dims = cache.shape.dim
    if cache.elem_type not in (TensorProto.FLOAT, TensorProto.FLOAT16):
        raise Unsupported(f"caches of element type {cache.elem_type}: only FLOAT and FLOAT16 are tried")
    if len(dims) != 4 or attributes.axis not in (-2, 2):
        raise Unsupported(
            f"a cache of rank {len(dims)}, updated along axis {attributes.axis}: "
            "those of GenAI are [batch, heads, capacity, head size], and grow along the capacity"
        )
    return dims[2].dim_value or 8


class GenAiSession(AdapterSession):
    """A decoder that GenAI has loaded."""

    def __init__(self, folder: tempfile.TemporaryDirectory[str], model: Any) -> None:
        self._folder = folder
        self._model = model

    def bind(self, mutable: Mapping[str, HostStorage], outputs: Mapping[str, HostStorage]) -> AdapterBinding:
        """There is no such thing."""
        _no_storage(*mutable, *outputs)

    def run(self, feeds: Mapping[str, HostStorage]) -> Mapping[str, OutputValue]:
        """There is no such thing: past and present are not the caller's to feed."""
        _no_storage(*feeds)

    def unload(self) -> None:
        """Drop the model and its folder."""
        self._model = None
        self._folder.cleanup()


def _no_storage(*names: str) -> NoReturn:
    raise NotApplicable(
        f"storage of the caller for {', '.join(names)}: GenAI allocates its caches itself, and takes tokens only"
    )


class GenAiAdapter(Adapter):
    """ONNX Runtime GenAI on CPU."""

    def describe(self) -> Description:
        """The installed version."""
        return Description("ONNX Runtime GenAI", metadata.version("onnxruntime-genai"), "onnxruntime-genai", "1")

    def load(self, model: bytes, initializers: Mapping[str, HostStorage]) -> AdapterSession:
        """Load a decoder with the cache of the model, where there is one."""
        import onnxruntime_genai

        if initializers:
            raise NotApplicable("storage for initializers: GenAI reads models from files")
        try:
            proto = parse(model)
        except MutcacheError as error:
            raise Unsupported(f"what is no model: {error.message}") from error
        capacity = _refuse_what_is_no_decoder(proto.graph, {opset.domain for opset in proto.opset_import})
        folder = tempfile.TemporaryDirectory(prefix="mutcache-genai-")
        write_decoder(Path(folder.name), capacity=capacity)
        return GenAiSession(folder, onnxruntime_genai.Model(folder.name))
