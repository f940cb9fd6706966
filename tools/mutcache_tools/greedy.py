"""Greedy generation with a decoder, before and after its conversion: both must produce the same tokens.

    >>> from mutcache_tools import greedy
    >>> original = greedy.GrowingDecoder(mutcache.load("decoder.onnx"), greedy.onnxruntime_evaluator("decoder.onnx"))
    >>> with greedy.MutableDecoder(mutcache.load("mutable.onnx")) as converted:  # of: mutcache convert ...
    ...     greedy.greedy_tokens(converted, [1, 5, 9, 7], 12) == greedy.greedy_tokens(original, [1, 5, 9, 7], 12)
    True

A decoder has the inputs ``input_ids [batch, sequence]``, optionally ``attention_mask [batch, total]`` and
``position_ids [batch, sequence]``, and its caches; its first output is ``logits [batch, sequence, vocabulary]``. The
batch is 1.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol, Self, cast

import numpy as np

from mutcache.decode import decode
from mutcache.errors import RunError
from mutcache.executor import Session
from mutcache.model import Graph, TensorType
from mutcache.proto import to_onnx
from mutcache.proto.onnx_ml import ModelProto
from mutcache_tools.arrays import Array, declared_dtype, zeros
from mutcache_tools.growing_caches import find_growing_caches
from mutcache_tools.output import UsageError

#: Computes the outputs of a model by name from its inputs by name.
Evaluator = Callable[[Mapping[str, Array]], Mapping[str, Array]]


class Decoder(Protocol):
    """Something that appends tokens to a sequence and scores the next one."""

    def step(self, tokens: Sequence[int]) -> Array:
        """Append ``tokens``; the logits ``[vocabulary]`` after the last of them."""
        ...


def greedy_tokens(decoder: Decoder, prompt: Sequence[int], count: int) -> list[int]:
    """The ``count`` tokens that follow ``prompt``, each the one of the highest logit (the lowest number on a tie)."""
    tokens: list[int] = []
    pending = list(prompt)
    while len(tokens) < count:
        pending = [int(np.argmax(decoder.step(pending)))]
        tokens += pending
    return tokens


class GrowingDecoder:
    """A past/present decoder: each ``present`` is fed back as the next ``past``, which is longer by the new tokens.

    Args:
        model: the decoder, as `mutcache_tools.convert` takes it.
        evaluate: computes its outputs.
        dims: sizes of the symbols in the shapes of the caches, besides the batch and the growing length.

    Raises:
        ConvertError: no input of the decoder grows.
        UsageError: a symbol has no size, or an input is none that a decoder has.
    """

    def __init__(self, model: ModelProto, evaluate: Evaluator, *, dims: Mapping[str, int] | None = None) -> None:
        self._graph = decode(model).graph
        self._evaluate = evaluate
        self._length = 0
        self._presents: dict[str, str] = {}
        self._pasts: dict[str, Array] = {}
        inputs = {value.name: value for value in self._graph.inputs}
        for cache in find_growing_caches(model):
            value = inputs[cache.past]
            growing = value.type.dims[cache.axis] if isinstance(value.type, TensorType) and value.type.dims else None
            sizes = {**_batch_of_one(self._graph), **(dims or {}), **({growing: 0} if isinstance(growing, str) else {})}
            self._pasts[cache.past] = zeros(value, sizes)
            self._presents[cache.past] = cache.present

    def step(self, tokens: Sequence[int]) -> Array:
        """Append ``tokens``; the logits ``[vocabulary]`` after the last of them."""
        feeds = _token_feeds(self._graph, tokens, self._length, given=self._pasts)
        outputs = self._evaluate({**feeds, **self._pasts})
        self._pasts = {past: outputs[present] for past, present in self._presents.items()}
        self._length += len(tokens)
        return _last_logits(self._graph, outputs)


class MutableDecoder:
    """A converted decoder on the reference runtime: its caches are bound once and updated in place by every step.

    Args:
        model: the decoder, as `mutcache_tools.convert` returns it.
        dims: sizes of the symbols in the shapes of the caches, besides the batch.
        position_name: the input with the valid length of the caches.

    Attributes:
        caches: the storage of each mutable input, by name.
        addresses: every address at which each aliased output was seen, by the name of its input.

    Raises:
        CheckError, PlanError: the model cannot run.
        UsageError: it has no such position, a symbol has no size, or an input is none that a decoder has.
    """

    def __init__(
        self, model: ModelProto, *, dims: Mapping[str, int] | None = None, position_name: str = "position"
    ) -> None:
        self._graph = decode(model).graph
        inputs = {value.name: value for value in self._graph.inputs}
        if position_name not in inputs:
            raise UsageError(
                f"the model has no input {position_name!r} for the valid length of its caches",
                "name it with position_name= (--position-name NAME)",
            )
        self._position = position_name
        self._length = 0
        session = Session(model)
        sizes = {**_batch_of_one(self._graph), **(dims or {})}
        self.caches = {value.name: zeros(value, sizes) for value in self._graph.inputs if value.is_mutable}
        self.addresses: dict[str, set[int]] = {name: set() for name in self.caches}
        self._binding = session.bind(self.caches)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the caches."""
        self._binding.release()

    def step(self, tokens: Sequence[int]) -> Array:
        """Append ``tokens``; the logits ``[vocabulary]`` after the last of them.

        Raises:
            RunError: the tokens exceed the capacity of the caches.
        """
        feeds = _token_feeds(self._graph, tokens, self._length, given={*self.caches, self._position})
        outputs = self._binding.run({**feeds, self._position: np.array(self._length, np.int64)})
        for value in self._graph.outputs:
            if value.alias_of in self.addresses:
                self.addresses[value.alias_of].add(outputs[value.name].__array_interface__["data"][0])
        self._length += len(tokens)
        return _last_logits(self._graph, outputs)


