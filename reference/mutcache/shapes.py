"""``ShapesContext``: what is known of types, shapes and constants, shared by all names of an alias class.

Stock onnx infers the types of single names; here they are merged over the alias classes, through subgraphs and calls,
and what is learned through one name is handed back to stock inference under the other names, until nothing new
follows. Names and constraints only: which bytes a storage is, the runtime knows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Final

from mutcache.classes import ModelAliases
from mutcache.errors import MutcacheError
from mutcache.facts import Aspect, Conflict, Fact, SymTensor, agree, combine, is_vaguer, refine, sym_tensor
from mutcache.folding import Constant, Folder
from mutcache.frames import Frame, enter
from mutcache.model import Graph, Model, TensorType, ValueType
from mutcache.projection import Additions, project, project_body
from mutcache.proto import serialize
from mutcache.proto.onnx_ml import TensorProto
from mutcache.statements import Statements
from mutcache.stock import MAX_CALLED, StockTypes, called_nodes, infer, infer_types, structure_error
from mutcache.stock_pages import container_names
from mutcache.symbols import Symbols

#: How often stock inference is asked again. What follows from what it says the last time is not looked for.
_ROUNDS: Final = 8
_TYPES: Final = {"int64": TensorProto.INT64, "int32": TensorProto.INT32, "bool": TensorProto.BOOL}


class ShapesContext:
    """Types and constants of a model, merged over its alias classes.

    Attributes:
        frames: the graphs that take part in aliasing, as a run may enter them, the main graph first.
        conflicts: contradictions inside alias classes, in order of definition.
        structure_error: what stock onnx says of the model's structure, "" when it is sound or was not asked.
        inference_error: what stock inference says of the types as declared, likewise.
        merged_error: what it says once every name has what is known of its class; set only if the rest is sound.
        unjudged: why stock inference was not asked although the structure is sound, or "".
    """

    def __init__(self, model: Model, aliases: ModelAliases, *, base: bool = True) -> None:
        """Infer and merge. Without ``base`` stock onnx is not asked, and only declarations are known."""
        self._model = model
        self._containers = container_names(model.proto)
        self._aliases = aliases
        self.frames = enter(aliases)
        self._inside: dict[Frame, list[Frame]] = {}
        for frame in self.frames:
            self._inside.setdefault(frame.top, []).append(frame)
        self._folder = Folder(model.opsets, self.type_of)
        self._statements = Statements()
        self._types: dict[tuple[Frame, str], ValueType | None] = {}
        self._questions: dict[Frame, Hashable] = {}
        self._answers: dict[Hashable, StockTypes] = {}
        self._told: dict[tuple[Frame, str], SymTensor] = {}
        self._sizes: dict[int, dict[str, int]] = {}
        self._symbols = Symbols()
        self._merged: dict[tuple[Frame, str], Fact] = {}
        self._broken: set[tuple[Frame, str]] = set()
        self.conflicts: list[Conflict] = []
        self.structure_error = self.inference_error = self.merged_error = self.unjudged = ""
        self._merge()
        if base:
            self._ask_stock()

    @cached_property
    def _names(self) -> frozenset[str]:
        """The names of the main graph whose types matter: the classes, and the operands of updates."""
        scope = self.frames[0].scope
        operands = (name for index in scope.graph.marked for name in scope.graph.node_protos[index].input)
        return frozenset((*scope.root_of, *operands))

    # What the names of one storage say together.

    def _merge(self) -> None:
        self._types.clear()
        self._statements.forget()
        self._folder.forget()
        self._symbols = Symbols()
        self._merged = {}
        self._broken = set()
        self.conflicts = []
        # What is declared comes first: reasons and conflicts name it. Of a contradiction no more is made.
        self._merge_facts(self._statements.declared)
        self._merge_facts(self._statements.inferred, frozenset(self._broken))

    def _merge_facts(
        self, source: Callable[[str, Frame], tuple[Fact, ...]], left_out: Collection[tuple[Frame, str]] = ()
    ) -> None:
        for frame in self.frames:
            for root, members in frame.scope.members.items():
                place = frame.storage(root)
                known = self._merged.get(place)
                for name in members if place not in left_out else ():
                    before = len(self.conflicts)
                    for fact in source(name, frame):
                        known = fact if known is None else self._join(place[1], known, fact, frame)
                        if len(self.conflicts) > before:
                            self._broken.add(place)
                            break  # one place of a name is enough to say that it does not fit
                if known is not None:
                    self._merged[place] = known

    def _join(self, root: str, known: Fact, other: Fact, frame: Frame) -> Fact:
        ours, theirs = known.type, other.type
        link = frame.scope.links.get(other.name)
        conflict = Conflict(
            root, known, other, Aspect.TYPE, node=None if link is None else frame.scope.graph.nodes[link.node]
        )
        if ours.kind != theirs.kind or (ours.elem_type and theirs.elem_type and ours.elem_type != theirs.elem_type):
            self.conflicts.append(conflict)
            return known
        if ours.dims is None or theirs.dims is None:
            return combine(known, other)
        if len(ours.dims) != len(theirs.dims):
            self.conflicts.append(replace(conflict, aspect=Aspect.RANK))
            return known
        reason = f"{_qualified(known)} and {_qualified(other)} are one storage"
        if (known.name, known.graph) == (other.name, other.graph):
            reason = f"{known}, and {other}"
        for axis, (one, twin) in enumerate(zip(ours.dims, theirs.dims, strict=True)):
            if not self._symbols.unify(one, twin, reason):
                because = "; ".join(filter(None, (self._symbols.reason(one), self._symbols.reason(twin))))
                self.conflicts.append(replace(conflict, aspect=Aspect.SHAPE, axis=axis, reason=because))
        return combine(known, other)

    # What stock inference makes of it.

    def _ask_stock(self) -> None:
        main = self.frames[0]
        needed = self._shapes_of_roots()
        if not self.conflicts:
            self._tell(main)
        types = _together(needed, self._told_types(main))
        try:
            projected = self._project(types)
        except MutcacheError as error:
            self.structure_error = error.message
            return
        self.structure_error = structure_error(self._model, projected)
        if self.structure_error:
            return
        if (count := called_nodes(self._model)) > MAX_CALLED:
            self.unjudged = f"the functions that the model calls have {count} nodes together, more than {MAX_CALLED}"
            return
        constants = self._captured_constants(main)
        message, found = self._infer(types, constants, projected)
        if message:
            if types != needed:
                self.inference_error, found = infer(self._project(needed), self._names)
            else:
                self.inference_error = message
            self.merged_error = "" if self.inference_error else message
        self._learn(main, found)
        self._merge()
        for _ in range(0 if message else _ROUNDS):
            learned = self._infer_bodies()
            if learned:
                self._merge()
            if self.conflicts:
                return
            news = self._tell(main)
            if news:
                self.merged_error, found = self._infer(self._told_types(main), self._captured_constants(main))
                if self.merged_error:
                    return
                self._learn(main, found)
                self._merge()
            if not learned and not news:
                return

    def _infer(
        self, types: Mapping[Graph, Additions], constants: Mapping[Graph, Additions], projected: bytes = b""
    ) -> tuple[str, StockTypes]:
        """Stock inference with ``types`` and ``constants``; ``projected`` is the projection without the constants."""
        if constants:
            message, found = infer(self._project(_together(types, constants)), self._names)
            if not message:
                return message, found
        return infer(projected or self._project(types), self._names)

    def _project(self, additions: Mapping[Graph, Additions]) -> bytes:
        return serialize(project(self._model, additions, self._containers))

    def _learn(self, top: Frame, found: StockTypes) -> None:
        for frame in self._inside[top]:
            if frame is not top:
                assert frame.outer is not None
                assert frame.node is not None
                found = self._statements.stock[frame.outer].inside(frame.node.index, frame.attribute)
            self._statements.stock[frame] = found

    def _infer_bodies(self) -> bool:
        """Infer the types inside functions for each call; whether there was anything new to ask."""
        news = False
        for frame in self.frames:
            if not frame.is_call:
                continue
            assert frame.key is not None
            self._tell(frame)
            graph = frame.scope.graph
            additions = _together(self._told_types(frame), self._captured_constants(frame))
            own = additions.setdefault(graph, Additions())
            for formal in frame.arguments:
                value_type = self.type_of(formal, frame)
                if value_type is not None:
                    own.types[formal] = value_type
                value = self.constant(formal, frame)
                if value is not None:
                    own.constants[formal] = _tensor(value)
            # Most calls of a function are alike.
            attributes = frame.attributes or {}
            said = frozenset((each, additions[each].signature) for each in additions)
            question = (frame.key, said, frozenset(value.SerializeToString() for value in attributes.values()))
            if self._questions.get(frame) != question:
                news = True
                self._questions[frame] = question
                if question not in self._answers:
                    body = project_body(self._model, frame.key, attributes, additions, self._containers)
                    self._answers[question] = infer_types(serialize(body))
                self._learn(frame, self._answers[question])
        return news

    def _tell(self, top: Frame) -> bool:
        """Note what the classes know that stock inference does not; whether there is any of that."""
        news = False
        sizes = self._symbols.sizes()
        for frame in self._inside[top]:
            if frame.number in sizes and sizes[frame.number] != self._sizes.get(frame.number):
                self._sizes[frame.number] = sizes[frame.number]
                news = True
            for name in frame.scope.root_of:
                if frame.outer is not None and name not in frame.scope.defined:
                    continue
                merged = self._merged.get(frame.storage(name))
                if merged is None:
                    continue
                value_type = self.type_of(name, frame)
                assert value_type is not None
                known = sym_tensor(value_type, frame.number)
                if any(is_vaguer(fact, known) for fact in self._believed(name, frame)):
                    self._told[frame, name] = known
                    news = True
        return news

    def _believed(self, name: str, frame: Frame) -> Iterator[SymTensor]:
        """What stock inference has worked with."""
        inferred = self._statements.stock_type(name, frame)
        if (frame, name) in self._told:
            yield self._told[frame, name]
        elif inferred is not None:
            yield inferred
        else:
            yield from (fact.type for fact in self._statements.declared(name, frame))
            if not self._statements.declared(name, frame):
                yield SymTensor("tensor", 0, None, TensorType(0, None))

    def _told_types(self, top: Frame) -> dict[Graph, Additions]:
        """What was noted, as it is known now."""
        found: dict[Graph, Additions] = {}
        for frame in self._inside[top]:
            if frame.number in self._sizes:
                found.setdefault(frame.scope.graph, Additions()).sizes.update(self._sizes[frame.number])
            for name in frame.scope.root_of:
                if (frame, name) in self._told:
                    value_type = self.type_of(name, frame)
                    if value_type is not None:
                        found.setdefault(frame.scope.graph, Additions()).types[name] = value_type
        return found

    def _shapes_of_roots(self) -> dict[Graph, Additions]:
        """For names of the main graph without a shape, the rank of their class.

        ONNX wants a shape of every input and output of the graph. The sizes it must not learn here: it is to judge the
        model as it is declared.
        """
        main = self.frames[0]
        found = Additions()
        for name, root in main.scope.root_of.items():
            merged = self._merged.get((main, root))
            if merged is None or merged.type.dims is None:
                continue
            own = self._statements.declared(name, main)
            if all(fact.type.dims is None and agree(fact.type, merged.type) for fact in own):
                found.types[name] = replace(merged.type, dims=(None,) * len(merged.type.dims)).value_type
        return {main.scope.graph: found} if found else {}

    def _captured_constants(self, top: Frame) -> dict[Graph, Additions]:
        """The constants that subgraphs capture: stock inference knows them in the graph that defines them only."""
        found: dict[Graph, Additions] = {}
        for frame in self._inside[top]:
            if frame.outer is None or frame is top:
                continue
            assert frame.node is not None
            for name in sorted(frame.outer.scope.operands(frame.node.index) - frame.scope.defined):
                value = self.constant(name, frame)
                if value is not None:
                    found.setdefault(frame.scope.graph, Additions()).constants[name] = _tensor(value)
        return found

    # What others ask.

    def type_of(self, name: str, frame: Frame | None = None) -> ValueType | None:
        """The type of a name as ``frame`` (the main graph if there is none) uses it, with all its class knows."""
        frame = frame or self.frames[0]
        if (frame, name) not in self._types:
            owner, own = frame.storage(name)
            fact = self._merged.get((owner, own))
            facts = () if fact is not None else self._statements.all(own, owner)
            fact = functools.reduce(combine, facts) if facts else fact
            self._types[frame, name] = None if fact is None else self._spelled(fact.type, frame)
        return self._types[frame, name]

    def _spelled(self, known: SymTensor, frame: Frame) -> ValueType:
        """The type as the graph of ``frame`` can write it: sizes of symbols inserted, foreign symbols left out."""
        dims = None if known.dims is None else tuple(self._symbols.spell(dim, frame.number) for dim in known.dims)
        return refine(known.whole, TensorType(known.elem_type, dims))  # in symbols of the graph

    def stock(self, frame: Frame) -> StockTypes:
        """What stock inference knows of the graph of ``frame``, as its last run says."""
        return self._statements.stock.get(frame, StockTypes(None))

    def sizes(self, frame: Frame) -> Mapping[str, int]:
        """The symbols of the graph of ``frame`` whose sizes are known."""
        return self._symbols.sizes().get(frame.number, {})

    def constant(self, name: str, frame: Frame | None = None) -> Constant | None:
        """The elements of a small integer value that are the same in every run, or None."""
        return self._folder.constant(name, frame or self.frames[0])

    def enters(self, frame: Frame) -> bool | None:
        """Whether every run enters ``frame``; False if none does, None if nobody can tell."""
        return self._folder.enters(frame)

    def remaining_error(self, rejected: Collection[tuple[str, str]]) -> str:
        """What stock inference says of the types, apart from what is known to be wrong.

        Args:
            rejected: (path of the graph, label) of the nodes that rules have rejected.
        """
        additions = self._shapes_of_roots()
        for frame in self._inside[self.frames[0]]:
            for name in frame.scope.root_of:
                if frame.storage(name) in self._broken and (frame.outer is None or name in frame.scope.defined):
                    value_type = self.type_of(name, frame)
                    assert value_type is not None
                    additions.setdefault(frame.scope.graph, Additions()).types[name] = value_type
        for scope in self._aliases.walk():
            graph = scope.graph
            omitted = {
                index
                for index in graph.marked
                if (graph.nodes[index].is_cache_update or graph.nodes[index].is_gather)
                and (graph.path, graph.nodes[index].label) in rejected
            }
            if omitted:
                additions.setdefault(graph, Additions()).omitted = omitted
        return infer(self._project(additions))[0]


def _qualified(fact: Fact) -> str:
    return repr(fact.name) + ("" if fact.graph.path == "main" else f" of {fact.graph.path}")


def _tensor(value: Constant) -> TensorProto:
    data = value.astype(value.dtype.newbyteorder("<")).tobytes()
    return TensorProto(data_type=_TYPES[value.dtype.name], dims=value.shape, raw_data=data)


def _together(*parts: Mapping[Graph, Additions]) -> dict[Graph, Additions]:
    """All parts; of one name the last."""
    found: dict[Graph, Additions] = {}
    for part in parts:
        for graph, additions in part.items():
            own = found.setdefault(graph, Additions())
            own.types.update(additions.types)
            own.sizes.update(additions.sizes)
            own.constants.update(additions.constants)
    return found
