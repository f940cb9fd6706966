"""``inline``: the same model without local functions, with every annotation where it belongs.

Not built on ``onnx.inliner``, which was tried: it carries ``output_alias`` of a body along, but leaves ``alias_of``
with the function's own names, drops an attribute whose value is the function's default (the operator's default takes
its place), and leaves calls where they are, without a word, when versions of an operator set differ. To repair its
result one would need to know what it renamed, which it does not tell.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from onnx import defs

from mutcache.digraph import components, shortest_path
from mutcache.errors import DecodeError, MutcacheError
from mutcache.model import STANDARD_DOMAINS, FunctionKey
from mutcache.proto.onnx_ml import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TypeProto,
    ValueAliasProto,
    ValueInfoProto,
)
from mutcache.renaming import (
    MAX_DEPTH,
    FreshNames,
    Translate,
    defined_names,
    nested_graphs,
    renamable_copy,
    rename_entries,
    rename_graph,
    rename_nodes,
    subgraphs,
    value_names,
    walk_nodes,
)

#: Nodes that bodies may bring into a model: functions that call functions make much of a small file.
MAX_INLINED: Final = 1 << 20


def inline(model: ModelProto) -> ModelProto:
    """A copy in which every call of a local function is replaced by the function's body (MC-FLOW-008).

    Names of a body stay as they are where the model has no such name, and get a number otherwise. What a body says
    of its storage is said of the caller's values: ``alias_of`` names the argument, and a READ_WRITE formal input is
    the argument itself. A declared type of a value inside is kept without its symbols, which mean something else in
    every call. A body that returns an argument as it came adds no node, except where a graph output needs one: an
    ``Identity``, with MUST_ALIAS if the output has ``alias_of``.

    Raises:
        DecodeError: a name is not UTF-8, or the inlined model nests deeper than protobuf reads.
        MutcacheError: functions call each other in a cycle; a call passes more arguments, or names more outputs,
            than its function has, or wants back an argument that it does not pass; an operator of a body means
            something else in the operator set that the model imports; the bodies have more than ``MAX_INLINED``
            nodes together; the model has training information.
    """
    result = renamable_copy(model)
    if result.functions:
        _Inliner(result).inline(result.graph)
        result.ClearField("functions")
    return result


class _Inliner:
    """Inlines the functions of one model, which it modifies."""

    def __init__(self, model: ModelProto) -> None:
        self._functions = {_key(body): body for body in model.functions}
        self._opsets = model.opset_import
        self._merged: set[FunctionKey] = set()
        self._inlined = 0
        scopes = [model.graph, *nested_graphs(model.graph.node)]
        self._fresh_value = FreshNames(name for scope in scopes for name in value_names(scope))
        self._fresh_node = FreshNames(node.name for scope in scopes for node in scope.node)
        self._judge_calls(model.graph.node)

    def _judge_calls(self, nodes: Iterable[NodeProto]) -> None:
        """Refuse recursion, and functions that would fill the memory, before anything is inlined."""
        bodies = list(self._functions.values())
        number = {key: index for index, key in enumerate(self._functions)}
        contents = [tuple(map(_callee, walk_nodes(body.node))) for body in bodies]
        successors = [[number[callee] for callee in callees if callee in number] for callees in contents]
        component = components(successors)
        members = Counter(component)
        for start in range(len(bodies)):
            if members[component[start]] > 1 or start in successors[start]:
                path = " -> ".join(_label(bodies[index]) for index in shortest_path(successors, start, start))
                raise MutcacheError(f"functions call each other in a cycle: {path}", hint="ONNX has no recursion")
        sizes = [len(callees) for callees in contents]
        for index in sorted(range(len(bodies)), key=component.__getitem__):  # what a function calls comes before it
            sizes[index] += sum(sizes[callee] for callee in successors[index])
        self._count(sum(sizes[number[callee]] for callee in map(_callee, walk_nodes(nodes)) if callee in number))
        self._inlined = 0

    def _count(self, nodes: int) -> None:
        self._inlined += nodes
        if self._inlined > MAX_INLINED:
            raise MutcacheError(
                f"the bodies of the functions have more than {MAX_INLINED} nodes once they are inlined",
                hint="run the model with its functions",
            )

    def inline(self, graph: GraphProto, depth: int = 0) -> None:
        """Replace every call in ``graph`` and in its subgraphs."""
        if depth > MAX_DEPTH:
            raise DecodeError(f"the inlined model would nest subgraphs more than {MAX_DEPTH} levels deep")
        site = _Site(graph)
        nodes: list[NodeProto] = []
        pending = list(reversed(graph.node))
        expanded = False
        while pending:
            node = pending.pop()
            function = self._functions.get(_callee(node))
            if function is not None:
                pending.extend(reversed(self._expand(node, function, site)))
                expanded = True
                continue
            for subgraph in subgraphs(node):
                self.inline(subgraph, depth + 1)
            nodes.append(node)
        if expanded:
            del graph.node[:]
            graph.node.extend(nodes)
            site.settle()

    def _expand(self, call: NodeProto, function: FunctionProto, site: _Site) -> list[NodeProto]:
        """What stands for ``call``: the nodes of the body, in the caller's names."""
        self._merge_opsets(function)
        ports = (("arguments", call.input, function.input), ("outputs", call.output, function.output))
        for what, passed, known in ports:
            if len(passed) > len(known):
                raise MutcacheError(
                    f"the call {call.name!r} of {_label(function)} has {len(passed)} {what}, the function {len(known)}"
                )
        names = dict(itertools.zip_longest(function.input, call.input, fillvalue=""))
        returned: list[tuple[str, str]] = []
        for formal, actual in zip(function.output, call.output, strict=False):
            if not actual:
                continue
            if formal not in names:
                names[formal] = actual
            elif names[formal]:
                returned.append((actual, names[formal]))
            else:
                raise MutcacheError(
                    f"output {actual!r} of the call {call.name!r} of {_label(function)} is the argument {formal!r}, "
                    "which the call does not pass"
                )
        for node in function.node:
            for name in node.output:
                if name and name not in names:
                    names[name] = self._fresh_value(name)

        def translate(name: str) -> str:
            return names.get(name, name)

        nodes = [_copy(node) for node in function.node]
        rename_nodes(nodes, translate, self._enter)
        copies = list(walk_nodes(nodes))
        self._count(len(copies))  # again, since a graph that is passed as an attribute may bring in more calls
        for node in copies:
            if node.name:
                node.name = self._fresh_node(f"{call.name}/{node.name}" if call.name else node.name)
        given = {attribute.name: attribute for attribute in (*function.attribute_proto, *call.attribute)}
        _substitute(nodes, given)
        site.declare(function, names)
        nodes.extend(node for output, source in returned for node in site.hand_through(output, source))
        return nodes

    def _enter(self, graph: GraphProto, around: Translate) -> Translate:
        inside = {name: self._fresh_value(name) for name in dict.fromkeys(defined_names(graph))}
        return lambda name: inside.get(name) or around(name)

    def _merge_opsets(self, function: FunctionProto) -> None:
        """Import what the body needs; refuse an operator that is not the same in the version the model imports."""
        if _key(function) in self._merged:
            return
        self._merged.add(_key(function))
        known = {_domain(opset.domain): opset.version for opset in self._opsets}
        for opset in function.opset_import:
            domain = _domain(opset.domain)
            operators = dict.fromkeys(
                node.op_type
                for node in walk_nodes(function.node)
                if _domain(node.domain) == domain and _callee(node) not in self._functions
            )
            if operators and domain not in known:
                self._opsets.add(domain=opset.domain, version=opset.version)
                continue
            for operator in operators:
                if not _is_same_operator(operator, domain, opset.version, known[domain]):
                    raise MutcacheError(
                        f"function {_label(function)} uses {operator!r} of version {opset.version} of "
                        f"{domain or 'the standard domain'}, but the model imports version {known[domain]}, "
                        "where it is not known to be the same operator",
                        hint="convert the function to the model's version before inlining",
                    )


