"""BIND: storage that holds initializers, and storage that the caller supplies for ordinary outputs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from onnx import TensorProto

from mutcache.proto.onnx_ml import ModelProto
from mutcache.requirements import Req
from mutcache_conformance.case import BIND, LOAD, RUN, Case, Storage
from mutcache_conformance.cases.builder import initializer, node, tensor
from mutcache_conformance.cases.ranges import ROW_BYTES, SHAPE, float_update, within
from mutcache_conformance.cases.scene import NEVER, Scene
from mutcache_conformance.cases.sketch import LENGTH


def cases(nonce: int) -> Iterator[Case]:
    """All cases of the module."""
    yield from _initializer_in_a_cache(nonce)
    yield from _ordinary_output(nonce)
    yield from _computed_shape(nonce)


def _initializer_in_a_cache(nonce: int) -> Iterator[Case]:
    """A model is loaded while a cache is bound beside or around the storage of its initializer."""
    requirements = (Req.MC_BIND_012, Req.MC_BIND_003)
    update = float_update(nonce, "initializer in a cache")
    table, echo = update.draw.name("table"), update.draw.name("echo")
    shape = (2, SHAPE[1])
    content = update.draw.content("table", update.dtype, shape)
    [(cache, storage)] = update.cache().items()
    own = replace(storage, name="own")

    def with_table(model: ModelProto) -> ModelProto:
        model.graph.initializer.append(initializer(table, update.dtype, shape, content))
        model.graph.node.append(node("Identity", [table], [echo]))
        model.graph.output.append(tensor(echo, update.dtype, shape))
        return model

    plain, model = update.model(), with_table(update.model())
    steps = [update.step(position, tag=f"_{position}") for position in (0, 3, 5)]

    def script(rows: int, *, refused: bool) -> Scene:
        held = replace(within(Storage("held", update.dtype, shape), storage, rows), origin=f"initializer:{table}")
        held = held if refused else replace(held, content=content)
        scene = Scene().load(plain, "plain", called="plain").bind({cache: storage}, "first", session="plain")
        scene.run(steps[0], "first", session="plain").load(model, initializers={table: held})
        scene.bind({cache: own}, "second", refused=LOAD | BIND if refused else NEVER)
        if not refused:
            scene.run(steps[1], "second").release("second")
        scene.run(steps[2], "first", session="plain").release("first").unload().load(plain, "third", called="plain")
        scene.bind({cache: own}, "last", session="third").run(steps[1], "last", session="third").release("last")
        return scene.unload("third").unload("plain")

    twin, title = "bind-012/beside-a-cache", "The initializer lies beside storage that is bound as mutable."
    yield script(SHAPE[0], refused=False).case(twin, requirements, title)
    for what, rows, title in (
        ("inside", 3, "It lies in the middle of that storage."),
        ("last-row", SHAPE[0] - 1, "It shares the last row of that storage."),
        ("first-row", -1, "It shares the first row of that storage."),
    ):
        yield script(rows, refused=True).case(f"bind-012/{what}", requirements, title, twin=twin)


def _ordinary_output(nonce: int) -> Iterator[Case]:
    requirement = (Req.MC_BIND_013,)
    update = replace(float_update(nonce, "ordinary output"), length=LENGTH)
    echo, values = update.draw.name("echo"), update.draw.name("values")
    model = update.model()
    model.graph.node.append(node("Identity", [values], [echo]))
    dims = [LENGTH, SHAPE[1]]
    model.graph.output.append(tensor(echo, update.dtype, dims))
    for dim, size in zip(model.graph.input[1].type.tensor_type.shape.dim, dims, strict=True):
        dim.dim_value = size
    good = Storage("buffer", update.dtype, (LENGTH, SHAPE[1]))

    def script(buffer: Storage, *, refused: bool) -> Scene:
        scene = Scene().load(model).bind(update.cache(), "first", outputs={echo: buffer})
        scene.run(update.step(1, tag="_1"), "first", refused=BIND | RUN if refused else NEVER).release("first")
        scene.bind(update.cache(), "second").run(update.step(4, tag="_2"), "second")
        return scene.release("second").unload()

    twin, title = "bind-013/fits", "An ordinary output is bound to row-major storage of its type and shape."
    yield script(good, refused=False).case(twin, requirement, title)
    wrong = {
        "read-only": (replace(good, writable=False), "It is bound to read-only storage."),
        "strided": (replace(good, strides=(2 * ROW_BYTES, 4)), "It is bound to rows with gaps between them."),
        "column-major": (replace(good, strides=(4, 4 * LENGTH)), "It is bound to storage in the order of columns."),
        "broadcast": (replace(good, strides=(0, 4)), "It is bound to rows that are all one."),
        "other-type": (replace(good, dtype=TensorProto.INT32), "It is bound to another type of the same size."),
        "wider-type": (replace(good, dtype=TensorProto.DOUBLE), "It is bound to a wider type."),
        "too-small": (replace(good, shape=(LENGTH - 1, SHAPE[1])), "It is bound to a row less than it has."),
        "too-large": (replace(good, shape=(LENGTH + 1, SHAPE[1])), "It is bound to a row more than it has."),
        "reshaped": (replace(good, shape=(SHAPE[1], LENGTH)), "It is bound to another shape of the same size."),
        "lower-rank": (replace(good, shape=(LENGTH * SHAPE[1],)), "It is bound to a vector of the same size."),
        "higher-rank": (replace(good, shape=(1, *good.shape)), "It is bound to a dimension of one more."),
    }
    for what, (buffer, title) in wrong.items():
        yield script(buffer, refused=True).case(f"bind-013/{what}", requirement, title, twin=twin)


def _computed_shape(nonce: int) -> Iterator[Case]:
    """An output whose rows are known only when the run has its values."""
    requirement = (Req.MC_BIND_013,)
    update = float_update(nonce, "computed shape")
    echo, values = update.draw.name("echo"), update.draw.name("values")
    model = update.model()
    model.graph.node.append(node("Identity", [values], [echo]))
    model.graph.output.append(tensor(echo, update.dtype, [None, SHAPE[1]]))
    buffer = Storage("buffer", update.dtype, (LENGTH, SHAPE[1]))

    def script(length: int) -> Scene:
        scene = Scene().load(model).bind(update.cache(), outputs={echo: buffer})
        scene.run(update.step(1, length=length, tag="_1"), refused=RUN if length != LENGTH else NEVER)
        return scene.run(update.step(4, length=LENGTH, tag="_2")).release().unload()

    twin, title = "bind-013/rows-as-bound", "The rows of a run are as many as the storage of its output has."
    yield script(LENGTH).case(twin, requirement, title)
    for what, length in (("fewer-rows", LENGTH - 1), ("more-rows", LENGTH + 1)):
        title = f"A run has {what.replace('-', ' ')} than the storage bound to its output."
        yield script(length).case(f"bind-013/{what}", requirement, title, twin=twin)
