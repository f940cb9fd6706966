"""MC-ACCESS-005: where sequences of and maps to quantized tensors may go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from mutcache.constructs import Construct, construct_of, function_key, slots
from mutcache.diagnostics import Diagnostic
from mutcache.model import DOMAIN, FunctionKey, Graph, MapType, Node, ValueType, page_type
from mutcache.requirements import Req
from mutcache.rules.registry import Context, finding, rule

#: Names of containers of quantized tensors that a graph sees, to "sequence" or "map".
Kinds = dict[str, str]


def _kind(value_type: ValueType | None) -> str:
    if page_type(value_type) is None:
        return ""
    return "map" if isinstance(value_type, MapType) else "sequence"


@rule(Req.MC_ACCESS_005)
def mc_access_005_containers(context: Context) -> Iterator[Diagnostic]:
    """Containers of quantized tensors are consumed by what knows them; maps and Scan states are not for containers."""
    if not any(_kind(value.type) for graph in context.graphs for value in graph.inputs):
        return
    flow = _Flow(context.model.functions)
    flow.follow(context.graph, {})
    for body in context.model.functions.values():
        flow.follow(body, {})
    yield from dict.fromkeys(flow.findings)


class _Flow:
    """Follows containers from the inputs of a graph to everything that consumes them, bodies included."""

    def __init__(self, functions: Mapping[FunctionKey, Graph]) -> None:
        self.findings: list[Diagnostic] = []
        self._functions = functions
        self._returned: dict[tuple[Graph, tuple[tuple[str, str], ...]], list[str]] = {}

    def follow(self, graph: Graph, bound: Mapping[str, str]) -> list[str]:
        """The kind of each output of ``graph``, "" for no container.

        Args:
            graph: a graph or the body of a function.
            bound: containers among its formals and among the names around it.
        """
        known = (graph, tuple(sorted(bound.items())))
        if known in self._returned:
            return self._returned[known]
        self._returned[known] = [""] * len(graph.outputs)  # for functions that call themselves
        kinds = dict(bound)
        for value in graph.inputs:
            if kind := _kind(value.type):
                kinds[value.name] = kind
        nested = frozenset(graph.nested)
        for index, proto in enumerate(graph.node_protos):
            if index in nested or not kinds.keys().isdisjoint(proto.input):
                self._node(graph, graph.nodes[index], kinds)
        self._returned[known] = [kinds.get(value.name, "") for value in graph.outputs]
        return self._returned[known]

    def _node(self, graph: Graph, node: Node, kinds: Kinds) -> None:
        function = self._functions.get(function_key(node))
        construct = construct_of(node)
        if function is not None and not node.is_cache_update:
            arguments = {
                value.name: kinds[name]
                for value, name in zip(function.inputs, node.inputs, strict=False)
                if name in kinds
            }
            self._bind(node, self.follow(function, arguments), kinds)
        elif construct in (Construct.BRANCH, Construct.LOOP, Construct.SCAN):
            self._control_flow(graph, node, kinds)
        elif node.domain == DOMAIN or (node.is_standard and node.op_type == "Identity"):
            if node.is_cache_update or node.domain != DOMAIN:
                self._bind(node, [kinds.get(name, "") for name in node.inputs[:1]], kinds)
        else:
            is_length = node.is_standard and node.op_type == "SequenceLength"
            for name in dict.fromkeys(name for name in node.inputs if name in kinds):
                if is_length and kinds[name] == "sequence":
                    continue
                self._reject(graph, node, name, f"{node.label} consumes {name!r}, a {kinds[name]} of quantized tensors")
            for body in node.subgraphs.values():
                self.follow(body, kinds)

    def _control_flow(self, graph: Graph, node: Node, kinds: Kinds) -> None:
        is_scan = construct_of(node) is Construct.SCAN
        for name in dict.fromkeys(name for name in node.inputs if name in kinds):
            self._reject_in_control_flow(graph, node, name, kinds[name], is_scan)
        for body in node.subgraphs.values():
            carried = tuple(slots(node, body))
            formals = {
                body.inputs[slot.formal].name: kinds[node.inputs[slot.initial]]
                for slot in carried
                if node.inputs[slot.initial] in kinds
            }
            returned = self.follow(body, {**kinds, **formals})
            if carried:
                returned = [returned[slot.result] for slot in carried]
            elif construct_of(node) is not Construct.BRANCH:
                returned = []
            for output, kind in zip(node.outputs, returned, strict=False):
                if output and kind and output not in kinds:
                    kinds[output] = kind
                    if construct_of(node) is Construct.BRANCH:
                        self._reject_in_control_flow(graph, node, output, kind, is_scan)

    def _reject_in_control_flow(self, graph: Graph, node: Node, name: str, kind: str, is_scan: bool) -> None:
        if kind == "map":
            self._reject(graph, node, name, f"map {name!r} passes through {node.label}: ONNX lets no map through it")
        elif is_scan:
            self._reject(graph, node, name, f"sequence {name!r} enters {node.label}: ONNX lets no sequence into a Scan")

    def _bind(self, node: Node, returned: Iterable[str], kinds: Kinds) -> None:
        for output, kind in zip(node.outputs, returned, strict=False):
            if output and kind:
                kinds[output] = kind

    def _reject(self, graph: Graph, node: Node, name: str, message: str) -> None:
        self.findings.append(
            finding(
                Req.MC_ACCESS_005,
                message,
                graph,
                node=node,
                value=name,
                hint="gather the pages first (PagedCacheGather), or use a container that the construct takes: "
                "a sequence in If and Loop, either in a function",
            )
        )
