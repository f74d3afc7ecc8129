"""What the tests of images share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.webserver import Web, served


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Web]:
    """A publisher."""
    folder = tmp_path / "web"
    folder.mkdir()
    with served(folder) as running:
        yield running
