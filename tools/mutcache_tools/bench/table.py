"""How the rows of the benchmarks read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from mutcache_conformance.environment import describe
from mutcache_tools.bench import Row, Unit

#: Peers whose versions matter to the figures, beside what the conformance report names.
_PEERS: Final = ("onnxruntime",)

_VERDICTS: Final = {True: ("reached", "green"), False: ("missed", "bold red"), None: ("not measured", "yellow")}


def machine() -> dict[str, str]:
    """The machine and the versions that the figures belong to."""
    found = describe()
    packages = {**found["packages"], **{name: _version(name) for name in _PEERS}}
    return {
        "processor": f"{found['cpu']}, {found['cpus']} logical",
        "system": f"{found['os']}, {found['python']}",
        "packages": ", ".join(f"{name} {version}" for name, version in packages.items()),
    }


def to_json(rows: Mapping[str, Sequence[Row]]) -> list[dict[str, Any]]:
    """The rows for programs: figures in SI units, ratios as numbers; null is what was not measured."""
    return [
        {
            "benchmark": name,
            "what": row.what,
            "unit": row.unit.value,
            "figure": row.figure,
            "peer": row.peer
            and {"name": row.peer.name, "figure": row.peer.figure, "absence": row.peer.absence or None},
            "ratio": row.ratio,
            "goal": row.goal and {"limit": row.goal.limit, "at_least": row.goal.at_least},
            "reached": row.is_reached,
            "note": row.note or None,
        }
        for name, group in rows.items()
        for row in group
    ]


def to_table(rows: Mapping[str, Sequence[Row]]) -> Table:
    """The rows for people: figures first, so that words can take what is left of the line."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for title in ("ratio", "took", "peer"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("goal", no_wrap=True)
    table.add_column("what")
    for name, group in rows.items():
        for row in group:
            table.add_row(*_cells(name, row))
    return table


def _cells(name: str, row: Row) -> tuple[str, str, str, Text, Text]:
    peer = row.peer
    words = Text.assemble((name, "bold"), f": {row.what}")
    if peer is not None:
        words.append(f"\nagainst {peer.name}" + (f": {peer.absence}" if peer.absence else ""), "dim")
    if row.note:
        words.append(f"\n{row.note}", "dim")
    verdict = Text("-")
    if row.goal:
        limit = f"{row.goal.limit:g}" if peer else show(row.goal.limit, row.unit)
        verdict = Text.assemble(f"{'>=' if row.goal.at_least else '<='} {limit}  ", _VERDICTS[row.is_reached])
    return (
        "-" if row.ratio is None else f"{row.ratio:.2f}x",
        show(row.figure, row.unit),
        show(peer.figure, row.unit) if peer else "-",
        verdict,
        words,
    )


def show(figure: float | None, unit: Unit) -> str:
    """A figure to three digits, with the unit that suits its size."""
    if figure is None:
        return "-"
    if unit is Unit.TIMES:
        return f"{figure:.1f} x"
    step, names = (1000.0, ("ns", "us", "ms", "s")) if unit is Unit.SECONDS else (1024.0, ("B", "KiB", "MiB", "GiB"))
    value = figure * 1e9 if unit is Unit.SECONDS else figure
    names_left = list(names)
    while value >= step and len(names_left) > 1:
        value /= step
        names_left.pop(0)
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:.{digits}f} {names_left[0]}"


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "absent"
