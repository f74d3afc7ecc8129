"""A variable file of Ansible as plain values, simple Jinja expressions filled in."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.constructor import SafeConstructor
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from blocks.manifest.faults import Fault, ManifestError

_VARIABLE = re.compile(r"\{\{-?\s*([A-Za-z_]\w*)\s*(?:\|\s*(?:string|int|trim)\s*)*-?\}\}")
_LOOKUP_FILE = re.compile(
    r"\{\{\s*lookup\(\s*['\"](?:ansible\.builtin\.)?file['\"]\s*,\s*['\"]([^'\"{}]+)['\"]\s*\)"
    r"[^{}]*\}\}"
)
_LOOKUP_ENV = re.compile(
    r"\{\{\s*lookup\(\s*['\"](?:ansible\.builtin\.)?env['\"]\s*,\s*['\"](\w+)['\"]\s*\)[^{}]*\}\}"
)
_REFERENCE = re.compile(r"\$\{(?=[a-z]+:)")
_GROUPS = ("vm", "template", "cloud_init", "cloudinit", "ci", "network", "disk", "image")
_ROUNDS = 5


class Vaulted:
    """A value that Ansible keeps encrypted."""


@dataclass
class Vars:
    """The variables that are not converted yet, and what was said about those that are."""

    values: dict[str, Any]
    notes: list[str] = field(default_factory=list)
    prefix: str = ""
    used: set[str] = field(default_factory=set)

    def take(self, *names: str, secret: bool = False) -> Any:
        """The value of the first of these names that is there; the others are told to be double.

        A Jinja expression that could not be filled in, and a null, give None. With ``secret`` no
        message repeats the value, and an expression is a value.
        """
        found: Any = None
        taken = ""
        for name in names:
            if name not in self.values:
                continue
            value = self.values.pop(name)
            if value is None:
                continue
            if isinstance(value, Vaulted) and not secret:
                self.notes.append(f"{self.prefix}{name}: is encrypted by ansible-vault; left out")
                continue
            if not secret and has_jinja(value):
                self.notes.append(
                    f"{self.prefix}{name}: is a Jinja expression ({{{{ }}}}); write its value"
                )
                continue
            if taken:
                self.notes.append(f"{self.prefix}{name}: left out, since {taken} says it already")
                continue
            found, taken = value, name
        return found

    def drop(self, name: str, why: str) -> None:
        """Leave a variable out, and say why."""
        del self.values[name]
        self.notes.append(f"{self.prefix}{name}: {why}")

    def left(self) -> list[str]:
        """The names that nobody took. Those that only fill in others have done their part."""
        for name in sorted(self.used & self.values.keys()):
            self.drop(name, "was filled in where it is used")
        self.notes += [
            f"{self.prefix}{name}: is a Jinja expression ({{{{ }}}}), and has no place here"
            for name, value in self.values.items()
            if has_jinja(value)
        ]
        return [f"{self.prefix}{name}" for name in self.values]


def read_vars(text: str, file: str) -> Vars:
    """The variables of a file: a mapping, or the ``vars`` of its only play.

    Raises ManifestError where there are none.
    """

    def refuse(problem: str, remedy: str = "", line: int | None = None) -> ManifestError:
        return ManifestError((Fault(file=file, line=line, problem=problem, remedy=remedy),))

    try:
        content = _yaml().load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else None
        raise refuse(f"is no valid YAML: {error.problem or error.context}", line=line) from None
    except (YAMLError, RecursionError, ValueError):
        raise refuse("is no valid YAML") from None
    notes: list[str] = []
    if isinstance(content, list) and len(content) == 1 and isinstance(content[0], dict):
        play = content[0]
        if isinstance(play.get("vars"), dict):
            notes += [f"{key}: is of the play, not a variable" for key in play if key != "vars"]
            content = play["vars"]
    if not isinstance(content, dict) or not content:
        raise refuse("has no variables", "name a file of 'key: value' lines")
    if content.get("kind") == "Template":
        raise refuse("is a template already", "name the variable file of the playbook")
    values: dict[str, Any] = {}
    for key, value in content.items():
        name = str(key).lower()
        if name in _GROUPS and isinstance(value, dict):
            values |= {f"{name}_{inner}".lower(): each for inner, each in value.items()}
        else:
            values[name] = value
    found = Vars(values, notes)
    _fill_in(found)
    return found


def has_jinja(value: Any) -> bool:
    """Whether there is a Jinja expression in a value, however deep."""
    if isinstance(value, dict):
        return any(has_jinja(each) for each in value.values())
    if isinstance(value, list):
        return any(has_jinja(each) for each in value)
    return isinstance(value, str) and ("{{" in value or "{%" in value)


class _Constructor(SafeConstructor):
    """Takes the tags of Ansible."""


def _vaulted(_constructor: Any, _node: Any) -> Vaulted:
    return Vaulted()


def _verbatim(constructor: Any, node: Any) -> Any:
    return constructor.construct_scalar(node)


_Constructor.add_constructor("!vault", _vaulted)
_Constructor.add_constructor("!unsafe", _verbatim)


def _yaml() -> YAML:
    yaml = YAML(typ="safe", pure=True)
    yaml.Constructor = _Constructor
    yaml.allow_duplicate_keys = True
    return yaml


def _fill_in(found: Vars) -> None:
    """Put plain variables of the file in the place of ``{{ name }}``; tell those that were used."""
    used: set[str] = set()
    plain = {
        key: value
        for key, value in found.values.items()
        if isinstance(value, str | int | float) and not isinstance(value, bool)
    }

    def filled(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: filled(each) for key, each in value.items()}
        if isinstance(value, list):
            return [filled(each) for each in value]
        return _text(value) if isinstance(value, str) else value

    def _text(text: str) -> str:
        text = _REFERENCE.sub("$${", text)
        for _ in range(_ROUNDS):
            text = _LOOKUP_FILE.sub(lambda hit: hit[1], text)
            text = _LOOKUP_ENV.sub(lambda hit: f"${{env:{hit[1]}}}", text)
            names = {hit[1] for hit in _VARIABLE.finditer(text)} & plain.keys()
            if not names:
                break
            used.update(names)
            text = _VARIABLE.sub(
                lambda hit: str(plain[hit[1]]) if hit[1] in plain else hit[0], text
            )
        return text

    found.values = {key: filled(value) for key, value in found.values.items()}
    found.used = used
