"""MC-FLOW: classes in branches, loops and functions.

What a function does is judged where a run of the main graph may call it: a library function that nobody calls
demands nothing of anyone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from mutcache.alias import (
    AliasClasses,
    Storage,
    alias_names,
    captured_writes,
    returned_capture,
    returned_formal,
)
from mutcache.constructs import Construct, Slot, construct_of, scan_outputs, slots
from mutcache.diagnostics import Diagnostic
from mutcache.model import Node
from mutcache.requirements import Req
from mutcache.rules.registry import Context, Scope, calls, finding, is_lent, rule
from mutcache.scopes import captures, find_producers

Bodies = Sequence[tuple[str, AliasClasses]]


def _constructs(context: Context, *kinds: Construct) -> Iterator[tuple[Scope, Node, Bodies]]:
    """The nodes of these kinds whose subgraphs take part in aliasing, with the bodies by attribute."""
    for scope in context.scopes:
        for index, bodies in scope.classes.inner.items():
            node = scope.graph.nodes[index]
            if construct_of(node) in kinds:
                yield scope, node, tuple(bodies.items())


# Branches.


@dataclass(frozen=True)
class _Choice:
    """An If and what its branches do with storages around them.

    Attributes:
        scope: where the If stands.
        node: the If.
        branches: its branches, by attribute.
        returned: for each output of the If, what each branch returns there; None is a value of the branch's own.
        writes: for each branch the storages that it mutates, and the captured names.
    """

    scope: Scope
    node: Node
    branches: Bodies
    returned: tuple[tuple[Storage | None, ...], ...]
    writes: tuple[Mapping[Storage, str], ...]

    def faults(self) -> Iterator[tuple[int, int, Storage, bool]]:
        """(output, branch, storage, whether a copy) of each branch that does not alias what another one does.

        It is a copy if the branch does not mutate the storage, though another does, and returns it by a plain Identity.
        """
        for position, returned in enumerate(self.returned):
            storage = next((storage for storage in returned if storage is not None), None)
            if storage is not None:
                for number, found in enumerate(returned):
                    if found is None:
                        is_kept = storage not in self.writes[number] and any(
                            storage in writes for writes in self.writes
                        )
                        yield position, number, storage, is_kept and self._copied(number, position) == storage

    def _copied(self, number: int, position: int) -> Storage | None:
        _, branch = self.branches[number]
        if position >= len(branch.graph.outputs):
            return None
        name = branch.graph.outputs[position].name
        index = find_producers(branch.graph, frozenset({name})).get(name)
        if index is not None:
            node = branch.graph.nodes[index]
            if not node.is_standard or node.op_type != "Identity" or not node.inputs:
                return None
            name = node.inputs[0]
        return branch.storage(name)


def _choices(context: Context) -> Iterator[_Choice]:
    for scope, node, branches in _constructs(context, Construct.BRANCH):
        returned: list[tuple[Storage | None, ...]] = []
        for position in range(len(node.outputs)):
            names = (returned_capture(branch, position) for _, branch in branches)
            returned.append(tuple(scope.classes.storage(name) if name else None for name in names))
        writes = tuple(captured_writes(branch) for _, branch in branches)
        yield _Choice(scope, node, branches, tuple(returned), writes)


@rule(Req.MC_FLOW_001)
def mc_flow_001_one_root(context: Context) -> Iterator[Diagnostic]:
    """An aliased output of an If has one root in every branch."""
    for choice in _choices(context):
        for output, returned in zip(choice.node.outputs, choice.returned, strict=True):
            found = [
                (attribute, storage)
                for (attribute, _), storage in zip(choice.branches, returned, strict=True)
                if storage is not None
            ]
            if len({storage for _, storage in found}) > 1:
                said = ", ".join(f"{attribute} returns {storage.name!r}" for attribute, storage in found)
                yield finding(
                    Req.MC_FLOW_001,
                    f"output {output!r} would be one of several storages: {said}",
                    choice.scope.graph,
                    node=choice.node,
                    value=output,
                    hint="return each storage from its own output of the If, in every branch",
                )


@rule(Req.MC_FLOW_002)
def mc_flow_002_every_branch_or_none(context: Context) -> Iterator[Diagnostic]:
    """An output of an If aliases in every branch or in none."""
    for choice in _choices(context):
        for position, number, storage, is_copy in choice.faults():
            if is_copy:
                continue  # MC-FLOW-003
            attribute, output = choice.branches[number][0], choice.node.outputs[position]
            yield finding(
                Req.MC_FLOW_002,
                f"output {output!r} is the storage of {storage.name!r} in one branch, but a value of its own in "
                f"{attribute}",
                choice.scope.graph,
                node=choice.node,
                value=output,
                hint=f"let {attribute} return {storage.name!r} through an Identity with {{0, 0, MUST_ALIAS}}",
            )


@rule(Req.MC_FLOW_003)
def mc_flow_003_pass_through(context: Context) -> Iterator[Diagnostic]:
    """A branch passes on what another one mutates by an Identity that aliases."""
    for choice in _choices(context):
        for position, number, storage, is_copy in choice.faults():
            if is_copy:
                attribute, branch = choice.branches[number]
                name = branch.graph.outputs[position].name
                yield finding(
                    Req.MC_FLOW_003,
                    f"{attribute} of {choice.node.label} does not modify {storage.name!r}, which another branch "
                    f"mutates, but returns a copy of it as {name!r}",
                    branch.graph,
                    value=name,
                    hint="set output_alias {0, 0, MUST_ALIAS} on the Identity, and alias_of on the output",
                )


# Loops.


def _carried(node: Node, body: AliasClasses) -> Iterator[tuple[Slot, str, str]]:
    """Each slot with the names of its formal input and of its result."""
    for slot in slots(node, body.graph):
        yield slot, body.graph.inputs[slot.formal].name, body.graph.outputs[slot.result].name


def _broken_slots(requirement: Req, node: Node, body: AliasClasses) -> Iterator[Diagnostic]:
    """The slots that do not return the storage that they were given, though it matters."""
    carried = tuple(_carried(node, body))
    formals = {formal for _, formal, _ in carried}
    for slot, formal, result in carried:
        returned = returned_formal(body, slot.result)
        foreign = returned_capture(body, slot.result) or (returned if returned in formals - {formal} else "")
        if foreign:
            what = f"is the storage of {foreign!r}"
        elif formal in body.mutations and returned != formal:
            mutation = body.graph.nodes[body.mutations[formal][0]]
            what = f"is not the storage of its formal input {formal!r}, which node {mutation.label} mutates"
        else:
            continue
        yield finding(
            requirement,
            f"body output {result!r} of slot {slot.output} {what}",
            body.graph,
            value=result,
            hint=f"what a slot returns must be its own formal input {formal!r}, updated or passed on by an Identity "
            "with {0, 0, MUST_ALIAS}",
        )


@rule(Req.MC_FLOW_004)
def mc_flow_004_loop_slots(context: Context) -> Iterator[Diagnostic]:
    """A slot of a Loop returns the storage that it was given."""
    for _, node, bodies in _constructs(context, Construct.LOOP):
        for _, body in bodies:
            yield from _broken_slots(Req.MC_FLOW_004, node, body)


@rule(Req.MC_FLOW_005)
def mc_flow_005_scan_states(context: Context) -> Iterator[Diagnostic]:
    """A state of a Scan returns the storage that it was given, and no scan output aliases."""
    for _, node, bodies in _constructs(context, Construct.SCAN):
        for _, body in bodies:
            yield from _broken_slots(Req.MC_FLOW_005, node, body)
    for scope in context.scopes:
        named = dict(alias_names(scope.graph))
        for index in scope.graph.nested if named or scope.graph.marked else ():
            node = scope.graph.nodes[index]
            entries = {alias.output_index for alias in node.aliases}
            for body_graph in node.subgraphs.values():
                for position in scan_outputs(node, body_graph):
                    output = node.outputs[position]
                    if position in entries or output in named:
                        what = "an entry in output_alias" if position in entries else f"alias_of = {named[output]!r}"
                        yield finding(
                            Req.MC_FLOW_005,
                            f"scan output {output!r} has {what}, but collects a copy of each iteration",
                            scope.graph,
                            node=node,
                            value=output,
                            hint="a storage leaves a loop through the slot that carries it",
                        )


@rule(Req.MC_FLOW_006)
def mc_flow_006_no_captured_caches(context: Context) -> Iterator[Diagnostic]:
    """A body that may run often neither mutates a class that it captures, nor captures one that it carries."""
    for scope, node, bodies in _constructs(context, Construct.LOOP, Construct.SCAN, Construct.OTHER):
        for attribute, body in bodies:
            mutated = captured_writes(body)
            for storage, name in mutated.items():
                yield finding(
                    Req.MC_FLOW_006,
                    f"{attribute} of node {node.label} mutates {name!r}, the storage of {storage.name!r}, "
                    "which it captures",
                    scope.graph,
                    node=node,
                    value=name,
                    hint="carry the cache: initial value, formal input, body output",
                )
            carried = {
                scope.classes.storage(initial): formal
                for formal, initial in body.origins.items()
                if formal in body.defined
            }
            for name in sorted(captures(node, contents=True)) if carried else ():
                storage = scope.classes.storage(name)
                if storage in carried and storage not in mutated:
                    yield finding(
                        Req.MC_FLOW_006,
                        f"{attribute} of node {node.label} captures {name!r}, the storage of {storage.name!r}, "
                        f"which it also carries as {carried[storage]!r}",
                        scope.graph,
                        node=node,
                        value=name,
                        hint=f"read {carried[storage]!r} in the body: it is the current version in every iteration",
                    )


# Functions.


def _executed_calls(context: Context) -> Iterator[tuple[Scope, Node, AliasClasses, Mapping[str, str]]]:
    """The calls that a run may reach, with the body and the arguments by formal; an omitted one is ""."""
    for scope in context.executed:
        for index, body, arguments in calls(context, scope):
            yield scope, scope.graph.nodes[index], body, arguments


@rule(Req.MC_FLOW_007)
def mc_flow_007_functions(context: Context) -> Iterator[Diagnostic]:
    """A function says what it mutates, and every call gives it that."""
    for scope in context.called.values():
        yield from _silent_function(scope)
    for scope, node, body, arguments in _executed_calls(context):
        for formal, argument in arguments.items():
            if not argument or formal not in body.mutations:
                continue
            storage = scope.classes.storage(argument)
            if not is_lent(context, storage):
                yield finding(
                    Req.MC_FLOW_007,
                    f"{body.graph.path} mutates its input {formal!r}, here {argument!r}, the storage of "
                    f"{storage.name!r}, which is no READ_WRITE graph input",
                    scope.graph,
                    node=node,
                    value=argument,
                    hint="lend the storage: pass a READ_WRITE graph input, or what has become of it",
                )
            for other, twin in arguments.items():
                if other != formal and twin and scope.classes.storage(twin) == storage:
                    if other in body.mutations and other < formal:
                        continue  # said of the other one
                    yield finding(
                        Req.MC_FLOW_007,
                        f"{body.graph.path} takes {storage.name!r} twice, as {other!r} ({twin!r}) and as {formal!r} "
                        f"({argument!r}), which it mutates",
                        scope.graph,
                        node=node,
                        value=twin,
                        hint="pass it once, and let the function read what it mutates",
                    )


def _silent_function(scope: Scope) -> Iterator[Diagnostic]:
    graph, classes = scope.graph, scope.classes
    for value in graph.inputs:
        if value.name in classes.mutations and not value.is_mutable and value.unknown_access is None:
            node = graph.nodes[classes.mutations[value.name][0]]
            yield finding(
                Req.MC_FLOW_007,
                f"node {node.label} mutates the formal input {value.name!r}, which is not READ_WRITE",
                graph,
                node=node,
                value=value.name,
                hint=f"add an entry for {value.name!r} with access = READ_WRITE to the value_info of the function",
            )
    for position, output in enumerate(graph.outputs):
        formal = returned_formal(classes, position)
        if formal in classes.mutations and output.name != formal and not output.alias_of:
            yield finding(
                Req.MC_FLOW_007,
                f"output {output.name!r} returns the storage of {formal!r}, which the function mutates, but has no "
                "alias_of",
                graph,
                value=output.name,
                hint=f"add an entry for {output.name!r} with alias_of = {formal!r} to the value_info of the function",
            )


@rule(Req.MC_FLOW_009)
def mc_flow_009_mutations_leave(context: Context) -> Iterator[Diagnostic]:
    """What a body mutates leaves through an output that has a name; a mutated formal of a loop is READ_WRITE."""
    for choice in _choices(context):
        yield from _lost_in_branches(choice)
    for scope, node, bodies in _constructs(context, Construct.LOOP, Construct.SCAN):
        for _, body in bodies:
            yield from _lost_in_iterations(scope, node, body)
    for scope in context.called.values():
        returned = {returned_formal(scope.classes, position) for position in range(len(scope.graph.outputs))}
        for formal in scope.classes.mutations:
            if formal in scope.inputs and formal not in returned:
                yield finding(
                    Req.MC_FLOW_009,
                    f"{scope.graph.path} mutates its input {formal!r}, but no output returns it",
                    scope.graph,
                    node=scope.graph.nodes[scope.classes.mutations[formal][0]],
                    value=formal,
                    hint="return the updated value: without it no caller has a name for what the storage holds",
                )
    for scope, node, body, arguments in _executed_calls(context):
        yield from _lost_in_call(scope, node, body, arguments)


def _lost(scope: Scope, node: Node, value: str, message: str) -> Diagnostic:
    return finding(
        Req.MC_FLOW_009,
        message,
        scope.graph,
        node=node,
        value=value,
        hint="without that output nothing has a name for what the storage holds afterwards",
    )


def _lost_in_branches(choice: _Choice) -> Iterator[Diagnostic]:
    leaving: dict[Storage, bool] = {}
    for position, returned in enumerate(choice.returned):
        for storage in returned:
            if storage is not None:
                leaving[storage] = leaving.get(storage, False) or _is_named(choice.node, position)
    for (attribute, _), writes in zip(choice.branches, choice.writes, strict=True):
        for storage, name in writes.items():
            if storage not in leaving:
                yield _lost(
                    choice.scope, choice.node, name, f"{attribute} mutates {name!r}, but no output of the If returns it"
                )
            elif not leaving[storage]:
                yield _lost(
                    choice.scope, choice.node, name, f"{attribute} mutates {name!r}, but the output for it is omitted"
                )


def _is_named(node: Node, position: int) -> bool:
    return any(node.outputs[position : position + 1])


def _lost_in_iterations(scope: Scope, node: Node, body: AliasClasses) -> Iterator[Diagnostic]:
    for slot, formal, _ in _carried(node, body):
        if formal not in body.mutations:
            continue
        value = body.graph.inputs[slot.formal]
        if not value.is_mutable and value.unknown_access is None:
            yield finding(
                Req.MC_FLOW_009,
                f"the body mutates its formal input {formal!r}, which is not READ_WRITE",
                body.graph,
                node=body.graph.nodes[body.mutations[formal][0]],
                value=formal,
                hint="set access = READ_WRITE on the formal input",
            )
        if returned_formal(body, slot.result) == formal and not _is_named(node, slot.output):
            initial = node.inputs[slot.initial]
            yield _lost(scope, node, initial, f"the body mutates {initial!r}, but the output of its slot is omitted")


def _lost_in_call(scope: Scope, node: Node, body: AliasClasses, arguments: Mapping[str, str]) -> Iterator[Diagnostic]:
    returned: dict[str, list[int]] = {}
    for position in range(len(body.graph.outputs)):
        returned.setdefault(returned_formal(body, position), []).append(position)
    for formal, argument in arguments.items():
        if formal not in body.mutations:
            continue
        if not argument:
            yield _lost(
                scope, node, formal, f"{body.graph.path} mutates its input {formal!r}, but the argument is omitted"
            )
        elif formal in returned and not any(_is_named(node, position) for position in returned[formal]):
            yield _lost(
                scope,
                node,
                argument,
                f"{body.graph.path} mutates {argument!r}, but the output that returns it is omitted",
            )
