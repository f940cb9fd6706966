"""``ShapesContext``: what is known of types, shapes and constants, shared by all names of an alias class.

Stock onnx infers the types of single names; here they are merged over the alias classes, and what is
learned through one name is handed back to stock inference under the other names. Names and
constraints only: which bytes a storage is, the runtime knows.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray
from onnx import numpy_helper

from mutcache.alias import AliasClasses
from mutcache.facts import Aspect, Conflict, Fact, Symbols, agree, combine, fact_of, is_vaguer
from mutcache.model import Model, TensorType, ValueType
from mutcache.projection import inference_error, project, structure_error
from mutcache.proto.onnx_ml import AttributeProto, TensorProto
from mutcache.scopes import find_producers

#: Constants of more elements are no positions.
_MAX_CONSTANT: Final = 1 << 16


class ShapesContext:
    """Types and constants of the main graph of a model, merged over its alias classes.

    Attributes:
        conflicts: contradictions inside alias classes, in order of definition.
        structure_error: what stock onnx says of the model's structure, "" when it is sound or was not asked.
        inference_error: what stock inference says of the types as declared, likewise.
        merged_error: what it says once every name has what is known of its class; set only if the rest is sound.
    """

    def __init__(self, model: Model, classes: AliasClasses, *, base: bool = True) -> None:
        """Infer and merge. Without ``base`` stock onnx is not asked, and only declarations are known."""
        self._model = model
        self._classes = classes
        self._symbols = Symbols()
        self._inferred: dict[str, ValueType] = {}
        self._facts: dict[str, tuple[Fact, ...]] = {}
        self.conflicts: list[Conflict] = []
        self.structure_error = self.inference_error = self.merged_error = ""
        self._declared = dict(self._declarations())
        if base:
            projected = project(model, self._shapes_of_roots())
            self.structure_error = structure_error(model, projected)
            if not self.structure_error:
                self.inference_error, self._inferred = inference_error(projected, self._names)
            del projected
        self._merged = self._merge()
        if base and not (self.structure_error or self.inference_error or self.conflicts):
            self._hand_back()

    @cached_property
    def _names(self) -> frozenset[str]:
        """The names whose types matter: the classes, and the operands of nodes that may update one."""
        graph = self._model.graph
        operands = (name for index in graph.marked for name in graph.nodes[index].inputs)
        return frozenset(filter(None, (*self._classes.root_of, *operands)))

    def _declarations(self) -> Iterator[tuple[str, list[tuple[str, ValueType]]]]:
        graph = self._model.graph
        entries: dict[str, list[tuple[str, ValueType]]] = {}
        for place, values in (("graph input", graph.inputs), ("graph output", graph.outputs)):
            for value in values:
                if value.type is not None and value.name in self._names:
                    entries.setdefault(value.name, []).append((place, value.type))
        for name in self._names:
            entry = graph.value_info.get(name)
            if entry is not None and entry.type is not None:
                entries.setdefault(name, []).append(("value_info", entry.type))
            tensor = graph.initializers.get(name)
            if tensor is not None:
                known = TensorType(tensor.data_type, tuple(tensor.dims))
                entries.setdefault(name, []).append(("initializer", known))
        yield from entries.items()

    def _shapes_of_roots(self) -> dict[str, ValueType]:
        """For aliased outputs declared without a shape, the type of their root: stock inference knows no aliases."""
        types: dict[str, ValueType] = {}
        for name, root in self._classes.root_of.items():
            declared = [t for _, t in self._declared.get(root, ()) if isinstance(t, TensorType) and t.dims is not None]
            own = [t for _, t in self._declared.get(name, ())]
            shapeless = all(isinstance(t, TensorType) and t.dims is None for t in own)
            if name != root and declared and shapeless and all(_same_elements(t, declared[0]) for t in own):
                types[name] = declared[0]
        return types

    def facts(self, name: str) -> tuple[Fact, ...]:
        """What is said of one name: its declarations, and what stock inference adds to them."""
        if name not in self._facts:
            facts = [fact_of(name, place, value_type) for place, value_type in self._declared.get(name, ())]
            if name in self._inferred:
                fact = fact_of(name, "type inference", self._inferred[name])
                # A name's own declaration against its inferred type is the base check's business.
                if all(agree(fact, declared) for declared in facts):
                    facts.append(fact)
            self._facts[name] = tuple(facts)
        return self._facts[name]

    def _merge(self) -> dict[str, Fact]:
        merged: dict[str, Fact] = {}
        for root, members in self._classes.members.items():
            known: Fact | None = None
            for name in members:
                before = len(self.conflicts)
                for fact in self.facts(name):
                    known = fact if known is None else self._join(root, known, fact)
                    if len(self.conflicts) > before:
                        break  # one place of a name is enough to say that it does not fit
            if known is not None:
                merged[root] = known
        for root, known in merged.items():
            if known.dims is not None:  # sizes of symbols may have been learned from other classes
                dims = tuple(self._symbols.resolve(dim) for dim in known.dims)
                merged[root] = Fact(known.name, known.place, known.kind, known.elem_type, dims)
        return merged

    def _join(self, root: str, known: Fact, other: Fact) -> Fact:
        if known.kind != other.kind or (known.elem_type and other.elem_type and known.elem_type != other.elem_type):
            self.conflicts.append(Conflict(root, known, other, Aspect.TYPE))
            return known
        if known.dims is None or other.dims is None:
            return combine(known, other)
        if len(known.dims) != len(other.dims):
            self.conflicts.append(Conflict(root, known, other, Aspect.RANK))
            return known
        reason = f"{known.name!r} and {other.name!r} are one storage"
        for axis, (ours, theirs) in enumerate(zip(known.dims, other.dims, strict=True)):
            if not self._symbols.unify(ours, theirs, reason):
                because = "; ".join(filter(None, (self._symbols.reason(ours), self._symbols.reason(theirs))))
                self.conflicts.append(Conflict(root, known, other, Aspect.SHAPE, axis, because))
        return combine(known, other)

    def _hand_back(self) -> None:
        """Tell stock inference what the classes know, if it knew less, and read what follows for the operands."""
        refined = {
            name: value_type
            for name, root in self._classes.root_of.items()
            if isinstance(value_type := self.type_of(name), TensorType)
            and any(fact.kind == "tensor" and is_vaguer(fact, value_type) for fact in self._known(name))
        }
        if refined:
            self.merged_error, inferred = inference_error(project(self._model, refined), self._names)
            self._inferred.update(inferred)
            self._facts.clear()

    def _known(self, name: str) -> Iterator[Fact]:
        """What stock inference has worked with."""
        if name in self._inferred:
            yield fact_of(name, "type inference", self._inferred[name])
        else:
            yield from self.facts(name) or [Fact(name, "nothing", "tensor", 0, None)]

    def class_fact(self, name: str) -> Fact | None:
        """What is known of the class of ``name``; sizes of symbols inserted."""
        return self._merged.get(self._classes.root_of.get(name, ""))

    def type_of(self, name: str) -> ValueType | None:
        """The tensor type of a value with all that is known of its class, or another declared type, or None."""
        fact = self.class_fact(name)
        if fact is None and self.facts(name):
            fact = functools.reduce(combine, self.facts(name))
        if fact is not None and fact.kind == "tensor":
            dims = None if fact.dims is None else tuple(map(self._symbols.resolve, fact.dims))
            return TensorType(fact.elem_type, dims)
        return next((value_type for _, value_type in self._declared.get(name, ())), None)

    def overrides(self) -> dict[str, ValueType]:
        """Types that stock onnx can judge the rest of the model by when a class contradicts itself."""
        broken = {conflict.root for conflict in self.conflicts}
        types = self._shapes_of_roots()
        for name, root in self._classes.root_of.items():
            value_type = self.type_of(root)
            if root in broken and isinstance(value_type, TensorType):
                types[name] = value_type
        return types

    def constant(self, name: str) -> NDArray[np.int64] | None:
        """The integers of a value that no caller can change: an initializer that is no input, or a Constant node."""
        graph = self._model.graph
        if name in self._inputs:
            return None
        tensor = graph.initializers.get(name)
        if tensor is not None:
            return _integers(tensor)
        index = self._producers.get(name)
        if index is None:
            return None
        node = graph.nodes[index]
        if not (node.is_standard and node.op_type == "Constant" and node.outputs[:1] == (name,)):
            return None
        for attribute in node.proto.attribute:
            if attribute.name == "value" and attribute.type == AttributeProto.TENSOR:
                return _integers(attribute.t)
            if attribute.name == "value_int" and attribute.type == AttributeProto.INT:
                return np.array(attribute.i, np.int64)
            if attribute.name == "value_ints" and attribute.type == AttributeProto.INTS:
                return np.array(attribute.ints, np.int64)
        return None

    @cached_property
    def _inputs(self) -> frozenset[str]:
        return frozenset(value.name for value in self._model.graph.inputs)

    @cached_property
    def _producers(self) -> Mapping[str, int]:
        return find_producers(self._model.graph, self._names)


def _integers(tensor: TensorProto) -> NDArray[np.int64] | None:
    if (
        tensor.data_type != TensorProto.INT64
        or tensor.data_location == TensorProto.EXTERNAL
        or min(tensor.dims, default=0) < 0
        or math.prod(tensor.dims) > _MAX_CONSTANT
    ):
        return None
    try:
        # onnx's helper reads only fields that the delta leaves alone, so it serves our class too.
        return np.asarray(numpy_helper.to_array(cast("Any", tensor)), np.int64)
    except (ValueError, TypeError):  # the bytes do not fit the dims: the base check says so
        return None


def _same_elements(one: ValueType, other: TensorType) -> bool:
    return isinstance(one, TensorType) and one.elem_type in (0, other.elem_type)
