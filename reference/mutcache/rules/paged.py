"""MC-PAGED: page types, and the operands of updates and gathers of pages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property

from mutcache.constructs import function_key
from mutcache.diagnostics import Diagnostic, Severity
from mutcache.facts import show_elem_type, show_type
from mutcache.frames import Frame
from mutcache.model import Dim, Node, QuantizedTensorType, TensorType, page_type
from mutcache.page_types import Declarations, Problem, parse_declarations, type_problem
from mutcache.proto.onnx_ml import TensorProto
from mutcache.quantization import page_problems
from mutcache.requirements import Req
from mutcache.rules.registry import Context, finding, rule
from mutcache.rules.shape import overflow
from mutcache.schemas import LINEAR, page_axis

#: Operands of a PagedCacheUpdate and a PagedCacheGather that are INT64, by position, with their rank.
_NUMBERS = {"PagedCacheUpdate": {1: 0, 3: 0, 4: 0}, "PagedCacheGather": {1: 1}}
_OPERANDS = ("cache", "page_id", "values", "position", "quantized_type")


@dataclass(frozen=True, eq=False)
class _Use:
    """A PagedCacheUpdate or PagedCacheGather as one frame runs it.

    Attributes:
        node: the node.
        frame: the frame.
        page: what is known of every page of the container.
        elements: what the names of the container declare.
        context: the model.
    """

    node: Node
    frame: Frame
    page: QuantizedTensorType
    elements: tuple[QuantizedTensorType, ...]
    context: Context

    @cached_property
    def axis(self) -> int | None:
        """The axis of the rows, non-negative; None when the rank is unknown or the axis out of range."""
        rank, axis = self.rank, self.written_axis
        return axis % rank if rank is not None and -rank <= axis < rank else None

    @cached_property
    def written_axis(self) -> int:
        """The axis as the node says it."""
        return page_axis(self.frame.bind(self.node.proto))

    @cached_property
    def rank(self) -> int | None:
        """The rank of the pages, or of the values if that is unknown."""
        for dims in (self.page.dims, self.operand(2).dims if self.node.is_paged_update else None):
            if dims is not None:
                return len(dims)
        return None

    def size(self, dims: tuple[Dim, ...] | None) -> Dim:
        """The size of values or of a page along the axis; None when it is unknown, or the rank another one."""
        return None if dims is None or self.axis is None or len(dims) != self.rank else dims[self.axis]

    def operand(self, position: int) -> TensorType:
        """What is known of the type of an operand; nothing of one that is left out."""
        if position < len(self.node.inputs) and self.node.inputs[position]:
            known = self.context.shapes.type_of(self.node.inputs[position], self.frame)
            if isinstance(known, TensorType):
                return known
        return TensorType(0, None)

    def constant(self, position: int) -> int | None:
        """The value of an INT64 scalar that is the same in every run, or None."""
        if position >= len(self.node.inputs) or not self.node.inputs[position]:
            return None
        value = self.context.shapes.constant(self.node.inputs[position], self.frame)
        return int(value) if value is not None and value.dtype.name == "int64" and value.ndim == 0 else None

    @property
    def severity(self) -> Severity | None:
        """Of an error that only a run of the node meets: a warning where it may not run, None where it never does."""
        entered = self.context.shapes.enters(self.frame)
        return None if entered is False else Severity.ERROR if entered else Severity.WARNING

    def find(
        self,
        requirement: Req,
        message: str,
        position: int,
        hint: str,
        severity: Severity = Severity.ERROR,
    ) -> Diagnostic:
        """A finding at the operand ``position``."""
        calls = []
        top = self.frame.top
        while top.outer is not None and top.node is not None:
            calls.append(f"{top.node.label} of {top.outer.scope.graph.path}")
            top = top.outer.top
        if severity is Severity.WARNING:
            message += ", if the node runs at all"
        return finding(
            requirement,
            message + (f" (called by {', by '.join(calls)})" if calls else ""),
            self.frame.scope.graph,
            node=self.node,
            value=self.node.inputs[position],
            hint=hint,
            severity=severity,
        )


def _uses(context: Context) -> Iterator[_Use]:
    """The updates and gathers of containers that a run may reach; what else is wrong with one, the base check says."""
    if not _has_pages(context):
        return
    declared: dict[tuple[Frame, str], list[QuantizedTensorType]] = {}
    for frame in context.shapes.frames:
        for name, element in _declared(frame):
            declared.setdefault(frame.storage(name), []).append(element)
    for frame in context.shapes.frames:
        graph = frame.scope.graph
        for index in graph.marked:
            node = graph.nodes[index]
            is_gather = node.is_gather and function_key(node) not in context.model.functions
            needed = 2 if is_gather else 4 if node.is_paged_update else 0
            if not needed or len(node.inputs) < needed or not all(node.inputs[:needed]):
                continue
            page = page_type(context.shapes.type_of(node.inputs[0], frame))
            if page is not None:
                elements = tuple(dict.fromkeys(declared.get(frame.storage(node.inputs[0]), ())))
                yield _Use(node, frame, page, elements, context)


def _has_pages(context: Context) -> bool:
    """Whether there are containers at all: each of them enters its graph by an input, or is made of one that does."""
    return any(page_type(value.type) is not None for graph in context.graphs for value in graph.inputs)


def _declared(frame: Frame) -> Iterator[tuple[str, QuantizedTensorType]]:
    """What a graph says of the pages of its inputs and of the names in its classes."""
    graph = frame.scope.graph
    entries = [*graph.inputs, *graph.outputs]
    entries += [graph.value_info[name] for name in frame.scope.root_of if name in graph.value_info]
    for value in entries:
        element = page_type(value.type)
        if element is not None:
            yield value.name, element


def _updates(context: Context) -> Iterator[_Use]:
    return (use for use in _uses(context) if use.node.is_paged_update)


def _containers(context: Context) -> Iterator[tuple[str, QuantizedTensorType, Diagnostic]]:
    """Every declared container: its name, what its pages are, and a finding at it to be completed."""
    for graph in context.graphs if _has_pages(context) else ():
        for value in graph.declared():
            element = page_type(value.type)
            if element is not None:
                yield value.name, element, finding(Req.MC_PAGED_006, "", graph, value=value.name)


def _report(found: Diagnostic, problem: Problem) -> Diagnostic:
    return Diagnostic(problem.requirement, problem.message, found.where, problem.hint)


def _static_types(context: Context, requirement: Req) -> Iterator[Diagnostic]:
    """What is wrong with the types that updates name by constants."""
    declarations = parse_declarations(context.model.proto)
    for use in _updates(context):
        wanted, severity = use.constant(4), use.severity
        if wanted is None or severity is None:
            continue
        problem = type_problem(wanted, declarations, use.elements)
        if problem is not None and problem.requirement is requirement:
            yield use.find(requirement, problem.message, 4, problem.hint, severity)


@rule(Req.MC_PAGED_006)
def mc_paged_006_types(context: Context) -> Iterator[Diagnostic]:
    """Every quantized type is a declaration of the model, and one that its container allows."""
    count = len(context.model.proto.quantizations)
    findings = []
    for name, element, where in _containers(context):
        findings += [
            _report(
                where,
                Problem(
                    Req.MC_PAGED_006,
                    f"{name!r} allows quantized type {index}, the model has {count} declarations",
                    "allowed_quantized_type has indices into ModelProto.quantizations",
                ),
            )
            for index in element.allowed
            if not 0 <= index < count
        ]
    yield from dict.fromkeys(findings)
    yield from dict.fromkeys(_static_types(context, Req.MC_PAGED_006))


@rule(Req.MC_PAGED_007)
def mc_paged_007_pages(context: Context) -> Iterator[Diagnostic]:
    """The types that a container allows decode to its element type, and can have its shape."""
    declarations = parse_declarations(context.model.proto)
    findings = []
    for name, element, where in _containers(context):
        for index in dict.fromkeys(element.allowed):
            findings += [
                _report(where, Problem(Req.MC_PAGED_007, f"{name!r}: {message}", "allow types that fit the pages"))
                for message in _misfits(index, element, declarations)
            ]
    yield from dict.fromkeys(findings)
    yield from dict.fromkeys(_static_types(context, Req.MC_PAGED_007))
    for value in context.graph.inputs:
        page = page_type(context.shapes.type_of(value.name))
        if page is not None and not page.elem_type:
            yield finding(
                Req.MC_PAGED_007,
                f"nothing says what the pages of {value.name!r} decode to",
                context.graph,
                value=value.name,
                hint="set elem_type of its quantized tensor type",
            )


def _misfits(index: int, element: QuantizedTensorType, declarations: Declarations) -> Iterator[str]:
    """Why pages of a container cannot have a type that it allows."""
    declaration = declarations[index] if 0 <= index < len(declarations) else None
    if declaration is None:
        return  # MC-PAGED-006, MC-QUANT-006
    if element.elem_type and declaration.data_type != element.elem_type:
        yield (
            f"quantized type {index} decodes to {show_elem_type(declaration.data_type)}, the pages are "
            f"{show_elem_type(element.elem_type)}"
        )
    if element.dims is not None:
        for problem in page_problems(declaration, element.dims):
            yield f"quantized type {index}: {problem}"


@rule(Req.MC_PAGED_013)
def mc_paged_013_rows_own_groups(context: Context) -> Iterator[Diagnostic]:
    """No update writes part of a group: the rows of every type that the page may have own whole groups."""
    declarations = parse_declarations(context.model.proto)

    @cache  # there may be many updates of one container
    def spanning(
        page: QuantizedTensorType, elements: tuple[QuantizedTensorType, ...], dims: tuple[Dim, ...], axis: int
    ) -> tuple[tuple[str, int], ...]:
        """What spans rows along ``axis``, with the first type for which it does."""
        found: dict[str, int] = {}
        for index, declaration in enumerate(declarations):
            if declaration is not None and type_problem(index, declarations, (page, *elements)) is None:
                for problem in {*page_problems(declaration, dims, axis)} - {*page_problems(declaration, dims)}:
                    found.setdefault(problem, index)
        return tuple(sorted(found.items(), key=lambda entry: (entry[1], entry[0])))

    seen: set[tuple[Node, str]] = set()
    for use in _updates(context):
        if use.rank is None or use.axis is None:
            continue
        dims: tuple[Dim, ...] = use.page.dims if use.page.dims is not None else (None,) * use.rank
        for problem, index in spanning(use.page, use.elements, dims, use.axis):
            if (use.node, problem) not in seen:
                seen.add((use.node, problem))
                yield use.find(
                    Req.MC_PAGED_013,
                    f"an update of pages with quantized type {index} would write parts of groups: {problem}",
                    0,
                    "update along another axis, or list the types that fit in allowed_quantized_type",
                )


@rule(Req.MC_PAGED_004)
def mc_paged_004_page_ids(context: Context) -> Iterator[Diagnostic]:
    """An update of a page that is known to have a negative id is rejected."""
    findings = []
    for use in _updates(context):
        page_id, severity = use.constant(1), use.severity
        if page_id is not None and page_id < 0 and severity is not None:
            message = f"page_id {page_id} < 0"
            findings.append(use.find(Req.MC_PAGED_004, message, 1, "page ids count from 0", severity))
    yield from dict.fromkeys(findings)


@rule(Req.MC_PAGED_005)
def mc_paged_005_bounds(context: Context) -> Iterator[Diagnostic]:
    """An update that is known to leave its page, or to start before it, is rejected."""
    findings = []
    for use in _updates(context):
        severity = use.severity
        if severity is None:
            continue
        position = use.constant(3)
        length, capacity = (use.size(dims) for dims in (use.operand(2).dims, use.page.dims))
        message = overflow(LINEAR, [] if position is None else [position], length, capacity, "page size")
        hint = "an update writes to one page: write the rest into the next one"
        if not message and context.explain:
            message, severity = _undecided(use, position, length, capacity), Severity.INFO
            hint = "a runtime refuses the run if the update does not fit"
        if message:
            findings.append(use.find(Req.MC_PAGED_005, message, 3, hint, severity))
    yield from dict.fromkeys(findings)


def _undecided(use: _Use, position: int | None, length: Dim, capacity: Dim) -> str:
    """What is missing to decide whether an update fits, or ""."""
    open_ones = [] if position is not None else [f"position {use.node.inputs[3]!r} is no constant"]
    for what, name, dim in (("length", use.node.inputs[2], length), ("page size", use.node.inputs[0], capacity)):
        if not isinstance(dim, int):
            open_ones.append(f"the {what}, a size of {name!r}, is not known")
    return f"left to run time: {', '.join(open_ones)}" if open_ones else ""


@rule(Req.MC_PAGED_017)
def mc_paged_017_operands(context: Context) -> Iterator[Diagnostic]:
    """The operands of an update or gather of pages fit each other and the attribute."""
    findings = []
    for use in _uses(context):
        findings += [
            use.find(Req.MC_PAGED_017, message, position, hint) for position, message, hint in _operand_misfits(use)
        ]
    yield from dict.fromkeys(findings)


def _operand_misfits(use: _Use) -> Iterator[tuple[int, str, str]]:
    """(position, message, hint) of every operand that does not fit."""
    names, op_type = use.node.inputs, use.node.op_type
    labels = _OPERANDS if use.node.is_paged_update else ("cache", "page_ids")
    if use.rank is not None and use.axis is None:
        yield (
            0,
            f"axis {use.written_axis} is out of range for pages of {names[0]!r} of rank {use.rank}",
            f"axis lies between {-use.rank} and {use.rank - 1}" if use.rank else "a page has at least one dimension",
        )
    for position, rank in _NUMBERS[op_type].items():
        known = use.operand(position)
        if known.elem_type not in (0, TensorProto.INT64):
            yield (
                position,
                f"{labels[position]} {names[position]!r} is {show_elem_type(known.elem_type)}, it must be INT64",
                "cast it to INT64",
            )
        if known.dims is not None and len(known.dims) != rank:
            yield (
                position,
                f"{labels[position]} {names[position]!r} is {_show(known)}, it must have rank {rank}",
                "give one id per page" if rank else "squeeze it to a scalar",
            )
    if use.node.is_paged_update:
        yield from _value_misfits(use)


def _value_misfits(use: _Use) -> Iterator[tuple[int, str, str]]:
    values, page, name = use.operand(2), use.page, use.node.inputs[2]
    if values.elem_type and page.elem_type and values.elem_type != page.elem_type:
        yield (
            2,
            f"values {name!r} are {show_elem_type(values.elem_type)}, pages decode to {show_elem_type(page.elem_type)}",
            "cast the values to the element type of the container",
        )
    if values.dims is None or page.dims is None:
        return
    shapes = f"{_show(values)} into pages of {_show(page)}"
    if len(values.dims) != len(page.dims):
        yield (
            2,
            f"values {name!r} have rank {len(values.dims)}, pages {len(page.dims)} ({shapes})",
            "give them one rank",
        )
        return
    for axis, (ours, theirs) in enumerate(zip(page.dims, values.dims, strict=True)):
        if use.axis not in (None, axis) and isinstance(ours, int) and isinstance(theirs, int) and ours != theirs:
            yield (
                2,
                f"dimension {axis} of values {name!r} is {theirs}, of a page {ours} ({shapes} along axis {use.axis})",
                "all dimensions but the one along axis must be equal; nothing is broadcast",
            )


def _show(known: TensorType | QuantizedTensorType) -> str:
    return show_type("tensor", known.elem_type, known.dims)
