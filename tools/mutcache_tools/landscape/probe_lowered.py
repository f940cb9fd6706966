"""Probes of ONNX Runtime on lowered models: is what has equal pointers and right values done in place?"""

from __future__ import annotations

import mmap
import tempfile
import threading
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from onnx import parser

from mutcache.requirements import Req
from mutcache_tools.landscape.probing import (
    CACHE_BYTES,
    COPY,
    LEAK,
    NO_COPY,
    Observation,
    mebibytes,
    note,
    peak,
    play,
    resident,
)

_WIDTH: Final = 256
_ROWS: Final = CACHE_BYTES // (4 * _WIDTH)
_C: Final = f"float[1,{_ROWS},{_WIDTH}]"
_UPDATE: Final = "TensorScatter<axis=1>"
_BRANCH: Final = f"""If (k) <
    then_branch = t () => ({_C} a) {{ a = {_UPDATE}(cache, v, p) }},
    else_branch = e () => ({_C} b) {{ b = Identity(cache) }}>"""
_LOOP: Final = f"""Loop (trips, , cache) <
    body = l (int64 i, bool go, {_C} held) => (bool on, {_C} c) {{ on = Identity(go) c = {_UPDATE}(held, v, p) }}>"""
#: Graphs of updates as a lowered model has them: what they are called, and the nodes.
GRAPHS: Final = {
    "update": ("a single update", f"out = {_UPDATE}(cache, v, p)"),
    "branch": ("an update in one branch, with Identity in the other", f"out = {_BRANCH}"),
    "chain": ("two updates, one after the other", f"mid = {_UPDATE}(cache, v, p) out = {_UPDATE}(mid, v, q)"),
    "branch-then-update": ("a branch, and an update after it", f"mid = {_BRANCH} out = {_UPDATE}(mid, v, q)"),
    "loop": ("a loop of three trips, with an update in each", f"out = {_LOOP}"),
}


def _session(nodes: str, length: int = 2) -> Any:
    import onnxruntime

    text = f"""<ir_version: 11, opset_import: ["": 24]>
        g ({_C} cache, float[1,{length},{_WIDTH}] v, int64[1] p, int64[1] q, bool k) => ({_C} out)
        <int64 trips = {{3}}> {{ {nodes} }}"""
    model = parser.parse_model(text).SerializeToString()
    return onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])


def _bind(session: Any, cache: np.ndarray[Any, Any], position: int, *, result: bool = True) -> Any:
    """An I/O binding of two new rows at ``position``, and two behind them; the cache and the result are one value."""
    import onnxruntime

    value = onnxruntime.OrtValue.ortvalue_from_numpy(cache)
    binding = session.io_binding()
    binding.bind_ortvalue_input("cache", value)
    if result:
        binding.bind_ortvalue_output("out", value)
    else:
        binding.bind_output("out", "cpu")
    rows = np.full((1, 2, _WIDTH), position, np.float32)
    feeds = {"v": rows, "p": np.array([position]), "q": np.array([position + 2]), "k": np.array(True)}
    for name in {entry.name for entry in session.get_inputs()} & feeds.keys():
        binding.bind_cpu_input(name, feeds[name])
    return binding


def _cache() -> np.ndarray[Any, Any]:
    return np.ones((1, _ROWS, _WIDTH), np.float32)


def scene_graph(name: str) -> dict[str, Any]:
    """Two runs of a graph: is the result where the cache is, and right, and what did the runs take?"""
    session, cache, growth, is_same = _session(GRAPHS[name][1]), _cache(), [], True
    for position in (5, 9):
        binding = _bind(session, cache, position)
        with peak() as found:
            session.run_with_iobinding(binding)
        growth.append(found.growth)
        is_same = is_same and binding.get_outputs()[0].data_ptr() == cache.ctypes.data
    is_right = (cache[0, 5:7] == 5).all() and (cache[0, 9:11] == 9).all() and (cache[0, 20:] == 1).all()
    return {"same_pointer": bool(is_same), "right_values": bool(is_right), "growth_bytes": growth}


def scene_unbound() -> dict[str, Any]:
    """The result is bound to nothing: where is it, and what did it take?"""
    session, cache = _session(GRAPHS["update"][1]), _cache()
    binding = _bind(session, cache, 5, result=False)
    with peak() as found:
        session.run_with_iobinding(binding)
    is_same = binding.get_outputs()[0].data_ptr() == cache.ctypes.data
    return {"same_pointer": is_same, "written": bool((cache[0, 5] == 5).all()), "growth_bytes": found.growth}


def scene_read_only() -> dict[str, Any]:
    """A cache in memory that the process may only read."""
    session = _session(GRAPHS["update"][1])
    with tempfile.TemporaryFile() as file:
        file.truncate(CACHE_BYTES)
        memory = mmap.mmap(file.fileno(), CACHE_BYTES, prot=mmap.PROT_READ)
        cache = np.frombuffer(memory, np.float32).reshape(1, _ROWS, _WIDTH)
        binding = _bind(session, cache, 5)
        note({"bound": True})
        session.run_with_iobinding(binding)
    return {"bound": True, "ran": True}