def onnxruntime_evaluator(path: str | os.PathLike[str]) -> Evaluator:
    """ONNX Runtime on the CPU.

    Raises:
        ImportError: it is not installed.
        RunError: it refuses the model; so does the evaluator with inputs.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # what goes wrong comes back as an exception
    with _refusals_of("ONNX Runtime"):
        session = onnxruntime.InferenceSession(os.fspath(path), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]

    def evaluate(feeds: Mapping[str, Array]) -> dict[str, Array]:
        with _refusals_of("ONNX Runtime"):
            return dict(zip(names, session.run(names, dict(feeds)), strict=True))

    return evaluate


def onnx_reference_evaluator(model: ModelProto) -> Evaluator:
    """The reference evaluator of the onnx package: slow, and always at hand. Raises RunError like ONNX Runtime's."""
    from onnx.reference import ReferenceEvaluator

    with _refusals_of("the evaluator of onnx"):
        evaluator = ReferenceEvaluator(to_onnx(model))

    def evaluate(feeds: Mapping[str, Array]) -> dict[str, Array]:
        with _refusals_of("the evaluator of onnx"):
            results = cast("list[Array]", evaluator.run(None, dict(feeds)))
        return dict(zip(evaluator.output_names, results, strict=True))

    return evaluate


@contextmanager
def _refusals_of(evaluator: str) -> Iterator[None]:
    """Turn whatever another runtime raises into a RunError: what it may raise is not documented."""
    try:
        yield
    except Exception as error:
        raise RunError(f"{evaluator} refuses: {' '.join(str(error).split())}") from error


def _batch_of_one(graph: Graph) -> dict[str, int]:
    """The symbol of the batch, as the first dimension of the token input names it."""
    tokens = next((value.type for value in graph.inputs if value.name == "input_ids"), None)
    batch = tokens.dims[0] if isinstance(tokens, TensorType) and tokens.dims else None
    return {batch: 1} if isinstance(batch, str) else {}


def _token_feeds(graph: Graph, tokens: Sequence[int], length: int, given: Collection[str]) -> dict[str, Array]:
    """The ordinary inputs of a step that appends ``tokens`` to ``length`` earlier ones."""
    total = length + len(tokens)
    known = {
        "input_ids": np.array([tokens]),
        "attention_mask": np.ones((1, total)),
        "position_ids": np.arange(length, total).reshape(1, -1),
    }
    feeds: dict[str, Array] = {}
    for value in graph.inputs:
        if value.name in given or value.name in graph.initializers:
            continue
        if value.name not in known:
            raise UsageError(
                f"the decoder has an input {value.name!r}, for which greedy generation has no value",
                f"it knows {', '.join(known)} and the caches",
            )
        feeds[value.name] = known[value.name].astype(declared_dtype(value))
    return feeds


def _last_logits(graph: Graph, outputs: Mapping[str, Array]) -> Array:
    logits = outputs[graph.outputs[0].name]
    if logits.ndim != 3 or logits.shape[0] != 1 or 0 in logits.shape:
        raise UsageError(
            f"the first output {graph.outputs[0].name!r} has shape {list(logits.shape)}, not [1, sequence, vocabulary]"
        )
    last: Array = logits[0, -1]
    return last
