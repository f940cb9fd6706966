"""BIND: what is asked for while a run is in flight."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from onnx import TensorProto as Stock

from mutcache.model import Dim
from mutcache.proto.onnx_ml import ModelProto, NodeProto
from mutcache.requirements import Req
from mutcache_conformance.case import BIND, RUN, Case, Storage
from mutcache_conformance.cases.builder import initializer, model, node, tensor, update
from mutcache_conformance.cases.draw import Draw, int64
from mutcache_conformance.cases.ranges import SHAPE, within
from mutcache_conformance.cases.scene import NEVER, Scene

#: Rows that the last update writes, and where it writes them.
LENGTH: Final = 3
AT: Final = SHAPE[0] - LENGTH
#: Between the first update and the last lie so many products of square matrices. All elements are zero, so that every
#: order of summation has the same result.
PRODUCTS: Final = 4
#: Their size is fed: for a run that others must meet a tenth of a second or so on two cores, for others nothing.
LONG: Final = 768
SHORT: Final = 8


def cases(nonce: int) -> Iterator[Case]:
    """All cases of the module."""
    yield from _one_binding(nonce)
    yield from _two_caches(nonce)
    yield from _two_bindings(nonce)
    yield from _bind(nonce)


@dataclass(frozen=True)
class Long:
    """A model that takes its time between its first write and its last.

    It reads the rows that it will write at last, and returns what it found: a run that starts from all that another one
    wrote finds that one's values, and a run that starts in the middle of it does not. The first update writes zeros
    into the first row; what follows is computed from them, and added to the values of the last update.

    Attributes:
        draw: names and contents.
        late: role of the cache that the last update is of.
    """

    draw: Draw
    late: str = "cache"

    def model(self) -> ModelProto:
        """The model."""
        name = self.draw.name

        def made(op_type: str, inputs: str, output: str, **attributes: int) -> NodeProto:
            return node(op_type, [name(role) for role in inputs.split()], [name(output)], attributes)

        two = self.late != "cache"
        source = self.late if two else "begun"
        nodes = [
            made("Slice", f"{self.late} late_start late_stop axis", "found"),
            update(name("cache"), name("first"), name("start"), name("begun")),
            made("Slice", "begun corner_start corner_stop", "corner"),
            made("ConstantOfShape", "size", "blank"),
            made("Add", "blank corner", "product_0"),
            *(made("MatMul", f"product_{n} product_{n}", f"product_{n + 1}") for n in range(PRODUCTS)),
            made("ReduceSum", f"product_{PRODUCTS}", "total", keepdims=1),
            made("Add", "values total", "computed"),
            update(name(source), name("computed"), name("position"), name("updated")),
        ]
        inputs = [tensor(name(role), Stock.FLOAT, [name("rows"), SHAPE[1]], mutable=True) for role in self.caches]
        inputs += [
            tensor(name("first"), Stock.FLOAT, [1, SHAPE[1]]),
            tensor(name("values"), Stock.FLOAT, [name("length"), SHAPE[1]]),
            tensor(name("position"), Stock.INT64, []),
            tensor(name("size"), Stock.INT64, [2]),
        ]
        outputs = [tensor(name("found"), Stock.FLOAT, [None, None])]
        cache: list[Dim] = [name("rows"), SHAPE[1]]
        if two:
            outputs.append(tensor(name("begun"), Stock.FLOAT, cache, alias_of=name("cache")))
        outputs.append(tensor(name("updated"), Stock.FLOAT, cache, alias_of=name(self.late)))
        constants = {"late_start": [AT], "late_stop": [AT + LENGTH], "axis": [0], "corner_start": [0, 0]}
        constants |= {"corner_stop": [1, 1]}
        held = [initializer(name(role), Stock.INT64, [len(v)], int64(*v)) for role, v in constants.items()]
        held.append(initializer(name("start"), Stock.INT64, [], int64(0)))
        return model(inputs, nodes, outputs, initializers=held)

    @property
    def caches(self) -> tuple[str, ...]:
        """The roles of the caches."""
        return tuple(dict.fromkeys(("cache", self.late)))

    def mutable(self) -> dict[str, Storage]:
        """Storage for the caches."""
        return {self.draw.name(role): self.draw.small_integers(role, Stock.FLOAT, SHAPE) for role in self.caches}

    def step(self, tag: str, position: int = AT, *, size: int = SHORT) -> dict[str, Storage]:
        """What a run is fed."""
        name = self.draw.name
        return {
            name("first"): Storage("first", Stock.FLOAT, (1, SHAPE[1]), bytes(4 * SHAPE[1])),
            name("values"): self.draw.small_integers(f"values_{tag}", Stock.FLOAT, (LENGTH, SHAPE[1])),
            name("position"): Storage(f"position_{tag}", Stock.INT64, (), int64(position)),
            name("size"): Storage(f"size_{tag}", Stock.INT64, (2,), int64(size, size)),
        }


def _one_binding(nonce: int) -> Iterator[Case]:
    requirement = (Req.MC_BIND_011,)
    long = Long(Draw(nonce, "in flight"))

    def script(*, first: int = AT, second: int = AT) -> Scene:
        """The second run is asked for while the first is in flight; a last one follows alone."""
        fails = (position != AT for position in (first, second))
        refused = [RUN if one else NEVER for one in fails]
        scene = Scene().load(long.model()).bind(long.mutable())
        scene.start("first", long.step("a", first, size=LONG)).start("second", long.step("b", second))
        scene.finish("first", refused=refused[0])
        scene.finish("second", refused=refused[1], may_be_refused=not refused[1])
        return scene.run(long.step("c")).release().unload()

    twin, title = "bind-011/second-run", "A second run is asked for while one is in flight."
    yield script().case(twin, requirement, title)
    title = "The run in flight is refused at last, and the second one follows it."
    yield script(first=AT + 1).case("bind-011/first-run-fails", requirement, title, twin=twin)
    title = "The second run is refused, and the one in flight is not disturbed."
    yield script(second=AT + 1).case("bind-011/second-run-fails", requirement, title, twin=twin)


def _two_caches(nonce: int) -> Iterator[Case]:
    long = Long(Draw(nonce, "in flight with two caches"), late="cache_late")
    scene = Scene().load(long.model()).bind(long.mutable())
    scene.start("first", long.step("a", size=LONG)).start("second", long.step("b"))
    scene.finish("first").finish("second", may_be_refused=True)
    title = "The first run has one cache still to update when the second one is asked for."
    scene.run(long.step("c")).release().unload()
    yield scene.case("bind-011/two-caches", (Req.MC_BIND_011,), title)


def _two_bindings(nonce: int) -> Iterator[Case]:
    requirements = (Req.MC_BIND_011, Req.MC_BIND_005)
    long = Long(Draw(nonce, "in flight beside"))
    [(cache, storage)] = long.mutable().items()
    beside = within(replace(storage, name="beside"), storage, SHAPE[0])

    def script(session: str, position: int = AT) -> Scene:
        """A run of a binding to storage beside that of the run in flight; then each binding runs once more."""
        scene = Scene().load(long.model()).load(long.model(), "other")
        scene.bind({cache: storage}, "first").bind({cache: beside}, "second", session=session)
        scene.start("one", long.step("a", size=LONG), "first")
        scene.start("two", long.step("b", position), "second", session=session)
        scene.finish("one").finish("two", refused=NEVER if position == AT else RUN)
        scene.run(long.step("c"), "first").run(long.step("d"), "second", session=session)
        return scene.release("second").release("first").unload("other").unload()

    for session, word in (("session", "the same"), ("other", "another")):
        twin = f"bind-011/{word.rpartition(' ')[2]}-session-beside"
        title = f"A run of {word} session is asked for, with other storage, while one is in flight."
        yield script(session).case(twin, requirements, title)
        title = f"A run of {word} session is refused beside the one in flight, which is not disturbed."
        what = f"bind-011/{word.rpartition(' ')[2]}-session-fails"
        yield script(session, AT + 1).case(what, requirements, title, twin=twin)


def _bind(nonce: int) -> Iterator[Case]:
    requirement = (Req.MC_BIND_005,)
    long = Long(Draw(nonce, "bind while running"))
    [(cache, storage)] = long.mutable().items()
    beside = replace(storage, name="second")

    def script(second: Storage, session: str, *, refused: bool) -> Scene:
        """Storage is bound while a run is in flight; at last the first storage is handed over."""
        scene = Scene().load(long.model()).load(long.model(), "other").bind({cache: storage}, "first")
        scene.start("run", long.step("a", size=LONG), "first")
        scene.bind({cache: second}, "second", session=session, refused=BIND if refused else NEVER).finish("run")
        if not refused:
            scene.run(long.step("b"), "second", session=session).release("second")
        scene.release("first").bind({cache: storage}, "third", session="other")
        return scene.run(long.step("c"), "third", session="other").release("third").unload("other").unload()

    places: Mapping[str, tuple[str, Storage]] = {
        "": ("the storage", storage),
        "upper-half-": ("the upper half of the storage, and more,", within(beside, storage, SHAPE[0] // 2)),
        "last-row-": ("storage that shares a row with that", within(beside, storage, SHAPE[0] - 1)),
    }
    for session, word in (("session", "same"), ("other", "other")):
        twin = f"bind-005/beside-run-in-{word}-session"
        title = f"The {word} session binds storage beside that of a run in flight."
        yield script(within(beside, storage, SHAPE[0]), session, refused=False).case(twin, requirement, title)
        for what, (words, place) in places.items():
            title = f"The {word} session binds {words} of a run in flight."
            scene = script(place, session, refused=True)
            yield scene.case(f"bind-005/{what}of-run-in-{word}-session", requirement, title, twin=twin)
