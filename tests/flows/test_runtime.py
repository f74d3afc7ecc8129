import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import GlobalConcurrencyLimitUpdate
from prefect.settings import PREFECT_API_URL

from flows.runtime import RuntimeUnavailable, pointed_at, prefect_runtime
from flows.runtime.network import unproxied
from flows.runtime.server import TemporaryServer, answers
from tasks.limits import api_is_private, ensure_limits
from tests.flows.processes import Program, eventually, prefect_server, program
from tests.flows.runtime_program import LANE

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A PREFECT_HOME of its own, with a database that exists already."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of many machines: another home is another machine, only the API is shared."""
    with prefect_server(tmp_path_factory.mktemp("server")) as url:
        yield url


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    return tmp_path / "notes.txt"


def rows(home: Path, query: str, *values: str) -> list[tuple[object, ...]]:
    with sqlite3.connect(home / "prefect.db") as database:
        return database.execute(query, values).fetchall()


def url_of(line: str) -> str:
    return line.split()[1]


PROXIES = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), "http://127.0.0.1:1")


def test_every_task_run_of_a_local_run_is_in_the_database_afterwards_whatever_proxy_is_set(
    home: Path, notes: Path
) -> None:
    words = ("-m", "tests.flows.runtime_program", "instant", str(notes))
    with Program(*words, home=home, variables={**PROXIES, "NO_PROXY": ""}) as run:
        ended = run.until("ended ")
        code = run.rest()

    assert (code, ended.split()[1:3]) == (0, ["Completed", "60"]), "\n".join(run.lines)
    run_id = ended.split()[-1]
    states = rows(
        home,
        "select state_name, count(*) from task_run where flow_run_id = ? group by 1",
        run_id,
    )
    assert states == [("Completed", 60)]


def test_a_failed_flow_runs_its_hook_and_shows_no_traceback(home: Path, notes: Path) -> None:
    with program("broken", str(notes), home=home) as run:
        code = run.rest()

    assert code == 1
    assert notes.read_text() == f"FAILED pid={run.process.pid}\n"
    assert [line.split()[0] for line in run.lines] == ["starting", "api", "ended"]


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)]
)
def test_a_signal_crashes_the_run_runs_the_hook_and_ends_the_server(
    home: Path, notes: Path, number: signal.Signals, code: int
) -> None:
    with program("hold", str(notes), home=home) as run:
        url = url_of(run.until("api "))
        run.until("holding")
        sent = time.monotonic()
        run.send(number)
        assert run.rest() == code

    assert time.monotonic() - sent < 60
    assert notes.read_text() == f"CRASHED pid={run.process.pid}\n"
    assert eventually(lambda: not answers(url, 0.5), 60)
    newest = rows(home, "select state_name from flow_run order by created desc limit 1")
    assert newest == [("Crashed",)]


def test_a_waiting_run_names_the_one_before_it_and_gets_the_lane_when_that_is_killed(
    home: Path, notes: Path
) -> None:
    with program("hold", str(notes), home=home) as first:
        url = url_of(first.until("api "))
        first.until("holding")
        with program("hold", str(notes), "seconds=0", home=home) as second:
            said = second.until("holder/upload waiting")
            first.send(signal.SIGKILL)
            second.until("holder/upload done")
            assert second.rest() == 0

    assert "waiting for the upload lane of local, held by flow run" in said
    assert f"(pid {first.process.pid}, guest holder" in said
    assert eventually(lambda: not answers(url, 0.5), 60), "its server lives on"
    query = "select active_slots from concurrency_limit_v2 where name = ?"
    assert rows(home, query, f"tag:{LANE.tag}") == []


def test_on_a_served_api_another_machines_slot_is_named_and_comes_back_when_its_lease_is_over(
    tmp_path: Path, notes: Path, api: str
) -> None:
    def hold(machine: str, *more: str) -> Program:
        return program("hold", str(notes), *more, home=tmp_path / machine, api=api)

    with hold("one") as first:
        assert first.until("api ") == f"api {api} temporary=False"
        first.until("holding")
        with hold("two", "seconds=0") as second:
            said = second.until("holder/upload waiting")
            first.send(signal.SIGKILL)
            killed = time.monotonic()
            second.until("holder/upload done")
            waited = time.monotonic() - killed
            assert second.rest() == 0

    assert "held by flow run" in said
    assert "(task 'shop/holder/upload')" in said
    assert waited < 120


