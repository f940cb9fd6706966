"""What adapters of stock runtimes load: models as they are, or lowered ones.

The annotations serve to bind one buffer to an input and its output, and for nothing else: nothing is checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mutcache.errors import MutcacheError
from mutcache.lower import lower, storage_of_outputs
from mutcache.proto import parse, serialize
from mutcache_conformance.adapter import Unsupported


@dataclass(frozen=True)
class Prepared:
    """What is loaded for a model.

    Attributes:
        model: the serialized model.
        storage: output name to the mutable input that it is the storage of.
        outputs: the names of the outputs, in order.
    """

    model: bytes
    storage: Mapping[str, str]
    outputs: tuple[str, ...]


def as_it_is(model: bytes) -> Prepared:
    """The model itself. One that cannot be parsed is left to the runtime to refuse."""
    try:
        proto = parse(model)
        return Prepared(model, storage_of_outputs(proto), tuple(output.name for output in proto.graph.output))
    except MutcacheError:
        return Prepared(model, {}, ())


def lowered(model: bytes) -> Prepared:
    """The lowered model.

    Raises:
        Unsupported: it has no lowering. That is no refusal by the runtime, and earns it nothing.
    """
    try:
        proto = parse(model)
        result = serialize(lower(proto))
        return Prepared(result, storage_of_outputs(proto), tuple(output.name for output in proto.graph.output))
    except MutcacheError as error:
        raise Unsupported(f"lowering: {error.message}") from error
