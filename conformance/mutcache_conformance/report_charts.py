"""The figures of memory of a case as drawings for ``report.html``: inline SVG in the colors of the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mutcache_conformance.figures import SLOPE, WARM_UP, WORKSPACE

_WIDTH: Final = 460
_HEIGHT: Final = 170
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 12, 12, 30
_UNITS: Final = ("bytes", "KiB", "MiB", "GiB", "TiB")


def of(result: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the page shows of the figures of a result; None if it has none."""
    memory = result["memory"]
    if memory is None or not (memory["sessions"] or memory["curve"]):
        return None
    parts = [_part("", memory)]
    if "device" in memory:
        parts = [_part("process", memory), _part("device, as the runtime reports it", memory["device"])]
    return {"case": result["case"], "status": result["status"], "parts": parts, "allowed": SLOPE}


def _part(title: str, memory: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of one memory."""
    return {
        "title": title,
        "memory": memory,
        "bars": _bars(memory["sessions"]) if memory["sessions"] else [],
        "curve": _curve(memory["curve"]) if len(memory["curve"]) > 1 else None,
    }


def size(nbytes: float) -> str:
    """A number of bytes in the unit that suits it."""
    unit = 0
    value = float(nbytes)
    while abs(value) >= 1024 and unit < len(_UNITS) - 1:
        value /= 1024
        unit += 1
    return f"{value:.0f} {_UNITS[unit]}" if unit == 0 or value >= 100 else f"{value:.1f} {_UNITS[unit]}"


def _bars(sessions: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """For each session the bytes of its caches, and those that it took beside, on one scale."""
    largest = max(max(session["cache_bytes"], session["growth"], WORKSPACE) for session in sessions) or 1
    return [
        {
            "session": session["session"],
            "cache": session["cache_bytes"],
            "growth": session["growth"],
            "later": max(session["runs"][1:], default=0),
            "cache_share": 100 * session["cache_bytes"] / largest,
            "growth_share": 100 * session["growth"] / largest,
        }
        for session in sessions
    ]


def _curve(points: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Resident bytes over the number of runs. The axis shows at least 1 MiB, so that noise stays small."""
    runs = [point[0] for point in points]
    resident = [point[1] for point in points]
    spread = max(resident) - min(resident)
    margin = max((1 << 20) - spread, spread // 5) / 2
    low, high = max(0.0, min(resident) - margin), max(resident) + margin
    span = max(runs[-1] - runs[0], 1)

    def x(run: float) -> float:
        return round(_LEFT + (_WIDTH - _LEFT - _RIGHT) * (run - runs[0]) / span, 1)

    def y(value: float) -> float:
        return round(_HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * (value - low) / (high - low), 1)

    warm = runs[min(int(len(runs) * WARM_UP), len(runs) - 1)]
    return {
        "width": _WIDTH,
        "height": _HEIGHT,
        "left": _LEFT,
        "right": _WIDTH - _RIGHT,
        "top": _TOP,
        "bottom": _HEIGHT - _BOTTOM,
        "path": " ".join(f"{x(run)},{y(value)}" for run, value in zip(runs, resident, strict=True)),
        "warm": x(warm),
        "ticks": [{"y": y(value), "label": size(value)} for value in (low, (low + high) / 2, high)],
        "first": runs[0],
        "last": runs[-1],
    }
