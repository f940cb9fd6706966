"""What single places say of a name's type: declarations, initializers, and stock inference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mutcache.decode import decode_type
from mutcache.facts import Fact, SymTensor, agree, sym_tensor
from mutcache.frames import Frame
from mutcache.model import Graph, TensorType
from mutcache.proto.onnx_ml import FunctionProto, ValueInfoProto
from mutcache.stock import StockTypes
from mutcache.symbols import Symbol


class Statements:
    """The facts about the names of each frame, one by one.

    Attributes:
        stock: what stock inference knows of the graph of each frame; frames that it was not asked about are absent.
    """

    def __init__(self) -> None:
        self.stock: dict[Frame, StockTypes] = {}
        self._entries: dict[Graph, Mapping[str, list[tuple[str, ValueInfoProto]]]] = {}
        self._declared_facts: dict[tuple[Frame, str], tuple[Fact, ...]] = {}
        self._inferred_facts: dict[tuple[Frame, str], tuple[Fact, ...]] = {}

    def forget(self) -> None:
        """Stock inference knows more: ask it again."""
        self._inferred_facts.clear()

    def declared(self, name: str, frame: Frame) -> tuple[Fact, ...]:
        """What the graph of ``frame`` declares of one name."""
        if (frame, name) not in self._declared_facts:
            self._declared_facts[frame, name] = tuple(self._read(name, frame))
        return self._declared_facts[frame, name]

    def _read(self, name: str, frame: Frame) -> list[Fact]:
        graph = frame.scope.graph
        if graph not in self._entries:
            self._entries[graph] = _entries(graph)
        facts = []
        for place, entry in self._entries[graph].get(name, ()):
            value_type = decode_type(entry.type) if entry.HasField("type") else None
            if value_type is not None:
                known = sym_tensor(value_type, frame.number)
                facts.append(Fact(name, graph, _where(place, name, frame), known))
        if len(facts) > 1:
            facts.sort(key=str)  # a name may have several entries, in any order
        tensor = graph.initializers.get(name)
        if tensor is not None:
            known = sym_tensor(TensorType(tensor.data_type, tuple(tensor.dims)), frame.number)
            facts.append(Fact(name, graph, _where("initializer", name, frame), known))
        return facts

    def inferred(self, name: str, frame: Frame) -> tuple[Fact, ...]:
        """What stock inference says of it."""
        if (frame, name) not in self._inferred_facts:
            facts: tuple[Fact, ...] = ()
            known = self.stock_type(name, frame)
            if known is not None and known.dims is not None and frame is not frame.top:
                # Stock inference lets symbols into subgraphs that mean something else there.
                known = replace(known, dims=tuple(None if isinstance(dim, Symbol) else dim for dim in known.dims))
            # A name's own declaration against its inferred type is the base check's business.
            if known is not None and all(agree(known, fact.type) for fact in self.declared(name, frame)):
                facts = (Fact(name, frame.scope.graph, _where("type inference", name, frame), known),)
            self._inferred_facts[frame, name] = facts
        return self._inferred_facts[frame, name]

    def all(self, name: str, frame: Frame) -> tuple[Fact, ...]:
        """Both."""
        return (*self.declared(name, frame), *self.inferred(name, frame))

    def stock_type(self, name: str, frame: Frame) -> SymTensor | None:
        """The type that stock inference knows, whatever is declared."""
        value_type = self.stock[frame].get(name) if frame in self.stock else None
        return None if value_type is None else sym_tensor(value_type, frame.number)


def _entries(graph: Graph) -> Mapping[str, list[tuple[str, ValueInfoProto]]]:
    """Every entry of the graph, by name."""
    proto = graph.proto
    places = [("value_info", proto.value_info)]
    if not isinstance(proto, FunctionProto):
        places = [("graph input", proto.input), ("graph output", proto.output), *places]
    found: dict[str, list[tuple[str, ValueInfoProto]]] = {}
    for place, entries in places:
        for entry in entries:
            found.setdefault(entry.name, []).append((place, entry))
    return found


def _where(place: str, name: str, frame: Frame) -> str:
    return f"{place} of {name!r}" + ("" if frame.outer is None else f" in {frame.scope.graph.path}")
