"""The commands that make a report again, or check it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from mutcache.requirements import Profile
from mutcache_conformance.options import CASE_TIMEOUT, STEP_TIMEOUT


def commands(configuration: Mapping[str, Any], profiles: Iterable[Profile]) -> dict[str, str]:
    """The commands for the shell, in which ``REPORT`` stands for a report folder.

    Args:
        configuration: the report's member of that name.
        profiles: the claimed profiles.
    """
    runtime = [f"--runtime={configuration['runtime']}"]
    runtime += [f"--runtime-option={key}={value}" for key, value in configuration["options"].items()]
    run = ["mutcache", "certify", *runtime, f"--nonce={configuration['nonce']}"]
    run += [f"--profiles={','.join(profile.value for profile in profiles)}"]
    if configuration["step_timeout"] != STEP_TIMEOUT:
        run.append(f"--step-timeout={configuration['step_timeout']:g}")
    if configuration["case_timeout"] != CASE_TIMEOUT:
        run.append(f"--case-timeout={configuration['case_timeout']:g}")
    if configuration["shard"] != "1/1":
        run.append(f"--shard={configuration['shard']}")
    if configuration.get("order", "suite") != "suite":
        run.append(f"--case-order={configuration['order']}")
    return {
        "run": shlex.join([*run, "--out=REPORT"]),
        "verify": "mutcache verify REPORT",
        "rerun": shlex.join(["mutcache", "verify", "REPORT", "--rerun=20", *runtime]),
    }
