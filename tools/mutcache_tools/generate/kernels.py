"""The tables in ``docs/kernels.rst``, from the committed figures of the CUDA kernels.

The rest of that page is written by hand; what lies between two comments belongs to this generator. The figures
themselves are measured by ``python -m mutcache_cupy.figures``, which needs the compiler of CUDA.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from mutcache_cupy.figures import COPY_RATE, ISSUE_RATE, committed, predictions
from mutcache_cupy.kernels import KERNELS
from mutcache_tools.generate import ROOT, Files, SourceError

PAGE: Final = Path("docs/kernels.rst")
BEGIN: Final = ".. begin generated: from mutcache_cupy/figures.json by mutcache_tools.generate, do not edit\n"
END: Final = ".. end generated\n"


def generate() -> Files:
    """The page, with its generated part made anew.

    Raises:
        SourceError: the page has lost the comments between which that part lies.
    """
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SourceError(f"{PAGE}: the comments {BEGIN.strip()!r} and {END.strip()!r} must stand around the tables")
    return {PAGE: "".join((before, BEGIN, "\n", *_tables(committed()), END, after))}


def _tables(document: dict[str, Any]) -> Iterator[str]:
    yield f"Predictions, from the instructions for sm_90; {COPY_RATE / 1e12:g} TB/s copied and "
    yield f"{ISSUE_RATE / 1e12:.1f} T instructions a second assumed. No device has confirmed them yet.\n\n"
    yield _head("26 12 14 14 16 18", "What is moved", "Read", "Written", "Instructions", "Predicted share", "Goal")
    for one in predictions(document):
        yield _row(
            one.name,
            f"{one.read:.4g} B",
            f"{one.written:.4g} B",
            f"{one.instructions:.1f}",
            f"{one.share:.2f}",
            "-" if one.goal is None else f"{one.goal:.2f}",
        )
    yield f"\nFigures of {document['compiler']}: registers of a thread on each architecture; 16-byte loads and\n"
    yield "stores, and instructions for an item, on sm_90. No kernel spills a register or uses local memory.\n\n"
    architectures = list(next(iter(document["kernels"].values())))
    yield _head("34 10 10 10 10 16 10", "Kernel", *architectures, "Loads, stores", "Loop")
    for name in KERNELS:
        rows = document["kernels"][name]
        loads, stores = rows["sm_90"]["wide"]
        loop = rows["sm_90"]["loop"] or "-"
        registers = (str(rows[architecture]["registers"]) for architecture in architectures)
        yield _row(f"``{name}``", *registers, f"{loads}, {stores}", str(loop))
    yield "\n"


def _head(widths: str, *cells: str) -> str:
    return f".. list-table::\n   :header-rows: 1\n   :widths: {widths}\n\n{_row(*cells)}"


def _row(*cells: str) -> str:
    first, *others = cells
    return f"   * - {first}\n" + "".join(f"     - {cell}\n" for cell in others)
