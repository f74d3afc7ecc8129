import logging
from collections.abc import Callable
from typing import Any

import pytest
from prefect import flow, get_run_logger
from prefect.client.schemas.objects import State
from prefect.logging.handlers import PrefectConsoleHandler
from prefect.states import Completed, Failed

from flows.runtime import run_flow
from flows.runtime.console import quiet_console


def test_what_a_flow_returns_is_the_result(prefect_api: str) -> None:
    @flow
    def seven() -> int:
        return 7

    ended = run_flow(seven)

    assert (ended.ok, ended.result, ended.failure) == (True, 7, None)
    assert ended.run_id is not None


@pytest.mark.parametrize(("make", "ok"), [(Completed, True), (Failed, False)])
def test_the_data_of_a_returned_state_is_the_result(
    prefect_api: str, make: Callable[..., State[Any]], ok: bool
) -> None:
    @flow
    def told() -> State[Any]:
        return make(message="3 of 4 guests", data={"guests": 3})

    ended = run_flow(told)

    assert (ended.ok, ended.result, ended.failure) == (ok, {"guests": 3}, None)
    assert ended.state.message == "3 of 4 guests"


def test_an_exception_is_given_back_and_not_raised(prefect_api: str) -> None:
    @flow
    def broken() -> None:
        raise FileNotFoundError("no such manifest: shop.yaml")

    ended = run_flow(broken)

    assert not ended.ok
    assert isinstance(ended.failure, FileNotFoundError)
    assert "no such manifest: shop.yaml" in (ended.state.message or "")


def test_a_parameter_that_the_flow_does_not_have_is_given_back_too(prefect_api: str) -> None:
    @flow
    def needs(count: int) -> int:
        return count

    ended = run_flow(needs, count="many")

    assert not ended.ok
    assert "count" in str(ended.failure)


def test_the_terminal_shows_our_warnings_but_not_what_prefect_says_about_the_run(
    prefect_api: str, capsys: pytest.CaptureFixture[str]
) -> None:
    @flow
    def chatty() -> None:
        get_run_logger().info("a detail")
        get_run_logger().warning("the disk is nearly full")
        raise ValueError("broken")

    console = PrefectConsoleHandler()
    logging.getLogger().addHandler(console)
    try:
        with quiet_console():
            run_flow(chatty)
    finally:
        logging.getLogger().removeHandler(console)

    shown = capsys.readouterr().err
    assert "the disk is nearly full" in shown
    assert "a detail" not in shown
    assert "Traceback" not in shown
    assert "Finished in state" not in shown
