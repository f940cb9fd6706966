"""Whether an adapter speaks the protocol, in seconds: started, asked who it is, stopped, and given two small cases.

It says nothing of conformance: a runtime that speaks well may still do everything wrong.
"""

from __future__ import annotations

import difflib
import enum
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mutcache.proto.onnx_ml import TensorProto
from mutcache_conformance import cases
from mutcache_conformance.adapter import DEVICE_MEMORY, Description
from mutcache_conformance.case import Case
from mutcache_conformance.child import Child, ChildGone, ChildTimeout, otherwise
from mutcache_conformance.protocol import SOCKET_VARIABLE, VERSION, ProtocolError
from mutcache_conformance.runner import Configuration, Runner, RuntimeUnavailable
from mutcache_conformance.status import CaseResult, Status

#: Seconds to start and describe itself, for each answer, for each case, and to end once it is told to.
START_TIMEOUT: Final = 10.0
STEP_TIMEOUT: Final = 3.0
_CASE_TIMEOUT: Final = 6.0
_STOP_TIMEOUT: Final = 2.0
_PULSE: Final = 0.02
#: A case in which everything must succeed, and one in which a run must be refused.
ACCEPTED: Final = "dense-001/first-rows"
REFUSED: Final = "dense-003/by-one"
#: Lines of stderr that are shown of a host that went wrong.
_LINES: Final = 12


