"""Whatever a paged model contains, the checker answers, and a session is made or refused with a reason."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from paged_models import container, gather, identity_page, paged_model, rows

from mutcache import MutcacheError, Page, PageTable, Session, diagnose, infer_shapes, plan
from mutcache.proto.onnx_ml import AttributeProto, ModelProto, TypeProto, ValueInfoProto
from mutcache.storage import Array
from mutcache_conformance.cases.builder import node, tensor

NUMBERS = st.sampled_from([0, 1, 2, 3, 4, 8, 16, 99, -1, -(1 << 31), (1 << 31) - 1])
NAMES = st.sampled_from(["cache", "updated", "values", "page_id", "position", "quantized_type", "", "nowhere"])


def quantized(value: ValueInfoProto) -> TypeProto.QuantizedTensor:
    """The quantized tensor of a container, made if there is none."""
    kind = value.type.WhichOneof("value")
    if kind == "map_type":
        return value.type.map_type.value_type.quantized_tensor_type
    return value.type.sequence_type.elem_type.quantized_tensor_type


@st.composite
def changes(draw: st.DrawFn) -> Callable[[ModelProto], None]:
    """One way to change a model, sensible or not."""
    which = draw(st.integers(0, 13))
    number, name, other = draw(NUMBERS), draw(NAMES), draw(NAMES)
    position, axis = draw(st.integers(0, 5)), draw(st.integers(0, 3))

    def change(made: ModelProto) -> None:
        update = made.graph.node[0]
        ends = [*made.graph.input, *made.graph.output]
        value = ends[position % len(ends)]
        match which:
            case 0:
                quantized(value).allowed_quantized_type.append(number)
            case 1:
                quantized(value).elem_type = number
            case 2:
                dims = quantized(value).shape.dim
                dims[axis % len(dims)].dim_value = number if dims else 0
            case 3:
                quantized(value).ClearField("shape")
            case 4:
                update.input[position % len(update.input)] = name
            case 5:
                del update.input[position:]
            case 6:
                update.attribute.add(name="axis", type=AttributeProto.INT, i=number)
            case 7:
                update.attribute.add(name="axis", type=AttributeProto.STRING, s=b"two")
            case 8:
                made.graph.node.append(gather(name, "read", other))
            case 9:
                made.graph.node.append(node(("SequenceLength", "Identity")[axis % 2], [name], ["also"]))
            case 10:
                quantization = made.quantizations[axis % len(made.quantizations)]
                quantization.linear.storage_type, quantization.linear.bits = number % 25, number % 9
            case 11:
                value.type.map_type.key_type = number if 0 <= number < 25 else 7
                value.type.map_type.value_type.sequence_type.elem_type.quantized_tensor_type.elem_type = 1
            case 12:
                value.type.CopyFrom(tensor("x", max(number, 0) % 25, [number % 5, None]).type)
            case 13:
                del made.quantizations[axis:]

    return change


@settings(deadline=None, max_examples=250)
@given(is_map=st.booleans(), typed=st.booleans(), made_changes=st.lists(changes(), min_size=1, max_size=4))
def test_the_checker_answers_whatever_it_is_given(
    is_map: bool, typed: bool, made_changes: list[Callable[[ModelProto], None]]
) -> None:
    made = paged_model(is_map=is_map, typed=typed)
    for change in made_changes:
        try:
            change(made)
        except (IndexError, ZeroDivisionError, ValueError):
            continue  # there was nothing to change, or protobuf knows no such number
    before = made.SerializeToString(deterministic=True)
    is_sound = not any(found.is_error for found in diagnose(made))
    diagnose(made, base=False)
    infer_shapes(made)
    assert made.SerializeToString(deterministic=True) == before
    if not is_sound:
        return
    try:
        plan(made, {"rows": 1})
        session = Session(made)
    except MutcacheError:
        return  # sound, but not for this runtime
    with session:
        run(session, made, is_map=is_map)


def run(session: Session, made: ModelProto, *, is_map: bool) -> None:
    """A run succeeds or is refused; a page that fits may be there."""
    pages = [identity_page(rows(4))]
    feeds = {"page_id": 0, "values": rows(1), "position": 0, "quantized_type": 1}
    names = {value.name for value in made.graph.input}
    with contextlib.suppress(MutcacheError):
        table = PageTable(dict(enumerate(pages)) if is_map else pages, model=made, value="cache")
        with session.bind({"cache": table}) as binding:
            binding.run({name: value for name, value in feeds.items() if name in names})


@settings(deadline=None, max_examples=200)
@given(
    quantized_type=st.one_of(st.integers(), st.none(), st.text(max_size=2)),
    dims=st.one_of(
        st.lists(st.integers(-2, 1 << 40), max_size=4).map(tuple),
        st.tuples(st.just(2), st.just(4), st.just(8)),
        st.none(),
    ),
    payload=st.one_of(
        st.sampled_from([64, 256, 96, 0]).map(lambda size: np.zeros(size, np.uint8)),
        st.just(np.zeros(64, np.float32)),
        st.binary(max_size=3),
        st.none(),
    ),
    n_bytes=st.one_of(st.none(), st.integers()),
    key=st.one_of(st.integers(), st.text(max_size=1)),
    is_map=st.booleans(),
)
def test_any_page_is_bound_or_refused(
    quantized_type: int, dims: tuple[int, ...], payload: Array, n_bytes: int | None, key: int, is_map: bool
) -> None:
    made = paged_model(is_map=is_map, dims=None)
    page = Page(quantized_type, dims, payload, n_bytes)
    problem: MutcacheError | None = None
    with Session(made) as session:
        try:
            session.bind({"cache": PageTable({key: page} if is_map else [page], model=made, value="cache")}).release()
        except MutcacheError as error:
            problem = error
    assert problem is None or (problem.requirement is not None and problem.hint)


def test_a_container_may_be_all_there_is() -> None:
    made = paged_model()
    del made.graph.node[:]
    del made.graph.output[:]
    made.graph.output.append(container("cache", alias_of=""))
    diagnose(made)
