"""The process between the harness and a child: it ends the child, and all that this started, when the harness goes.

It runs as a script of its own with nothing but the standard library, so that it starts in milliseconds. As the reaper
of its descendants it is the parent of every orphan among them, whatever sessions or process groups they made, and so it
finds them all. It ends as the child ended: with the same exit status, or by the same signal.

The harness holds the other end of a socket. What the guard writes to it is one line: the child's number, or ``!`` and
the error number of a failed start. That the harness closes it, or dies, is the order to end.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import signal
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_LIBC: Final = ctypes.CDLL(None)
#: Under memory pressure the kernel ends the child before it ends the harness.
_OOM_SCORE: Final = b"500"


def main(control: int, lent: Sequence[int], command: Sequence[str]) -> NoReturn:
    """Start ``command``, watch it and the harness, and end with it.

    Args:
        control: descriptor of the socket to the harness.
        lent: descriptors that the child inherits, and that are closed here.
        command: its command line.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    wakeup, on_signal = os.pipe()
    for descriptor in (wakeup, on_signal):
        os.set_blocking(descriptor, False)
    signal.set_wakeup_fd(on_signal, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    child = _start(control, command)
    for descriptor in lent:
        os.close(descriptor)
    poll = select.poll()
    poll.register(control, select.POLLIN)
    poll.register(wakeup, select.POLLIN)
    status: int | None = None
    is_wanted = True
    while status is None and is_wanted:
        events = dict(poll.poll())
        is_wanted = control not in events
        with contextlib.suppress(BlockingIOError):
            os.read(wakeup, 4096)
        status = _reap(child)
    end = _end_descendants(child)
    _end_as(end if status is None else status)


def _start(control: int, command: Sequence[str]) -> int:
    """The child's number, which the harness is told; ends the guard when it cannot be started."""
    guard = os.getpid()
    failure, on_failure = os.pipe()  # closed by a successful start
    child = os.fork()
    if child == 0:
        try:
            _become(guard, command)
        except OSError as error:
            os.write(on_failure, str(error.errno).encode())
        os._exit(127)
    os.close(on_failure)
    problem = os.read(failure, 16)
    os.close(failure)
    with contextlib.suppress(OSError):  # the harness is gone already: the next look at the socket shows it
        os.write(control, b"!%s\n" % problem if problem else b"%d\n" % child)
    if problem:
        os._exit(127)
    return child


def _become(guard: int, command: Sequence[str]) -> None:
    os.setsid()
    # Should even the guard be killed, the child at least goes with it.
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != guard:
        os._exit(127)
    with contextlib.suppress(OSError):
        descriptor = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
        os.write(descriptor, _OOM_SCORE)
        os.close(descriptor)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    os.execvp(command[0], list(command))


def _reap(child: int) -> int | None:
    """Take the status of whoever ended; returns that of the child."""
    status = None
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == child:
                status = ended[1]
    return status


def _end_descendants(child: int) -> int:
    """End every descendant, those born meanwhile too; returns the status of the child, or 0 if it was taken before."""
    status = 0
    while True:
        for number in _descendants():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(number, signal.SIGKILL)
        try:
            ended, its_status = os.waitpid(-1, 0)
        except ChildProcessError:
            return status
        if ended == child:
            status = its_status


def _descendants() -> list[int]:
    """The numbers of all descendants of this process."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - pathlib takes longer to import than this takes to run
        with contextlib.suppress(OSError):
            if name.isdigit():
                with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123 - as above
                    parent = int(file.read().rpartition(b")")[2].split()[1])
                children.setdefault(parent, []).append(int(name))
    found = children.get(os.getpid(), [])
    for number in found:  # grows while it is walked
        found += children.get(number, [])
    return found


def _end_as(status: int) -> NoReturn:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the child has left a core, if anyone wants one
        with contextlib.suppress(OSError):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


if __name__ == "__main__":
    control_descriptor, lent_descriptors, *child_command = sys.argv[1:]
    main(int(control_descriptor), [int(number) for number in lent_descriptors.split(",")], child_command)
