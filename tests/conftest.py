"""What every test may ask for."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator, Iterator

import pytest
from hypothesis import settings

from tests.history import begin_test, end_test

# A job in the background of a shell ignores SIGINT, and so would every process that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Width of somebody's terminal: readline, in the process that starts workers, puts it there.
os.environ.pop("COLUMNS", None)

# How long an example takes says something about the machine, not about the code.
settings.register_profile("proxflow", deadline=None)
settings.load_profile("proxflow")


def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores: for a third of their time tests wait for processes."""
    return len(os.sched_getaffinity(0)) + 1


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that start processes come first: begun late, a long one would keep one core waiting."""
    slow = {item.path for item in items if item.get_closest_marker("processes")}
    items.sort(key=lambda item: item.path not in slow)


def pytest_runtest_setup() -> None:
    """What ran before is the business of other tests."""
    begin_test()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown() -> None:
    """Before the fixtures go, among them the server."""
    end_test()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where every tool is required, a test that skips for want of one fails.

    What a tester names by a variable of its own is no tool.
    """
    report = yield
    if os.environ.get("PROXFLOW_REQUIRE_TOOLS") and report.skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        if "names no copy of" in str(reason):
            return report
        report.outcome = "failed"
        report.longrepr = f"skipped, though PROXFLOW_REQUIRE_TOOLS is set: {reason}"
    return report


@pytest.fixture(scope="session")
def prefect_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Prefect server of this session, which this process and its children use."""
    from flows.runtime import pointed_at
    from flows.runtime.history import flush
    from flows.runtime.server import TemporaryServer

    before = os.environ.get("PREFECT_HOME")
    os.environ["PREFECT_HOME"] = str(tmp_path_factory.mktemp("prefect"))
    with pointed_at(None):
        server = TemporaryServer()
        try:
            with pointed_at(server.wait(120)):
                yield server.url
                flush()
        finally:
            server.stop()
            if before is None:
                del os.environ["PREFECT_HOME"]
            else:
                os.environ["PREFECT_HOME"] = before
