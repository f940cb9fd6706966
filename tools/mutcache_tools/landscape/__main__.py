"""``python -m mutcache_tools.landscape [NAME ...]``: measure the runtimes that are installed."""

from __future__ import annotations

import argparse
import datetime
import importlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from mutcache_tools.generate import ROOT
from mutcache_tools.landscape import RUNTIMES, Runtime, results
from mutcache_tools.landscape.probing import Observation

#: What the suite ends with when a runtime is conformant, and when it is not; anything else is no result.
_FINISHED: Final = (0, 1)


def main(arguments: list[str] | None = None) -> int:
    """Measure, and commit the results to ``docs/landscape/``; returns the exit code."""
    known = {runtime.name: runtime for runtime in RUNTIMES}
    parser = argparse.ArgumentParser(prog="python -m mutcache_tools.landscape", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"runtimes to measure: {', '.join(known)}")
    parser.add_argument(
        "--probes", action="store_true", help="run the probes only; the suite's results stay as they are"
    )
    options = parser.parse_args(arguments)
    if unknown := sorted(set(options.names) - set(known)):
        parser.error(f"unknown runtime {', '.join(unknown)}; choose from {', '.join(known)}")
    for name in options.names or known:
        if missing := known[name].missing():
            print(f"{name}: skipped, {missing} is not installed; its committed results stay as they are")
            continue
        print(f"{name}: measuring ...", flush=True)
        try:
            found = _probe(known[name]) if options.probes else _measure(known[name])
        except RuntimeError as error:
            print(f"{name}: {error}", file=sys.stderr)
            return 1
        results.write(name, found, ROOT)
    return 0


def _observe(runtime: Runtime) -> list[Observation]:
    if not runtime.probes:
        return []
    return list(importlib.import_module(f"mutcache_tools.landscape.{runtime.probes}").observations())


def _probe(runtime: Runtime) -> dict[str, Any]:
    known = results.read(runtime.name, ROOT)
    if known is None or known["measured"]["versions"] != runtime.versions():
        raise RuntimeError("its committed results are of other versions, or there are none: run the suite, too")
    return {**known, "observations": [observation.to_json() for observation in _observe(runtime)]}


def _measure(runtime: Runtime) -> dict[str, Any]:
    observations = _observe(runtime)
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    return results.condense(runtime, _run_suite(runtime), observations, date=date)


def _run_suite(runtime: Runtime) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="mutcache-landscape-") as folder:
        command = [sys.executable, "-m", "pytest", "conformance", f"--runtime={runtime.name}", f"--report={folder}"]
        command += ["-q", "-n", "2", "--dist", "load", "-p", "no:cacheprovider"]
        command += [f"--runtime-option={key}={value}" for key, value in runtime.options.items()]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, errors="replace", check=False)
        path = Path(folder) / "report.json"
        if done.returncode not in _FINISHED or not path.is_file():
            raise RuntimeError(f"the suite ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        report: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return report


if __name__ == "__main__":
    sys.exit(main())