class Outcome(enum.StrEnum):
    """What is said of one thing that was tried."""

    OK = "ok"
    #: The protocol allows it; the suite will have more to say.
    REMARK = "remark"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was tried.

    Attributes:
        what: what the host has to do.
        outcome: whether it does.
        message: what it did.
        hint: what to do about it.
        log: the last lines that it wrote to standard error, where something is wrong.
    """

    what: str
    outcome: Outcome
    message: str
    hint: str = ""
    log: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        """The check as ``mutcache smoke --format json`` prints it."""
        return {
            "what": self.what,
            "outcome": self.outcome.value,
            "message": self.message,
            "hint": self.hint,
            "log": list(self.log),
        }


#: What to do about an answer that is none, by words of what is said of it.
_HINTS: Final[Sequence[tuple[str, str]]] = (
    ("not JSON in UTF-8", "each message is one line of strict JSON in UTF-8, and nothing else goes to the socket"),
    ("no JSON object", "each message is one JSON object on a line"),
    ("without the end of a line", "end each message with a line break"),
    ("an answer to no open request", "repeat the id of the request, as the number that it is, and answer once"),
    ("does not follow the schema", "docs/protocol.rst shows each answer; schemas/protocol.json defines it"),
    (
        "of the protocol, not",
        f"write the host for version {VERSION}, which docs/protocol.rst describes, or run the suite of its version",
    ),
    ("answered describe with", "the adapter's constructor, or its describe(), did not succeed"),
)


def smoke(
    command: Sequence[str], options: Mapping[str, str], folder: Path, *, start_timeout: float = START_TIMEOUT
) -> Iterator[Check]:
    """Try a host, one thing after the other; ends with the first that makes the others moot.

    Args:
        command: the command line that starts it.
        options: what the adapter is told.
        folder: an empty folder for its logs.
        start_timeout: seconds for it to start and describe itself.
    """
    try:
        child = Child(command, log=folder / "host")
    except ChildGone as gone:
        hint = "give an executable file: chmod +x, and a script begins with #! and an interpreter that there is"
        yield Check("starts", Outcome.WRONG, str(gone), hint)
        return
    yield Check("starts", Outcome.OK, f"process {child.pid}")
    try:
        about, check = _describe(child, options, folder, start_timeout)
        yield check
        if about is None:
            return
        yield from _capabilities(about)
        yield _stop(child, folder)
    finally:
        child.kill()
    yield from _play(command, options, folder, start_timeout)


def _describe(
    child: Child, options: Mapping[str, str], folder: Path, timeout: float
) -> tuple[Description | None, Check]:
    """Ask twice who it is: an answer too many shows at the second time."""
    what = "describes itself"
    try:
        about = child.describe(options, timeout=timeout)
        again = child.describe(options, timeout=STEP_TIMEOUT)
    except (ChildGone, ChildTimeout, ProtocolError) as error:
        child.kill()  # which completes its logs
        return None, Check(what, Outcome.WRONG, str(error), _hint(error, folder), _tail(folder / "host.stderr.txt"))
    if about != again:
        hint = "describe must give the same answer every time"
        return None, Check(what, Outcome.WRONG, f"the second time otherwise: {otherwise(about, again)}", hint)
    words = f"{about.runtime} {about.runtime_version}, adapter {about.adapter} {about.adapter_version}"
    return about, Check(what, Outcome.OK, words)


def _hint(error: Exception, folder: Path) -> str:
    match error:
        case ChildTimeout():
            said = _tail(folder / "host.stdout.txt")
            if any('"answer"' in line for line in said):
                return (
                    f"it writes its answers to standard output: they belong on the socket, which is descriptor "
                    f"${SOCKET_VARIABLE}"
                )
            return (
                f"it must read lines from the socket, which is descriptor ${SOCKET_VARIABLE}, and answer each with a "
                "line; if it only takes long to start, give --start-timeout"
            )
        case ChildGone():
            words = "\n".join(_tail(folder / "host.stderr.txt"))
            if "ModuleNotFoundError" in words or "ImportError" in words:
                return "install what the adapter imports, or set PYTHONPATH"
            if error.signal:
                return "the host itself crashed before any model was loaded"
            return (
                f"it must keep the socket, which is descriptor ${SOCKET_VARIABLE}, and answer until it is told to stop"
            )
    return next((hint for words, hint in _HINTS if words in str(error)), "docs/protocol.rst describes the protocol")


def _capabilities(about: Description) -> Iterator[Check]:
    """Names that no case asks for do no harm, and are often misspelt."""
    known = {f"dtype:{name}" for name in TensorProto.DataType.keys()}  # noqa: SIM118 - an enum of protobuf, not a dict
    known |= {DEVICE_MEMORY} | {need for case in cases.generate() for need in case.needs}
    for name in sorted(about.capabilities - known):
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else ""
        yield Check("declares capabilities", Outcome.REMARK, f"no case asks for {name!r}", hint)


def _stop(child: Child, folder: Path) -> Check:
    what = "ends when it is told to stop"
    try:
        answer = child.call("stop", timeout=STEP_TIMEOUT)
    except (ChildGone, ChildTimeout, ProtocolError) as error:
        child.kill()
        return Check(
            what, Outcome.WRONG, str(error), "answer stop with ok, then end", _tail(folder / "host.stderr.txt")
        )
    if not answer.succeeded:
        return Check(what, Outcome.WRONG, f"it answered with {answer}", "answer stop with ok, then end")
    deadline = time.monotonic() + _STOP_TIMEOUT
    while child.is_alive:
        if time.monotonic() > deadline:
            return Check(
                what, Outcome.WRONG, f"it still runs {_STOP_TIMEOUT:g} s later", "end after the answer to stop"
            )
        time.sleep(_PULSE)
    return Check(what, Outcome.OK, "it did")


def _play(command: Sequence[str], options: Mapping[str, str], folder: Path, start_timeout: float) -> Iterator[Check]:
    corpus = {case.id: case for case in cases.generate()}
    configuration = Configuration(
        command=command,
        folder=folder,
        options=options,
        start_timeout=start_timeout,
        step_timeout=STEP_TIMEOUT,
        case_timeout=_CASE_TIMEOUT,
    )
    with Runner(configuration, corpus) as runner:
        for case, what in (
            (corpus[ACCEPTED], "plays a case"),
            (corpus[REFUSED], "refuses an update that does not fit"),
        ):
            try:
                result = runner.run(case)
            except RuntimeUnavailable as error:
                yield Check(what, Outcome.WRONG, f"when it was started again: {error}")
                return
            check = _judge(what, case, result, folder)
            yield check
            if check.outcome is not Outcome.OK:
                return


def _judge(what: str, case: Case, result: CaseResult, folder: Path) -> Check:
    """What a case says of the way in which the host speaks."""
    steps = ", ".join(f"{step.operation}: {step.answer}" for step in result.evidence.steps)
    if result.status is Status.PASS:
        return Check(what, Outcome.OK, f"{case.id}: {steps}")
    message = f"{case.id}: {result.status}: {result.reason}"
    if result.status in (Status.UNSUPPORTED, Status.NOT_APPLICABLE):
        return Check(what, Outcome.REMARK, message, "the suite will count no such case as passed")
    last = result.evidence.steps[-1].answer if result.evidence.steps else ""
    log = _tail(folder / "logs" / f"{result.log}.stderr.txt")
    if result.status in (Status.CRASH, Status.TIMEOUT, Status.NOT_RUN, Status.HARNESS_ERROR) or last == "garbage":
        hint = next((hint for words, hint in _HINTS if words in result.reason), "")
        return Check(what, Outcome.WRONG, message, hint, log)
    if last == "error":
        hint = "a refusal is answered with rejected, what the runtime lacks with unsupported; an error is a failure"
        return Check(what, Outcome.WRONG, message, hint, log)
    return Check(what, Outcome.REMARK, message, "it speaks the protocol; what it does, the suite will fail")


def _tail(path: Path) -> tuple[str, ...]:
    """The last lines of a log, safe for a terminal."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ()
    return tuple("".join(c if c.isprintable() else "?" for c in line)[:200] for line in lines[-_LINES:])
