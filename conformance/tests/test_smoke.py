"""What is said of hosts that speak the protocol, and of those that do not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mutcache_conformance import smoke
from mutcache_conformance.adapters import command_of
from mutcache_conformance.smoke import Check, Outcome

_HERE = Path(__file__).parent
DESCRIBES = "describes itself"
PLAYS = "plays a case"


def said(folder: Path, *command: str, start_timeout: float = 10.0) -> list[Check]:
    return list(smoke.smoke(command, {}, folder, start_timeout=start_timeout))


def last_of(folder: Path, *command: str, start_timeout: float = 10.0) -> Check:
    """The last check, which all before it have led to."""
    *before, last = said(folder, *command, start_timeout=start_timeout)
    assert all(check.outcome is Outcome.OK for check in before)
    return last


def garbage(mode: str) -> list[str]:
    return [sys.executable, str(_HERE / "garbage_host.py"), mode]


def test_the_reference_speaks(tmp_path: Path) -> None:
    checks = said(tmp_path, *command_of("reference"))
    assert [check.outcome for check in checks] == [Outcome.OK] * 5
    assert checks[3].message == "dense-001/first-rows: load: ok, bind: ok, run: done, release: ok, unload: ok"
    assert "run: rejected" in checks[4].message


def test_what_is_no_program_does_not_start(tmp_path: Path) -> None:
    file = tmp_path / "host"
    file.write_text("#!/no/such/interpreter\n")
    file.chmod(0o755)
    check = last_of(tmp_path, str(file))
    assert (check.what, check.outcome) == ("starts", Outcome.WRONG)
    assert "interpreter" in check.hint


@pytest.mark.parametrize(
    ("mode", "message", "hint"),
    [
        ("exit", "it exited with status 3; its last words: no licence", "answer until it is told to stop"),
        ("segfault", "it was ended by SIGSEGV", "crashed before any model was loaded"),
        ("close-all", "it closed its socket", "must keep the socket"),
        ("half-a-line", "it exited with status 0", "must keep the socket"),
        ("text", "not JSON in UTF-8", "one line of strict JSON"),
        ("list", "no JSON object", "one JSON object on a line"),
        ("endless-line", "without the end of a line", "end each message with a line break"),
        ("unknown-id", "an answer to no open request", "repeat the id of the request"),
        ("text-id", "an answer to no open request", "repeat the id of the request"),
        ("wrong-form", "does not follow the schema: $.alignment", "docs/protocol.rst"),
        ("unknown-answer", "does not follow the schema", "docs/protocol.rst"),
        ("other-version", "it speaks version 2 of the protocol, not 1", "write the host for version 1"),
        ("colors", "it answered describe with error", "did not succeed"),
        ("twice", "an answer to no open request", "answer once"),
    ],
)
def test_each_way_in_which_a_host_does_not_describe_itself(tmp_path: Path, mode: str, message: str, hint: str) -> None:
    check = last_of(tmp_path, *garbage(mode))
    assert (check.what, check.outcome) == (DESCRIBES, Outcome.WRONG)
    assert message in check.message
    assert hint in check.hint
    if mode == "exit":
        assert check.log == ("no licence",)


def test_a_host_that_says_nothing(tmp_path: Path) -> None:
    check = last_of(tmp_path, "sleep", "60", start_timeout=0.3)
    assert "no answer to describe within 0.3 s" in check.message
    assert "must read lines from the socket" in check.hint
    assert "--start-timeout" in check.hint


def test_a_host_that_answers_on_standard_output(tmp_path: Path) -> None:
    program = 'import time; print(\'{"id": 1, "answer": "ok"}\', flush=True); time.sleep(60)'
    check = last_of(tmp_path, sys.executable, "-c", program, start_timeout=1.0)
    assert "it writes its answers to standard output" in check.hint


def test_an_adapter_that_cannot_be_imported(tmp_path: Path) -> None:
    check = last_of(tmp_path, *command_of("no_such_module:Adapter"))
    assert check.outcome is Outcome.WRONG
    assert "no_such_module" in "\n".join([check.message, *check.log])


def test_a_host_that_lives_on(tmp_path: Path) -> None:
    program = """
import json, os, socket, time
channel = socket.socket(fileno=int(os.environ["MUTCACHE_SOCKET"]))
about = {"answer": "ok", "protocol": 1, "runtime": {"name": "x", "version": "1"}, "checks": [], "alignment": 1,
         "adapter": {"name": "x", "version": "1"}, "capabilities": ["dtype:FLOAT8E5M3"], "concurrent_runs": False}
for line in channel.makefile("rb"):
    request = json.loads(line)
    answer = {"id": request["id"], **(about if request["op"] == "describe" else {"answer": "ok"})}
    channel.sendall(json.dumps(answer).encode() + b"\\n")
time.sleep(60)
"""
    checks = {check.what: check for check in said(tmp_path, sys.executable, "-c", program)}
    assert checks[DESCRIBES].outcome is Outcome.OK
    capability = checks["declares capabilities"]
    assert capability.outcome is Outcome.REMARK
    assert capability.hint.startswith("did you mean 'dtype:FLOAT8E5M2")
    stop = checks["ends when it is told to stop"]
    assert (stop.outcome, stop.message) == (Outcome.WRONG, "it still runs 2 s later")
    played = checks[PLAYS]
    assert played.outcome is Outcome.WRONG  # it answers bind with no addresses
    assert "does not follow the schema" in played.message
    assert "docs/protocol.rst" in played.hint


@pytest.mark.parametrize(
    ("runtime", "what", "outcome", "words"),
    [
        ("toy_runtime:Toy", "refuses an update that does not fit", Outcome.OK, "run: rejected"),
        ("toy_runtime:Clamping", "refuses an update that does not fit", Outcome.REMARK, "the suite will fail"),
        ("toy_runtime:Hanging", PLAYS, Outcome.WRONG, "no answer to run within 3 s"),
        ("toy_runtime:Optioned", PLAYS, Outcome.WRONG, "a refusal is answered with rejected"),
    ],
)
def test_toys(tmp_path: Path, runtime: str, what: str, outcome: Outcome, words: str) -> None:
    last = last_of(tmp_path, *command_of(runtime))
    assert (last.what, last.outcome) == (what, outcome)
    assert words in f"{last.message} {last.hint}"


def test_the_cases_are_in_the_suite() -> None:
    from mutcache_conformance import cases

    corpus = {case.id: case for case in cases.generate()}
    assert not corpus[smoke.ACCEPTED].is_negative
    assert corpus[smoke.REFUSED].is_negative
    assert not corpus[smoke.ACCEPTED].needs | corpus[smoke.REFUSED].needs
