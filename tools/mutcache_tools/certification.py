"""Running the suite as a child process, and signing what it wrote."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mutcache_tools.output import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

    from mutcache_conformance.rerun import Sample

_SUITE = "mutcache_conformance.suite"
_PLUGIN = "mutcache_conformance.plugin"
_PYTEST_INTERRUPTED = 2
#: Exit code of a command that was interrupted.
INTERRUPTED = 130
#: Nonces and seeds are drawn below this.
_NONCES = 10**12


def draw_nonce() -> int:
    """A number that nobody can foresee; never 0, which is the nonce of the public corpus."""
    return 1 + secrets.randbelow(_NONCES - 1)


def run_suite(arguments: Sequence[str], *, workers: int = 1, quiet: bool = False) -> int:
    """Run pytest on the suite of this installation, whatever pytest settings lie around.

    Returns its exit code; if it was interrupted, ``INTERRUPTED``, and if it was killed, a number below 0.

    Args:
        arguments: options of the suite.
        workers: processes that run cases at once.
        quiet: send what pytest prints to standard error.
    """
    command = [sys.executable, "-m", "pytest", "-p", _PLUGIN, "-p", "no:cacheprovider", "-q", "-c", os.devnull]
    command += [f"--rootdir={Path.cwd()}", "-n", str(workers)] if workers > 1 else [f"--rootdir={Path.cwd()}"]
    command += [*arguments, "--pyargs", _SUITE]
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    # What this process can import, the adapter among it, the suite and its children can, too.
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    with subprocess.Popen(command, env=environment, stdout=sys.stderr if quiet else None) as suite:
        is_interrupted = False
        while True:
            try:
                code = suite.wait()
            except KeyboardInterrupt:  # pytest has it, too, and goes on to write the report of an interrupted run
                is_interrupted = True
            else:
                return INTERRUPTED if is_interrupted and code == _PYTEST_INTERRUPTED else code


def private_key(path: str | None) -> Ed25519PrivateKey | None:
    """The key in a PEM file, read before the suite is run in vain.

    Raises:
        UsageError: it is none, or the package for signatures is not installed.
    """
    if path is None:
        return None
    signing = _signing()
    try:
        key: Ed25519PrivateKey = signing.read_private_key(Path(path))
    except signing.KeyFileError as error:
        raise UsageError(str(error), "openssl genpkey -algorithm ed25519 -out key.pem") from None
    return key


def sign(folder: Path, key: Ed25519PrivateKey) -> None:
    """Sign the report of a folder."""
    _signing().sign(folder, key)


def outcome(folder: Path, *, signed: bool) -> dict[str, Any]:
    """What ``certify --format json`` says of the report that it wrote."""
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    return {
        "report": str(folder),
        "runtime": report["configuration"]["runtime"],
        "nonce": report["configuration"]["nonce"],
        "selection": report["claim"]["selection"],
        "profiles": report["claim"]["profiles"],
        "totals": report["totals"],
        "signed": signed,
    }


def public_key(path: str | None) -> Ed25519PublicKey | None:
    """The public key in a PEM file; raises as ``private_key``."""
    if path is None:
        return None
    signing = _signing()
    try:
        key: Ed25519PublicKey = signing.read_public_key(Path(path))
    except signing.KeyFileError as error:
        raise UsageError(str(error), "openssl pkey -in key.pem -pubout -out key.pub.pem") from None
    return key


def rerun(report: Mapping[str, Any], runtime: str, count: int, seed: int) -> Sample:
    """Run a sample of a report's cases again.

    Raises:
        UsageError: the runtime cannot be started.
    """
    from mutcache_conformance import rerun as reruns
    from mutcache_conformance.adapters import UnknownRuntime
    from mutcache_conformance.cases import generate
    from mutcache_conformance.runner import RuntimeUnavailable

    try:
        return reruns.rerun(report, generate(report["configuration"]["nonce"]), runtime, count, seed)
    except UnknownRuntime as error:
        raise UsageError(str(error)) from None
    except RuntimeUnavailable as error:
        raise UsageError(f"runtime {runtime!r} is unavailable: {error}") from None


def sample_document(sample: Sample) -> dict[str, Any]:
    """What ``verify --format json`` says of a rerun."""
    return {
        "seed": sample.seed,
        "cases": list(sample.cases),
        "differences": list(sample.differences),
        "notes": list(sample.notes),
    }


def _signing() -> Any:
    try:
        from mutcache_conformance import signing
    except ModuleNotFoundError as error:
        raise UsageError(f"signatures need the package {error.name}", "pip install 'mutcache[sign]'") from None
    return signing
