"""``python -m mutcache_cupy.device_check``: everything that only a device can show, in one run of five minutes at most.

Parts, each in a process of its own with a limit of time, so that a kernel that hangs or crashes ends its part alone:
what the device is (``device``), bytes equal to the canonical codec's (``equality``), a session with its caches on the
device (``session``), rates against a device copy in the same run (``benchmark``), the conformance suite through the
``cupy`` adapter (``suite``), and NVIDIA's compute-sanitizer over the equality part where it is installed
(``sanitizer``). Results go to a JSON file, after every part, and a table. Exit status: 0 everything that ran is right,
1 something is wrong or did not end, 2 there is no device.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from mutcache_cupy.benchmark import benchmark
from mutcache_cupy.connect import connect
from mutcache_cupy.device import Device, DeviceUnavailable
from mutcache_cupy.equality import equality
from mutcache_cupy.nvrtc import cubin_file, nvrtc
from mutcache_cupy.session_check import check_session
from mutcache_cupy.sources import UNITS
from mutcache_cupy.supervision import read, seldom, supervise, write

#: Seconds that all parts may take together, and each of them.
BUDGET: Final = 300.0
LIMITS: Final = {
    "device": 60.0,
    "equality": 60.0,
    "session": 30.0,
    "benchmark": 60.0,
    "suite": 150.0,
    "sanitizer": 90.0,
}
PARTS: Final = tuple(LIMITS)
#: Seconds under which no part is begun, and that the benchmark keeps for its end.
_LEAST: Final = 5.0
_WORKERS: Final = 8
#: Statuses of cases that speak against the kernels or the adapter, and how much of a reason is told.
_WRONG: Final = frozenset({"fail", "crash", "timeout", "harness-error"})
_REASON: Final = 400


def part_of(device: Device, name: str, *, small: bool = False) -> Iterator[dict[str, Any]]:
    """A part that this process runs itself, told again and again as far as it has come.

    Args:
        device: the device.
        name: ``device``, ``equality``, ``session`` or ``benchmark``.
        small: small sizes, for tests and the sanitizer.
    """
    match name:
        case "device":
            yield facts(device)
        case "equality":
            yield from equality(device, small=small)
        case "session":
            yield from check_session(device)
        case "benchmark":
            for found in benchmark(device, small=small, seconds=LIMITS["benchmark"] - _LEAST):
                yield found
            yield found | {"clocks": clocks()}  # of a device that has just worked


def facts(device: Device) -> dict[str, Any]:
    """What the results are of; everything is compiled for it."""
    package = getattr(device, "cupy", None)
    found: dict[str, Any] = {"name": device.name, "python": sys.version.split()[0]}
    if package is None:
        return found
    start = time.monotonic()
    architecture = getattr(device, "architecture", "")
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda unit: cubin_file(unit, architecture), UNITS))
    runtime = package.cuda.runtime
    return found | {
        "architecture": architecture,
        "memory_bytes": runtime.memGetInfo()[1],
        "driver_cuda": _version(runtime.driverGetVersion()),
        "runtime_cuda": _version(runtime.runtimeGetVersion()),
        "cupy": package.__version__,
        "nvrtc": nvrtc().version,
        "compiled_seconds": round(time.monotonic() - start, 1),
        "clocks": clocks(),
    }


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def clocks() -> str:
    """Driver, clocks and temperature as nvidia-smi tells them, or why it does not."""
    if shutil.which("nvidia-smi") is None:
        return "nvidia-smi is not installed"
    wanted = "driver_version,clocks.sm,clocks.max.sm,clocks.mem,temperature.gpu,power.draw"
    found = supervise(["nvidia-smi", f"--query-gpu={wanted}", "--format=csv"], 10)
    return str(found["output"].strip())


def run_parts(
    parts: Sequence[str],
    run_part: Callable[[str, float], dict[str, Any]],
    report: Callable[[dict[str, Any]], None],
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, Any]:
    """Run parts in their order, each within its limit and what is left of the budget.

    Args:
        parts: some of PARTS.
        run_part: runs one, given its name and its seconds.
        report: called with the results so far after each.
        clock: seconds.

    Returns:
        A member for each part, ``seconds``, and ``is_right``. What no time is left for is told as such, not as right.
    """
    start, results = clock(), dict[str, Any]()
    for part in (one for one in PARTS if one in parts):
        left = BUDGET - (clock() - start)
        results[part] = run_part(part, min(left, LIMITS[part])) if left > _LEAST else {"skipped": "no time left"}
        results["seconds"] = round(clock() - start, 1)
        results["is_right"] = all(one.get("is_right", True) for name, one in results.items() if name in PARTS)
        report(results)
        if "unavailable" in results[part]:
            break
    return results


def run_apart(part: str, seconds: float, *, device: str, small: bool) -> dict[str, Any]:
    """Run a part in a process of its own, and find what it has told when it ends, or is ended."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "results.json"
        ended = supervise(_command(part, device=device, small=small, path=path), seconds)
        found: dict[str, Any] = read(path).get(part, {})
    if ended.get("exit") == 2:
        return {"unavailable": ended["output"].strip(), "is_right": False}
    return found if ended.get("exit") == 0 else found | ended | {"is_right": False}


def _command(part: str, *, device: str, small: bool, path: Path) -> list[str]:
    command = [sys.executable, "-m", "mutcache_cupy.device_check", "--here", "--part", part]
    return [*command, "--device", device, "--json", str(path), *(["--small"] if small else [])]


