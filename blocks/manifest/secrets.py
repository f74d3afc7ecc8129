"""Puts values in the place of ``${env:NAME}`` and its like, and remembers which were secret."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from blocks.manifest.faults import Fault, nearest, show_path
from blocks.manifest.generated import Generator
from blocks.manifest.tree import Item, scalars
from blocks.manifest.vault import Vault, VaultTrouble
from blocks.paths import named_path, read_small
from blocks.units import MIB

MASK = "***"
SOURCES = ("env", "file", "vault", "gen", "ref")
_TEMPLATE = re.compile(r"(?P<escape>\$?)\$\{(?P<source>[a-z]+):(?P<spec>[^}|]*)(?P<pipes>[^}]*)\}")
_PASSED_THROUGH = re.compile(r"spec\.(linux|databases)\b")
_LONGEST_PASSWORD = 4096
_LARGEST_FILE = MIB
_LONGEST_CHAIN = 50


class Secrets:
    """The secret values that were met. It shows none of them."""

    def __init__(self) -> None:
        self._values: set[str] = set()

    def add(self, value: str) -> None:
        """Remember a value, and the forms in which it may turn up again."""
        self._values.update(form for form in (value, value.strip()) if form)

    def mask(self, text: str) -> str:
        """The text with ``***`` in the place of every secret.

        Values of less than four characters are hidden only where they are the whole text or stand
        between quotes, since ``1`` is also part of every address.
        """
        for value in sorted(self._values, key=len, reverse=True):
            if len(value) >= 4:
                text = text.replace(value, MASK).replace(repr(value)[1:-1], MASK)
            elif text == value:
                return MASK
            else:
                text = text.replace(f"'{value}'", f"'{MASK}'")
        return text

    def __repr__(self) -> str:
        return f"<{len(self._values)} secrets>"


class _Unresolved(Exception):
    """A template has no value: what is wrong, and what would be right."""

    def __init__(self, problem: str, remedy: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.remedy = remedy


@dataclass(frozen=True)
class _Value:
    text: str
    secret: bool


class Resolver:
    """Resolves all templates of one environment in place.

    ``generator`` makes the generator of an environment from its name. ``files`` takes the files
    that were read on the way.
    """

    def __init__(
        self,
        root: Item,
        env: Mapping[str, str],
        generator: Callable[[str], Generator],
        faults: list[Fault],
        files: list[Path],
    ) -> None:
        self.secrets = Secrets()
        self._root = root
        self._env = env
        self._make_generator = generator
        self._generator: Generator | None = None
        self._vault = Vault(env)
        self._faults = faults
        self._files = files
        self._done: set[int] = set()
        self._open: list[Item] = []

    def resolve(self) -> None:
        """Resolve every template outside the layers that are passed through."""
        for item in scalars(self._root):
            if not _PASSED_THROUGH.match(item.key):
                self._settle(item)

    def _settle(self, item: Item) -> None:
        if id(item) in self._done or not isinstance(item.value, str) or "${" not in item.value:
            return
        self._open.append(item)
        try:
            self._fill(item, item.value)
        except _Unresolved as trouble:
            self._faults.append(item.fault(trouble.problem, trouble.remedy))
            item.broken = True
            item.value = None
        finally:
            self._open.pop()
            self._done.add(id(item))

    def _fill(self, item: Item, template: str) -> None:
        whole = _TEMPLATE.fullmatch(template)
        if whole is not None and whole["source"] == "ref" and not whole["escape"] + whole["pipes"]:
            target = self._target(whole["spec"].strip())
            item.value, item.masked = target.value, target.masked
            return
        real: list[str] = []
        shown: list[str] = []
        end = 0
        for found in _TEMPLATE.finditer(template):
            before = template[end : found.start()]
            value = self._value(found, item)
            real += [before, value.text]
            shown += [before, MASK if value.secret else value.text]
            end = found.end()
            if value.secret:
                self.secrets.add(value.text)
        real.append(template[end:])
        shown.append(template[end:])
        item.value = "".join(real)
        item.masked = "".join(shown) if shown != real else None

    def _value(self, found: re.Match[str], item: Item) -> _Value:
        text = found[0]
        source, spec = found["source"], found["spec"].strip()
        if found["escape"]:
            return _Value(text[1:], secret=False)
        if source not in SOURCES:
            meant = nearest(source, SOURCES)
            if meant is None or item.key.startswith("hooks."):
                return _Value(text, secret=False)  # a shell's ${name:...}, for example
            raise _Unresolved(
                f"unknown source {source!r} of a secret",
                f"did you mean {meant!r}? (sources: {', '.join(SOURCES)})",
            )
        filters = [part.strip() for part in found["pipes"].split("|")[1:]]
        default = next((part[8:] for part in filters if re.match(r"default[:=]", part)), None)
        for part in filters:
            if part != "base64" and not re.match(r"default[:=]", part):
                raise _Unresolved(
                    f"unknown filter {part!r}", "use default:VALUE or base64 after the '|'"
                )
        try:
            value = self._read(source, spec, item)
        except _Unresolved:
            if default is None:
                raise
            value = _Value(default.strip(), secret=True)
        if "base64" in filters:
            if value.secret:
                self.secrets.add(value.text)
            value = _Value(base64.b64encode(value.text.encode()).decode(), value.secret)
        return value

    def _read(self, source: str, spec: str, item: Item) -> _Value:
        if not spec:
            raise _Unresolved(f"has nothing after '{source}:'", _FORMS[source])
        match source:
            case "env":
                value = self._env.get(spec, "")
                if not value:
                    raise _Unresolved(
                        f"the environment variable {spec} is not set",
                        f"export {spec}, or write ${{env:{spec}|default:VALUE}}",
                    )
                return _Value(value, secret=True)
            case "file":
                return _Value(self._file(spec, item), secret=True)
            case "vault":
                return _Value(self._from_vault(spec), secret=True)
            case "gen":
                return self._generated(spec)
            case _:
                target = self._target(spec)
                if isinstance(target.value, bool):
                    return _Value(str(target.value).lower(), secret=target.masked is not None)
                return _Value(str(target.value), secret=target.masked is not None)

    def _file(self, spec: str, item: Item) -> str:
        try:
            path = named_path(spec, item.file.parent)
            text = read_small(path, _LARGEST_FILE)
        except UnicodeDecodeError:
            raise _Unresolved(f"the file {spec} is no UTF-8 text") from None
        except OSError as error:
            raise _Unresolved(
                f"the file {spec} cannot be read: {error.strerror}",
                f"paths start at the folder {show_path(item.file.parent)}",
            ) from None
        if path not in self._files:
            self._files.append(path)
        value = text.rstrip("\r\n")
        if not value:
            raise _Unresolved(f"the file {spec} is empty")
        return value

    def _from_vault(self, spec: str) -> str:
        if not self._vault.configured:
            raise _Unresolved("no reader for Vault is configured", "set VAULT_ADDR and VAULT_TOKEN")
        path, _, key = spec.partition("#")
        try:
            return self._vault.get(path, key)
        except VaultTrouble as trouble:
            raise _Unresolved(str(trouble)) from None

    def _generated(self, spec: str) -> _Value:
        # Both password:16:label and password,length=16,seed=label are in use.
        kind, *rest = re.split(r"[:,]", spec)
        given = [part.partition("=")[2] if "=" in part else part for part in rest]
        if kind == "password":
            length = given[0] if given else ""
            if not _is_number(length) or not 1 <= int(length) <= _LONGEST_PASSWORD:
                raise _Unresolved("the password needs its length in characters", _FORMS["gen"])
            label = given[1] if len(given) > 1 else ""
            return _Value(self._made(lambda maker: maker.password(int(length), label)), secret=True)
        if kind == "ssh_key":
            key_type = given[0] if given else "ed25519"
            return _Value(self._made(lambda maker: maker.ssh_public_key(key_type)), secret=False)
        raise _Unresolved(f"cannot generate {kind!r}", _FORMS["gen"])

    def _made(self, make: Callable[[Generator], str]) -> str:
        if self._generator is None:
            name = self._root.get("metadata", "name")
            if name is not None and any(item is name for item in self._open):
                raise _Unresolved("the name of the environment cannot be generated")
            if name is not None:
                self._settle(name)
            known = self._root.text("metadata", "name")
            if not known or "/" in known or known in {".", ".."}:
                raise _Unresolved("needs metadata.name, which is missing or wrong")
            self._generator = self._make_generator(known)
        try:
            return make(self._generator)
        except ValueError as error:
            raise _Unresolved(str(error)) from None
        except OSError as error:
            where = f" ({error.filename})" if error.filename else ""
            raise _Unresolved(
                f"the state folder cannot be used: {error.strerror or error}{where}",
                "name another one in PROXFLOW_STATE_DIR",
            ) from None

    def _target(self, spec: str) -> Item:
        target = _find(self._root, spec)
        if target is None:
            raise _Unresolved(f"there is no {spec!r} to refer to", _FORMS["ref"])
        if isinstance(target.value, dict | list):
            raise _Unresolved(f"{spec!r} is no single value", _FORMS["ref"])
        if any(item is target for item in self._open):
            start = next(index for index, item in enumerate(self._open) if item is target)
            chain = " -> ".join(item.key for item in (*self._open[start:], target))
            raise _Unresolved(f"refers to itself: {chain}", "remove one of these references")
        if len(self._open) > _LONGEST_CHAIN:
            raise _Unresolved(f"is reached by more than {_LONGEST_CHAIN} references in a row")
        self._settle(target)
        if target.broken or target.value is None:
            raise _Unresolved(f"{spec!r} has no value")
        return target


_FORMS = {
    "env": "write ${env:NAME}",
    "file": "write ${file:PATH}",
    "vault": "write ${vault:secret/data/db#password}",
    "gen": "write ${gen:password:24}, ${gen:password:24:LABEL} or ${gen:ssh_key:ed25519}",
    "ref": "write the dotted path from the top, such as ${ref:metadata.name}",
}


def _is_number(text: str) -> bool:
    """Whether a text is a number of a length that means something."""
    return text.isdecimal() and len(text) < 10


def _find(root: Item, spec: str) -> Item | None:
    """The item at a dotted path. Keys may hold dots themselves: the longest one that fits wins."""
    if not spec:
        return root
    if isinstance(root.value, list):
        head, _, rest = spec.lstrip("[").replace("]", "", 1).partition(".")
        found = root.get(int(head)) if _is_number(head) else None
        return _find(found, rest) if found is not None else None
    if not isinstance(root.value, dict):
        return None
    for key in sorted(root.value, key=len, reverse=True):
        if spec == key or (spec.startswith(key) and spec[len(key)] in ".["):
            found = _find(root.value[key], spec[len(key) :].removeprefix("."))
            if found is not None:
                return found
    return None