class _Site:
    """A graph in which calls are inlined: its declarations, and the names that calls hand through."""

    def __init__(self, graph: GraphProto) -> None:
        self._graph = graph
        self._outputs = {value.name: value for value in graph.output}
        self._declared = {entry.name for entry in (*graph.input, *graph.output, *graph.value_info)}
        self._same_as: dict[str, str] = {}

    def declare(self, function: FunctionProto, names: Mapping[str, str]) -> None:
        """Carry the value_info of a body over; what the caller declares of its own values stands."""
        formals = frozenset(function.input)
        for entry in {entry.name: entry for entry in function.value_info}.values():
            name = names.get(entry.name)
            if not name or name in self._declared or entry.name in formals:
                continue
            carried = ValueInfoProto()
            carried.CopyFrom(entry)
            carried.ClearField("access")  # only a formal input has one
            rename_entries([carried], lambda name: names.get(name, name))
            if not carried.alias_of:
                carried.ClearField("alias_of")
            _forget_symbols(carried.type)
            self._declared.add(name)
            self._graph.value_info.append(carried)

    def hand_through(self, output: str, source: str) -> Iterator[NodeProto]:
        """Make ``output`` the value ``source``: by its name, or by a node where the name must stay."""
        if output not in self._outputs:
            source = self._resolve(source)
            if source != output:
                self._same_as[output] = source
            return
        identity = NodeProto(op_type="Identity", input=[source], output=[output])
        if self._outputs[output].alias_of:
            identity.output_alias.add(output_index=0, input_index=0, kind=ValueAliasProto.MUST_ALIAS)
        yield identity

    def _resolve(self, name: str) -> str:
        while name in self._same_as:
            name = self._same_as[name]
        return name

    def settle(self) -> None:
        """Write the names that calls handed through as the values that they are."""
        if not self._same_as:
            return
        kept = [entry for entry in self._graph.value_info if entry.name not in self._same_as]
        del self._graph.value_info[:]
        self._graph.value_info.extend(kept)

        def enter(graph: GraphProto, around: Translate) -> Translate:
            own = frozenset(defined_names(graph))
            return lambda name: name if name in own else around(name)

        rename_graph(self._graph, self._resolve, enter)