def sanitize(seconds: float, *, device: str = "cuda") -> dict[str, Any]:
    """The equality part under compute-sanitizer, small and without CuPy's pool, whose memory has no ends."""
    tool = shutil.which("compute-sanitizer")
    if tool is None:
        return {"skipped": "compute-sanitizer is not installed"}
    found: dict[str, Any] = {"is_right": True}
    with tempfile.TemporaryDirectory() as folder:
        command = _command("equality", device=device, small=True, path=Path(folder) / "results.json")
        for check in ("memcheck", "initcheck", "synccheck", "racecheck"):
            options = ["--tool", check, "--error-exitcode", "9"]
            found[check] = supervise([tool, *options, *command, "--unpooled"], seconds / 2)
            found["is_right"] &= found[check].get("exit", 0) == 0
            seconds -= found[check]["seconds"]
    return found


def run_suite(seconds: float, *, device: str = "cuda") -> dict[str, Any]:
    """The conformance suite with ``--runtime=cupy``: how many cases ended how, and the verdict on each profile."""
    workers = max(1, min(_WORKERS, (os.cpu_count() or 1) // 2))
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "mutcache_tools", "certify", "--runtime", "cupy", "--nonce", "0"]
        command += ["--workers", str(workers), "--out", folder]
        found = supervise(command + (["--runtime-option", "device=host"] if device == "host" else []), seconds)
        report = read(Path(folder) / "report.json")
    if not report:  # it did not come to an end, or could not begin
        return found | {"is_right": False}
    totals = {status: count for status, count in report["totals"].items() if count}
    profiles = {one["profile"]: one["verdict"] for one in report["claim"]["profiles"]}
    wrong = [one for one in report["results"] if one["status"] in _WRONG]
    wrong = [f"{one['case']}: {' '.join(one['reason'].split())}"[:_REASON] for one in wrong]
    return {"totals": totals, "profiles": profiles, "wrong": wrong, "is_right": not wrong}


def table(results: dict[str, Any]) -> str:
    """The results for people."""
    device = results.get("device", {})
    lines = [f"{device.get('name', 'device')}, {results['seconds']} s"]
    lines += [f"  {name}: {fact}" for name, fact in device.items() if name != "name"]
    for part in (one for one in PARTS[1:] if one in results):
        found = results[part]
        state = found.get("skipped") or ("right" if found.get("is_right", True) else "WRONG")
        counts = [f"{found[key]} {key}" for key in ("checked", "refused") if key in found]
        counts += [f"{count} {status}" for status, count in found.get("totals", {}).items()]
        lines.append(f"{part}: {', '.join([state, *counts])}")
        lines += [f"  wrong: {name}" for name in found.get("wrong", ())]
        for name, one in [("", found), *((name, one) for name, one in found.items() if isinstance(one, dict))]:
            if "output" in one:  # of a command, where something is wrong with it
                state = one.get("skipped") or f"exit status {one['exit']}"
                lines += [f"  {name or part}: {state}", *(f"    {line}" for line in one["output"].splitlines()[-10:])]
    rows = results.get("benchmark", {}).get("rows", ())
    if rows:
        lines.append(f"{'':<42}{'us':>10}{'spread':>8}{'share':>8}{'ratio':>8}{'expected':>10}{'goal':>7}")
    for row in rows:
        cells = [f"{row['name']:<42}{row['microseconds']:>10.2f}{row['spread']:>8.2f}"]
        for key, width in (("share", 8), ("ratio", 8), ("predicted", 10), ("goal", 7)):
            cells.append(f"{row[key]:>{width}.2f}" if key in row else " " * width)
        cells.append({True: " met", False: " MISSED", None: ""}[row.get("is_met")])
        lines.append("".join(cells).rstrip())
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    description = (__doc__ or "").split("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m mutcache_cupy.device_check", description=description)
    parser.add_argument("--part", action="append", choices=PARTS, help="only this part; may be repeated")
    parser.add_argument("--small", action="store_true", help="small sizes, no figures of use")
    parser.add_argument("--json", type=Path, help="where to write the results")
    parser.add_argument("--device", default="cuda", choices=("cuda", "host"), help="host: the CPU, to try the script")
    parser.add_argument("--here", action="store_true", help="run one part in this process, without a limit of time")
    parser.add_argument("--unpooled", action="store_true", help="allocate memory of CUDA, not of CuPy's pool")
    options = parser.parse_args(arguments)
    if options.here:
        return _run_here(options)

    def run_part(part: str, seconds: float) -> dict[str, Any]:
        if part == "suite":
            return run_suite(seconds, device=options.device)
        if part == "sanitizer":
            return sanitize(seconds, device=options.device)
        return run_apart(part, seconds, device=options.device, small=options.small)

    def report(results: dict[str, Any]) -> None:
        if options.json is not None:
            write(options.json, results)

    results = run_parts(["device", *(options.part or PARTS)], run_part, report)
    if "unavailable" in results["device"]:
        print(results["device"]["unavailable"], file=sys.stderr)
        return 2
    print(table(results))
    return 0 if results["is_right"] else 1


def _run_here(options: argparse.Namespace) -> int:
    try:
        device = connect(options.device)
    except DeviceUnavailable as error:
        print(f"device_check: {error}", file=sys.stderr)
        return 2
    if options.unpooled and hasattr(device, "cupy"):
        device.cupy.cuda.set_allocator(None)
    (part,) = options.part
    found = dict[str, Any]()

    def report() -> None:
        if options.json is not None:
            write(options.json, {part: found})

    report_seldom = seldom(report)
    for found in part_of(device, part, small=options.small):  # noqa: B007 - ``report`` uses it
        report_seldom()
    report()
    if options.json is None:
        print(json.dumps(found, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
