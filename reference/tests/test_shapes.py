"""``ShapesContext``: what is known through one name of a class is known through all (MC-SHAPE-004)."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from mutcache.alias import alias_classes
from mutcache.decode import decode
from mutcache.model import Dim, TensorType
from mutcache.proto.onnx_ml import ModelProto, TensorProto
from mutcache.shapes import ShapesContext
from mutcache.symbols import Size, Symbol, Symbols
from mutcache_conformance.cases.builder import aliased, initializer, model, node, tensor, update

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
Dims = tuple[Dim, ...]


def chain(cache: Dims | None, output: Dims | None) -> ModelProto:
    """A pass-through and an update, the result read by a Transpose; inner values are not declared."""
    return model(
        [tensor("cache", FLOAT, cache, mutable=True), tensor("rows", FLOAT, (1, 4)), tensor("at", INT64, ())],
        [
            aliased(node("Identity", ["cache"], ["same"])),
            update("same", "rows", "at", "updated"),
            node("Transpose", ["updated"], ["turned"]),
        ],
        [tensor("updated", FLOAT, output, alias_of="cache"), tensor("turned", FLOAT, (None, None))],
    )


def context(made: ModelProto, *, base: bool = True) -> ShapesContext:
    decoded = decode(made)
    return ShapesContext(decoded, alias_classes(decoded), base=base)


@pytest.mark.parametrize("base", [True, False])
@pytest.mark.parametrize(
    ("cache", "output", "merged"),
    [
        ((8, 4), (8, 4), (8, 4)),
        (("n", 4), (8, None), (8, 4)),
        ((None, "w"), (8, None), (8, "w")),
        (None, (8, 4), (8, 4)),
        ((8, 4), None, (8, 4)),
        ((-1, 4), (8, 4), (8, 4)),
    ],
)
def test_every_name_of_a_class_has_all_that_is_known(
    cache: Dims | None, output: Dims | None, merged: Dims, base: bool
) -> None:
    shapes = context(chain(cache, output), base=base)
    assert shapes.conflicts == []
    for name in ("cache", "same", "updated"):
        assert shapes.type_of(name) == TensorType(FLOAT, merged)


def test_sound_models_please_stock_inference_before_and_after_merging() -> None:
    shapes = context(chain(("n", 4), (8, None)))
    assert (shapes.structure_error, shapes.inference_error, shapes.merged_error) == ("", "", "")


def test_a_conflict_is_reported_once_for_each_name() -> None:
    made = chain((8, 4), (9, 5))
    made.graph.value_info.append(tensor("updated", FLOAT, (9, 5)))
    conflicts = context(made).conflicts
    assert [(conflict.other.name, conflict.axis) for conflict in conflicts] == [("updated", 0), ("updated", 1)]


@pytest.mark.parametrize(
    ("dtype", "dims", "content", "known"),
    [
        (INT64, [], (5).to_bytes(8, "little"), [5]),
        (INT64, [2], bytes(16), [0, 0]),
        (INT64, [3], bytes(16), None),
        (INT64, [-1], bytes(8), None),
        (TensorProto.INT32, [1, 1], bytes(4), [0]),
        (FLOAT, [], bytes(4), None),
    ],
)
def test_constants_are_what_an_initializer_holds(
    dtype: int, dims: list[int], content: bytes, known: list[int] | None
) -> None:
    made = chain((8, 4), (8, 4))
    del made.graph.input[2]
    made.graph.initializer.append(initializer("at", dtype, dims, content))
    constant = context(made).constant("at")
    assert (None if constant is None else constant.reshape(-1).tolist()) == known
    assert context(made).constant("cache") is None


SYMBOLS = [Symbol("a"), Symbol("b"), Symbol("a", 1), Symbol("c", 1)]
DIMS = st.one_of(st.none(), st.integers(0, 2), st.sampled_from(SYMBOLS))


@given(st.lists(st.tuples(DIMS, DIMS), max_size=12))
def test_symbols_unify_like_the_closure_of_their_equations(equations: list[tuple[Size, Size]]) -> None:
    symbols = Symbols()
    accepted: list[tuple[Size, Size]] = []
    for known, other in equations:
        if symbols.unify(known, other, "because"):
            accepted.append((known, other))
        else:
            # The closure of what was accepted gives the two different sizes.
            sizes = [closure(accepted, dim) & {0, 1, 2} for dim in (known, other)]
            assert all(sizes)
            assert sizes[0] != sizes[1]
    for symbol in SYMBOLS:
        known_sizes = closure(accepted, symbol) & {0, 1, 2}
        assert len(known_sizes) <= 1
        resolved = symbols.resolve(symbol)
        assert {resolved} == known_sizes if known_sizes else resolved in closure(accepted, symbol)


def closure(equations: list[tuple[Size, Size]], start: Size) -> set[Size]:
    """Everything that the equations make equal to ``start``."""
    equal = {start}
    for _ in equations:
        for known, other in equations:
            if known is not None and other is not None and (known in equal or other in equal):
                equal.update((known, other))
    return equal
