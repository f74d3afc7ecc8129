"""Other defaults for the length of a test: of time-outs and retries that no test can wait for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def set_default(
    monkeypatch: pytest.MonkeyPatch, function: Callable[..., object], name: str, value: Any
) -> None:
    """Another default of a keyword-only parameter, which the function must have."""
    defaults = function.__kwdefaults__
    assert defaults is not None
    assert name in defaults
    monkeypatch.setitem(defaults, name, value)
