"""Buffers: values that are live together never share one, and nothing is larger than it has to be."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from mutcache.buffers import Buffer, Span, share_buffers


@st.composite
def spans(draw: st.DrawFn) -> list[Span]:
    entries = st.tuples(st.integers(1, 50), st.integers(0, 12), st.integers(0, 6))
    return [
        Span(f"v{number}", size, first, first + length)
        for number, (size, first, length) in enumerate(draw(st.lists(entries, max_size=25)))
    ]


def test_values_take_turns() -> None:
    assert share_buffers([Span("a", 8, 0, 1), Span("b", 4, 2, 3), Span("c", 8, 4, 4)]) == (Buffer(8, ("a", "b", "c")),)


def test_an_operand_and_its_result_do_not_share() -> None:
    assert share_buffers([Span("a", 8, 0, 1), Span("b", 8, 1, 2)]) == (Buffer(8, ("a",)), Buffer(8, ("b",)))


def test_a_value_goes_where_the_least_is_wasted() -> None:
    large, small = Span("large", 100, 0, 0), Span("small", 10, 0, 0)
    assert share_buffers([large, small, Span("late", 9, 1, 1)]) == (
        Buffer(100, ("large",)),
        Buffer(10, ("small", "late")),
    )


@given(spans())
def test_no_two_live_values_share_a_buffer(values: list[Span]) -> None:
    by_name = {span.name: span for span in values}
    buffers = share_buffers(values)
    assert sorted(name for buffer in buffers for name in buffer.values) == sorted(by_name)
    for buffer in buffers:
        owners = [by_name[name] for name in buffer.values]
        assert max(span.bytes for span in owners) == buffer.bytes
        for step in range(20):
            assert sum(span.first <= step <= span.last for span in owners) <= 1
    live = [sum(span.bytes for span in values if span.first <= step <= span.last) for step in range(20)]
    assert max(live) <= sum(buffer.bytes for buffer in buffers) <= sum(span.bytes for span in values)


@given(spans())
def test_names_do_not_matter(values: list[Span]) -> None:
    other = [Span(f"z{1000 - number}", span.bytes, span.first, span.last) for number, span in enumerate(values)]
    assert [buffer.bytes for buffer in share_buffers(values)] == [buffer.bytes for buffer in share_buffers(other)]
