"""The alias classes of a model, scope by scope: what :mod:`mutcache.alias` infers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from mutcache.model import FunctionKey, Graph
from mutcache.scopes import captures, defined_names

#: The version of a class that holds what the storage held before the graph ran.
INITIAL = -1


@dataclass(frozen=True, slots=True)
class Link:
    """Output ``output`` of node ``node`` has the storage of its operand ``source``, an input or a captured name."""

    node: int
    source: str
    output: str
    mutates: bool


@dataclass(frozen=True, slots=True)
class Write:
    """Node ``node`` mutates the storage of its operand ``source``, itself or in a body."""

    node: int
    source: str


@dataclass(frozen=True, slots=True)
class Storage:
    """Where a storage comes from: the value ``name`` of ``scope``, which has it from no other value."""

    scope: AliasClasses
    name: str


class AliasClasses:
    """The alias classes of one scope. A name in no class owns its storage and nothing is said about it.

    Read-only once :mod:`mutcache.alias` returns it.

    Attributes:
        graph: the graph whose names these are.
        outer: the scope of the node that holds the graph, None for the main graph and for functions.
        holder: the index of that node in ``outer``, -1 without one.
        root_of: every name of a class, the root included, to the name of its root in this scope.
        members: root to the names of its class, in order of definition, the root first.
        mutations: root to the indices of the nodes that mutate the class, in node order; roots without one are absent.
        version_of: every name of a class to the index of the node that made its version, ``INITIAL`` for the first.
        links: output name to the link that makes it a member of its class, in node order.
        writes: every mutation of an operand, in node order.
        origins: roots that are not of this scope to a name of ``outer`` with the same storage: captured names to
            themselves, formal inputs of carried slots to the initial value.
        captured: the storages of enclosing scopes that classes have by capture, to their roots here.
        base_of: every name of a class to the name at the end of its links: a formal, a captured name, or a value
            with storage of its own. The root, unless several captured names are one storage.
        inner: indices of nodes that alias or mutate through subgraphs to the scopes of these, by attribute.
        calls: indices of nodes that call a function which takes part in aliasing, to its key.
    """

    def __init__(self, graph: Graph, outer: AliasClasses | None = None, holder: int = -1) -> None:
        self.graph = graph
        self.outer = outer
        self.holder = holder
        self.root_of: dict[str, str] = {}
        self.members: dict[str, tuple[str, ...]] = {}
        self.mutations: dict[str, tuple[int, ...]] = {}
        self.version_of: dict[str, int] = {}
        self.links: dict[str, Link] = {}
        self.writes: list[Write] = []
        self.origins: dict[str, str] = {}
        self.captured: dict[Storage, str] = {}
        self.base_of: dict[str, str] = {}
        self.inner: dict[int, dict[str, AliasClasses]] = {}
        self.calls: Mapping[int, FunctionKey] = {}
        self._operands: dict[int, frozenset[str]] = {}

    @cached_property
    def defined(self) -> frozenset[str]:
        """Every name that the graph defines."""
        return frozenset(defined_names(self.graph))

    @property
    def constructs(self) -> tuple[int, ...]:
        """The nodes whose subgraphs or functions take part in aliasing, in node order."""
        return tuple(sorted({*self.inner, *self.calls}))

    def mutable_roots(self) -> tuple[str, ...]:
        """The roots that are READ_WRITE inputs of the graph, in input order: what a caller binds as mutable."""
        names = dict.fromkeys(value.name for value in self.graph.inputs if value.is_mutable)
        return tuple(name for name in names if self.root_of.get(name) == name)

    def mutators(self) -> dict[tuple[str, int], tuple[int, ...]]:
        """(root, version) to the nodes that mutate that version, in node order. More than one is a fork."""
        found: dict[tuple[str, int], dict[int, None]] = {}
        for write in self.writes:
            version = self.root_of[write.source], self.version_of[write.source]
            found.setdefault(version, {})[write.node] = None
        return {version: tuple(nodes) for version, nodes in found.items()}

    def operands(self, index: int) -> frozenset[str]:
        """What node ``index`` uses: its inputs, and the names that its subgraphs capture."""
        if index not in self._operands:
            node = self.graph.nodes[index]
            self._operands[index] = frozenset(filter(None, (*node.inputs, *captures(node))))
        return self._operands[index]

    def find(self, name: str) -> AliasClasses:
        """The nearest scope, from here outwards, that defines ``name``; the outermost if none does."""
        scope = self
        while scope.outer is not None and name not in scope.defined:
            scope = scope.outer
        return scope

    def storage(self, name: str) -> Storage:
        """The storage of a name that is visible here, followed out through every enclosing scope."""
        scope = self
        while True:
            name = scope.root_of.get(name, name)
            if scope.outer is None or (name not in scope.origins and name in scope.defined):
                return Storage(scope, name)
            name = scope.origins.get(name, name)
            scope = scope.outer

    def walk(self) -> Iterator[AliasClasses]:
        """This scope and those inside it, outer ones first; subgraphs that take no part in aliasing have none."""
        yield self
        for bodies in self.inner.values():
            for body in bodies.values():
                yield from body.walk()


@dataclass(frozen=True, eq=False)
class ModelAliases:
    """The alias classes of a model.

    Attributes:
        main: those of the main graph.
        functions: those of the bodies of functions that take part in aliasing, uncalled ones included.
    """

    main: AliasClasses
    functions: Mapping[FunctionKey, AliasClasses]

    def walk(self) -> Iterator[AliasClasses]:
        """Every scope: the main graph, then the functions, each followed by the scopes inside it."""
        for body in (self.main, *self.functions.values()):
            yield from body.walk()

    @cached_property
    def called(self) -> frozenset[FunctionKey]:
        """The functions that a run of the main graph may call, at any depth."""
        found: set[FunctionKey] = set()
        pending = [self.main]
        while pending:
            for scope in pending.pop().walk():
                for key in scope.calls.values():
                    if key not in found:
                        found.add(key)
                        pending.append(self.functions[key])
        return frozenset(found)
