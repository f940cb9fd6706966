"""``add_prefix``: the same model under names that collide with no other model's."""

from __future__ import annotations

from mutcache.model import FunctionKey
from mutcache.proto.onnx_ml import GraphProto, ModelProto
from mutcache.renaming import Translate, renamable_copy, rename_graph, walk_nodes


def add_prefix(model: ModelProto, prefix: str) -> ModelProto:
    """A copy in which every value, node and local function has ``prefix`` before its name, ``alias_of`` included.

    For what ``onnx.compose.add_prefix`` is for, and not built on it (MC-FLOW-008): that function leaves ``alias_of``
    and captured initializers behind, and calls of functions inside subgraphs, and it renames the standard operator
    ``Add`` when a local function bears that name. As there, the values inside a function keep their names, since a
    function is a scope of its own. Symbolic dimensions keep theirs.

    Raises:
        DecodeError: a name is not UTF-8, or the model nests deeper than protobuf reads.
        MutcacheError: the model has training information.
    """
    result = renamable_copy(model)

    def translate(name: str) -> str:
        return prefix + name

    def enter(_: GraphProto, around: Translate) -> Translate:
        return around

    rename_graph(result.graph, translate, enter)
    for node in walk_nodes(result.graph.node):
        if node.name:
            node.name = prefix + node.name
    _prefix_functions(result, prefix)
    return result


def _prefix_functions(model: ModelProto, prefix: str) -> None:
    keys: set[FunctionKey] = {(body.domain, body.name, body.overload) for body in model.functions}
    if not keys:
        return
    for nodes in (model.graph.node, *(function.node for function in model.functions)):
        for node in walk_nodes(nodes):
            if (node.domain, node.op_type, node.overload) in keys:
                node.op_type = prefix + node.op_type
    for function in model.functions:
        function.name = prefix + function.name
