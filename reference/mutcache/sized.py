"""Graphs with the sizes of their values: what :mod:`mutcache.sizing` makes, and what it knows on the way."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field

from mutcache.classes import AliasClasses
from mutcache.constructs import scan_outputs
from mutcache.errors import PlanError
from mutcache.folding import Constant
from mutcache.model import Graph, Node, TensorType
from mutcache.proto.onnx_ml import AttributeProto, NodeProto
from mutcache.requirements import Req
from mutcache.rules.shape import overflow
from mutcache.schemas import LINEAR, page_axis, update_attributes
from mutcache.sizes import byte_size, sharpen, with_sizes


@dataclass(eq=False)
class SizedGraph:
    """One graph with the types of its values.

    Attributes:
        graph: the graph.
        scope: its alias classes.
        types: every name that the graph defines to its type, or None; dimensions are sizes or None.
        constants: outputs of Constant nodes: part of the model, like initializers.
        bodies: of nodes that hold graphs or call functions: attribute ("" for a call) to the graph that runs. A
            branch that a constant condition never takes is absent.
        lacking: of values without a known size, the symbols in their declared types that have no value.
        pages: containers of quantized tensors to what each of their pages decodes to.
        page_types: of nodes that update pages, the type that they name by a constant; of others None.
        trips: of nodes that run their body repeatedly how often, None where that depends on data.
    """

    graph: Graph
    scope: AliasClasses
    types: dict[str, TensorType | None] = field(default_factory=dict)
    constants: set[str] = field(default_factory=set)
    bodies: dict[int, dict[str, SizedGraph]] = field(default_factory=dict)
    lacking: dict[str, tuple[str, ...]] = field(default_factory=dict)
    pages: dict[str, TensorType] = field(default_factory=dict)
    page_types: dict[int, int | None] = field(default_factory=dict)
    trips: dict[int, int | None] = field(default_factory=dict)

    def walk(self) -> Iterator[SizedGraph]:
        """This graph and those inside it, each once, outer ones first."""
        seen: set[SizedGraph] = set()
        pending = [self]
        while pending:
            sized = pending.pop()
            if sized not in seen:
                seen.add(sized)
                yield sized
                pending += [body for bodies in reversed(sized.bodies.values()) for body in bodies.values()]


@dataclass(eq=False)
class Visit:
    """One graph as it is visited: what is known so far, names of enclosing graphs included."""

    sized: SizedGraph
    types: MutableMapping[str, TensorType | None]
    pages: MutableMapping[str, TensorType]
    constants: MutableMapping[str, Constant]
    declared: Mapping[str, TensorType]
    attributes: Mapping[str, AttributeProto] | None
    opsets: Mapping[str, int]
    dims: Mapping[str, int]
    is_certain: bool

    def inside(self, graph: Graph, scope: AliasClasses) -> Visit:
        """The frame of a graph that a node of this one holds; whether it runs at all, nobody knows."""
        return Visit(
            SizedGraph(graph, scope),
            ChainMap({}, self.types),
            ChainMap({}, self.pages),
            ChainMap({}, self.constants),
            declared_types(graph),
            self.attributes,
            self.opsets,
            self.dims,
            is_certain=False,
        )

    def define_pages(self, name: str, known: TensorType | None) -> None:
        """Enter that a name of the graph is a container of such pages, if it is one."""
        if name and known is not None:
            self.pages[name] = self.sized.pages[name] = known

    def define(self, name: str, known: TensorType | None, constant: Constant | None = None) -> None:
        """Enter what is known of a name that the graph defines; declarations add what inference does not know."""
        if not name:
            return
        declared = self.declared.get(name)
        self.sized.lacking.pop(name, None)
        if declared is not None:
            known = sharpen(known, with_sizes(declared, self.dims))
            symbols = tuple(dim for dim in declared.dims or () if isinstance(dim, str) and dim not in self.dims)
            if symbols and self.attributes is None and byte_size(known) is None:
                self.sized.lacking[name] = symbols
        self.types[name] = self.sized.types[name] = known
        if constant is not None:
            self.constants[name] = constant


def require_room(visit: Visit, node: Node, proto: NodeProto) -> None:
    """Refuse sizes with which an update that every run reaches can only fail (MC-SHAPE-005, MC-PAGED-005)."""
    source = node.inputs[0]
    if node.is_paged_update:
        cache, values = visit.pages.get(source), visit.types.get(node.inputs[2])
        mode, written, position = LINEAR, page_axis(proto), node.inputs[3]
    else:
        attributes = update_attributes(proto)
        cache, values = (visit.types.get(name) for name in node.inputs[:2])
        mode, written, position = attributes.mode, attributes.axis, node.inputs[2]
    if cache is None or values is None or cache.dims is None or values.dims is None:
        return
    positions = visit.constants.get(position)
    axis = written % len(cache.dims)
    message = overflow(
        mode,
        [] if positions is None else [int(position) for position in positions.reshape(-1)],
        values.dims[axis],
        cache.dims[axis],
        "page size" if node.is_paged_update else "capacity",
    )
    if message:
        raise PlanError(
            f"{node.label} of {visit.sized.graph.path} does not fit with these sizes: {message}",
            requirement=Req.MC_PAGED_005 if node.is_paged_update else Req.MC_SHAPE_005,
            hint=f"no update can leave or extend axis {written} of {source!r}",
            node=node.label,
        )


def declared_types(graph: Graph) -> dict[str, TensorType]:
    """The declared tensor types by name."""
    return {value.name: value.type for value in graph.declared() if isinstance(value.type, TensorType)}


def scan_output_names(node: Node, bodies: Iterable[SizedGraph]) -> set[str]:
    """The outputs of a loop that grow while it runs."""
    return {node.outputs[at] for body in bodies for at in scan_outputs(node, body.graph) if node.outputs[at]}
