"""SHAPE in the bodies of control flow and functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from onnx import TensorProto as Stock

from mutcache.proto.onnx_ml import ModelProto, NodeProto, TensorProto, ValueInfoProto
from mutcache.requirements import Req
from mutcache_conformance.case import LOAD, RUN, Case
from mutcache_conformance.cases.builder import node
from mutcache_conformance.cases.draw import int64
from mutcache_conformance.cases.flow_family import Family, Wrong, body_of, edited
from mutcache_conformance.cases.flow_loop import LENT, OUTPUT, RESULT, SLOT, TRIPS, advancing
from mutcache_conformance.cases.flow_words import choose, keeps, loop, step, step_function, write, writes
from mutcache_conformance.cases.sketch import LENGTH, SHAPE

_TYPE, _RANK, _DIMS, _LEARNED = Req.MC_SHAPE_001, Req.MC_SHAPE_002, Req.MC_SHAPE_003, Req.MC_SHAPE_004
_STATIC, _OPERANDS = Req.MC_SHAPE_005, Req.MC_SHAPE_006
LAST = SHAPE[0] - LENGTH
Edit = Callable[[ModelProto], object]


def cases(nonce: int) -> Iterator[Case]:
    """All cases of the module."""
    yield from _declared(nonce)
    yield from _learned(nonce)
    yield from _constant(nonce)


def _values(proto: ModelProto) -> Iterator[ValueInfoProto]:
    """Every declared value of a model."""
    pending = [proto.graph]
    while pending:
        scope = pending.pop()
        yield from (*scope.input, *scope.output, *scope.value_info)
        pending.extend(attribute.g for one in scope.node for attribute in one.attribute if attribute.HasField("g"))
    yield from (value for body in proto.functions for value in body.value_info)


def _sized(proto: ModelProto) -> ModelProto:
    """The model with numbers for its symbols."""
    sizes = {"max_length": SHAPE[0], "width": SHAPE[1], "new_length": LENGTH}

    def edit(made: ModelProto) -> None:
        for value in _values(made):
            for dim in value.type.tensor_type.shape.dim:
                if dim.dim_param in sizes:
                    dim.dim_value = sizes[dim.dim_param]

    return edited(proto, edit)


def _type(value: ValueInfoProto) -> None:
    value.type.tensor_type.elem_type = Stock.FLOAT


def _rank(value: ValueInfoProto) -> None:
    del value.type.tensor_type.shape.dim[1]


def _rows(value: ValueInfoProto) -> None:
    value.type.tensor_type.shape.dim[0].dim_value = SHAPE[0] + 1


def _declared(nonce: int) -> Iterator[Case]:
    """What a body declares of a name of the cache."""
    runs = tuple({**feeds, "condition": not number % 2} for number, feeds in enumerate(TRIPS))
    family = Family(nonce, "declared in bodies", "cache values position condition trips", runs)
    then = writes()
    then.node.add(op_type="Identity", input=["inner"], output=["outer"]).output_alias.add(kind=1)
    then.value_info.append(then.output[0])
    then.output[0].name = "outer"
    body = [*advancing(output="half"), write("half", "inner")]
    looped = loop({"chosen": LENT}, ["looped"], body, RESULT)
    inside = looped.attribute[-1].g.value_info.add(name="half")
    inside.CopyFrom(RESULT)
    inside.name = "half"
    nodes = [choose("chosen", then, keeps()), looped, step("looped", "updated")]
    valid = _sized(family.model(nodes, OUTPUT, functions=[step_function()]))
    places: dict[str, Callable[[ModelProto], ValueInfoProto]] = {
        "branch": lambda model: body_of(model).value_info[0],
        "loop": lambda model: body_of(model, 1).value_info[0],
        "function": lambda model: model.functions[0].value_info[1],
        "formal": lambda model: body_of(model, 1).input[2],
    }
    faults = (("type", _TYPE, _type), ("rank", _RANK, _rank), ("rows", _DIMS, _rows))
    words = {
        "branch": "a value of a branch",
        "loop": "a value of a Loop's body",
        "function": "the output of a function",
        "formal": "the formal input of a Loop's body",
    }

    def wrong(place: str, change: Callable[[ValueInfoProto], object]) -> ModelProto:
        return edited(valid, lambda model: change(places[place](model)))

    yield from family.cases(
        "shape-001/in-bodies",
        (_TYPE, _RANK, _DIMS),
        "Every name of a cache, in a branch, a Loop and a function, is declared with its type and shape.",
        valid,
        *(
            Wrong(
                f"{requirement.value[3:].lower()}/{place}-{what}",
                (requirement,),
                f"Another {what.rstrip('s')} is declared of {words[place]}.",
                wrong(place, change),
                LOAD if what != "rows" else LOAD | RUN,
            )
            for place in places
            for what, requirement, change in faults
        ),
    )


def _learned(nonce: int) -> Iterator[Case]:
    """A capacity that only a body states."""
    family = Family(nonce, "learned in a branch", "cache values condition", ({"condition": True}, {"condition": False}))

    def model(start: int, rows: int) -> ModelProto:
        nodes = [choose("chosen", writes(position="start"), keeps()), write("chosen", "updated", position="start")]
        made = family.model(nodes, OUTPUT, initializers=[_constant_scalar("start", start)])
        made.graph.input[1].type.tensor_type.shape.dim[0].dim_value = LENGTH
        body_of(made).output[0].type.tensor_type.shape.dim[0].dim_value = rows
        return made

    yield from family.cases(
        "shape-004/in-a-branch",
        (_LEARNED, _STATIC),
        "A constant position, and a capacity that only a branch states.",
        model(LAST, SHAPE[0]),
        Wrong(
            "shape-005/capacity-of-a-branch",
            (_STATIC, _LEARNED),
            "The update outside the branch overflows that capacity.",
            model(LAST + 1, SHAPE[0]),
            LOAD | RUN,
        ),
    )


def _constant_scalar(name: str, number: int) -> TensorProto:
    return TensorProto(name=name, data_type=Stock.INT64, raw_data=int64(number))


def _constant(nonce: int) -> Iterator[Case]:
    """Operands of updates in bodies that are executed whenever the model runs, or that are wrong at any time."""
    family = Family(nonce, "operands in bodies", "cache values position condition trips",
                    tuple({**feeds, "condition": True} for feeds in TRIPS))  # fmt: skip
    nodes = [loop(SLOT, ["looped"], advancing(), RESULT), choose("chosen", writes("looped"), keeps("looped")),
             step("chosen", "updated")]  # fmt: skip
    valid = _sized(family.model(nodes, OUTPUT, functions=[step_function()]))

    def updates(model: ModelProto) -> dict[str, NodeProto]:
        return {
            "loop": body_of(model).node[2],
            "branch": body_of(model, 1).node[0],
            "function": model.functions[0].node[0],
        }

    def axis(place: str) -> ModelProto:
        def edit(model: ModelProto) -> None:
            updates(model)[place].attribute.extend(node("", [], [], {"axis": 2}).attribute)

        return edited(valid, edit)

    def vector(model: ModelProto) -> None:
        """The position of the branch's update is a vector of one."""
        model.graph.initializer.add(name="one", data_type=Stock.INT64, dims=[1], raw_data=int64(1))
        updates(model)["branch"].input[2] = "one"

    yield from family.cases(
        "shape-006/in-bodies",
        (_OPERANDS,),
        "Updates in a Loop, in a branch and in a function, of operands that fit together.",
        valid,
        *(
            Wrong(
                f"shape-006/axis-in-a-{place}",
                (_OPERANDS,),
                f"The axis is the rank, in a {place}.",
                axis(place),
                LOAD | RUN,
            )
            for place in ("loop", "branch", "function")
        ),
        Wrong(
            "shape-006/vector-in-a-branch",
            (_OPERANDS,),
            "A position of shape [1], in a branch.",
            edited(valid, vector),
            LOAD | RUN,
        ),
    )
    called = Family(nonce, "constant for a function", "cache values", ({}, {}))

    def with_argument(start: int) -> ModelProto:
        made = called.model([step("cache", "updated", position="start")], OUTPUT, functions=[step_function()],
                            initializers=[_constant_scalar("start", start)])  # fmt: skip
        return _sized(made)

    title = "A function is called with a constant position, whose update ends at the capacity."
    yield called.valid("shape-005/argument-fits", (_STATIC, Req.MC_FLOW_007), title, with_argument(LAST))
