"""What the proposal says of runtimes that exist, and which observations bear on each statement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Claim:
    """A statement of the proposal about a runtime.

    Attributes:
        says: the statement, shortened.
        observations: names of the observations that bear on it.
    """

    says: str
    observations: tuple[str, ...]


#: By name of the runtime. The proposal speaks of two; of the others it says nothing.
CLAIMS: Final[Mapping[str, Sequence[Claim]]] = {
    "onnxruntime-lowered": (
        Claim(
            "There is a best-effort heuristic for the reuse of buffers today, and updates in place come from binding "
            "one OrtValue to a cache and to its result.",
            ("graph-update", "graph-branch", "graph-chain", "graph-branch-then-update", "graph-loop"),
        ),
        Claim("The contract that is wanted has no silent copy fallback.", ("result-not-bound",)),
        Claim(
            "By the contract that is wanted, execution fails if the caller supplied immutable or shared storage.",
            ("read-only-memory", "two-sessions-at-once"),
        ),
    ),
    "onnxruntime-genai": (
        Claim(
            "With past_present_share_buffer GenAI allocates one capacity-sized OrtValue per layer for keys and values, "
            "and binds it to both names.",
            ("rows", "memory-shared", "memory-grows", "two-generators"),
        ),
        Claim("The option is enabled only when requested and with num_beams == 1.", ("beams",)),
        Claim(
            "The operator writes new values at the current position.",
            ("rewind", "append-after-generating"),
        ),
        Claim(
            "PagedKeyValueCache is logically paged: blocks of two tensors that never grow. When the pool is empty no "
            "further capacity is available.",
            ("pool-exhausted",),
        ),
        Claim(
            "All blocks of a cache have one element type; pages with quantizations of their own are not supported.",
            ("elements",),
        ),
    ),
    "llama.cpp": (
        Claim(
            "The capacity is fixed when the context is created, and the tensors do not grow.",
            ("capacity", "memory-of-steps"),
        ),
        Claim("New values are written directly into the destination range.", ("rows", "two-sequences", "rewind")),
        Claim("If no slot is available, preparation fails rather than extending the allocation.", ("overflow",)),
        Claim("type_k and type_v are selected for the cache as a whole; they may differ from each other.", ("types",)),
    ),
}

#: How the results of a runtime are to be read, where that does not go without saying.
NOTES: Final[Mapping[str, str]] = {
    "onnxruntime": (
        "Models with mutable caches have IR version 15, which this runtime does not load. So nothing can be asked "
        "of it, and a negative case earns nothing where its valid twin could not be loaded."
    ),
    "onnxruntime-lowered": (
        "The annotations do not reach the runtime: the adapter removes them, and binds one buffer to each cache "
        "and its result. So a model whose annotations are wrong is loaded like any other; that shows how much of "
        "the contract binding alone can give. Updates along axis 0 are ScatterND, the others TensorScatter."
    ),
    "onnxruntime-genai": (
        "GenAI allocates its caches itself and takes tokens, so the suite can ask it nothing; what stands in the "
        "matrix was found by probes. Its caches are looked at as it returns them. It shows no addresses: whether "
        "an update is in place was judged by the memory of the process, and by nothing else."
    ),
    "llama.cpp": (
        "llama.cpp allocates the caches of a context itself and takes tokens, so the suite can ask it nothing; "
        "what stands in the matrix was found by probes. The rows are those of the state that it writes. It shows "
        "no addresses: whether an update is in place was judged by the memory of the process, and by nothing "
        "else."
    ),
    "onnx-reference": (
        "The evaluator computes values, and returns each in new memory. Whatever has to be updated in place "
        "fails; a negative case fails with its valid twin."
    ),
}
