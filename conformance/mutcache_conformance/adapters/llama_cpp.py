"""llama.cpp, through the low-level interface of llama-cpp-python: its caches are state of a context, not of a model.

It runs models of architectures that it knows, and neither ONNX graphs nor storage of the caller. So this adapter only
says why a case cannot be asked; what can be asked in other ways, the probes of the landscape measure with the model and
the context that stand here.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import numpy as np

from mutcache.errors import MutcacheError
from mutcache.model import DOMAIN
from mutcache.proto import parse
from mutcache_conformance.adapter import (
    Adapter,
    AdapterSession,
    Description,
    HostStorage,
    NotApplicable,
    Unsupported,
)

#: Tokens of the model, and elements of a row of its caches.
WIDTH: Final = 32
#: Element types of caches by the name that llama.cpp gives them: their numbers, and bytes for a row of WIDTH elements.
TYPES: Final = {"f32": (0, 128), "f16": (1, 64), "bf16": (30, 64), "q8_0": (8, 34), "q4_0": (2, 18)}


def write_model(path: Path, *, width: int = WIDTH, layers: int = 1) -> Path:
    """Write a model that llama.cpp runs, whose rows of the cache are known: token t puts t + 1 into its row of keys.

    The row of values is the negative of that. One head; no rotation of positions, and nothing else that would change a
    row: embeddings are unit vectors that pass the norm as they are, all other weights are zero.
    """
    import gguf

    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_context_length(1 << 20)
    writer.add_embedding_length(width)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(width)
    writer.add_head_count(1)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-30)
    writer.add_rope_dimension_count(width)
    writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
    writer.add_rope_scaling_factor(1e30)  # every position turns by nothing
    writer.add_vocab_size(width)
    writer.add_tokenizer_model("no_vocab")
    embedding = np.sqrt(width, dtype=np.float32) * np.eye(width, dtype=np.float32)
    keys = np.tile((np.arange(width, dtype=np.float32) + 1) / np.sqrt(width, dtype=np.float32), (width, 1))
    tensors = {"token_embd": embedding, "output_norm": np.ones(width, np.float32), "output": embedding}
    for layer in range(layers):
        named: dict[str, np.ndarray[Any, np.dtype[np.float32]]] = {"attn_k": keys, "attn_v": -keys}
        named |= dict.fromkeys(("attn_norm", "ffn_norm"), np.ones(width, np.float32))
        nothing = np.zeros((width, width), np.float32)
        named |= dict.fromkeys(("attn_q", "attn_output", "ffn_gate", "ffn_up", "ffn_down"), nothing)
        tensors |= {f"blk.{layer}.{name}": tensor for name, tensor in named.items()}
    for name, tensor in tensors.items():
        writer.add_tensor(f"{name}.weight", np.ascontiguousarray(tensor))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@dataclass(frozen=True, slots=True)
class CacheRows:
    """The rows of one sequence, as llama.cpp writes its state.

    Attributes:
        positions: the position of each cell.
        keys: element type and rows of each layer's keys.
        values: the same of its values; no rows when they are kept transposed.
    """

    positions: list[int]
    keys: list[tuple[int, list[bytes]]]
    values: list[tuple[int, list[bytes]]]

    @classmethod
    def read(cls, state: bytes) -> Self:
        """Take the state of ``llama_state_seq_get_data`` apart."""
        offset = 0

        def take(form: str) -> Any:
            nonlocal offset
            (value,) = struct.unpack_from(f"<{form}", state, offset)
            offset += struct.calcsize(f"<{form}")
            return value

        take("I"), take("I")  # magic number, sequence
        positions: list[int] = []
        parts: list[list[tuple[int, list[bytes]]]] = [[], []]
        for _ in range(take("I")):  # streams, of which a sequence has cells in one
            cells = take("I")
            if not cells:
                continue
            for _ in range(cells):
                positions.append(take("i"))
                for _ in range(take("I")):  # the sequences of the cell
                    take("i")
            is_transposed, layers = take("I"), take("I")
            for part in parts[: 1 if is_transposed else 2]:
                for _ in range(layers):
                    element_type, size = take("i"), take("Q")
                    starts = range(offset, offset + size * cells, size)
                    part.append((element_type, [state[start : start + size] for start in starts]))
                    offset += size * cells
        return cls(positions, *parts)


class Context:
    """A context of a model: its caches, and what may be done to them.

    Args:
        path: the model's file.
        cells: rows asked for; llama.cpp rounds up.
        types: element types of keys and values, from TYPES.
        batch: tokens of a call at most.
        sequences: sequences at most.

    Raises:
        ValueError: llama.cpp makes no such context.
    """

    def __init__(
        self, path: Path, *, cells: int, types: tuple[str, str] = ("f16", "f16"), batch: int = 256, sequences: int = 1
    ) -> None:
        os.environ["LLAMA_ATTN_ROT_DISABLE"] = "1"  # rows as they are, at any head size
        from llama_cpp import llama_cpp

        self._api: Any = llama_cpp
        self._silence = llama_cpp.llama_log_callback(lambda *_: None)
        llama_cpp.llama_log_set(self._silence, None)
        llama_cpp.llama_backend_init()
        self._model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
        parameters = llama_cpp.llama_context_default_params()
        parameters.n_ctx, parameters.n_seq_max = cells, sequences
        parameters.n_batch = parameters.n_ubatch = batch
        parameters.n_threads = parameters.n_threads_batch = 1
        parameters.type_k, parameters.type_v = (TYPES[one][0] for one in types)
        self._context = llama_cpp.llama_init_from_model(self._model, parameters) if self._model else None
        if not self._context:
            raise ValueError(f"llama.cpp makes no context of {cells} cells with keys and values of {types}")

    @property
    def capacity(self) -> int:
        """The rows that it has."""
        return int(self._api.llama_n_ctx(self._context))

    def decode(self, tokens: Sequence[int], position: int, sequence: int = 0) -> int:
        """Put tokens at consecutive positions; what llama_decode returns: 0 is success, 1 no room, below 0 an error."""
        batch = self._api.llama_batch_init(len(tokens), 0, 1)
        batch.n_tokens = len(tokens)
        for index, token in enumerate(tokens):
            batch.token[index], batch.pos[index] = token, position + index
            batch.n_seq_id[index], batch.seq_id[index][0] = 1, sequence
            batch.logits[index] = index + 1 == len(tokens)
        result = int(self._api.llama_decode(self._context, batch))
        self._api.llama_batch_free(batch)
        return result

    def remove(self, start: int, stop: int, sequence: int = 0) -> bool:
        """Give the cells of a range of positions up."""
        memory = self._api.llama_get_memory(self._context)
        return bool(self._api.llama_memory_seq_rm(memory, sequence, start, stop))

    def state(self, sequence: int = 0) -> bytes:
        """The state of a sequence, byte by byte."""
        size = self._api.llama_state_seq_get_size(self._context, sequence)
        buffer = (ctypes.c_uint8 * size)()
        return bytes(buffer[: self._api.llama_state_seq_get_data(self._context, buffer, size, sequence)])

    def rows(self, sequence: int = 0) -> CacheRows:
        """The rows of a sequence."""
        return CacheRows.read(self.state(sequence))


class LlamaCppAdapter(Adapter):
    """llama.cpp on CPU."""

    def describe(self) -> Description:
        """The installed version of the bindings, which bring their llama.cpp along."""
        import llama_cpp

        return Description("llama.cpp", f"llama-cpp-python {llama_cpp.__version__}", "llama.cpp", "1")

    def load(self, model: bytes, initializers: Mapping[str, HostStorage]) -> AdapterSession:
        """Say why it cannot be.

        Raises:
            NotApplicable: the model updates caches: llama.cpp has those of its contexts, and takes no storage for them.
            Unsupported: the model does something else.
        """
        if initializers:
            raise NotApplicable("storage for initializers: llama.cpp reads models from files")
        try:
            proto = parse(model)
        except MutcacheError as error:
            raise Unsupported(f"what is no model: {error.message}") from error
        operators = {node.op_type for node in proto.graph.node if node.domain == DOMAIN}
        if operators - {"CacheUpdate"} or proto.quantizations:
            raise Unsupported("pages with types of their own: type_k and type_v hold for the whole cache of a context")
        if operators and len(proto.graph.node) == 1:
            raise NotApplicable(
                "an update of storage of the caller: llama.cpp allocates the caches of a context itself, takes tokens "
                "and positions only, and shows no address"
            )
        raise Unsupported("a graph: llama.cpp runs the architectures that it knows, not ONNX models")
