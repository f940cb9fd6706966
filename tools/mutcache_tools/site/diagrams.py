"""Drawings of real models for the pages: alias classes over the order of nodes, and lifetimes of memory.

They are SVG inside the page, so that they follow its colours, light and dark.
"""

from __future__ import annotations

from typing import Final

import mutcache
from mutcache.decode import decode
from mutcache.model import Node
from mutcache.proto.onnx_ml import ModelProto, TensorProto
from mutcache_conformance.cases import builder
from mutcache_tools.convert import convert
from mutcache_tools.drawing import line, rect, shorten, text
from mutcache_tools.example_decoder import build
from mutcache_tools.plan_svg import plan_svg

_ROW: Final = 34
_NODE: Final = 470  # width of the column of nodes
_LANE: Final = 250
_FONT: Final = 13
_STYLE: Final = """
.alias-diagram text { font-family: var(--font-stack--monospace, monospace); font-size: 13px;
  fill: var(--color-foreground-primary, #000); }
.alias-diagram .quiet { fill: var(--color-foreground-secondary, #555); }
.alias-diagram .head { font-weight: 650; }
.alias-diagram .grid { stroke: var(--color-background-border, #ddd); }
.alias-diagram rect { fill-opacity: .2; }
.alias-diagram .version-0 { fill: #6f5be0; } .alias-diagram .version-1 { fill: #0d9488; }
.alias-diagram .version-2 { fill: #e2650b; } .alias-diagram .version-3 { fill: #1d6fd1; }
"""


def alias_diagram(model: ModelProto) -> str:
    """The main graph from top to bottom: what each node does, and which version of each storage its names are.

    A name stands where it comes into being; the colour of its lane there is its version, and below the next colour it
    is stale.
    """
    graph = decode(model).graph
    classes = mutcache.alias_classes(model).main
    roots = [root for root in classes.members if len(classes.members[root]) > 1]
    rows = len(graph.node_protos) + 1
    width, height = _NODE + _LANE * len(roots), (rows + 1) * _ROW + 8
    shapes: list[str] = []
    texts = [text(0, 20, "node order", "quiet head")]
    texts += [text(0, _middle(0), "the caller binds", "quiet")]
    for index in range(rows - 1):
        shapes.append(line(0, _top(index + 1), width, _top(index + 1), "grid"))
        call = shorten(_call(graph.nodes[index]), _NODE - 8, _FONT, monospace=True)
        texts.append(text(0, _middle(index + 1), call, ""))
    made = {output: index + 1 for index, node in enumerate(graph.node_protos) for output in node.output if output}
    for lane, root in enumerate(roots):
        left = _NODE + lane * _LANE
        texts.append(text(left, 20, f"storage of {root}", "head"))
        starts = [0, *(index + 1 for index in classes.mutations.get(root, ()))]
        for version, (start, end) in enumerate(zip(starts, [*starts[1:], rows], strict=True)):
            shapes.append(
                rect(left, _top(start), _LANE - 16, (end - start) * _ROW - 3, f"version-{version % 4}", round_by=5)
            )
            texts.append(text(left + _LANE - 26, _middle(start), f"version {version}", "quiet", anchor="end"))
        for name in classes.members[root]:
            texts.append(text(left + 10, _middle(made.get(name, 0)), name, ""))
    label = f"Alias classes of the graph {model.graph.name}"
    return (
        f'<svg class="alias-diagram" role="img" aria-label="{label}" viewBox="0 0 {width} {height}" '
        f'style="width: 100%; max-width: {width}px"><style>{_STYLE}</style>{"".join([*shapes, *texts])}</svg>\n'
    )


def _top(row: int) -> float:
    return 32 + row * _ROW


def _middle(row: int) -> float:
    return _top(row) + _ROW / 2 + 3


def _call(node: Node) -> str:
    return f"{', '.join(node.outputs)} = {node.op_type}({', '.join(node.inputs)})"


def example() -> ModelProto:
    """The graph of the introduction: a read, an update, a second name, and another update."""
    dims = (2, 16, 8)
    cache = builder.tensor("cache", TensorProto.FLOAT16, dims, mutable=True)
    values = [builder.tensor(name, TensorProto.FLOAT16, (2, 1, 8)) for name in ("values_1", "values_2")]
    positions = [builder.tensor(name, TensorProto.INT64, ()) for name in ("position_1", "position_2")]
    nodes = [
        builder.node("Abs", ["cache"], ["old"]),
        builder.update("cache", "values_1", "position_1", "first"),
        builder.aliased(builder.node("Identity", ["first"], ["same"])),
        builder.update("same", "values_2", "position_2", "second"),
    ]
    old = builder.tensor("old", TensorProto.FLOAT16, dims)
    second = builder.tensor("second", TensorProto.FLOAT16, dims, alias_of="cache")
    model = builder.model([cache, *values, *positions], nodes, [old, second])
    model.graph.name = "three versions"
    mutcache.check_model(model)
    return model


def lifetimes() -> str:
    """The memory plan of the example decoder, converted: one step at the end of its capacity."""
    model = convert(mutcache.from_onnx(build()), max_length=64)
    plan = mutcache.plan(model, dims={"batch": 1, "sequence": 1, "position": 63})
    return plan_svg(plan, "the example decoder") + "\n"
