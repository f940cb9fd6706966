"""What page tables need in a run: the bytes of a page by its type, and how many pages a run may make.

The pages that a table has when a run starts are the caller's, and how many there are is not known here: they count as
nothing (MC-PLAN-003). An update needs memory for one page at most, where it creates or replaces it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mutcache.classes import ModelAliases
from mutcache.constructs import Construct, construct_of
from mutcache.model import Model, QuantizedTensorType, TensorType, Value, page_type
from mutcache.page_types import Declarations, parse_declarations, type_problem
from mutcache.quantization import n_bytes, page_problems
from mutcache.sized import SizedGraph


@dataclass(frozen=True, slots=True)
class PlannedTable:
    """The pages of one container input.

    Attributes:
        name: the input.
        names: all names of the container, ``name`` first.
        page: what every page decodes to.
        page_bytes: the bytes of a page, by the quantized types that it may have.
        is_mutable: whether runs may write to the table.
        new_pages: how many pages a run creates or replaces at most; None when that depends on data.
        new_bytes: their bytes at most, of the types that the updates name, or of the largest; None when unknown.
    """

    name: str
    names: tuple[str, ...]
    page: TensorType
    page_bytes: Mapping[int, int]
    is_mutable: bool
    new_pages: int | None
    new_bytes: int | None


#: How often a run updates the pages of a container at most, by the type that the updates name (None: by none that is
#: known); None when it depends on data.
_Updates = Counter[int | None] | None


def plan_tables(model: Model, aliases: ModelAliases, sized: SizedGraph) -> tuple[PlannedTable, ...]:
    """The page tables among the inputs of a sized model."""
    declarations = parse_declarations(model.proto)
    updates = _count(sized, {})
    return tuple(
        _table(value, element, aliases, sized, declarations, updates.get(value.name, Counter()))
        for value in model.graph.inputs
        if (element := page_type(value.type)) is not None
    )


def _table(
    value: Value,
    element: QuantizedTensorType,
    aliases: ModelAliases,
    sized: SizedGraph,
    declarations: Declarations,
    updates: _Updates,
) -> PlannedTable:
    page = sized.pages[value.name]
    page_bytes = dict(_page_bytes(page, element, declarations))
    largest = max(page_bytes.values(), default=None)
    new_pages = None if updates is None else updates.total()
    new_bytes = 0 if new_pages == 0 else None
    if updates and largest is not None:
        new_bytes = sum(
            count * (largest if quantized_type is None else page_bytes.get(quantized_type, largest))
            for quantized_type, count in updates.items()
        )
    names = aliases.main.members.get(value.name, (value.name,))
    return PlannedTable(value.name, names, page, page_bytes, value.is_mutable, new_pages, new_bytes)


def _page_bytes(
    page: TensorType, element: QuantizedTensorType, declarations: Declarations
) -> Iterator[tuple[int, int]]:
    """The types that pages may have, with their bytes; none while a size is unknown."""
    dims = [dim for dim in page.dims or () if isinstance(dim, int)]
    if page.dims is None or len(dims) < len(page.dims):
        return
    for index, declaration in enumerate(declarations):
        if (
            declaration is not None
            and type_problem(index, declarations, (element,)) is None
            and not page_problems(declaration, dims)
        ):
            yield index, n_bytes(declaration, dims)


def _count(sized: SizedGraph, known: dict[SizedGraph, Mapping[str, _Updates]]) -> Mapping[str, _Updates]:
    """The updates in a graph, by the name of the container in the main graph or function that the graph is part of."""
    if sized in known:
        return known[sized]
    found: dict[str, _Updates] = {}
    for index, quantized_type in sized.page_types.items():
        name = sized.scope.storage(sized.graph.nodes[index].inputs[0]).name
        _add(found, name, Counter({quantized_type: 1}))
    for index, bodies in sized.bodies.items():
        node = sized.graph.nodes[index]
        counts = [_count(body, known) for body in bodies.values()]
        times = sized.trips.get(index) if construct_of(node) in (Construct.LOOP, Construct.SCAN) else 1
        if "" in bodies:  # what the function does to its formals happens to the arguments
            formals = (value.name for value in bodies[""].graph.inputs)
            passed = {
                formal: sized.scope.storage(name).name
                for formal, name in zip(formals, node.inputs, strict=False)
                if name
            }
            counts = [{passed[name]: each for name, each in counts[0].items() if name in passed}]
        for name in dict.fromkeys(name for count in counts for name in count):
            _add(found, name, _times([count.get(name, Counter()) for count in counts], times))
    known[sized] = found
    return found


def _add(found: dict[str, _Updates], name: str, more: _Updates) -> None:
    before = found.get(name, Counter())
    found[name] = None if before is None or more is None else before + more


def _times(alternatives: list[_Updates], times: int | None) -> _Updates:
    """As many updates as the busiest of the bodies makes, so many times."""
    most: Counter[int | None] = Counter()
    for one in alternatives:
        if one is None or times is None:
            return None
        most |= one
    return Counter({quantized_type: count * (times or 0) for quantized_type, count in most.items()})
