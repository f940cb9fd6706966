"""The model in memory: what the rules, the plan and the executor read.

Everything here is immutable once decoded. Names of one graph are SSA: each is defined once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from mutcache.proto.onnx_ml import (
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    SparseTensorProto,
    TensorProto,
    ValueAliasProto,
    ValueInfoProto,
)

#: Domain of the operators of this specification; it changes when ONNX adopts them.
DOMAIN = "onnx.mutable_cache"
#: Version of the operator set of ``DOMAIN``.
DOMAIN_VERSION = 1

#: Operators of ``DOMAIN`` that update their first input in place and return it as their first output.
UPDATES = ("CacheUpdate", "PagedCacheUpdate")
#: All operators of ``DOMAIN`` in version ``DOMAIN_VERSION``.
OPERATORS = (*UPDATES, "PagedCacheGather")
#: The two spellings of the standard operator domain.
STANDARD_DOMAINS = ("", "ai.onnx")

#: One dimension: a size, a symbol, or None when nothing is known.
Dim = int | str | None


@dataclass(frozen=True, slots=True)
class TensorType:
    """A dense tensor; ``dims`` is None when even the rank is unknown."""

    elem_type: int
    dims: tuple[Dim, ...] | None


@dataclass(frozen=True, slots=True)
class QuantizedTensorType:
    """A quantized tensor: decoded element type and shape, and the allowed indices into the model's quantizations."""

    elem_type: int
    dims: tuple[Dim, ...] | None
    allowed: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SequenceType:
    """A sequence of ``element``."""

    element: ValueType | None


@dataclass(frozen=True, slots=True)
class MapType:
    """A map from ``key_type`` (a TensorProto.DataType) to ``value``."""

    key_type: int
    value: ValueType | None


@dataclass(frozen=True, slots=True)
class OtherType:
    """A type that no cache can have; ``kind`` is the name of its field in TypeProto."""

    kind: str


ValueType = TensorType | QuantizedTensorType | SequenceType | MapType | OtherType


def page_type(value_type: ValueType | None) -> QuantizedTensorType | None:
    """What every page of a container of quantized tensors is, or None if the type is no such container."""
    if isinstance(value_type, SequenceType) and isinstance(value_type.element, QuantizedTensorType):
        return value_type.element
    if isinstance(value_type, MapType) and isinstance(value_type.value, QuantizedTensorType):
        return value_type.value
    return None


@dataclass(frozen=True, slots=True)
class Value:
    """A ValueInfoProto. ``access`` and ``alias_of`` have their defaults when the model does not annotate.

    ``unknown_access`` is the number of an access that this version does not define (it reads as READ_ONLY).
    """

    name: str
    type: ValueType | None = None
    access: int = ValueInfoProto.READ_ONLY
    alias_of: str = ""
    unknown_access: int | None = None

    @property
    def is_mutable(self) -> bool:
        """Whether an execution may modify the value's storage."""
        return self.access == ValueInfoProto.READ_WRITE


@dataclass(frozen=True, slots=True)
class PortAlias:
    """A ValueAliasProto; ``kind`` keeps its number when this version does not define it."""

    output_index: int
    input_index: int
    kind: int

    @property
    def is_must(self) -> bool:
        """Whether the output must have the storage of the input."""
        return self.kind == ValueAliasProto.MUST_ALIAS


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A node at position ``index`` of its graph; absent optional inputs and outputs are ``""``.

    ``subgraphs`` maps an attribute's name to its graph, ``name[i]`` to a member of a list of graphs.
    """

    index: int
    op_type: str
    domain: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    aliases: tuple[PortAlias, ...]
    proto: NodeProto
    subgraphs: Mapping[str, Graph] = field(default_factory=dict)

    @property
    def is_standard(self) -> bool:
        """Whether the operator belongs to the standard domain, which has two spellings."""
        return self.domain in STANDARD_DOMAINS

    @property
    def is_cache_update(self) -> bool:
        """Whether the operator updates a cache, its first input, in place (``CacheUpdate``, ``PagedCacheUpdate``)."""
        return self.domain == DOMAIN and self.op_type in UPDATES

    @property
    def is_paged_update(self) -> bool:
        """Whether the operator updates a page of a cache (``PagedCacheUpdate``)."""
        return self.domain == DOMAIN and self.op_type == "PagedCacheUpdate"

    @property
    def is_gather(self) -> bool:
        """Whether the operator reads pages (``PagedCacheGather``); a local function of that name is one as well."""
        return self.domain == DOMAIN and self.op_type == "PagedCacheGather"

    @property
    def label(self) -> str:
        """How messages name the node."""
        operator = self.op_type if self.is_standard or self.domain == DOMAIN else f"{self.domain}::{self.op_type}"
        return f"{operator} {self.name!r} (#{self.index})" if self.name else f"{operator} (#{self.index})"


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """A graph, or the body of a function.

    Most nodes of a large model have nothing to do with caches. So ``nodes`` and ``value_info`` decode an element
    when it is asked for, and the indices below say which ones to ask for.

    Attributes:
        path: ``main``, ``main/if_1.then_branch``, ``domain::function``.
        proto: the message that the graph was decoded from.
        inputs: the formal inputs; those of a function take type and access from its value_info.
        outputs: the formal outputs, likewise.
        value_info: by name; of several entries the last, while ``annotated`` has each.
        nodes: the nodes, in order.
        node_protos: their messages, to scan fields without decoding.
        initializers: dense initializers by name.
        sparse_initializers: sparse initializers by name.
        annotated: every entry (inputs, outputs, value_info, in this order) in which ``access`` or ``alias_of`` has
            a value other than its default.
        marked: indices of the nodes that have ``output_alias`` entries or belong to ``DOMAIN``, in order.
        nested: indices of the nodes that hold subgraphs, in order.
    """

    path: str
    proto: GraphProto | FunctionProto
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    value_info: Mapping[str, Value]
    nodes: Sequence[Node]
    node_protos: Sequence[NodeProto]
    initializers: Mapping[str, TensorProto]
    sparse_initializers: Mapping[str, SparseTensorProto]
    annotated: tuple[Value, ...] = ()
    marked: tuple[int, ...] = ()
    nested: tuple[int, ...] = ()

    def declared(self) -> Iterator[Value]:
        """Every value that has an entry: inputs, outputs, value_info."""
        yield from self.inputs
        yield from self.outputs
        yield from self.value_info.values()


#: Domain, name and overload of a function.
FunctionKey = tuple[str, str, str]


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """A decoded model; ``functions`` are the bodies of its local functions."""

    proto: ModelProto
    ir_version: int
    opsets: Mapping[str, int]
    graph: Graph
    functions: Mapping[FunctionKey, Graph]
