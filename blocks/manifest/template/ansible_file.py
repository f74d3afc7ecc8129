"""A variable file of Ansible as plain values, simple Jinja expressions filled in."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
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
# Aliases of aliases make millions of values of a few lines.
_MOST_VALUES = 100_000


class Vaulted:
    """A value that Ansible keeps encrypted."""


class Lined(dict[Any, Any]):
    """A mapping of the file; ``lines`` has the line of each of its keys, counted from 1."""

    lines: dict[str, int]


def lines_of(mapping: Mapping[Any, Any]) -> dict[str, int]:
    """The line of each key of a mapping, by its name in small letters."""
    lines = mapping.lines if isinstance(mapping, Lined) else {}
    return {key.lower(): line for key, line in lines.items()}


@dataclass
class Vars:
    """The variables that are not converted yet, and what was said about those that are.

    ``faults``: values of a shape that cannot be what its key says. ``lines``: of the variables.
    """

    values: dict[str, Any]
    notes: list[str] = field(default_factory=list)
    prefix: str = ""
    used: set[str] = field(default_factory=set)
    file: str = ""
    lines: dict[str, int] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)

    def inner(self, entry: Mapping[Any, Any], prefix: str) -> Vars:
        """The variables of a mapping in this file; what is said of them is said here, too."""
        return Vars(
            values={str(key).lower(): value for key, value in entry.items()},
            notes=self.notes,
            prefix=prefix,
            file=self.file,
            lines=lines_of(entry),
            faults=self.faults,
        )

    def refuse(self, name: str, problem: str, remedy: str) -> None:
        """Note a fault of a variable."""
        key, line = f"{self.prefix}{name}", self.lines.get(name)
        self.faults.append(
            Fault(file=self.file, line=line, key=key, problem=problem, remedy=remedy)
        )

    def take(
        self,
        *names: str,
        secret: bool = False,
        several: bool = False,
        into: Callable[[Any], Any] | None = None,
    ) -> Any:
        """The value of the first of these names that is there; the others are told to be double.

        A Jinja expression that could not be filled in, and a null, give None. With ``secret`` no
        message repeats the value, and an expression is a value. With ``several`` it may be a list
        of values; a mapping, or a list otherwise, is a fault. ``into`` makes what is wanted of the
        value; where it gives None, the value is told to be left out.
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
        if found is None or self._is_misshapen(taken, found, several=several):
            return None
        if into is None:
            return found
        made = into(found)
        if made is None and found not in ("", []):
            self.notes.append(f"{self.prefix}{taken}: {found!r} is not understood; left out")
        return made

    def _is_misshapen(self, name: str, value: Any, *, several: bool) -> bool:
        wanted = "write one value, or a list of them" if several else "write one value"
        if isinstance(value, dict):
            self.refuse(name, "is a mapping", wanted)
        elif isinstance(value, list) and not several:
            self.refuse(name, "is a list", wanted)
        elif isinstance(value, list) and any(isinstance(each, dict | list) for each in value):
            self.refuse(name, "is a list of lists or mappings", wanted)
        elif isinstance(value, list) and any(isinstance(each, Vaulted) for each in value):
            self.refuse(name, "holds a value that ansible-vault encrypted", "leave that one out")
        else:
            return False
        return True

    def entries(self, *names: str) -> list[dict[Any, Any]]:
        """The mappings in the list of the first of these names that is there; one alone will do.

        What is neither is a fault.
        """
        for name in names:
            value = self.values.get(name)
            if value is None or has_jinja(value) or isinstance(value, Vaulted):
                self.take(name)
                continue
            del self.values[name]
            entries = value if isinstance(value, list) else [value]
            wanted = "write a list of mappings, each with a name and an id"
            if all(isinstance(each, dict) for each in entries):
                return entries
            self.refuse(name, "is no list of mappings", wanted)
        return []

    def leave(self, name: str, value: str, why: str = "") -> None:
        """Tell that a value, or a part of one, is left out."""
        reason = why or "has no place here"
        self.notes.append(f"{self.prefix}{name}: {value} was left out; {reason}")

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
    repeated: list[str] = []

    def refuse(problem: str, remedy: str = "", line: int | None = None) -> ManifestError:
        return ManifestError((Fault(file=file, line=line, problem=problem, remedy=remedy),))

    try:
        content = _yaml(repeated).load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else None
        raise refuse(f"is no valid YAML: {error.problem or error.context}", line=line) from None
    except (YAMLError, RecursionError, ValueError):
        raise refuse("is no valid YAML") from None
    if isinstance(content, str) and content.startswith("$ANSIBLE_VAULT"):
        raise refuse("is encrypted by ansible-vault", "save what `ansible-vault view` shows of it")
    notes = [f"{name}: is there more than once; the last one was taken" for name in repeated]
    if isinstance(content, list) and len(content) == 1 and isinstance(content[0], dict):
        play = content[0]
        if isinstance(play.get("vars"), dict):
            notes += [f"{key}: is of the play, not a variable" for key in play if key != "vars"]
            content = play["vars"]
    if isinstance(content, list) and any(isinstance(each, dict) for each in content):
        raise refuse(
            "is a list of plays or tasks, not of variables",
            "name a file of 'key: value' lines, or of one play with vars",
        )
    if not isinstance(content, dict) or not content:
        raise refuse("has no variables", "name a file of 'key: value' lines")
    if content.get("kind") == "Template":
        raise refuse("is a template already", "name the variable file of the playbook")
    found = Vars({}, notes, file=file)
    _gather(found, content)
    try:
        _fill_in(found)
    except RecursionError:
        raise refuse(
            "has aliases (*) that go round in a circle or grow without end", "write the values out"
        ) from None
    return found