def scene_threads() -> dict[str, Any]:
    """Two sessions write all rows of one cache at the same time, each its own number: is a mixture left?"""
    import onnxruntime

    nodes = f"out = {_UPDATE}(cache, v, p)"
    sessions = [_session(nodes, length=_ROWS) for _ in range(2)]
    cache, errors, mixtures, rounds = _cache(), list[str](), 0, 20
    value = onnxruntime.OrtValue.ortvalue_from_numpy(cache)

    def run(session: Any, number: int, gate: threading.Barrier) -> None:
        binding = session.io_binding()
        binding.bind_ortvalue_input("cache", value)
        binding.bind_ortvalue_output("out", value)
        binding.bind_cpu_input("v", np.full((1, _ROWS, _WIDTH), number, np.float32))
        binding.bind_cpu_input("p", np.array([0]))
        gate.wait()
        try:
            session.run_with_iobinding(binding)
        except Exception as error:
            errors.append(str(error))

    for _ in range(rounds):
        gate = threading.Barrier(2)
        threads = [threading.Thread(target=run, args=(one, 7 + i, gate)) for i, one in enumerate(sessions)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        mixtures += len(np.unique(cache)) > 1
    return {"rounds": rounds, "mixtures": int(mixtures), "errors": errors}


def scene_refusals() -> dict[str, Any]:
    """Thousands of runs past the capacity: by how much does the process grow with each, early and late?"""
    session, cache, sizes = _session(GRAPHS["update"][1]), _cache(), list[int]()
    refused = 0
    for _ in range(4000):
        try:
            session.run_with_iobinding(_bind(session, cache, _ROWS - 1))
        except Exception:
            refused += 1
        sizes.append(resident())
    early, late = (float(np.polyfit(np.arange(len(part)), part, 1)[0]) for part in (sizes[100:400], sizes[1000:]))
    return {"refused": refused, "early_bytes_per_run": early, "late_bytes_per_run": late}


def observations() -> Iterator[Observation]:
    """Play the scenes and say what they show."""
    for name, (what, _) in GRAPHS.items():
        found = play(__name__, "graph", name)
        growth = max(found["growth_bytes"])
        is_right = found["right_values"] and found["same_pointer"]
        copies = growth / CACHE_BYTES
        yield Observation(
            f"graph-{name}",
            (Req.MC_MEM_001, Req.MC_BIND_010),
            "pass" if is_right and growth < NO_COPY else "fail",
            f"Twice ran {what}; the cache of {mebibytes(CACHE_BYTES)} and the result were bound to one OrtValue.",
            f"The result had {'the address of the cache' if found['same_pointer'] else 'another address'} and "
            f"{'right' if found['right_values'] else 'wrong'} values; the process grew by {mebibytes(growth)}"
            + (f", {copies:.1f} times the cache." if growth > COPY else "."),
            "memory",
            {key: found[key] for key in ("same_pointer", "right_values", "growth_bytes")},
        )
    found = play(__name__, "unbound")
    yield Observation(
        "result-not-bound",
        (Req.MC_BIND_008, Req.MC_BIND_010),
        "pass" if found["same_pointer"] else "fail",
        "Ran an update whose result was bound to nothing.",
        f"The result was {'the cache' if found['same_pointer'] else 'a new value'}, the cache was "
        f"{'written' if found['written'] else 'left as it was'}, and the process grew by "
        f"{mebibytes(found['growth_bytes'])}; the run succeeded"
        + (" and only a warning on stderr spoke of a copy." if "copying past_cache" in found["stderr"] else "."),
        "memory",
        {key: found[key] for key in ("same_pointer", "written", "growth_bytes")},
    )
    found = play(__name__, "read_only")
    crashed = found.get("signal", "")
    yield Observation(
        "read-only-memory",
        (Req.MC_BIND_002,),
        "crash" if crashed else "fail" if found.get("bound") else "pass",
        "Bound a cache in memory that is mapped for reading only, and ran an update.",
        f"The binding was accepted, and the run ended the process by {crashed}."
        if crashed
        else "The binding and the run were accepted.",
        figures={key: found[key] for key in ("bound", "signal") if key in found},
    )
    found = play(__name__, "threads")
    yield Observation(
        "two-sessions-at-once",
        (Req.MC_BIND_005,),
        "fail" if not found["errors"] else "pass",
        f"Bound one cache in two sessions and ran both at once, {found['rounds']} times, each filling the cache with a "
        "number of its own.",
        f"Both bindings and all runs were accepted, and {found['mixtures']} times rows of both were left."
        if not found["errors"]
        else f"Refused: {found['errors'][0]}",
        figures={key: found[key] for key in ("rounds", "mixtures", "errors")},
    )
    found = play(__name__, "refusals")
    yield Observation(
        "memory-over-refusals",
        (Req.MC_MEM_002,),
        "pass" if found["late_bytes_per_run"] < LEAK else "fail",
        f"Ran an update past the capacity 4000 times; {found['refused']} times it was refused.",
        f"The resident memory grew by {found['early_bytes_per_run']:.0f} bytes a run from the 100th to the 400th, and "
        f"by {found['late_bytes_per_run']:.0f} bytes a run after the 1000th.",
        "memory",
        {key: value for key, value in found.items() if key != "stderr"},
    )
