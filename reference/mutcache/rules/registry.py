"""The registry of rules: one function per requirement, each total and independent of the others.

A rule reads a :class:`Context` and yields diagnostics. It never assumes that another rule holds; what another
rule reports (an index out of range, a cycle) it leaves out.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from mutcache.alias import AliasClasses, alias_cycles, find_producers, find_uses, walk
from mutcache.diagnostics import Diagnostic, Location, Severity
from mutcache.digraph import components
from mutcache.model import Graph, Model, Node
from mutcache.ordering import dependencies
from mutcache.requirements import Req
from mutcache.shapes import ShapesContext


@dataclass(frozen=True, eq=False)
class Context:
    """What rules read: a model, the alias classes of its main graph, and what is known of its shapes."""

    model: Model
    classes: AliasClasses
    shapes: ShapesContext

    @property
    def graph(self) -> Graph:
        """The main graph."""
        return self.model.graph

    @cached_property
    def scopes(self) -> tuple[Graph, ...]:
        """The main graph and the bodies of the functions, each followed by its subgraphs."""
        return tuple(itertools.chain.from_iterable(map(walk, (self.graph, *self.model.functions.values()))))

    @cached_property
    def inputs(self) -> frozenset[str]:
        """The names of the inputs of the main graph."""
        return frozenset(value.name for value in self.graph.inputs)

    @cached_property
    def uses(self) -> Mapping[str, list[int]]:
        """The nodes of the main graph that use each name of a class."""
        return find_uses(self.graph, frozenset(self.classes.root_of))

    @cached_property
    def producers(self) -> Mapping[str, int]:
        """The nodes of the main graph that define the names which annotations speak of."""
        names = {name for value in self.graph.annotated for name in (value.name, value.alias_of)}
        names.update(self.classes.root_of)
        return find_producers(self.graph, frozenset(names - {""}))

    @cached_property
    def cycles(self) -> Mapping[str, tuple[str, ...]]:
        """Each name of the main graph that has its storage from itself, to the closed path that says so."""
        return alias_cycles(self.graph, self.classes)

    @cached_property
    def dependencies(self) -> list[list[int]]:
        """For each node of the main graph the nodes that must come after it. Costly: only for models at fault."""
        return dependencies(self.graph, self.classes)

    @cached_property
    def components(self) -> list[int]:
        """The strongly connected component of each node of the main graph under ``dependencies``."""
        return components(self.dependencies)


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
