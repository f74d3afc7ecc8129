"""A lab a module for the stages, and a place in it for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deployments.lab.testing import RunningLab
from tests.environments import Place, make_place
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
