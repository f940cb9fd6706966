"""SHAPE: types and dimensions of a cache's names, and operands that fit together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from onnx import TensorProto, helper

from mutcache.proto.onnx_ml import AttributeProto, ModelProto, NodeProto, TensorShapeProto, TypeProto
from mutcache.requirements import Phase, Req
from mutcache_conformance.case import BIND, LOAD, RUN, Case, Storage
from mutcache_conformance.cases.builder import initializer
from mutcache_conformance.cases.draw import Draw, int64
from mutcache_conformance.cases.scene import Fault, Program, Scene, family
from mutcache_conformance.cases.sketch import OPERANDS, Sketch, chain
from mutcache_conformance.cases.update import Update

Edit = Callable[[ModelProto], object]
INT64_MAX = 2**63 - 1

# Places in the model of an update: its inputs.
CACHE, VALUES, POSITION = range(3)


def cases(nonce: int) -> Iterator[Case]:
    """All cases of the area."""
    yield from _names_of_a_cache(nonce)
    yield from _names_between(nonce)
    yield from _learned(nonce)
    yield from _static_overflow(nonce)
    yield from _operands(nonce)
    yield from _per_row_operands(nonce)
    yield from _operands_at_run(nonce)


def _output_dims(model: ModelProto) -> TensorShapeProto:
    return model.graph.output[0].type.tensor_type.shape


def _input_dims(model: ModelProto, index: int) -> TensorShapeProto:
    return model.graph.input[index].type.tensor_type.shape


def _names_of_a_cache(nonce: int) -> Iterator[Case]:
    update = Update(Draw(nonce, "names of a cache"), static=True)
    types, ranks, dims = (Req.MC_SHAPE_001,), (Req.MC_SHAPE_002,), (Req.MC_SHAPE_003,)

    def other_type(model: ModelProto) -> None:
        model.graph.output[0].type.tensor_type.elem_type = TensorProto.INT32

    def lower_rank(model: ModelProto) -> None:
        del _output_dims(model).dim[2]

    def higher_rank(model: ModelProto) -> None:
        _output_dims(model).dim.add(dim_value=1)

    def dim(index: int, size: int) -> Edit:
        def edit(model: ModelProto) -> None:
            _output_dims(model).dim[index].dim_value = size

        return edit

    yield from family(
        "shape-001/agree",
        (*types, *ranks, *dims),
        "Both names of the cache have one type and one shape.",
        update.program(update.draw.integer("position", 0, 5)),
        Fault("shape-001/output", types, "The result is declared with another type of the same size.", other_type),
        Fault("shape-002/lower", ranks, "The result is declared with one dimension less.", lower_rank),
        Fault("shape-002/higher", ranks, "The result is declared with one dimension more.", higher_rank),
        Fault("shape-003/capacity", dims, "The result is declared with one row more.", dim(1, 9), LOAD | RUN),
        Fault("shape-003/width", dims, "The result is declared with shorter rows.", dim(2, 3), LOAD | RUN),
        Fault("shape-003/batch", dims, "The result is declared with another batch.", dim(0, 1), LOAD | RUN),
    )


def _names_between(nonce: int) -> Iterator[Case]:
    """The names of a chain, of which the caller sees neither the first nor the last."""
    types, ranks, dims = (Req.MC_SHAPE_001,), (Req.MC_SHAPE_002,), (Req.MC_SHAPE_003,)

    def between(edit: Callable[[TypeProto.Tensor], object]) -> Edit:
        return lambda model: edit(model.graph.value_info[0].type.tensor_type)

    def other_type(value: TypeProto.Tensor) -> None:
        value.elem_type = TensorProto.FLOAT

    def lower_rank(value: TypeProto.Tensor) -> None:
        del value.shape.dim[1]

    def other_width(value: TypeProto.Tensor) -> None:
        value.shape.dim[1].dim_value = 5

    def fixed(model: ModelProto) -> None:
        for value in (*model.graph.input[:1], *model.graph.output, *model.graph.value_info):
            for dim, size in zip(value.type.tensor_type.shape.dim, (8, 4), strict=True):
                dim.dim_value = size

    yield from family(
        "shape-001/between",
        (*types, *ranks, *dims),
        "The value between two updates has the type and shape of the cache.",
        chain(nonce, "names between").program(0, 5).edited(fixed),
        Fault("shape-001/between-other", types, "It is declared with another type.", between(other_type)),
        Fault("shape-002/between-lower", ranks, "It is declared with one dimension less.", between(lower_rank)),
        Fault("shape-003/between-width", dims, "It is declared with longer rows.", between(other_width), LOAD | RUN),
    )


def _learned(nonce: int) -> Iterator[Case]:
    learned = Req.MC_SHAPE_004
    update = Update(Draw(nonce, "learned"))

    def numbers(model: ModelProto) -> None:
        for dim, size in zip(_output_dims(model).dim, update.shape, strict=True):
            dim.dim_value = size

    def bound(shape: tuple[int, ...], name: str) -> dict[str, Storage]:
        return {cache: update.draw.storage(name, update.dtype, shape) for cache in update.cache()}

    model = update.program(0).edited(numbers).model
    twin = "shape-004/as-learned"
    feeds = update.step(update.draw.integer("position", 0, 3))
    scene = Scene().whole(Program(model, bound(update.shape, "cache"), feeds))
    yield scene.case(twin, (learned, Req.MC_SHAPE_003), "The input has symbols, the output the numbers they stand for.")
    scene = Scene().load(model).bind(bound((2, 6, 4), "smaller")).run(feeds, refused=BIND | RUN).release().unload()
    scene.whole(Program(model, bound(update.shape, "cache"), feeds), "other")
    title = "Storage that fits the symbols of the input, but not the numbers of the output."
    yield scene.case("shape-004/not-as-learned", (learned, Req.MC_SHAPE_003, Req.MC_BIND_007), title, twin=twin)

    valid = _constant_position(update, 5)
    valid = valid.edited(numbers)
    yield from family(
        "shape-004/fits-learned-capacity",
        (learned, Req.MC_SHAPE_005),
        "A constant position, and a capacity that only the output states.",
        valid,
        Fault(
            "shape-005/exceeds-learned-capacity",
            (Req.MC_SHAPE_005, learned),
            "The position is beyond the capacity that the output states.",
            _position(6),
            LOAD | RUN,
        ),
    )


def _constant_position(update: Update, position: int) -> Program:
    """An update whose position is an initializer, and whose length is declared."""
    program = update.program(position)
    name = update.draw.name("position")

    def edit(model: ModelProto) -> None:
        del model.graph.input[POSITION]
        model.graph.initializer.append(initializer(name, TensorProto.INT64, [], int64(position)))
        _input_dims(model, VALUES).dim[update.axis].dim_value = update.length

    feeds = {value: storage for value, storage in program.feeds.items() if value != name}
    return replace(program.edited(edit), feeds=feeds)


def _position(position: int) -> Edit:
    def edit(model: ModelProto) -> None:
        model.graph.initializer[0].raw_data = int64(position)

    return edit


def _static_overflow(nonce: int) -> Iterator[Case]:
    requirement = (Req.MC_SHAPE_005,)
    update = Update(Draw(nonce, "static overflow"), static=True)
    wrong = {
        "by-one": (6, "position + length is capacity + 1."),
        "negative": (-1, "The position is -1."),
        "int64-max": (INT64_MAX, "The position is the largest INT64."),
    }
    yield from family(
        "shape-005/fits",
        requirement,
        "A constant position whose update ends at the capacity.",
        _constant_position(update, 5),
        *(
            Fault(f"shape-005/{what}", requirement, title, _position(position), LOAD | RUN)
            for what, (position, title) in wrong.items()
        ),
    )
    yield from _constant_node(nonce)
    program = update.program(5)
    default = initializer(update.draw.name("position"), TensorProto.INT64, [], int64(6))
    program = program.edited(lambda model: model.graph.initializer.append(default))
    title = "The default of a position that the caller may give is no constant: it overflows, what is given does not."
    yield Scene().whole(program).case("shape-005/default-overridden", requirement, title)

    twin = "shape-005/circular-fits"
    circular = Update(Draw(nonce, "static circular"), shape=(2, 5, 4), mode="circular", length=5, static=True)
    fits, longer = _constant_position(circular, 3), _constant_position(replace(circular, length=6), 3)
    yield Scene().whole(fits).case(twin, requirement, "As many rows as the capacity, in circular mode.")
    feeds = longer.feeds.items()
    long_values = {name: replace(one, name="long_values") for name, one in feeds if isinstance(one, Storage)}
    scene = Scene().refused_run(replace(longer, feeds=long_values), fits, LOAD | RUN)
    title = "A row more than the capacity, in circular mode."
    yield scene.case("shape-005/circular-longer", requirement, title, twin=twin)


def _constant_node(nonce: int) -> Iterator[Case]:
    """A position that follows from constants: they are of a node, and have to be added."""
    requirement = (Req.MC_SHAPE_005,)
    sketch = Sketch(nonce, "constant node", "cache").feed("values").constant("one", 1, scalar=True)
    sketch.constant("four", 4, scalar=True).node("Add", ["one", "four"], "position").update(*OPERANDS)

    def constant(model: ModelProto) -> None:
        """Let a node make what was an initializer."""
        held = model.graph.initializer.pop(1)
        made = NodeProto(op_type="Constant", output=[held.name])
        made.attribute.add(name="value", type=AttributeProto.TENSOR).t.CopyFrom(held)
        model.graph.node.insert(0, made)

    def increased(model: ModelProto) -> None:
        model.graph.initializer[0].raw_data = int64(2)

    def opposite(model: ModelProto) -> None:
        model.graph.initializer[0].raw_data = int64(-5)

    yield from family(
        "shape-005/computed-fits",
        requirement,
        "The position is a sum of constants.",
        sketch.program().edited(constant),
        Fault("shape-005/computed-overflows", requirement, "The sum is 6.", increased, LOAD | RUN),
        Fault("shape-005/computed-negative", requirement, "The sum is -1.", opposite, LOAD | RUN),
    )


def _attribute(name: str, value: int) -> Edit:
    attribute = AttributeProto.FromString(helper.make_attribute(name, value).SerializeToString())
    return lambda model: model.graph.node[0].attribute.append(attribute)


def _set_dims(index: int, *sizes: int) -> Edit:
    def edit(model: ModelProto) -> None:
        shape = _input_dims(model, index)
        shape.ClearField("dim")
        for size in sizes:
            shape.dim.add(dim_value=size)

    return edit


def _set_type(index: int, elem_type: int) -> Edit:
    def edit(model: ModelProto) -> None:
        model.graph.input[index].type.tensor_type.elem_type = elem_type

    return edit


def _both(*edits: Edit) -> Edit:
    return lambda model: [edit(model) for edit in edits]


def _faults(
    wrong: Mapping[str, tuple[str, Edit, Mapping[str, Storage]]], phases: frozenset[Phase] = LOAD | RUN
) -> Iterator[Fault]:
    for what, (title, edit, feeds) in wrong.items():
        yield Fault(f"shape-006/{what}", (Req.MC_SHAPE_006,), title, edit, phases, feeds)


def _operands(nonce: int) -> Iterator[Case]:
    update = Update(Draw(nonce, "operands"), static=True)
    draw = update.draw

    def values(dtype: int, *shape: int) -> dict[str, Storage]:
        return {draw.name("values"): draw.storage("wrong_values", dtype, shape)}

    def position(dtype: int, content: bytes, *shape: int) -> dict[str, Storage]:
        return {draw.name("position"): Storage("wrong_position", dtype, shape, content)}

    wrong = {
        "values-rank": ("The values have one dimension less.", _set_dims(VALUES, 3, 4), values(update.dtype, 3, 4)),
        "values-width": ("The values have shorter rows.", _set_dims(VALUES, 2, 3, 3), values(update.dtype, 2, 3, 3)),
        "values-batch": ("The values have one batch row.", _set_dims(VALUES, 1, 3, 4), values(update.dtype, 1, 3, 4)),
        "values-type": (
            "The values have another type of the same size.",
            _set_type(VALUES, TensorProto.INT32),
            values(TensorProto.INT32, 2, 3, 4),
        ),
        "position-type": (
            "The position is INT32.",
            _set_type(POSITION, TensorProto.INT32),
            position(TensorProto.INT32, bytes(4)),
        ),
        "position-vector": (
            "A position of shape [1] is no scalar.",
            _set_dims(POSITION, 1),
            position(TensorProto.INT64, int64(2), 1),
        ),
        "axis-too-large": ("The axis is the rank.", _attribute("axis", 3), {}),
        "axis-too-small": ("The axis is -rank - 1.", _attribute("axis", -4), {}),
    }
    yield from family(
        "shape-006/agree",
        (Req.MC_SHAPE_006,),
        "Operands that fit together.",
        update.program(2),
        *_faults(wrong),
    )


def _per_row_operands(nonce: int) -> Iterator[Case]:
    update = Update(Draw(nonce, "per-row operands"), batch_axis=0, static=True)
    name = update.draw.name("position")

    def positions(*starts: int, scalar: bool = False) -> dict[str, Storage]:
        shape = () if scalar else (len(starts),)
        return {name: Storage("wrong_position", TensorProto.INT64, shape, int64(*starts))}

    def batch_axis(axis: int) -> Edit:
        def edit(model: ModelProto) -> None:
            [attribute] = model.graph.node[0].attribute
            attribute.i = axis

        return edit

    eight = positions(*range(8))
    wrong = {
        "scalar-per-row": ("One position for all rows.", _set_dims(POSITION), positions(2, scalar=True)),
        "one-too-many": ("A position more than rows of the batch.", _set_dims(POSITION, 3), positions(1, 2, 3)),
        "one-for-all": ("A vector of one position for a batch of two.", _set_dims(POSITION, 1), positions(1)),
        "batch-axis-too-large": ("batch_axis is the rank.", batch_axis(3), {}),
        "batch-axis-is-axis": ("batch_axis is the axis.", _both(batch_axis(1), _set_dims(POSITION, 8)), eight),
    }
    yield from family(
        "shape-006/per-row",
        (Req.MC_SHAPE_006,),
        "A position for each row of the batch.",
        update.program((1, 4)),
        *_faults(wrong),
        Fault(
            "shape-006/vector-without-batch-axis",
            (Req.MC_SHAPE_006,),
            "A position for each row, but no batch_axis.",
            lambda model: model.graph.node[0].ClearField("attribute"),
            LOAD | RUN,
        ),
    )


def _operands_at_run(nonce: int) -> Iterator[Case]:
    update = Update(Draw(nonce, "operands at run"), batch_axis=0)
    draw, names = update.draw, [update.draw.name(role) for role in ("values", "position")]
    wrong = {
        "values-batch-at-run": ("The values fed have a larger batch.", 0, (3, 3, 4)),
        "values-width-at-run": ("The values fed have longer rows.", 0, (2, 3, 5)),
        "values-rank-at-run": ("The values fed have one dimension less.", 0, (3, 4)),
        "positions-at-run": ("More positions are fed than the batch has rows.", 1, (3,)),
    }
    twin = "shape-006/agree-at-run"
    good = update.step((1, 4), tag="_1")
    again = update.step((4, 0), tag="_2")

    def script(first: Mapping[str, Storage], *, refused: bool) -> Scene:
        scene = Scene().load(update.model()).bind(update.cache())
        scene.run(first, refused=RUN if refused else frozenset())
        return scene.run(again).release().unload()

    requirements = (Req.MC_SHAPE_006, Req.MC_SHAPE_003)
    title = "The model knows no sizes; what is bound and fed agrees."
    yield script(good, refused=False).case(twin, requirements, title)
    for what, (title, operand, shape) in wrong.items():
        bad = (
            Storage("wrong", TensorProto.INT64, shape, int64(*range(shape[0])))
            if operand
            else draw.storage("wrong", update.dtype, shape)
        )
        scene = script({**good, names[operand]: bad}, refused=True)
        yield scene.case(f"shape-006/{what}", requirements, title, twin=twin)
