"""``python -m mutcache_cupy.device_check``: everything that only a device can show, in one run of a few minutes.

Parts, each with a limit of its own: bytes equal to the canonical codec's (``equality``), the conformance suite through
the ``cupy`` adapter (``suite``), NVIDIA's compute-sanitizer over the equality part where it is installed
(``sanitizer``), and rates against a device copy in the same run (``benchmark``). Results go to a JSON file and a table.
Exit status: 0 everything that ran is right, 1 something is wrong, 2 there is no device.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from mutcache_cupy.benchmark import benchmark
from mutcache_cupy.connect import connect
from mutcache_cupy.device import Device, DeviceUnavailable
from mutcache_cupy.equality import check_equality

#: Seconds that the parts may take together, and each of those that run as processes.
BUDGET: Final = 300
_SUITE_LIMIT: Final = 120
_SANITIZER_LIMIT: Final = 60
PARTS: Final = ("equality", "benchmark", "sanitizer", "suite")


def run(
    device: Device, parts: Sequence[str], *, small: bool = False, clock: Callable[[], float] = time.monotonic
) -> dict[str, Any]:
    """Run parts in their order; what no time is left for is told as such, not as right.

    Args:
        device: the device.
        parts: some of PARTS.
        small: small sizes, for tests and the sanitizer.
        clock: seconds.

    Returns:
        ``device``, ``seconds``, ``is_right``, and a member for each part.
    """
    start = clock()
    results: dict[str, Any] = {"device": device.name}
    actions: dict[str, Callable[[], dict[str, Any]]] = {
        "equality": lambda: check_equality(device, small=small),
        "benchmark": lambda: benchmark(device, small=small, seconds=max(1.0, BUDGET / 3)),
        "sanitizer": lambda: sanitize(BUDGET - (clock() - start)),
        "suite": lambda: run_suite(BUDGET - (clock() - start)),
    }
    for part in PARTS:
        if part in parts:
            results[part] = actions[part]() if clock() - start < BUDGET else {"skipped": "no time left"}
    results["seconds"] = round(clock() - start, 1)
    results["is_right"] = all(results[part].get("is_right", True) for part in parts)
    return results


def sanitize(seconds: float) -> dict[str, Any]:
    """The equality part under compute-sanitizer, small: memory errors and races."""
    tool = shutil.which("compute-sanitizer")
    if tool is None:
        return {"skipped": "compute-sanitizer is not installed"}
    found: dict[str, Any] = {"is_right": True}
    for check in ("memcheck", "racecheck"):
        command = [tool, "--tool", check, "--error-exitcode", "9", sys.executable, "-m", "mutcache_cupy.device_check"]
        found[check] = _call([*command, "--part", "equality", "--small"], min(seconds / 2, _SANITIZER_LIMIT))
        found["is_right"] &= found[check].get("exit", 0) == 0
    return found


def run_suite(seconds: float) -> dict[str, Any]:
    """The conformance suite with ``--runtime=cupy``; its verdicts stand in its own report."""
    command = [sys.executable, "-m", "mutcache_tools", "certify", "--runtime", "cupy"]
    found = _call(command, min(seconds, _SUITE_LIMIT))
    return found | {"is_right": found.get("exit", 0) in (0, 1)}  # 1: not conformant, which the report explains


def _call(command: list[str], seconds: float) -> dict[str, Any]:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=max(seconds, 1), check=False)
    except subprocess.TimeoutExpired:
        return {"skipped": f"not finished within {seconds:.0f} s"}
    return {"exit": done.returncode, "output": (done.stdout + done.stderr)[-2000:]}


def table(results: dict[str, Any]) -> str:
    """The results for people."""
    lines = [f"{results['device']}, {results['seconds']} s"]
    equality = results.get("equality", {})
    if equality:
        lines.append(f"equality: {equality['checked']} checks, {len(equality['wrong'])} wrong")
        lines += [f"  wrong: {name}" for name in equality["wrong"]]
    for part in ("sanitizer", "suite"):
        if part in results:
            found = results[part]
            state = found.get("skipped") or ("right" if found.get("is_right") else "wrong")
            lines.append(f"{part}: {state}")
    for row in results.get("benchmark", {}).get("rows", ()):
        share = f"{row['share']:.2f} of a device copy" if "share" in row else ""
        ratio = f"{row['ratio']:.2f} x an empty kernel" if "ratio" in row else ""
        goal = f", goal {row['goal']:.2f}" if "goal" in row else ""
        lines.append(f"{row['name']:<36} {row['microseconds']:>10.2f} us  {share}{ratio}{goal}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    description = (__doc__ or "").split("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m mutcache_cupy.device_check", description=description)
    parser.add_argument("--part", action="append", choices=PARTS, help="only this part; may be repeated")
    parser.add_argument("--small", action="store_true", help="small sizes, no figures of use")
    parser.add_argument("--json", type=Path, help="where to write the results")
    parser.add_argument("--device", default="cuda", choices=("cuda", "host"), help="host: the CPU, to try the script")
    options = parser.parse_args(arguments)
    try:
        device = connect(options.device)
    except DeviceUnavailable as error:
        print(f"device_check: {error}", file=sys.stderr)
        return 2
    results = run(device, options.part or PARTS, small=options.small)
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    print(table(results))
    return 0 if results["is_right"] else 1


if __name__ == "__main__":
    sys.exit(main())
