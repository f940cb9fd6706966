"""Scripts in which memory is measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from onnx import TensorProto

from mutcache.proto.onnx_ml import ModelProto
from mutcache.requirements import Req
from mutcache_conformance.case import Case, Measure, Storage
from mutcache_conformance.cases.scene import NEVER, Phases, Scene

#: Bytes of one row, on whatever axes it has its elements.
ROW_BYTES: Final = 1024
#: Rows of the caches of the sessions, and how often each session runs: the first warms the process up. The caches have
#: 32 KiB, 32 MiB and 128 MiB: a copy of the smallest that counts is four workspaces, and 5 % of the difference, which
#: is no copy yet, is more than two huge pages. They are sparse, so that only a runtime that copies them takes the time.
SESSIONS: Final[Mapping[str, tuple[int, int]]] = {"warm_up": (32, 2), "small": (1 << 15, 3), "large": (1 << 17, 4)}
#: How often a run is made whose memory must not grow with the number of runs.
TIMES: Final = 400

#: Gives storage for what a run is fed, with caches of so many rows.
Step = Callable[[int], Mapping[str, Storage]]


def sizes(
    what: str,
    requirements: tuple[Req, ...],
    title: str,
    model: Callable[[int], ModelProto],
    caches: Callable[[int], Mapping[str, Storage]],
    step: Step,
) -> Case:
    """The same with caches of different sizes: what it takes of memory must not differ.

    Args:
        what: id of the case.
        requirements: as in Case.
        title: as in Case.
        model: gives the model for caches of so many rows.
        caches: gives storage for its caches, which nobody fills.
        step: gives storage for what a run is fed; only the positions depend on the number of rows.
    """
    scene, models = Scene(), dict[bytes, str]()
    for session, (rows, runs) in SESSIONS.items():
        made = model(rows)
        called = f"model_{session}" if models else "model"
        called = models.setdefault(made.SerializeToString(deterministic=True), called)
        scene.load(made, session, called=called)
        named = {value: replace(one, name=f"{one.name}_{session}") for value, one in caches(rows).items()}
        scene.bind(named, session, session=session)
        feeds = {
            value: replace(one, name=f"{one.name}_{session}") if one.dtype == TensorProto.INT64 else one
            for value, one in step(rows).items()
        }
        for _ in range(runs):
            scene.run(feeds, session, session=session)
        scene.release(session).unload(session)
    compared = tuple(SESSIONS)[1:]
    return replace(scene.case(what, requirements, title), measure=Measure(compared))


def repeated(
    what: str,
    requirements: tuple[Req, ...],
    title: str,
    model: ModelProto,
    caches: Mapping[str, Storage],
    feeds: Mapping[str, Storage],
    *,
    refused: Phases = NEVER,
    again: Mapping[str, Storage] | None = None,
    twin: str = "",
) -> Case:
    """One run made again and again, and at last, with ``again``, another one."""
    scene = Scene().load(model).bind(caches).run(feeds, refused=refused, times=TIMES)
    if again is not None:
        scene.run(again)
    return replace(scene.release().unload().case(what, requirements, title, twin=twin), measure=Measure())
