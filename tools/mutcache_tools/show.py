"""What ``mutcache show`` shows of a model: its graphs, and what every name is an alias of.

The view is plain data, and its JSON has the names of its fields. Unsound models have one too: what the rules reject
stands in it as it is written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from mutcache.alias import INITIAL, AliasClasses, alias_classes
from mutcache.diagnostics import Diagnostic, Severity
from mutcache.model import Graph, Model, Node, TensorType, Value, ValueType
from mutcache.proto.onnx_ml import AttributeProto, QuantizationProto
from mutcache.scopes import captures
from mutcache_tools.words import attribute_words, quantization_words, type_words


@dataclass(frozen=True, slots=True)
class Alias:
    """The class of a name.

    Attributes:
        root: the value whose storage it is, followed out through every scope.
        version: how many mutations the class has seen, in this scope, when the name is made.
        alias_of: what the annotation says; "" without one.
    """

    root: str
    version: int
    alias_of: str


@dataclass(frozen=True, slots=True)
class ShownValue:
    """A value; ``type`` is "" when nothing declares it, ``alias`` None when the value is in no class."""

    name: str
    type: str
    access: str
    alias: Alias | None


@dataclass(frozen=True, slots=True)
class ShownNode:
    """A node; ``writes`` and ``reads`` are the names of classes that it, or a graph inside it, mutates and uses."""

    index: int
    name: str
    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[ShownValue, ...]
    attributes: Mapping[str, str]
    writes: tuple[str, ...]
    reads: tuple[str, ...]
    subgraphs: Mapping[str, ShownGraph]

    @property
    def touches_storage(self) -> bool:
        """Whether a class has to do with the node."""
        return bool(self.writes or self.reads) or any(output.alias is not None for output in self.outputs)


@dataclass(frozen=True, slots=True)
class ShownGraph:
    """A graph, or the body of a function."""

    path: str
    inputs: tuple[ShownValue, ...]
    outputs: tuple[ShownValue, ...]
    initializers: tuple[ShownValue, ...]
    nodes: tuple[ShownNode, ...]


@dataclass(frozen=True, slots=True)
class ShownModel:
    """A model; ``page_types`` has each of ``ModelProto.quantizations`` in words, ``findings`` counts by severity."""

    ir_version: int
    opsets: Mapping[str, int]
    findings: Mapping[str, int]
    page_types: tuple[str, ...]
    graph: ShownGraph
    functions: tuple[ShownGraph, ...]


def view(model: Model, findings: Sequence[Diagnostic]) -> ShownModel:
    """The view of a model, of which the checker has found ``findings``."""
    aliases = alias_classes(model)
    counts = Counter(finding.severity for finding in findings)
    quantizations = tuple(model.proto.quantizations)
    return ShownModel(
        ir_version=model.ir_version,
        opsets=dict(model.opsets),
        findings={severity.value: counts[severity] for severity in Severity},
        page_types=tuple(map(quantization_words, quantizations)),
        graph=_Viewer(model.graph, aliases.main, quantizations).view(),
        functions=tuple(
            _Viewer(body, aliases.functions.get(key), quantizations).view() for key, body in model.functions.items()
        ),
    )


class _Viewer:
    """Views one graph; ``classes`` is None where nothing takes part in aliasing."""

    def __init__(self, graph: Graph, classes: AliasClasses | None, quantizations: Sequence[QuantizationProto]) -> None:
        self._graph = graph
        self._classes = classes
        self._quantizations = quantizations
        self._declared = {value.name: value for value in graph.declared()}
        self._alias_of = {value.name: value.alias_of for value in graph.annotated}
        self._writes: dict[int, list[str]] = {}
        for write in classes.writes if classes else ():
            self._writes.setdefault(write.node, []).append(write.source)

    def view(self) -> ShownGraph:
        graph = self._graph
        initializers = {
            name: TensorType(tensor.data_type, tuple(tensor.dims)) for name, tensor in graph.initializers.items()
        }
        for name, sparse in graph.sparse_initializers.items():
            initializers[name] = TensorType(sparse.values.data_type, tuple(sparse.dims))
        return ShownGraph(
            path=graph.path,
            inputs=tuple(self._value(value.name, value.type, is_mutable=value.is_mutable) for value in graph.inputs),
            outputs=tuple(self._value(value.name, value.type) for value in graph.outputs),
            initializers=tuple(self._value(name, known) for name, known in initializers.items()),
            nodes=tuple(map(self._node, graph.nodes)),
        )

    def _value(self, name: str, known: ValueType | None = None, *, is_mutable: bool = False) -> ShownValue:
        if known is None and name in self._declared:
            known = self._declared[name].type
        access = "READ_WRITE" if is_mutable else "READ_ONLY"
        return ShownValue(
            name, type_words(known or self._type_of_root(name), self._quantizations), access, self._alias(name)
        )

    def _type_of_root(self, name: str) -> ValueType | None:
        """What the root of the class declares: all names of a class have its type."""
        if self._classes is None or name not in self._classes.root_of:
            return None
        storage = self._classes.storage(name)
        declared: Iterator[Value] = storage.scope.graph.declared()
        return next((value.type for value in declared if value.name == storage.name), None)

    def _alias(self, name: str) -> Alias | None:
        classes = self._classes
        stated = self._alias_of.get(name, "")
        if classes is None or name not in classes.root_of:
            return Alias(stated, 0, stated) if stated else None
        made_by = classes.version_of[name]
        mutations = classes.mutations.get(classes.root_of[name], ())
        version = 0 if made_by == INITIAL or made_by not in mutations else mutations.index(made_by) + 1
        return Alias(classes.storage(name).name, version, stated)

    def _node(self, node: Node) -> ShownNode:
        known = self._classes.root_of if self._classes else {}
        used = (*node.inputs, *(sorted(captures(node)) if node.subgraphs else ()))
        writes = tuple(dict.fromkeys(self._writes.get(node.index, ())))
        inner = self._classes.inner.get(node.index, {}) if self._classes else {}
        return ShownNode(
            index=node.index,
            name=node.name,
            operator=_operator(node),
            inputs=node.inputs,
            outputs=tuple(map(self._value, node.outputs)),
            attributes={
                attribute.name: attribute_words(attribute)
                for attribute in node.proto.attribute
                if attribute.type not in (AttributeProto.GRAPH, AttributeProto.GRAPHS)
            },
            writes=writes,
            reads=tuple(name for name in dict.fromkeys(used) if name in known and name not in writes),
            subgraphs={
                name: _Viewer(graph, inner.get(name), self._quantizations).view()
                for name, graph in node.subgraphs.items()
            },
        )


def _operator(node: Node) -> str:
    """The operator with its domain, and its overload if it has one."""
    operator = node.op_type if node.is_standard else f"{node.domain}.{node.op_type}"
    return f"{operator}:{node.proto.overload}" if node.proto.overload else operator