def test_a_slot_that_a_server_lost_its_lease_of_is_freed_by_whoever_waits_for_it(
    tmp_path: Path, notes: Path, api: str
) -> None:
    # As after a restart of the server, or after runs without one on the same database.
    with pointed_at(api), get_client(sync_client=True) as client:
        ensure_limits([LANE.tag])
        client.update_global_concurrency_limit(
            f"tag:{LANE.tag}", GlobalConcurrencyLimitUpdate(active_slots=1)
        )

    with program("hold", str(notes), "seconds=0", home=tmp_path, api=api) as run:
        run.until("api ")
        began = time.monotonic()
        run.until("holder/upload done")
        waited = time.monotonic() - began
        assert run.rest() == 0

    assert waited < 120


def test_two_first_runs_at_the_same_time_share_one_new_database(
    tmp_path: Path, notes: Path
) -> None:
    with (
        program("instant", str(notes), "count=1", home=tmp_path) as one,
        program("instant", str(notes), "count=1", home=tmp_path) as two,
    ):
        codes = [one.rest(), two.rest()]

    assert codes == [0, 0], "\n".join(one.lines + two.lines)
    assert rows(tmp_path, "select state_name from flow_run") == [("Completed",)] * 2


def test_a_server_at_the_usual_address_is_used_without_being_named(
    prefect_api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.runtime.server.USUAL_URL", prefect_api)
    monkeypatch.setattr("flows.runtime.server.answers", lambda url, _: answers(url, 60))

    with pointed_at(None), prefect_runtime() as runtime:
        used = PREFECT_API_URL.value()
        private = api_is_private()

    assert (used, runtime.url) == (prefect_api, prefect_api)
    assert not private  # others may use it as well


def test_a_named_server_that_does_not_answer_is_said_with_what_to_do() -> None:
    with (
        pointed_at("http://127.0.0.1:9/api"),
        pytest.raises(RuntimeUnavailable, match=r"PREFECT_API_URL.*does not answer"),
        prefect_runtime(),
    ):
        pass


def test_a_temporary_server_that_cannot_start_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "prefect.db").mkdir()
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    monkeypatch.setattr("flows.runtime.server.USUAL_URL", "http://127.0.0.1:9/api")

    with (
        pointed_at(None),
        pytest.raises(RuntimeUnavailable, match="The temporary Prefect server did not start"),
        prefect_runtime(),
    ):
        pass


def test_a_proxy_is_not_asked_for_a_named_server_on_loopback(
    api: str, home: Path, notes: Path
) -> None:
    args = ("-m", "tests.flows.runtime_program", "instant", str(notes), "count=1")

    with Program(*args, home=home, api=api, variables=PROXIES) as run:
        code = run.rest()

    assert code == 0, "\n".join(run.lines)


def test_only_hosts_on_loopback_are_exempted_from_the_proxy_besides_those_that_are() -> None:
    known = {"NO_PROXY": "corp.example"}

    exempted = "corp.example,127.0.0.1"
    assert unproxied("http://127.0.0.1:4200/api", known) == {
        "NO_PROXY": exempted,
        "no_proxy": exempted,
    }
    assert unproxied("http://[::1]:4200/api", {})["no_proxy"] == "::1"
    assert unproxied("https://prefect.example/api", known) == {}


def test_the_exemption_from_the_proxy_ends_with_the_runtime(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NO_PROXY", "corp.example")
    monkeypatch.delenv("no_proxy", raising=False)

    with pointed_at("http://localhost:9/api"):
        inside = os.environ["no_proxy"]

    assert inside == "corp.example,localhost"
    assert (os.environ["NO_PROXY"], os.environ.get("no_proxy")) == ("corp.example", None)


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_an_unusable_file_of_certificates_is_said_with_the_variable_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None
) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_text(content)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))

    with pytest.raises(RuntimeUnavailable, match=r"SSL_CERT_FILE.*ca\.pem"), prefect_runtime():
        pass


def test_a_temporary_server_that_is_only_slow_is_told_from_one_that_failed() -> None:
    server = TemporaryServer()

    with pytest.raises(RuntimeUnavailable, match=r"did not answer within 0 s.*\n.*try again"):
        server.wait(0.01)


def test_an_api_that_prefects_client_cannot_reach_is_said_in_words(
    prefect_api: str, tmp_path: Path
) -> None:
    # A process of its own: one that has called the API keeps a connection past any proxy.
    program = tmp_path / "nothing.py"
    program.write_text(
        "from prefect import flow\n"
        "from flows.runtime import RuntimeUnavailable, run_flow\n\n"
        "@flow\ndef nothing() -> None: ...\n\n"
        "try:\n    run_flow(nothing)\n"
        "except RuntimeUnavailable as error:\n    print(error)\n"
    )
    unexempted = {"NO_PROXY": "x.example", "no_proxy": "x.example"}
    said = subprocess.run(
        [sys.executable, str(program)],
        env={**os.environ, **PROXIES, **unexempted, "PYTHONPATH": str(Path.cwd())},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert "HTTP_PROXY" in said.stdout
    assert prefect_api in said.stdout
