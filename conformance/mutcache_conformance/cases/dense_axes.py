"""DENSE: every rank and axis, positions for each row of a batch, and circular mode."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from onnx import TensorProto

from mutcache.requirements import Req
from mutcache_conformance.case import Case
from mutcache_conformance.cases.draw import Draw
from mutcache_conformance.cases.steps import INT64_MAX, INT64_MIN, accepted, refused
from mutcache_conformance.cases.update import Update


def cases(nonce: int) -> Iterator[Case]:
    """All cases of the module."""
    yield from _ranks_and_axes(nonce)
    yield from _capacity_of_axis(nonce)
    yield from _per_row_positions(nonce)
    yield from _batch_axes(nonce)
    yield from _circular(nonce)
    yield from _circular_everywhere(nonce)


def _ranks_and_axes(nonce: int) -> Iterator[Case]:
    requirement = (Req.MC_DENSE_008,)
    sizes = (3, 5, 2, 4, 3, 2)
    for rank in range(1, 7):
        for axis in range(rank):
            for given, word in ((axis, f"{axis}"), (axis - rank, f"minus-{rank - axis}")):
                update = Update(Draw(nonce, f"rank {rank} {axis}"), TensorProto.FLOAT16, sizes[:rank], axis=given)
                what, last = f"dense-008/rank-{rank}-axis-{word}", update.capacity - 1
                position = update.draw.integer("position", 0, update.capacity - 2)
                title = f"A cache of rank {rank}, updated along axis {given}."
                yield accepted(what, requirement, title, update, (position, 2), (last, 1), (0, 1))


def _capacity_of_axis(nonce: int) -> Iterator[Case]:
    """The other axes are longer than the updated one, so that a capacity taken from one of them is found out."""
    overflow = Req.MC_DENSE_003
    for axis, shape in ((0, (4, 9, 9)), (1, (9, 4, 9)), (-1, (9, 9, 4))):
        update = Update(Draw(nonce, f"capacity of axis {axis}"), TensorProto.INT8, shape, axis=axis, length=2)
        word = f"axis-{axis}" if axis >= 0 else "last-axis"
        twin, title = f"dense-008/{word}-ends-at-capacity", f"An update along axis {axis} that ends at its capacity."
        yield accepted(twin, (Req.MC_DENSE_008, overflow), title, update, (2, 2), (0, 2))
        title = "position + length is the capacity + 1, and less than every other size."
        what = f"dense-003/{word}"
        yield refused(what, (overflow, Req.MC_DENSE_008), title, update, (3, 2), (0, 2), twin=twin)


def _per_row_positions(nonce: int) -> Iterator[Case]:
    rows, atomic = Req.MC_DENSE_013, Req.MC_DENSE_012
    overflow, negative = Req.MC_DENSE_003, Req.MC_DENSE_004
    update = Update(Draw(nonce, "per-row"), shape=(3, 8, 4), batch_axis=0)
    draw = update.draw
    a, b, c = draw.integers("starts", 3, 0, 5)
    yield accepted("dense-013/different", (rows,), "Each row of the batch has its position.", update, ((a, b, 5), 3))
    yield accepted("dense-013/equal", (rows,), "Positions may be equal.", update, ((c, c, c), 3))
    inner = replace(update, shape=(2, 3, 8, 4), batch_axis=1)
    yield accepted("dense-013/inner-batch", (rows,), "The batch is not the first axis.", inner, ((a, b, c), 3))
    late = replace(update, shape=(8, 4, 3), axis=0, batch_axis=-1)
    yield accepted("dense-013/batch-behind", (rows,), "The batch lies behind the axis.", late, ((a, b, c), 3))
    single = replace(update, shape=(1, 8, 4))
    yield accepted("dense-013/batch-of-one", (rows,), "A batch of one row.", single, ((a,), 3))
    yield accepted("dense-013/no-rows", (rows,), "Length 0, one position at the capacity.", update, ((0, 8, a), 0))

    twin = "dense-013/last-ends-at-capacity"
    recovery = ((c, b, a), 3)
    yield accepted(twin, (rows, atomic), "The last row ends at the capacity.", update, ((a, b, 5), 3), recovery)
    wrong = {
        ("dense-012/last-row-overflows", (atomic, rows, overflow)): (
            (a, b, 6),
            "Only the last row overflows: no row is written.",
        ),
        ("dense-012/last-row-negative", (atomic, rows, negative)): (
            (a, b, -1),
            "Only the last row is negative: no row is written.",
        ),
        ("dense-013/first-row-overflows", (rows, overflow)): ((6, b, 5), "Only the first row overflows."),
        ("dense-013/middle-row-negative", (rows, negative)): ((a, -1, 5), "Only the middle row is negative."),
        ("dense-013/middle-row-int64-max", (rows, Req.MC_DENSE_005, overflow)): (
            (a, INT64_MAX, 5),
            "The largest INT64.",
        ),
    }
    for (what, requirements), (positions, title) in wrong.items():
        yield refused(what, requirements, title, update, (positions, 3), recovery, twin=twin)


def _batch_axes(nonce: int) -> Iterator[Case]:
    rows, atomic = Req.MC_DENSE_013, Req.MC_DENSE_012
    shape = (2, 4, 3, 5)
    for axis in range(4):
        for batch_axis in range(4):
            if axis == batch_axis:
                continue
            # Every other pair is given from the end.
            back = 4 * ((axis + batch_axis) % 2)
            draw = Draw(nonce, f"batch axis {axis} {batch_axis}")
            update = Update(draw, TensorProto.FLOAT16, shape, axis=axis - back, batch_axis=batch_axis - back)
            starts = draw.integers("starts", shape[batch_axis], 0, update.capacity - 1)
            starts[-1] = update.capacity - 1
            what = f"dense-013/axis-{axis}-batch-{batch_axis}"
            title = f"Rank 4, axis {axis - back}, one position for each index of axis {batch_axis - back}."
            yield accepted(what, (rows,), title, update, (starts, 1), (starts[::-1], 1))

    inner = Update(Draw(nonce, "inner batch fails"), shape=(2, 3, 8, 4), batch_axis=1)
    a, b, c = inner.draw.integers("starts", 3, 0, 5)
    twin = "dense-013/inner-batch-ends-at-capacity"
    title = "The last index of a batch that is not the first axis ends at the capacity."
    yield accepted(twin, (rows, atomic), title, inner, ((a, b, 5), 3), ((c, b, a), 3))
    wrong = {
        "dense-012/inner-batch-last-overflows": (6, Req.MC_DENSE_003, "Its last index overflows: no row is written."),
        "dense-012/inner-batch-last-negative": (-8, Req.MC_DENSE_004, "Its last index is negative."),
        "dense-012/inner-batch-last-int64-max": (INT64_MAX, Req.MC_DENSE_003, "Its last index is the largest INT64."),
    }
    for what, (last, broken, title) in wrong.items():
        yield refused(what, (atomic, rows, broken), title, inner, ((a, b, last), 3), ((c, b, a), 3), twin=twin)

    empty = Update(Draw(nonce, "no rows in a batch"), shape=(2, 8, 4), batch_axis=0)
    twin, recovery = "dense-013/no-rows-at-capacity", ((1, 4), 3)
    yield accepted(twin, (rows, Req.MC_DENSE_006), "No rows, at most at the capacity.", empty, ((8, 0), 0), recovery)
    beyond = (Req.MC_DENSE_003, rows, Req.MC_DENSE_006)
    title = "No rows, one position beyond the capacity."
    yield refused("dense-003/no-rows-in-a-batch", beyond, title, empty, ((8, 9), 0), recovery, twin=twin)
    none = Update(Draw(nonce, "empty batch"), shape=(0, 8, 4), batch_axis=0)
    yield accepted("dense-013/batch-of-none", (rows, Req.MC_DENSE_006), "A batch without rows.", none, ((), 3))


def _circular(nonce: int) -> Iterator[Case]:
    circular, exact = Req.MC_DENSE_014, Req.MC_DENSE_005
    update = Update(Draw(nonce, "circular"), shape=(2, 5, 4), mode="circular")
    draw = update.draw
    offsets = tuple((offset, 3) for offset in range(5))
    yield accepted("dense-014/every-offset", (circular,), "Three rows of five, at every offset.", update, *offsets)
    start = draw.integer("start", 1, 4)
    title = "As many rows as the capacity, wrapped."
    yield accepted("dense-014/length-is-capacity", (circular,), title, update, (start, 5))
    turns = start + 5 * draw.integer("turns", 1, 1000)
    yield accepted("dense-014/many-turns", (circular,), "A position beyond the capacity.", update, (turns, 3))
    title = "position + row goes beyond INT64 before it is taken modulo the capacity."
    yield accepted("dense-014/int64-max", (circular, exact), title, update, (INT64_MAX, 3), (INT64_MAX - 1, 3))
    title = "A position that 32 bits do not hold."
    yield accepted("dense-014/two-to-the-32", (circular, exact), title, update, (2**32 + start, 3))
    empty = replace(update, shape=(2, 0, 4))
    yield accepted("dense-014/no-capacity", (circular, Req.MC_DENSE_006), "Capacity 0 and length 0.", empty, (start, 0))
    rows = replace(update, batch_axis=0)
    title = "Each row of the batch wraps on its own."
    yield accepted("dense-014/per-row", (circular, Req.MC_DENSE_013), title, rows, ((start, 4), 3))
    linear = "An explicit linear mode does not wrap."
    plain = replace(update, mode="linear")
    yield accepted("dense-014/linear", (circular,), "An explicit linear mode.", plain, (2, 3), (0, 3))
    yield refused(
        "dense-014/linear-does-not-wrap", (circular, Req.MC_DENSE_003), linear, plain, (3, 3), (0, 3),
        twin="dense-014/linear",
    )  # fmt: skip

    twin, recovery = "dense-014/whole-turn", (start, 3)
    yield accepted(twin, (circular,), "As many rows as the capacity, from 0.", update, (0, 5), recovery)
    title = "A row more than the capacity would write one twice."
    over = (circular, Req.MC_DENSE_003)
    yield refused("dense-014/longer-than-capacity", over, title, update, (0, 6), recovery, twin=twin)
    title = "A negative position is no offset from the end."
    below = (circular, Req.MC_DENSE_004)
    yield refused("dense-014/negative", below, title, update, (-1, 5), recovery, twin=twin)
    for what, position, title in (
        ("minus-capacity", -5, "A negative multiple of the capacity is no start of a turn."),
        ("int64-min", INT64_MIN, "The smallest INT64."),
    ):
        yield refused(f"dense-014/{what}", below, title, update, (position, 3), recovery, twin=twin)
    title = "No rows, at a position of a later turn."
    yield accepted("dense-014/no-rows", (circular, Req.MC_DENSE_006), title, update, (turns, 0), (INT64_MAX, 0))
    twin = "dense-014/no-capacity"
    title = "A row does not fit in a cache of capacity 0."
    yield refused("dense-014/no-capacity-one-row", over, title, empty, (start, 1), (start, 0), twin=twin)

    twin, both = "dense-014/per-row-wraps", ((4, start), 3)
    yield accepted(twin, (circular, Req.MC_DENSE_013), "The last row wraps.", rows, ((start, 4), 3), both)
    title = "Only the last row is negative: no row is written."
    atomic = (Req.MC_DENSE_012, circular, Req.MC_DENSE_004)
    what = "dense-012/circular-last-row-negative"
    yield refused(what, atomic, title, rows, ((start, -1), 3), both, twin=twin)


def _circular_everywhere(nonce: int) -> Iterator[Case]:
    """Every length at every offset, along every axis."""
    circular = (Req.MC_DENSE_014,)
    for axis, shape in ((0, (5, 2, 3)), (1, (2, 5, 3)), (2, (2, 3, 5))):
        update = Update(Draw(nonce, f"circular axis {axis}"), TensorProto.INT8, shape, axis=axis, mode="circular")
        for length in (1, 4, 5):
            what = f"dense-014/axis-{axis}-length-{length}"
            title = f"Length {length} of 5 at every offset, along axis {axis}."
            yield accepted(what, circular, title, update, *((offset, length) for offset in range(5)))
    shape = (5, 5, 2)
    update = Update(Draw(nonce, "circular batch"), TensorProto.INT8, shape, axis=1, mode="circular", batch_axis=0)
    title = "Each index of the batch begins at another offset, in each run."
    steps = [([(offset + row) % 5 for row in range(5)], length) for offset, length in enumerate((1, 2, 3, 4, 5))]
    yield accepted("dense-014/batch-at-every-offset", (*circular, Req.MC_DENSE_013), title, update, *steps)
