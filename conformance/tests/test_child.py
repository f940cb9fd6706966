"""The child process: whatever it does, the harness says what it was, waits no longer than it must, and cleans up."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from mutcache_conformance.adapters import UnknownRuntime, command_of
from mutcache_conformance.child import Child, ChildGone, ChildTimeout
from mutcache_conformance.log import HEAD_BYTES, TAIL_BYTES
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
        ("text", ProtocolError, "not JSON in UTF-8 .*: 'hello'"),
        ("empty", ProtocolError, "not JSON in UTF-8 .*: ''"),
        ("list", ProtocolError, "no JSON object"),
        ("deep", ProtocolError, "not JSON in UTF-8"),
        ("nested", ProtocolError, "nested too deeply"),
        ("latin-1", ProtocolError, "not JSON in UTF-8"),
        ("utf-16", ProtocolError, "not JSON in UTF-8"),
        ("half-character", ProtocolError, "not JSON in UTF-8"),
        ("not-a-number", ProtocolError, "NaN is no JSON number"),
        ("two-ids", ProtocolError, "a name comes twice"),
        ("huge-number", ProtocolError, "not JSON in UTF-8"),
        ("true-id", ProtocolError, "the answer to describe does not follow the schema"),
        ("text-id", ProtocolError, "no open request"),
        ("no-id", ProtocolError, "no open request"),
        ("unknown-answer", ProtocolError, "the answer to describe does not follow the schema"),
        (
            "colors",
            ProtocolError,
            "answered describe with error: \N{REPLACEMENT CHARACTER}.31mred\N{REPLACEMENT CHARACTER}$",
        ),
        ("unknown-id", ProtocolError, "no open request"),
        ("wrong-form", ProtocolError, "alignment: 3 is not one of"),
        ("other-version", ProtocolError, "speaks version 2"),
        ("endless-line", ProtocolError, "without the end of a line"),
        ("half-a-line", ChildGone, "exited with status 0"),
        ("exit", ChildGone, "exited with status 3; its last words: no licence"),
        ("close-all", ChildGone, "closed its socket"),
        ("orphan", ChildGone, "exited with status 4"),
        ("segfault", ChildGone, "ended by SIGSEGV"),
        ("out-of-memory", ChildGone, "ended by SIGKILL.*memory"),
        ("kill-parent", ChildGone, "ended by SIGKILL"),
        ("deaf", ChildTimeout, "no answer to describe within 0.3 s"),
        ("drip", ChildTimeout, "no answer to describe within 0.3 s"),
        ("stop", ChildTimeout, "no answer to describe within 0.3 s"),
    ],
)
def test_what_a_broken_child_does_is_named(
    started: list[Child], tmp_path: Path, mode: str, error: type[Exception], words: str
) -> None:
    child = start(started, tmp_path, *GARBAGE, mode)
    with pytest.raises(error, match=words):
        child.describe({}, timeout=0.3 if error is ChildTimeout else 20)


def test_who_is_under_test_is_told_in_one_line(started: list[Child], tmp_path: Path) -> None:
    about = start(started, tmp_path, *GARBAGE, "lines").describe({}, timeout=20)
    assert about.runtime == "a dense  conformant"
    assert about.runtime_version == "1 \N{REPLACEMENT CHARACTER}"
    assert about.checks == ("x y",)


def test_an_answer_that_comes_late_is_not_taken_for_another(started: list[Child], tmp_path: Path) -> None:
    child = start(started, tmp_path, *GARBAGE, "swapped")
    first = child.send("describe", timeout=20, protocol=1, options={})
    with pytest.raises(ChildTimeout):
        child.wait(first, timeout=0.1)
    assert child.call("unload", timeout=20, session="s1").body == {"id": 2, "answer": "ok"}
    assert child.wait(first, timeout=20).body["runtime"]["name"] == "garbage"


def test_descriptors_beside_an_answer_are_not_received(started: list[Child], tmp_path: Path) -> None:
    child = start(started, tmp_path, *GARBAGE, "descriptors")
    before = len(list(Path("/proc/self/fd").iterdir()))
    assert child.describe({}, timeout=20).runtime == "garbage"
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize("mode", ["daemon", "daemon-of-a-killed-harness"])
def test_no_descendant_stays(started: list[Child], tmp_path: Path, mode: str) -> None:
    token = f"mutcache-test-{os.getpid()}-{time.monotonic_ns()}"
    if mode == "daemon":
        child = start(started, tmp_path, *GARBAGE, "daemon", token)
        child.describe({}, timeout=20)
        assert not _stays(lambda: not _commands_with(token))
        child.kill()
    else:
        program = f"""
