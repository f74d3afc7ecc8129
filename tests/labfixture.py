"""A lab for tests. In a test module or conftest: ``from tests.labfixture import lab, lab_factory``.

``lab`` is one lab a module (time scale 0, default cluster); ``lab_factory(seed=YAML text,
time_scale=...)`` starts more of them, each with a state folder of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from deployments.lab.testing import RunningLab, running_lab

LabFactory = Callable[..., RunningLab]


@pytest.fixture(scope="module")
def lab_factory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabFactory]:
    """Start labs that end with the module."""
    with ExitStack() as stack:

        def start(
            *, seed: str | None = None, time_scale: float = 0.0, state: Path | None = None
        ) -> RunningLab:
            folder = state or tmp_path_factory.mktemp("lab")
            seed_file = None
            if seed is not None:
                seed_file = tmp_path_factory.mktemp("seed") / "seed.yaml"
                seed_file.write_text(seed)
            running = running_lab(folder, time_scale=time_scale, seed_file=seed_file)
            return stack.enter_context(running)

        yield start


@pytest.fixture(scope="module")
def lab(lab_factory: LabFactory) -> RunningLab:
    """The default cluster with immediate tasks."""
    return lab_factory()
