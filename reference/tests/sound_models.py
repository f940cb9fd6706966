"""Random sound models, sound by construction: caches updated in branches, loops, scans and functions.

Import ``sound_models()`` to draw one. What is drawn is remembered in :class:`SoundModel`, so that tests can compare
the inference with something that is not inferred.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import hypothesis.strategies as st
from flow_models import (
    body,
    branch,
    call,
    function,
    graph,
    loop,
    passed,
    scan,
    updated,
    value,
)

from mutcache.proto.onnx_ml import FunctionProto, GraphProto, ModelProto, NodeProto, ValueInfoProto
from mutcache_conformance.cases.builder import aliased, node

#: What a function needs beside caches and values.
_OPERANDS = ("r", "p", "k", "m", "s")


@dataclass(frozen=True)
class SoundModel:
    """A model and what is true of it.

    Attributes:
        model: the model.
        root_of: every name of the main graph that is a cache, to the graph input that it is.
        mutated: the graph inputs that some node mutates.
    """

    model: ModelProto = field(repr=False)
    root_of: dict[str, str]
    mutated: frozenset[str]


@dataclass
class _Cache:
    """One storage as a scope sees it.

    Attributes:
        names: the names of its current version, usable for reads.
        earlier: every name that it has had so far, in this scope or around it: what alias_of may name.
        may_write: whether the scope may mutate it.
        written: whether it did.
    """

    names: list[str]
    earlier: list[str]
    may_write: bool
    written: bool = False

    def inside(self, *, may_write: bool) -> _Cache:
        """The same storage seen from a subgraph that captures it."""
        return _Cache(list(self.names), list(self.earlier), may_write)


@dataclass
class _Scope:
    """A graph while it is drawn; ``caches`` and ``values`` include what it captures."""

    draw: st.DrawFn
    functions: list[FunctionProto]
    prefix: str
    depth: int
    caches: dict[str, _Cache]
    values: list[str]
    nodes: list[NodeProto] = field(default_factory=list)
    value_info: list[ValueInfoProto] = field(default_factory=list)
    _count: int = 0

    def name(self) -> str:
        self._count += 1
        return f"{self.prefix}{self._count}"

    def pick(self, names: Iterable[str]) -> str:
        return self.draw(st.sampled_from(sorted(names)))

    def some_caches(self, *, writable: bool) -> list[str]:
        names = [name for name, cache in self.caches.items() if cache.may_write or not writable]
        return self.draw(st.lists(st.sampled_from(names), unique=True)) if names else []

    def fill(self, size: int) -> None:
        """Draw up to ``size`` nodes."""
        steps = [self.update, self.update, self.pass_on, self.read, self.look_at_shape]
        if self.depth > 0:
            steps += [self.branch, self.loop, self.scan, self.call]
        for _ in range(self.draw(st.integers(0, size))):
            self.draw(st.sampled_from(steps))()

    # One node each.

    def update(self) -> None:
        names = [name for name, cache in self.caches.items() if cache.may_write]
        if names:
            key = self.pick(names)
            source, output = self.pick(self.caches[key].names), self.name()
            self.nodes.append(updated(source, output))
            self.returned(key, output, written=True)

    def pass_on(self) -> None:
        if self.caches:
            key = self.pick(self.caches)
            source, output = self.pick(self.caches[key].names), self.name()
            self.nodes.append(passed(source, output))
            self.returned(key, output, written=False)

    def read(self) -> None:
        current = [name for cache in self.caches.values() for name in cache.names]
        output = self.name()
        self.nodes.append(node("Add", [self.pick([*current, *self.values]), self.pick(self.values)], [output]))
        self.values.append(output)

    def look_at_shape(self) -> None:
        if self.caches:
            self.nodes.append(node("Shape", [self.pick(self.caches[self.pick(self.caches)].earlier)], [self.name()]))

    def returned(self, key: str, output: str, *, written: bool) -> None:
        """``output`` is a new name of a cache, of a new version if the node has written."""
        cache = self.caches[key]
        if self.draw(st.booleans()):
            self.value_info.append(value(output, alias_of=self.pick(cache.earlier)))
        cache.names = [output] if written else [*cache.names, output]
        cache.earlier.append(output)
        cache.written |= written

    # Nodes with bodies.

    def inside(self, prefix: str, caches: dict[str, _Cache]) -> _Scope:
        return _Scope(self.draw, self.functions, f"{self.name()}{prefix}", self.depth - 1, caches, list(self.values))

    def leave(self, key: str) -> ValueInfoProto:
        """A name that this scope makes for the current version, as an output of the scope."""
        cache = self.caches[key]
        known = list(cache.earlier)
        output = self.name()
        self.nodes.append(passed(self.pick(cache.names), output))
        self.returned(key, output, written=False)
        return value(output, alias_of=self.pick(known))

    def branch(self) -> None:
        sides = [self.inside("b", {}) for _ in range(2)]
        sides[1].prefix = sides[0].prefix  # siblings may use the same names
        for side in sides:
            side.caches = {key: cache.inside(may_write=cache.may_write) for key, cache in self.caches.items()}
            side.fill(3)
        passing = set(self.some_caches(writable=False))
        written = {key for key in self.caches if any(side.caches[key].written for side in sides)}
        leaving = sorted(written | passing)
        made: list[GraphProto] = []
        for side in sides:
            side.read()
            plain = value(side.values[-1])
            made.append(body(side.nodes, plain, *map(side.leave, leaving), value_info=side.value_info))
        outputs = [self.name() for _ in leaving]
        self.values.append(self.name())
        self.nodes.append(branch([self.values[-1], *outputs], *made))
        for key, output in zip(leaving, outputs, strict=True):
            self.returned(key, output, written=key in written)

    def loop(self) -> None:
        self.repeat(is_scan=False)

    def scan(self) -> None:
        self.repeat(is_scan=True)

    def repeat(self, *, is_scan: bool) -> None:
        carried = self.some_caches(writable=True)
        captured = {key: cache.inside(may_write=False) for key, cache in self.caches.items() if key not in carried}
        inner = self.inside("s" if is_scan else "l", captured)
        formals: list[ValueInfoProto] = []
        for key in carried:
            formal = inner.name()
            inner.caches[key] = _Cache([formal], [*self.caches[key].earlier, formal], may_write=True)
            formals.append(value(formal, mutable=True))
        plain = inner.name()
        inner.values += [plain, "slice"] if is_scan else [plain]
        inner.fill(3)
        inner.read()
        outgoing = inner.values[-1]
        results = [inner.leave(key) for key in carried]
        collected = value(
            self.draw(st.sampled_from([outgoing, *(name for key in carried for name in inner.caches[key].names[-1:])]))
        )
        initial = [self.pick(self.caches[key].names) for key in carried]
        outputs = [self.name() for _ in carried]
        names = [self.name(), *outputs, self.name()]
        made = (scan if is_scan else loop)(
            [self.pick(self.values), *initial],
            names,
            inner.nodes,
            value(outgoing),
            *results,
            collected,
            formals=[value(plain), *formals],
        )
        made.attribute[-1].g.value_info.extend(inner.value_info)
        self.nodes.append(made)
        self.values.append(names[0])
        for position, (key, output) in enumerate(zip(carried, outputs, strict=True)):
            if self.draw(st.booleans()):
                aliased(made, 1 + position, (1 if is_scan else 3) + position)
            self.returned(key, output, written=inner.caches[key].written)

    def call(self) -> None:
        keys = self.some_caches(writable=False)
        lent = [key for key in keys if self.caches[key].may_write]
        formals = {key: f"f{number}" for number, key in enumerate(keys)}
        caches = {key: _Cache([formal], [formal], may_write=key in lent) for key, formal in formals.items()}
        inner = _Scope(self.draw, self.functions, "g", self.depth - 1, caches, ["x"])
        inner.fill(3)
        inner.read()
        plain = inner.values[-1]
        written = [key for key in keys if caches[key].written]
        leaving = sorted({*written, *self.some_caches(writable=False)} & set(keys))
        results = [inner.leave(key) for key in leaving]
        entries = [value(formals[key], mutable=True) for key in lent]
        name = f"f{len(self.functions)}"
        overload = self.draw(st.sampled_from(["", "other"]))
        inputs = ["x", *formals.values(), *_OPERANDS]
        self.functions.append(
            function(name, inputs, [plain, *(one.name for one in results)], inner.nodes,
                     *entries, *results, *inner.value_info, overload=overload)
        )  # fmt: skip
        outputs = [self.name() for _ in leaving]
        self.values.append(self.name())
        arguments = [self.pick(self.values[:-1]), *(self.pick(self.caches[key].names) for key in keys), *_OPERANDS]
        made = call(name, arguments, [self.values[-1], *outputs], overload=overload)
        self.nodes.append(made)
        for position, (key, output) in enumerate(zip(leaving, outputs, strict=True)):
            if self.draw(st.booleans()):
                aliased(made, 1 + position, 1 + keys.index(key))
            self.returned(key, output, written=key in written)


@st.composite
def sound_models(draw: st.DrawFn, depth: int = 2, size: int = 6) -> SoundModel:
    """A sound model of one to three caches; ``depth`` is how deep bodies nest, ``size`` how many nodes main has."""
    names = [f"c{number}" for number in range(draw(st.integers(1, 3)))]
    caches = {name: _Cache([name], [name], may_write=True) for name in names}
    scope = _Scope(draw, [], "n", depth, caches, ["x"])
    scope.fill(size)
    scope.read()
    outputs = [value(scope.values[-1])]
    for name, cache in caches.items():
        if cache.names[-1] != name:
            outputs.append(value(cache.names[-1], alias_of=draw(st.sampled_from(cache.earlier[:-1]))))
    entries = draw(st.permutations(scope.value_info))
    made = graph(scope.nodes, *outputs, caches=names, functions=scope.functions, value_info=entries)
    root_of = {name: key for key, cache in caches.items() for name in cache.earlier}
    return SoundModel(made, root_of, frozenset(key for key, cache in caches.items() if cache.written))
