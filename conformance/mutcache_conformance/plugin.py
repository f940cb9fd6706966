"""The pytest plugin: ``pytest conformance --runtime=...``.

It is loaded with every pytest run of a checkout, so this module imports next to nothing, and does nothing until a
conformance case is collected. The cases themselves, the harness and the report are imported then.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from mutcache_conformance.options import add_options, prepare_folder, read_options
from mutcache_conformance.session import ATTACHMENT, FIXTURE, MARKER, RESULT_KEY, SUITE, SUITE_KEY, Suite

if TYPE_CHECKING:
    from mutcache_conformance.case import Case

_CONFORMANCE: Final = Path(__file__).resolve().parents[1]


def pytest_addoption(parser: pytest.Parser) -> None:
    """The command line of the suite."""
    add_options(parser)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Read the options; a wrong one ends the run with exit status 2."""
    config.addinivalue_line("markers", f"{MARKER}: a case of the conformance suite")
    suite = config.stash[SUITE_KEY] = Suite(config, read_options(config))
    config.pluginmanager.register(suite, "mutcache-conformance-suite")
    if not _is_about_conformance(config) or suite.is_worker:
        return
    descriptor = prepare_folder(suite.options.folder)
    config.add_cleanup(lambda: os.close(descriptor))
    if not getattr(config.option, "xmlpath", None):
        config.option.xmlpath = str(suite.options.folder / "junit.xml")


def _is_about_conformance(config: pytest.Config) -> bool:
    """Whether the user asked for the suite, and not just for all tests of a checkout."""
    if config.option.runtime is not None:
        return True
    if config.args_source is not pytest.Config.ArgsSource.ARGS:
        return False
    paths = [(config.invocation_params.dir / argument.partition("::")[0]).resolve() for argument in config.args]
    return all(path == _CONFORMANCE or path.name in _one_line_modules() for path in paths)


def _one_line_modules() -> set[str]:
    return {f"test_{path.name}" for path in SUITE.glob("[a-z]*.py")}


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With ``--runtime`` only the suite is meant, not the tests of the harness itself."""
    return True if config.option.runtime is not None and collection_path == _CONFORMANCE / "tests" else None


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """The modules of the suite, where they are asked for by package: their names do not begin with ``test_``."""
    session = parent.session
    is_asked_for = session.isinitpath(SUITE) or session.isinitpath(SUITE / "__init__.py")
    if file_path.parent != SUITE or file_path.name.startswith("_") or session.isinitpath(file_path):
        return None
    return pytest.Module.from_parent(parent, path=file_path) if is_asked_for else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test per case of the module's area, with the case's id."""
    if FIXTURE in metafunc.fixturenames:
        suite = metafunc.config.stash[SUITE_KEY]
        cases = suite.cases_of(metafunc.module.AREA)
        marker = pytest.mark.conformance
        metafunc.parametrize(FIXTURE, [pytest.param(case, id=case.id, marks=marker) for case in cases], indirect=True)


@pytest.fixture
def conformance_case(request: pytest.FixtureRequest) -> Callable[[], None]:
    """Runs the case that the test is for; calling it ends the test with the case's outcome."""
    return lambda: _play(request.node, request.config.stash[SUITE_KEY], request.param)


def _play(item: pytest.Item, suite: Suite, case: Case) -> None:
    from mutcache_conformance.failure import add_rerun
    from mutcache_conformance.runner import RuntimeUnavailable

    runner = suite.runner()
    try:
        played = runner.run(case)
    except RuntimeUnavailable as error:  # in this worker of xdist; the controller could start it
        played = runner.not_run(case, error)
    found = dataclasses.replace(played, rerun=suite.rerun_command(item))
    item.stash[RESULT_KEY] = found
    result = suite.waived(found)
    item.user_properties.append(("status", result.status.value))
    item.user_properties.append(("requirements", " ".join(requirement.value for requirement in case.requirements)))
    if result.failure and not runner.had(case):
        add_rerun(suite.options.folder / result.failure, result.rerun)
    if result.is_advice:
        pytest.skip(f"{result.status} of a SHOULD, {result.requirements[0]}: {result.reason}")
    if result.status.is_failure:
        words = f"{result.status}: {result.reason}"
        if result.failure:
            words += f"\nsaved in {suite.options.folder / result.failure}"
        pytest.fail(words, pytrace=False)
    if result.status.value != "pass":
        pytest.skip(f"{result.status}: {result.reason}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Drop the empty test of an area that has no case for this run, and put the cases in order."""
    empty = [
        item for item in items if FIXTURE in getattr(item, "fixturenames", ()) and not item.get_closest_marker(MARKER)
    ]
    if empty:
        config.hook.pytest_deselected(items=empty)
        items[:] = [item for item in items if item not in empty]
    items[:] = config.stash[SUITE_KEY].in_order(items)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Under xdist, try the runtime once here, and not in every worker."""
    suite = session.config.stash[SUITE_KEY]
    is_distributed = getattr(session.config.option, "dist", "no") != "no"
    if suite.options.is_explicit and is_distributed and not suite.is_worker:
        suite.try_runtime()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Try the runtime before the first case, in the process that runs the cases."""
    suite = session.config.stash[SUITE_KEY]
    has_cases = any(item.get_closest_marker(MARKER) for item in session.items)
    suite.note_collection([item.nodeid for item in session.items])
    if has_cases and not suite.is_worker and not session.config.option.collectonly:
        suite.try_runtime()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Send what became of a case along with pytest's own report; under xdist both travel to the controller."""
    report = yield
    is_last = call.when == "call" or (call.when == "setup" and report.failed)
    if is_last and item.get_closest_marker(MARKER):
        suite = item.config.stash[SUITE_KEY]
        vars(report)[ATTACHMENT] = suite.attachment(item, call.excinfo)
    return report
