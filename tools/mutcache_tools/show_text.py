"""The view of a model as text: a line for each value and node, continued under itself where the width ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from mutcache.model import DOMAIN
from mutcache_tools.show import ShownGraph, ShownModel, ShownNode, ShownValue
from mutcache_tools.words import printable

#: Of a graph with more nodes only those near a cache are shown, unless all are asked for.
LONG: Final = 40
#: More initializers are counted rather than listed, likewise.
FEW: Final = 8
#: Longer names do not move the types of other values to the right.
_MAX_COLUMN: Final = 32
#: Width of what stands before a value or a node: "in", "out", "const", "#123".
_LABEL: Final = 6

_HEADING, _VALUE, _SHARED, _MUTATED, _QUIET = "bold underline", "bold", "cyan", "bold magenta", "dim"


@dataclass(frozen=True, slots=True)
class _Line:
    """One line; where the width ends it goes on ``hanging`` columns to the right of its ``indent``."""

    indent: int
    hanging: int
    text: Text


class ModelText:
    """Renders a view in the width it is given.

    Args:
        model: the view.
        path: the file it is of.
        show_all: show long graphs in full.
    """

    def __init__(self, model: ShownModel, path: str, *, show_all: bool = False) -> None:
        self._model = model
        self._path = path
        self._show_all = show_all

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the folded lines."""
        for line in self._lines():
            margin = min(line.indent + line.hanging, options.max_width // 2)
            indent = min(line.indent, margin)
            first = line.text.wrap(console, options.max_width - indent, overflow="fold")[0]
            rest = line.text[len(first) :]
            rest = rest[len(rest) - len(rest.plain.lstrip()) :]
            parts = [(indent, first)]
            if rest:
                folded = rest.wrap(console, options.max_width - margin, overflow="fold")
                parts += [(margin, part) for part in folded]
            for spaces, part in parts:
                part.rstrip()
                yield Text(" " * spaces) + part

    def _lines(self) -> Iterator[_Line]:
        model = self._model
        yield _Line(0, 2, Text.assemble((printable(self._path), _HEADING)))
        opsets = ", ".join(f"{domain or 'standard operators'} {version}" for domain, version in model.opsets.items())
        yield _Line(0, 2, Text(f"IR version {model.ir_version}, {opsets or 'no operator sets'}"))
        yield _Line(0, 2, self._findings())
        if model.page_types:
            yield from _heading("page types")
            for index, words in enumerate(model.page_types):
                yield _Line(2, _LABEL, Text.assemble(_label(str(index)), words))
        yield from _heading(model.graph.path)
        yield from self._graph(model.graph, 2)
        for function in model.functions:
            yield from _heading(f"function {function.path}")
            yield from self._graph(function, 2)

    def _findings(self) -> Text:
        found = [f"{count} {severity}{'s' * (count != 1)}" for severity, count in self._model.findings.items() if count]
        if not found:
            return Text("no findings", "green")
        style = "bold red" if self._model.findings.get("error") else "yellow"
        return Text.assemble((", ".join(found), style), f": mutcache check {printable(self._path)}")

    def _graph(self, graph: ShownGraph, indent: int) -> Iterator[_Line]:
        yield from _values("in", graph.inputs, indent)
        if self._show_all or len(graph.initializers) <= FEW:
            yield from _values("const", graph.initializers, indent)
        else:
            yield _Line(
                indent, _LABEL, Text.assemble(_label("const"), (f"{len(graph.initializers)} initializers", _QUIET))
            )
        folded: list[ShownNode] = []
        for node in graph.nodes:
            if self._show_all or len(graph.nodes) <= LONG or node.touches_storage:
                yield from _fold(folded, indent)
                folded = []
                yield from self._node(node, indent)
            else:
                folded.append(node)
        yield from _fold(folded, indent)
        yield from _values("out", graph.outputs, indent)

    def _node(self, node: ShownNode, indent: int) -> Iterator[_Line]:
        text = Text.assemble(_label(f"#{node.index}"))
        for number, output in enumerate(node.outputs):
            text.append(", " if number else "")
            text.append_text(_name(output))
            text.append(f": {output.type}" if output.type and output.alias is None else "", _QUIET)
        text.append(f"{' = ' if node.outputs else ''}{printable(node.operator.removeprefix(f'{DOMAIN}.'))}(")
        classed = {*node.writes, *node.reads}
        for number, name in enumerate(node.inputs):
            text.append(", " if number else "")
            text.append(printable(name) or "-", _MUTATED if name in node.writes else _SHARED if name in classed else "")
        text.append(")")
        for name, words in node.attributes.items():
            text.append(f" {printable(name)}={words}", _QUIET)
        if node.name and not any(f"{output.name}_".startswith(f"{node.name}_") for output in node.outputs):
            text.append(f"  [{printable(node.name)}]", _QUIET)
        yield _Line(indent, _LABEL + 2, text)
        effect = _effect(node)
        if effect:
            yield _Line(indent + _LABEL, 2, effect)
        for name, graph in node.subgraphs.items():
            yield _Line(indent + _LABEL, 2, Text.assemble((printable(name), _VALUE)))
            yield from self._graph(graph, indent + _LABEL + 2)


def _heading(text: str) -> Iterator[_Line]:
    yield _Line(0, 0, Text())
    yield _Line(0, 2, Text.assemble((printable(text), _HEADING)))


def _label(text: str) -> tuple[str, str]:
    return f"{text:<{_LABEL - 1}} ", _QUIET


def _name(value: ShownValue) -> Text:
    style = _MUTATED if value.access == "READ_WRITE" else _SHARED if value.alias else _VALUE
    return Text(printable(value.name) or "-", style)


def _values(label: str, values: Sequence[ShownValue], indent: int) -> Iterator[_Line]:
    names = [len(printable(value.name)) for value in values]
    column = max((width for width in names if width <= _MAX_COLUMN), default=0)
    for value, width in zip(values, names, strict=True):
        text = Text.assemble(_label(label), _name(value), " " * max(column - width, 0))
        if value.type:
            text.append(f"  {value.type}")
        notes = ([value.access] if value.access == "READ_WRITE" else []) + list(_alias_notes(value))
        if notes:
            text.append(f"  {', '.join(notes)}", _MUTATED if value.access == "READ_WRITE" else _SHARED)
        yield _Line(indent, _LABEL + min(column, _MAX_COLUMN) + 2, text)


def _alias_notes(value: ShownValue) -> Iterator[str]:
    alias = value.alias
    if alias is None:
        return
    if alias.root != value.name:
        yield f"is {printable(alias.root)}"
    if alias.version:
        yield f"version {alias.version}"
    if alias.alias_of and alias.alias_of != alias.root:
        yield f"alias_of {printable(alias.alias_of)}"


def _effect(node: ShownNode) -> Text:
    """What the node does with storage."""
    parts = []
    if node.writes:
        parts.append((f"writes {_names(node.writes)}", _MUTATED))
    if node.reads:
        parts.append((f"uses {_names(node.reads)}", _SHARED))
    for output in node.outputs:
        notes = list(_alias_notes(output))
        if notes:
            parts.append((f"{printable(output.name)} {', '.join(notes)}", _SHARED))
    text = Text()
    for number, part in enumerate(parts):
        text.append("; " if number else "")
        text.append(*part)
    return text


def _names(names: Iterable[str]) -> str:
    return ", ".join(map(printable, names))


def _fold(nodes: Sequence[ShownNode], indent: int) -> Iterator[_Line]:
    if nodes:
        first, last = nodes[0].index, nodes[-1].index
        words = f"#{first}: a node" if first == last else f"#{first} to #{last}: {len(nodes)} nodes"
        yield _Line(indent, _LABEL, Text.assemble(_label("..."), (f"{words} without a cache", _QUIET)))
