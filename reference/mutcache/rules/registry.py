"""The registry of rules: one function per requirement, each total and independent of the others.

A rule reads a :class:`Context` and yields diagnostics. It never assumes that another rule holds; what another
rule reports (an index out of range, a cycle) it leaves out.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from mutcache.alias import AliasClasses, ModelAliases, Storage, alias_names
from mutcache.cycles import Place, alias_cycles
from mutcache.diagnostics import Diagnostic, Location, Severity
from mutcache.digraph import components
from mutcache.model import Graph, Model, Node
from mutcache.ordering import dependencies
from mutcache.requirements import Req
from mutcache.scopes import find_producers, find_uses, walk
from mutcache.shapes import ShapesContext


@dataclass(frozen=True, eq=False)
class Scope:
    """The alias classes of one graph, and what rules ask about it; each answer is computed when first asked for."""

    classes: AliasClasses
    context: Context

    @property
    def graph(self) -> Graph:
        """The graph of the scope."""
        return self.classes.graph

    @property
    def is_function(self) -> bool:
        """Whether the graph is the body of a function."""
        return self.classes.outer is None and self.classes is not self.context.classes

    @cached_property
    def inputs(self) -> frozenset[str]:
        """The names of the graph's inputs."""
        return frozenset(value.name for value in self.graph.inputs)

    @cached_property
    def uses(self) -> Mapping[str, list[int]]:
        """The nodes that use each name of a class."""
        return find_uses(self.graph, frozenset(self.classes.root_of))

    @cached_property
    def producers(self) -> Mapping[str, int]:
        """The nodes that define the names of classes, those which annotations speak of, and the graph's outputs."""
        names = {*self.context.annotated_names, *self.classes.root_of, *(value.name for value in self.graph.outputs)}
        return find_producers(self.graph, frozenset(names - {""}))

    @cached_property
    def mutators(self) -> Mapping[tuple[str, int], tuple[int, ...]]:
        """(root, version) to the nodes that mutate that version."""
        return self.classes.mutators()

    @cached_property
    def lost(self) -> frozenset[tuple[int, str]]:
        """(node, root) of each mutation whose result leaves the node under no name: a finding of MC-FLOW."""
        root_of = self.classes.root_of
        returned = {(link.node, root_of[link.source]) for link in self.classes.links.values()}
        return frozenset(
            pair for write in self.classes.writes if (pair := (write.node, root_of[write.source])) not in returned
        )

    @cached_property
    def dependencies(self) -> list[list[int]]:
        """For each node the nodes that must come after it. Costly: only for models at fault."""
        return dependencies(self.classes)

    @cached_property
    def components(self) -> list[int]:
        """The strongly connected component of each node under ``dependencies``."""
        return components(self.dependencies)

    def is_cyclic(self, name: str) -> bool:
        """Whether a name has its storage from itself (MC-ALIAS-007), so that nothing else can be said of it."""
        return bool(self.context.cycles) and (self.classes.find(name), name) in self.context.cycles

    def is_visible(self, name: str) -> bool:
        """Whether this graph or one around it defines ``name``, one of the names that annotations speak of."""
        scope = self.context.scope_of[self.classes.find(name)]
        return (
            scope.classes.outer is not None
            or name in scope.inputs
            or name in scope.classes.links
            or name in scope.graph.initializers
            or name in scope.graph.sparse_initializers
            or name in scope.producers
        )


@dataclass(frozen=True, eq=False)
class Context:
    """What rules read: a model, its alias classes, and what is known of its shapes.

    ``explain`` asks them to say also what they leave to run time.
    """

    model: Model
    aliases: ModelAliases
    shapes: ShapesContext
    explain: bool = False

    @property
    def graph(self) -> Graph:
        """The main graph."""
        return self.model.graph

    @property
    def classes(self) -> AliasClasses:
        """The alias classes of the main graph."""
        return self.aliases.main

    @cached_property
    def graphs(self) -> tuple[Graph, ...]:
        """The main graph and the bodies of the functions, each followed by its subgraphs."""
        return tuple(itertools.chain.from_iterable(map(walk, (self.graph, *self.model.functions.values()))))

    @cached_property
    def scopes(self) -> tuple[Scope, ...]:
        """The graphs that take part in aliasing, in the same order: the others are not annotated anywhere."""
        return tuple(Scope(classes, self) for classes in self.aliases.walk())

    @cached_property
    def scope_of(self) -> Mapping[AliasClasses, Scope]:
        """Each of ``scopes`` by its classes."""
        return {scope.classes: scope for scope in self.scopes}

    @cached_property
    def called(self) -> Mapping[AliasClasses, Scope]:
        """The bodies of the functions that a run of the main graph may call."""
        keys = self.aliases.called
        return {body: self.scope_of[body] for key, body in self.aliases.functions.items() if key in keys}

    @cached_property
    def executed(self) -> tuple[Scope, ...]:
        """The scopes that a run of the main graph may enter; those of functions that nobody calls are left out."""
        return tuple(self.scope_of[classes] for top in (self.aliases.main, *self.called) for classes in top.walk())

    @cached_property
    def annotated_names(self) -> frozenset[str]:
        """Every value with ``alias_of`` and every name in one, of any graph."""
        return frozenset(name for scope in self.scopes for pair in alias_names(scope.graph) for name in pair)

    @cached_property
    def cycles(self) -> Mapping[Place, tuple[Place, ...]]:
        """Each value that has its storage from itself, to the closed path that says so."""
        found: dict[Place, tuple[Place, ...]] = {}
        for top in (self.aliases.main, *self.aliases.functions.values()):
            found.update(alias_cycles(top))
        return found


def calls(context: Context, scope: Scope) -> Iterator[tuple[int, AliasClasses, Mapping[str, str]]]:
    """The calls in a scope: node, body, and the arguments by formal input; an omitted argument is ""."""
    for index, key in sorted(scope.classes.calls.items()):
        body = context.aliases.functions[key]
        formals = [value.name for value in body.graph.inputs]
        arguments = (*scope.graph.nodes[index].inputs, *[""] * len(formals))
        yield index, body, dict(zip(formals, arguments, strict=False))


def is_lent(context: Context, storage: Storage) -> bool:
    """Whether the storage is that of a READ_WRITE graph input, or of a formal of a function, which its calls bind."""
    if storage.scope.outer is not None:
        return False
    value = next((value for value in storage.scope.graph.inputs if value.name == storage.name), None)
    if value is None:
        return False
    return storage.scope is not context.classes or value.is_mutable or value.unknown_access is not None


Rule = Callable[[Context], Iterator[Diagnostic]]

#: Every rule, in the order in which their findings are reported.
RULES: dict[Req, Rule] = {}


def rule(requirement: Req) -> Callable[[Rule], Rule]:
    """Register the decorated function as the rule of ``requirement``; its name begins with the ID."""

    def register(function: Rule) -> Rule:
        name = requirement.value.lower().replace("-", "_")
        if requirement in RULES or not function.__name__.startswith(f"{name}_"):
            raise TypeError(f"{function.__name__} cannot be the rule of {requirement.value}")
        RULES[requirement] = function
        return function

    return register


def finding(
    requirement: Req,
    message: str,
    graph: Graph,
    *,
    node: Node | None = None,
    value: str = "",
    hint: str = "",
    severity: Severity = Severity.ERROR,
) -> Diagnostic:
    """A diagnostic located in ``graph``."""
    where = Location(graph.path, node.label if node is not None else "", value)
    return Diagnostic(requirement, message, where, hint, severity)