def _gather(found: Vars, content: Mapping[Any, Any]) -> None:
    """Take the variables of a mapping; those of a group get its name before theirs."""
    lines = lines_of(content)
    for key, value in content.items():
        name = str(key).lower()
        if name in _GROUPS and isinstance(value, dict):
            inner = {f"{name}_{each}".lower(): given for each, given in value.items()}
            found.values |= inner
            found.lines |= {f"{name}_{each}": line for each, line in lines_of(value).items()}
        else:
            found.values[name] = value
            if name in lines:
                found.lines[name] = lines[name]


def has_jinja(value: Any) -> bool:
    """Whether there is a Jinja expression in a value, however deep."""
    if isinstance(value, dict):
        return any(has_jinja(each) for each in value.values())
    if isinstance(value, list):
        return any(has_jinja(each) for each in value)
    return isinstance(value, str) and ("{{" in value or "{%" in value)


class _Constructor(SafeConstructor):
    """Takes the tags of Ansible, and the last of repeated keys, as Ansible does."""

    repeated: list[str]

    def check_mapping_key(
        self, node: Any, key_node: Any, mapping: Any, key: Any, value: Any
    ) -> bool:
        """Whether the value is to be taken."""
        if key in mapping:
            self.repeated.append(str(key))
        return True

    def construct_yaml_map(self, node: Any) -> Iterator[Lined]:
        """A mapping, filled in once it is known, as an alias may be within it."""
        made = Lined()
        made.lines = {}
        yield made
        made.update(self.construct_mapping(node))
        made.lines = {
            key.value: key.start_mark.line + 1 for key, _ in node.value if key.id == "scalar"
        }


def _vaulted(_constructor: Any, _node: Any) -> Vaulted:
    return Vaulted()


def _verbatim(constructor: Any, node: Any) -> Any:
    return constructor.construct_scalar(node)


_Constructor.add_constructor("tag:yaml.org,2002:map", _Constructor.construct_yaml_map)
_Constructor.add_constructor("!vault", _vaulted)
_Constructor.add_constructor("!unsafe", _verbatim)


def _yaml(repeated: list[str]) -> YAML:
    """A reader that adds the keys which are there more than once to ``repeated``."""
    yaml = YAML(typ="safe", pure=True)
    yaml.Constructor = type("Reading", (_Constructor,), {"repeated": repeated})
    return yaml


def _fill_in(found: Vars) -> None:
    """Put plain variables of the file in the place of ``{{ name }}``; tell those that were used."""
    used: set[str] = set()
    plain = {
        key: value
        for key, value in found.values.items()
        if isinstance(value, str | int | float) and not isinstance(value, bool)
    }

    left = _MOST_VALUES

    def filled(value: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise RecursionError
        if isinstance(value, dict):
            whole = Lined((key, filled(each)) for key, each in value.items())
            whole.lines = lines_of(value)
            return whole
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
