"""The conformance part of a pytest run: what it was asked for, what became of each case, and the report."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from mutcache_conformance.options import CASE_TIMEOUT, STEP_TIMEOUT, USAGE, Options, refuse

if TYPE_CHECKING:
    from mutcache.requirements import Profile
    from mutcache_conformance.adapter import Description
    from mutcache_conformance.case import Case
    from mutcache_conformance.journal import Journal
    from mutcache_conformance.report import Run
    from mutcache_conformance.runner import Runner
    from mutcache_conformance.status import CaseResult

#: The modules whose tests are the suite.
SUITE: Final = Path(__file__).resolve().parent / "suite"
#: The fixture that their tests take, and the marker that each of their cases has.
FIXTURE: Final = "conformance_case"
MARKER: Final = "conformance"
#: Name of the attribute of pytest's reports that carries what became of a case.
ATTACHMENT: Final = "mutcache_conformance"
_PLUGIN: Final = "mutcache_conformance.plugin"


class Suite:
    """The conformance part of one pytest process, and a plugin of its own.

    Under xdist the workers run the cases, and the controller collects their results and writes the report.
    """

    def __init__(self, config: pytest.Config, options: Options) -> None:
        self.config = config
        self.options = options
        self.results: dict[str, CaseResult] = {}
        self.about: Description | None = None
        self.unavailable = ""
        #: Cases that pytest was left with, whatever kept it from others.
        self._collected: set[str] = set()
        #: Why the report is not written.
        self.unwritten = ""
        #: Waivers that no failure needs.
        self.unused: list[str] = []
        self.run: Run | None = None
        self._runner: Runner | None = None
        self._journal: Journal | None = None

    @property
    def is_worker(self) -> bool:
        """Whether this process works for another one that writes the report."""
        return hasattr(self.config, "workerinput")

    def profiles(self) -> tuple[Profile, ...]:
        """The claimed profiles."""
        from mutcache_conformance import mustpass

        return tuple(
            profile
            for profile in mustpass.profiles()
            if not self.options.profiles or profile.value in self.options.profiles
        )

    def all_cases(self) -> tuple[Case, ...]:
        """Every case of the nonce."""
        from mutcache_conformance.cases import generate

        return generate(self.options.nonce)

    def cases_of(self, area: str) -> list[Case]:
        """The cases of an area that this run is asked for."""
        index, count = self.options.shard
        profiles = self.options.profiles
        return [
            case
            for number, case in enumerate(self.all_cases())
            if case.id.partition("-")[0] == area
            and number % count == index - 1
            and (not profiles or case.profile.value in profiles)
        ]

    def runner(self) -> Runner:
        """The runner of this process."""
        from mutcache_conformance.adapters import command_of
        from mutcache_conformance.runner import Configuration, Runner

        if self._runner is None:
            configuration = Configuration(
                command=command_of(self.options.runtime),
                folder=self.options.folder,
                options=self.options.adapter_options,
                start_timeout=self.options.start_timeout,
                step_timeout=self.options.step_timeout,
                case_timeout=self.options.case_timeout,
                worker=self._worker(),
            )
            self._runner = Runner(configuration, {case.id: case for case in self.all_cases()}, self._earlier())
        return self._runner

    def _worker(self) -> str:
        """The name of this process in the names of logs; parts of one run that are merged have no name in common."""
        index, count = self.options.shard
        part = f"s{index}of{count}-" if count > 1 else ""
        return part + os.environ.get("PYTEST_XDIST_WORKER", "main")

    def _earlier(self) -> Mapping[str, CaseResult]:
        """The results that the interrupted run had already."""
        from mutcache_conformance import journal

        if not self.options.is_resumed:
            return {}
        try:
            return journal.results_in(journal.read_lines(self.options.folder))
        except journal.JournalError as error:
            refuse(str(error))

    def waived(self, result: CaseResult) -> CaseResult:
        """The result as it counts, with regard to the waivers."""
        from mutcache_conformance import waivers

        return waivers.apply(self.options.waivers, result)

    def in_order(self, items: list[pytest.Item]) -> list[pytest.Item]:
        """Tests in the order in which they are to run; those that are no cases keep their places."""
        seed = self.options.order_seed
        if not seed:
            return items
        cases = [item for item in items if item.get_closest_marker(MARKER)]
        # Every worker of xdist must come to the same order.
        shuffled = iter(sorted(cases, key=lambda item: hashlib.sha256(f"{seed} {item.name}".encode()).digest()))
        return [next(shuffled) if item.get_closest_marker(MARKER) else item for item in items]

    def try_runtime(self) -> None:
        """End the whole run if the runtime cannot be started; if it can, the report of an earlier run is no more."""
        from mutcache_conformance.runner import RuntimeUnavailable

        try:
            about = self.runner().describe()
        except RuntimeUnavailable as error:
            refuse(f"runtime {self.options.runtime!r} is unavailable: {error}")
        if getattr(self.config.option, "dist", "no") != "no":  # the workers may need what the child holds
            self.runner().close()
        self._begin(about)

    def _begin(self, about: Description) -> Journal:
        """Begin the journal, or go on with it. Then what stands in the folder is this run's."""
        from mutcache_conformance import report_folder
        from mutcache_conformance.journal import Journal, JournalError

        folder, identity = self.options.folder, self._identity(about)
        try:
            self._journal = Journal.resume(folder, identity) if self.options.is_resumed else Journal(folder, identity)
            report_folder.clear(folder)
        except JournalError as error:
            refuse(f"--resume: {error}")
        except OSError as error:
            refuse(f"the report cannot be written to {str(folder)!r}: {_words(error)}")
        return self._journal

    def _identity(self, about: Description) -> dict[str, Any]:
        """What must be the same for two runs to be halves of one."""
        from mutcache_conformance import provenance

        options = self.options
        return {
            # Without its origin: the files that the run itself makes may lie in the checkout.
            "suite": {key: value for key, value in provenance.suite(self.all_cases()).items() if key != "origin"},
            "adapter": provenance.adapter(options.runtime)["source"],
            "runtime": options.runtime,
            "description": about.to_json(),
            "runtime options": dict(options.adapter_options),
            "nonce": options.nonce,
            "profiles": list(options.profiles),
            "selection": options.selection,
            "shard": "/".join(map(str, options.shard)),
            "case order": options.order_seed,
            "step timeout": options.step_timeout,
            "case timeout": options.case_timeout,
        }

    def rerun_command(self, item: pytest.Item) -> str:
        """The command that runs one case again, in the folder in which this run was started."""
        options = self.options
        name = item.nodeid.partition("::")[2]
        words = ["pytest"]
        if _PLUGIN not in self.config.getini("addopts"):
            words += ["-p", _PLUGIN]
        if item.path.parent == SUITE:
            words += ["--pyargs", f"mutcache_conformance.suite.{item.path.stem}::{name}"]
        else:
            words.append(f"{os.path.relpath(item.path, self.config.invocation_params.dir)}::{name}")
        words.append(f"--runtime={options.runtime}")
        if options.nonce:
            words.append(f"--nonce={options.nonce}")
        if options.step_timeout != STEP_TIMEOUT:
            words.append(f"--step-timeout={options.step_timeout:g}")
        if options.case_timeout != CASE_TIMEOUT:
            words.append(f"--case-timeout={options.case_timeout:g}")
        words += [f"--runtime-option={key}={value}" for key, value in options.adapter_options.items()]
        return shlex.join(words)

    def attachment(self, item: pytest.Item, excinfo: pytest.ExceptionInfo[BaseException] | None) -> dict[str, Any]:
        """What a case came to, in JSON types."""
        result = item.stash.get(RESULT_KEY, None)
        if result is None:
            case: Case = item.callspec.params[FIXTURE]  # type: ignore[attr-defined]  # as every parametrized item has
            why = f"{excinfo.typename}: {excinfo.value}" if excinfo else "the test ended without running its case"
            result = self.runner().harness_error(case, why)
        about = self.runner().about
        return {"result": result.to_json(), "about": None if about is None else about.to_json()}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take in what a case came to."""
        attached = vars(report).get(ATTACHMENT)
        if attached is None:
            return
        from mutcache_conformance.adapter import Description
        from mutcache_conformance.status import CaseResult

        result = CaseResult.from_json(attached["result"])
        told = attached["about"]
        self.about = self.about or (Description.from_json(told) if told is not None else self.runner().about)
        if self.about is None:
            self.unavailable = result.reason
            return
        journal = self._journal or self._begin(self.about)
        # What the disk has no room for now may find some later; of a report that finds none the user is told.
        with contextlib.suppress(OSError):
            journal.add(result)  # without waivers, which can change before the run is taken up again
        self.results[result.case] = self.waived(result)

    def note_collection(self, ids: Iterable[str]) -> None:
        """Take in which tests there are to run, by pytest's names for them."""
        self._collected |= {_case_of(name) for name in ids}

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Iterable[str]) -> None:
        """Under xdist the workers collect."""
        self.note_collection(ids)

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str) -> None:
        """A worker of xdist died while it ran a case: that is no verdict on the runtime, which the guard ended."""
        name = _case_of(crashitem)
        case = next((case for case in self.all_cases() if case.id == name), None)
        if case is not None:
            self.results[name] = self.runner().harness_error(case, "the pytest worker that ran it was killed")

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, object, object]:
        """End the child; in the process that reports, write the report and set the exit status."""
        try:
            yielded = yield  # pytest writes junit.xml, which is part of the report
        except OSError as error:
            if not self.results:
                raise
            yielded, self.unwritten = None, _words(error)
        self._finish(session)
        return yielded

    def _finish(self, session: pytest.Session) -> None:
        if self._runner is not None:
            self._runner.close()
        if self.is_worker or session.config.option.collectonly:
            return
        if self.unavailable or (self.options.is_explicit and session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = USAGE
        elif self.results:
            self._end(_interruption(session))
            if self.unused or self.unwritten:
                session.exitstatus = USAGE
            elif session.exitstatus == pytest.ExitCode.OK and self.run is not None and not self.run.succeeded:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> Generator[None, None, None]:
        """The score, in the place of what pytest would say of each case: one cause can fail hundreds."""
        stats = terminalreporter.stats
        ours = {name: [report for report in stats[name] if hasattr(report, ATTACHMENT)] for name in stats}
        if self.run is not None:
            for name, reports in ours.items():
                stats[name] = [report for report in stats[name] if report not in reports]
        self._write_summary(terminalreporter)
        yield
        for name, reports in ours.items():
            if self.run is not None:
                stats[name] += reports

    def _write_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        from mutcache_conformance import report_folder

        if self.unavailable:
            terminalreporter.section("conformance")
            terminalreporter.line(f"runtime {self.options.runtime!r} is unavailable: {self.unavailable}", red=True)
        folder = os.path.relpath(self.options.folder, self.config.invocation_params.dir)
        if self.unwritten:
            terminalreporter.section("conformance")
            terminalreporter.line(f"no report, since {folder!r} cannot be written: {self.unwritten}", red=True)
            if (self.options.folder / report_folder.JOURNAL).is_file():
                terminalreporter.line("make room there, and ask for the same with --resume in the place of --report")
        if self.run is not None:
            from mutcache_conformance import summary

            writer = terminalreporter._tw  # pytest has no public way to its width
            terminalreporter.section("conformance")
            text = summary.render(self.run, folder, width=writer.fullwidth, color=writer.hasmarkup)
            # Line by line: where a stream lacks a character, pytest writes \n for line breaks, too.
            for line in text.removesuffix("\n").split("\n"):
                writer.line(line)
        if self.unused:
            terminalreporter.section("waivers that are not needed")
            for line in self.unused:
                terminalreporter.line(line, red=True)

    def _end(self, interruption: str) -> None:
        """Write the report. A run that did not come to its end, or has no report, keeps its journal."""
        from mutcache_conformance import report_folder, waivers

        self.unused = waivers.unused(self.options.waivers, self.results)
        try:
            if not self.unwritten:
                self._write_report(interruption)
        except OSError as error:
            self.run, self.unwritten = None, _words(error)
        if self.unwritten:
            with contextlib.suppress(OSError):
                report_folder.clear(self.options.folder)
        if self._journal is not None and (interruption or self.unwritten):
            with contextlib.suppress(OSError):
                self._journal.close()
        elif self._journal is not None:
            self._journal.remove()

    def _left_out(self) -> str:
        """That pytest was kept from some cases in a way that its command line does not tell."""
        claimed = {case.id for case in self.all_cases() if case.profile in self.profiles()}
        count = len(claimed - self._collected)
        return f"{count} cases were not collected" if count else ""

    def _write_report(self, interruption: str) -> None:
        from mutcache_conformance import report
        from mutcache_conformance.runner import HANGS, RESTARTS

        options = self.options
        self.run = report.Run(
            runtime=options.runtime,
            about=self.about,
            cases=self.all_cases(),
            results=self.results,
            profiles=self.profiles(),
            selection=", ".join(filter(None, [options.selection or self._left_out(), interruption])),
            waivers=[waiver.to_json() for waiver in options.waivers],
            product=options.product,
            configuration={
                "argv": [str(argument) for argument in self.config.invocation_params.args],
                "nonce": options.nonce,
                "step_timeout": options.step_timeout,
                "case_timeout": options.case_timeout,
                "restarts": RESTARTS,
                "hangs": HANGS,
                "options": dict(options.adapter_options),
                "shard": "/".join(map(str, options.shard)),
                "order": f"random:{options.order_seed}" if options.order_seed else "suite",
                "resumed": self._journal.resumed if self._journal is not None else 0,
                "parts": [],
                "workers": max(1, len(getattr(self.config.option, "tx", None) or [])),
            },
        )
        report.write(self.run, options.folder)


def _case_of(name: str) -> str:
    """The case of a test, by pytest's name for it."""
    return name.partition("::test_case[")[2].removesuffix("]")


def _words(error: OSError) -> str:
    return error.strerror or str(error)


def _interruption(session: pytest.Session) -> str:
    """What ended the run before its end, or ""."""
    if session.exitstatus == pytest.ExitCode.INTERRUPTED:
        return "the run was interrupted"
    return "pytest failed" if session.exitstatus == pytest.ExitCode.INTERNAL_ERROR else ""


SUITE_KEY: Final = pytest.StashKey[Suite]()
RESULT_KEY: Final = pytest.StashKey["CaseResult"]()
