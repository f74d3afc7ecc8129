"""The type of what the API answers."""

from typing import Any, TypeAlias

Answer: TypeAlias = Any
"""``data`` of an answer: JSON, unchecked. ``inventory`` turns the common ones into models."""
