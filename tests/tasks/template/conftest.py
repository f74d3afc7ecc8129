"""What the tests of templates have in common."""

from __future__ import annotations

import pytest

from tests.environments import Place
from tests.templates import Golden


@pytest.fixture
def golden(place: Place) -> Golden:
    """A template and its clones in a place of their own."""
    return Golden(place)
