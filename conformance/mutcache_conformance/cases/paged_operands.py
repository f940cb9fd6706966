"""PAGED: operands, axes and dims that do not agree."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from onnx import TensorProto as Stock

from mutcache.proto.onnx_ml import ModelProto, ValueInfoProto
from mutcache.requirements import Req
from mutcache_conformance.case import LOAD, RUN, Case, Storage
from mutcache_conformance.cases.builder import tensor
from mutcache_conformance.cases.draw import Draw
from mutcache_conformance.cases.edits import Edit
from mutcache_conformance.cases.paged_steps import accepted
from mutcache_conformance.cases.paged_words import Paged, Step
from mutcache_conformance.cases.scene import NEVER, Fault, Scene, family


def cases(nonce: int) -> Iterator[Case]:
    """All cases of the module."""
    yield from _operands(nonce)
    yield from _axes(nonce)
    yield from _declared(nonce)


def _operands(nonce: int) -> Iterator[Case]:
    """Operands that become wrong only when they are supplied."""
    requirement = (Req.MC_PAGED_017,)
    paged = Paged(Draw(nonce, "paged operands"), ("int8",))
    table, name = paged.table("int8", "int8"), paged.draw.name
    good = paged.step((1, 1, 2), (0, 1), tag="_1")

    open_model = paged.model()
    open_model.graph.input[2].CopyFrom(
        tensor(name("values"), paged.elem, [name(dim) for dim in ("heads", "new", "width")])
    )

    def script(wrong: dict[str, Storage], *, refused: bool) -> Scene:
        scene = Scene().load(open_model).bind({name("cache"): table})
        scene.run({**good, **wrong}, refused=RUN if refused else NEVER)
        return scene.run(paged.step((0, 2, 1), (1,), tag="_2")).release().unload()

    twin = "paged-017/right"
    yield script({}, refused=False).case(
        twin, requirement, "Values of the shape that an update needs; the model leaves it open."
    )
    values = good[name("values")]

    def shaped(*shape: int) -> dict[str, Storage]:
        content = ((values.content or b"") * 4)[: 2 * math.prod(shape)]
        return {name("values"): replace(values, shape=shape, content=content)}

    for what, wrong, title in (
        ("narrow-values", shaped(2, 2, 31), "The rows are narrower than those of the page."),
        ("fewer-heads", shaped(1, 2, 32), "The values have one of two heads."),
        ("more-heads", shaped(3, 2, 32), "The values have three of two heads."),
    ):
        yield script(wrong, refused=True).case(f"paged-017/{what}", requirement, title, twin=twin)

    program = paged.program(table, (1, 1, 2), (0, 1))

    def operand(index: int, made: ValueInfoProto) -> Edit:
        def edit(changed: ModelProto) -> None:
            changed.graph.input[index].CopyFrom(made)

        return edit

    float32 = replace(values, name="float32", dtype=Stock.FLOAT, content=bytes(4 * 128))
    short = {name("page_id"): Storage("int32", Stock.INT32, (), bytes(4))}
    flat = {name("values"): replace(values, name="flat", shape=(2, 32), content=(values.content or b"")[:128])}

    def one(role: str) -> dict[str, Storage]:
        return {name(role): paged.number_storage("one", 1, scalar=False)}

    yield from family(
        "paged-017/declared",
        requirement,
        "The model declares the operands as an update needs them.",
        program,
        Fault(
            "paged-017/values-type",
            requirement,
            "The values have another type than the pages decode to.",
            operand(2, tensor(name("values"), Stock.FLOAT, [2, name("new_length"), 32])),
            LOAD | RUN,
            feeds={name("values"): float32},
        ),
        Fault(
            "paged-017/page-id-type",
            requirement,
            "page_id is INT32.",
            operand(1, tensor(name("page_id"), Stock.INT32, [])),
            LOAD | RUN,
            feeds=short,
        ),
        Fault(
            "paged-017/rank-of-values",
            requirement,
            "The values have another rank than the pages.",
            operand(2, tensor(name("values"), paged.elem, [name("new_length"), 32])),
            LOAD | RUN,
            feeds=flat,
        ),
        Fault(
            "paged-017/page-id-vector",
            requirement,
            "page_id has the shape [1].",
            operand(1, tensor(name("page_id"), Stock.INT64, [1])),
            LOAD | RUN,
            feeds=one("page_id"),
        ),
        Fault(
            "paged-017/position-vector",
            requirement,
            "position has the shape [1].",
            operand(3, tensor(name("position"), Stock.INT64, [1])),
            LOAD | RUN,
            feeds=one("position"),
        ),
        Fault(
            "paged-017/page-ids-scalar",
            requirement,
            "page_ids is a scalar.",
            operand(4, tensor(name("page_ids"), Stock.INT64, [])),
            LOAD | RUN,
            feeds={name("page_ids"): paged.number_storage("scalar", 1)},
        ),
        Fault(
            "paged-017/axis-range",
            requirement,
            "The pages have no such axis.",
            lambda made: made.graph.node[0].attribute.add(name="axis", i=-4, type=2),
            LOAD | RUN,
        ),
    )


def _axes(nonce: int) -> Iterator[Case]:
    requirement = (Req.MC_PAGED_013,)
    paged = Paged(Draw(nonce, "paged axes"), ("int8",), dims=(2, 32, 32))

    def last(made: ModelProto) -> None:
        made.graph.node[0].attribute.add(name="axis", i=-1, type=2)

    def last_from_front(made: ModelProto) -> None:
        made.graph.node[0].attribute.add(name="axis", i=2, type=2)

    feeds = {paged.draw.name("values"): paged.values("columns", 32)}
    program = paged.program(paged.table("int8"), (0, 0, 32))
    yield from family(
        "paged-013/rows",
        requirement,
        "Rows of whole groups are written.",
        program,
        Fault("paged-013/last-axis", requirement, "Parts of groups are written.", last, feeds=feeds),
        Fault(
            "paged-013/last-axis-from-front",
            requirement,
            "The same axis, counted from 0.",
            last_from_front,
            feeds=feeds,
        ),
    )


def _declared(nonce: int) -> Iterator[Case]:
    """Dims that the container leaves open."""
    requirement = (Req.MC_PAGED_018,)
    paged = Paged(Draw(nonce, "paged open dims"), ("int8",), ("int8",), declared=(2, "page_size", 32), gathers=False)
    table = paged.table("int8")
    steps: tuple[Step, ...] = ((0, 1, 2), (1, 0, 2))
    twin = "paged-018/told-by-a-page"
    title = "The container leaves the rows of a page open, and a page has them."
    yield accepted(twin, requirement, title, paged, table, *steps)
    name = paged.draw.name
    scene = Scene().load(paged.model()).bind({name("cache"): paged.table(name="empty")}, "first")
    scene.run(paged.step(steps[0], tag="_1"), "first", refused=RUN).release("first")
    scene.bind({name("cache"): table}, "second").run(paged.step(steps[1], tag="_2"), "second").release("second")
    title = "The container leaves the rows of a page open, and there is none yet."
    yield scene.unload().case("paged-018/told-by-nobody", requirement, title, twin=twin)
    heads = replace(paged, declared=("heads", 4, 32))
    title = "What the container leaves open but the rows, the values tell."
    yield accepted("paged-018/told-by-values", requirement, title, heads, heads.table(), (0, 1, 2), (1, 0, 4))
