"""The child process: whatever it does, the harness says what it was, waits no longer than it must, and cleans up."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from mutcache_conformance.adapters import UnknownRuntime, command_of
from mutcache_conformance.child import LOG_BYTES, Child, ChildGone, ChildTimeout
from mutcache_conformance.protocol import ProtocolError

GARBAGE = [sys.executable, str(Path(__file__).with_name("garbage_host.py"))]


@pytest.fixture
def started() -> Iterator[list[Child]]:
    """Children to end after the test; no process of theirs may be left then."""
    children: list[Child] = []
    yield children
    for child in children:
        child.kill()
        assert not _stays(partial(_is_group_running, child.pid))


def start(started: list[Child], folder: Path, *command: str) -> Child:
    started.append(Child(command, log=folder / "logs" / "main-1"))
    return started[-1]


@pytest.mark.parametrize(
    ("mode", "error", "words"),
    [
        ("text", ProtocolError, "not JSON: 'hello'"),
        ("list", ProtocolError, "no JSON object"),
        ("deep", ProtocolError, "not JSON"),
        ("unknown-id", ProtocolError, "no open request"),
        ("wrong-form", ProtocolError, "alignment: 3 is not one of"),
        ("other-version", ProtocolError, "speaks version 2"),
        ("endless-line", ProtocolError, "without the end of a line"),
        ("exit", ChildGone, "exited with status 3; its last words: no licence"),
        ("hang-up", ChildGone, "closed its socket"),
        ("orphan", ChildGone, "exited with status 4"),
        ("deaf", ChildTimeout, "no answer to describe within 0.5 s"),
    ],
)
def test_what_a_broken_child_does_is_named(
    started: list[Child], tmp_path: Path, mode: str, error: type[Exception], words: str
) -> None:
    child = start(started, tmp_path, *GARBAGE, mode)
    with pytest.raises(error, match=words):
        child.describe({}, timeout=0.5 if mode == "deaf" else 20)


def test_an_answer_too_many_is_found_with_the_next_request(started: list[Child], tmp_path: Path) -> None:
    child = start(started, tmp_path, *GARBAGE, "twice")
    assert child.describe({}, timeout=20).runtime == "garbage"
    with pytest.raises(ProtocolError, match="no open request"):
        child.call("stop", timeout=20)


def test_a_command_that_cannot_be_started(tmp_path: Path) -> None:
    with pytest.raises(ChildGone, match="cannot start '/nonexistent/host'"):
        Child(["/nonexistent/host"], log=tmp_path / "log")


def test_the_logs_keep_the_beginning_of_a_flood(started: list[Child], tmp_path: Path) -> None:
    program = textwrap.dedent(f"""
        import sys
        sys.stdout.write("first words" + "." * {2 * LOG_BYTES})
        sys.stderr.write("last words\\n")
    """)
    child = start(started, tmp_path, sys.executable, "-c", program)
    with pytest.raises(ChildGone, match="exited with status 0; its last words: last words"):
        child.call("stop", timeout=20)
    text = (tmp_path / "logs" / "main-1.stdout.txt").read_text()
    assert text.startswith("first words...")
    assert text.endswith(f"[{LOG_BYTES + len('first words')} bytes more were dropped]\n")
    assert (tmp_path / "logs" / "main-1.stderr.txt").read_text() == "last words\n"


def test_a_silent_child_leaves_no_logs(started: list[Child], tmp_path: Path) -> None:
    child = start(started, tmp_path, *command_of("toy_runtime:Toy"))
    child.describe({}, timeout=20)
    child.stop()
    assert not child.is_alive
    assert not (tmp_path / "logs").exists()


def test_a_run_can_be_seen_to_have_started(started: list[Child], tmp_path: Path) -> None:
    # The protocol's answers, without a model: the request is refused by the host, and so never starts.
    child = start(started, tmp_path, *command_of("toy_runtime:Toy"))
    child.describe({}, timeout=20)
    number = child.send("run", timeout=20, session="s1", binding="", feeds={})
    assert child.has_started(number, timeout=20)
    answer = child.wait(number, timeout=20)
    assert (answer.kind, answer.succeeded) == ("error", False)
    assert "no session 's1'" in str(answer)


def test_nothing_is_left_when_the_harness_is_killed(tmp_path: Path) -> None:
    # The harness dies by SIGKILL while its child hangs in the runtime.
    program = textwrap.dedent(f"""
        import sys, threading
        from pathlib import Path
        from mutcache_conformance.adapters import command_of
        from mutcache_conformance.child import Child
        child = Child(command_of("toy_runtime:Sleeping"), log=Path({str(tmp_path)!r}) / "log")
        print(child.pid, flush=True)
        child.send("describe", timeout=5, protocol=1, options={{}})
        threading.Event().wait()
    """)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=environment) as harness:
        assert harness.stdout is not None
        pid = int(harness.stdout.readline())
        assert not _stays(lambda: not _is_asleep(tmp_path))
        harness.kill()
    assert not _stays(partial(_is_group_running, pid))


def _is_asleep(folder: Path) -> bool:
    log = folder / "log.stdout.txt"
    return log.is_file() and "asleep" in log.read_text()


def _stays(is_unsettled: Callable[[], bool]) -> bool:
    """Whether something is still so after it had time to change."""
    deadline = time.monotonic() + 20
    while is_unsettled() and time.monotonic() < deadline:
        time.sleep(0.02)
    return is_unsettled()


def _is_group_running(group: int) -> bool:
    """Whether a process of the group runs; one that is dead and not waited for does not."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, process_group = path.read_text().rpartition(")")[2].split()[:3]
            if int(process_group) == group and state != "Z":
                return True
    return False


@pytest.mark.parametrize("runtime", ["nonsense", "module:", ":Class", "a b:C", "cmd:", "cmd:./no-such-host", "cmd:'"])
def test_a_runtime_that_cannot_be(runtime: str) -> None:
    with pytest.raises(UnknownRuntime, match="--runtime"):
        command_of(runtime)


def test_a_command_line_is_split_like_a_shell_does() -> None:
    assert command_of("cmd:/bin/sh -c 'exit 3'") == ["/bin/sh", "-c", "exit 3"]
