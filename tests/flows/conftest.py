"""A lab a module for the flows, a place in it for each test, and commands called in process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deployments.lab.testing import RunningLab
from tests.environments import Place, make_place
from tests.flows.commands import Commands
from tests.labfixture import lab, lab_factory

__all__ = ["lab", "lab_factory"]


@pytest.fixture
def place(
    lab: RunningLab,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Place]:
    """A part of the module's lab that no other test uses."""
    yield from make_place(lab, tmp_path, monkeypatch)


@pytest.fixture
def run(prefect_api: str, capsys: pytest.CaptureFixture[str]) -> Commands:
    """Command lines, called in this process, with the session's Prefect server."""
    return Commands(capsys)
