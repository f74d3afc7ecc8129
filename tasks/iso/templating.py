"""Jinja2 as all installer templates use it: strict, and quoted for where a value lands."""

from __future__ import annotations

import shlex
from functools import lru_cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape


def shell(value: object) -> str:
    """One word of a POSIX shell, or of a kickstart line, which is split by the same rules."""
    return shlex.quote(str(value))


@lru_cache(maxsize=1)
def environment() -> Environment:
    """The environment; XML templates escape by themselves, the others by the ``sh`` filter."""
    env = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        undefined=StrictUndefined,
        autoescape=select_autoescape(
            enabled_extensions=("xml.j2",), default_for_string=False, default=False
        ),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    env.filters["sh"] = shell
    return env


def render(template: str, **values: object) -> str:
    """The text of a template."""
    return environment().get_template(template).render(**values)