def _key(function: FunctionProto) -> FunctionKey:
    return function.domain, function.name, function.overload


def _callee(node: NodeProto) -> FunctionKey:
    return node.domain, node.op_type, node.overload


def _label(function: FunctionProto) -> str:
    return f"{function.domain}::{function.name}" + (f":{function.overload}" if function.overload else "")


def _domain(domain: str) -> str:
    return "" if domain in STANDARD_DOMAINS else domain


def _is_same_operator(operator: str, domain: str, version: int, other: int) -> bool:
    if version == other:
        return True
    try:
        schemas = [defs.get_schema(operator, number, domain) for number in (version, other)]
    except defs.SchemaError:
        return False
    return schemas[0].since_version == schemas[1].since_version


def _copy(node: NodeProto) -> NodeProto:
    copy = NodeProto()
    copy.CopyFrom(node)
    return copy


def _substitute(nodes: Iterable[NodeProto], given: Mapping[str, AttributeProto]) -> None:
    """Put the attributes of a call in the place of references to them; an attribute without a value is left out."""
    for node in nodes:
        for graph in subgraphs(node):  # before a graph of the caller comes in, whose references are the caller's
            _substitute(graph.node, given)
        if not any(attribute.ref_attr_name for attribute in node.attribute):
            continue
        attributes = []
        for attribute in node.attribute:
            value = given.get(attribute.ref_attr_name) if attribute.ref_attr_name else attribute
            if value is not None:
                attributes.append(AttributeProto())
                attributes[-1].CopyFrom(value)
                attributes[-1].name = attribute.name
        del node.attribute[:]
        node.attribute.extend(attributes)


def _forget_symbols(proto: TypeProto) -> None:
    """Leave the sizes of a type, and take the symbols out."""
    kind = proto.WhichOneof("value")
    while kind in ("sequence_type", "map_type", "optional_type"):
        proto = proto.map_type.value_type if kind == "map_type" else getattr(proto, kind).elem_type
        kind = proto.WhichOneof("value")
    if kind in ("tensor_type", "sparse_tensor_type", "quantized_tensor_type"):
        for dim in getattr(proto, kind).shape.dim:
            dim.ClearField("dim_param")