from pathlib import Path
from mutcache_conformance.child import Child
child = Child({[*GARBAGE, "daemon", token]!r}, log=Path({str(tmp_path)!r}) / "log")
child.describe({{}}, timeout=20)
print(child.pid, flush=True)
input()
"""
        with _harness(program) as harness:
            assert harness.stdout is not None
            assert int(harness.stdout.readline())
            assert not _stays(lambda: not _commands_with(token))
            harness.kill()
    assert not _stays(lambda: bool(_commands_with(token)))


def test_an_answer_too_many_is_found_with_the_next_request(started: list[Child], tmp_path: Path) -> None:
    child = start(started, tmp_path, *GARBAGE, "twice")
    assert child.describe({}, timeout=20).runtime == "garbage"
    with pytest.raises(ProtocolError, match="no open request"):
        child.call("stop", timeout=20)


def test_a_command_that_cannot_be_started(tmp_path: Path) -> None:
    with pytest.raises(ChildGone, match="cannot start '/nonexistent/host'"):
        Child(["/nonexistent/host"], log=tmp_path / "log")


@pytest.mark.parametrize("nbytes", [100, HEAD_BYTES, HEAD_BYTES + TAIL_BYTES, 4 << 20])
def test_the_logs_keep_the_beginning_and_the_end_of_a_flood(started: list[Child], tmp_path: Path, nbytes: int) -> None:
    program = textwrap.dedent(f"""
        import sys
        sys.stdout.write(("first words" + "." * {nbytes})[: {nbytes} - 4] + "end\\n")
        sys.stderr.write("last words\\n")
    """)
    child = start(started, tmp_path, sys.executable, "-c", program)
    with pytest.raises(ChildGone, match="exited with status 0; its last words: last words"):
        child.call("stop", timeout=20)
    text = (tmp_path / "logs" / "main-1.stdout.txt").read_text()
    assert text.startswith("first words...")
    assert text.endswith("...end\n")
    left_out = nbytes - HEAD_BYTES - TAIL_BYTES
    note = f"\n[{left_out} bytes are left out here]\n" if left_out > 0 else ""
    assert note in text
    assert len(text) == min(nbytes, HEAD_BYTES + TAIL_BYTES) + len(note)
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


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_when_the_harness_is_killed(tmp_path: Path, number: signal.Signals) -> None:
    # The harness dies in the middle of a case, with memory lent to a child that hangs in the runtime.
    (tmp_path / "tmp").mkdir()
    shared = set(Path("/dev/shm").iterdir()) if Path("/dev/shm").is_dir() else set()
    program = f"""
from pathlib import Path
import toy_cases
from mutcache_conformance.adapters import command_of
from mutcache_conformance.runner import Configuration, Runner
configuration = Configuration(command_of("toy_runtime:Hanging"), Path({str(tmp_path)!r}))
with Runner(configuration, toy_cases.CASES) as runner:
    runner.describe()
    print(runner._child.pid, flush=True)
    runner.run(toy_cases.VALID)
"""
    with _harness(program, TMPDIR=str(tmp_path / "tmp")) as harness:
        assert harness.stdout is not None
        pid = int(harness.stdout.readline())
        assert not _stays(lambda: not _is_asleep(tmp_path))
        harness.send_signal(number)
    assert not _stays(partial(_is_group_running, pid))
    assert list((tmp_path / "tmp").iterdir()) == []
    assert not shared or set(Path("/dev/shm").iterdir()) <= shared


def _harness(program: str, **variables: str) -> subprocess.Popen[bytes]:
    """A harness in a process of its own, to be killed."""
    return subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **variables},
    )


def _commands_with(token: str) -> list[int]:
    """The processes that have a word in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().split(b"\0")
            if words[-2:-1] == [token.encode()] and words[1] == b"-c":
                found.append(int(path.parent.name))
    return found


def _is_asleep(folder: Path) -> bool:
    log = folder / "logs" / "main-1.stdout.txt"
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
