"""Reads YAML files and what they point to with ``$ref`` into one tree."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError

from blocks.manifest.faults import Fault, nearest, show_path
from blocks.manifest.tree import Item, Scalar, join, merge
from blocks.paths import is_file, named_path, read_small, real_path
from blocks.units import MIB

_TAG = "tag:yaml.org,2002:"
_MAX_ITEMS = 100_000
_MAX_REFS = 2_000
_MAX_CHAIN = 50
_MAX_DEPTH = 100
_MAX_BYTES = 5 * MIB
# Above any number that means something; Python refuses to write out those of 4,300 digits.
_MAX_DIGITS = 40
# Layers for other tools: what they hold is passed through, references in it included.
_PASSED_THROUGH = re.compile(r"spec\.(linux|databases\[\d+\])[.\[]")


@dataclass
class Reader:
    """Collects the faults and the names of all files on the way."""

    faults: list[Fault] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    _items: int = 0
    _refs: int = 0
    _depth: int = 0
    _open: set[int] = field(default_factory=set)

    @property
    def exhausted(self) -> bool:
        """Whether reading was given up, since there is too much of it."""
        return self._items > _MAX_ITEMS or self._refs > _MAX_REFS

    def read(self, path: Path, key: str = "", *, chain: tuple[Path, ...] = ()) -> Item | None:
        """The tree of a file, whose top is ``key`` in the environment; None if it has none.

        ``chain`` lists the files that led here by ``$ref``.
        """
        if path not in self.files:
            self.files.append(path)
        root = self._compose(path, key)
        if root is None:
            return None
        item = self._item(root, path, root.start_mark.line + 1, key, (*chain, path))
        if isinstance(item.value, dict):
            return item
        if not item.broken:
            self.faults.append(item.fault("must be a mapping", "write it as 'key: value' lines"))
        return None

    def _compose(self, path: Path, key: str) -> Node | None:
        def refuse(problem: str, remedy: str = "", line: int | None = None) -> None:
            self.faults.append(
                Fault(file=show_path(path), line=line, key=key, problem=problem, remedy=remedy)
            )

        try:
            text = read_small(path, _MAX_BYTES, "utf-8-sig")
        except UnicodeDecodeError as error:
            refuse(f"is no UTF-8 text (byte {error.start})", "save it as UTF-8")
            return None
        except OSError as error:
            refuse(f"cannot be read: {error.strerror or 'input/output error'}")
            return None
        try:
            root = compose(text)
        except ReaderError as error:
            line = text.count("\n", 0, error.position) + 1 if error.position else 1
            refuse("has a character that YAML does not allow", "remove the control character", line)
            return None
        except MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            what = " ".join(part for part in (error.context, error.problem) if part)
            what = re.sub(r"\s+", " ", what)
            column = f" (column {mark.column + 1})" if mark else ""
            refuse(f"is no valid YAML: {what}{column}", line=mark.line + 1 if mark else None)
            return None
        except (YAMLError, RecursionError, ValueError) as error:
            deep = isinstance(error, RecursionError)
            refuse(*(_TOO_DEEP if deep else ("is no valid YAML",)))
            return None
        if root is None:
            refuse("is empty")
        return root

    def _item(self, node: Node, file: Path, line: int, key: str, chain: tuple[Path, ...]) -> Item:
        self._items += 1
        if self._items > _MAX_ITEMS:
            if self._items == _MAX_ITEMS + 1:
                self.faults.append(
                    Fault(
                        file=show_path(file),
                        line=line,
                        key=key,
                        problem=f"has more than {_MAX_ITEMS} parts",
                        remedy="aliases that nest each other multiply; write them out",
                    )
                )
            return Item(None, file, line, key, broken=True)
        if isinstance(node, MappingNode | SequenceNode):
            return self._collection(node, file, line, key, chain)
        value = _scalar(node)
        if value is _UNKNOWN:
            item = Item(None, file, line, key, broken=True)
            self.faults.append(
                item.fault(f"has the tag {node.tag!r}, which means nothing here", "remove the tag")
            )
            return item
        return Item(value, file, line, key)  # type: ignore[arg-type]

    def _collection(
        self,
        node: MappingNode | SequenceNode,
        file: Path,
        line: int,
        key: str,
        chain: tuple[Path, ...],
    ) -> Item:
        item = Item(None, file, line, key, broken=True)
        if id(node) in self._open:
            self.faults.append(
                item.fault("refers to itself", "take the alias (*) out of its anchor")
            )
            return item
        if self._depth >= _MAX_DEPTH:
            self.faults.append(item.fault(*_TOO_DEEP))
            return item
        self._open.add(id(node))
        self._depth += 1
        try:
            if isinstance(node, MappingNode):
                return self._mapping(node, file, line, key, chain)
            children = [
                self._item(child, file, child.start_mark.line + 1, join(key, index), chain)
                for index, child in enumerate(node.value)
            ]
            return Item(children, file, line, key)
        finally:
            self._depth -= 1
            self._open.discard(id(node))

    def _mapping(
        self, node: MappingNode, file: Path, line: int, key: str, chain: tuple[Path, ...]
    ) -> Item:
        entries: dict[str, Item] = {}
        item = Item(entries, file, line, key)
        inherited: list[Item] = []
        for key_node, value_node in node.value:
            key_line = key_node.start_mark.line + 1
            if not isinstance(key_node, ScalarNode):
                self.faults.append(
                    Item(None, file, key_line, key).fault("has a key that is no plain word")
                )
                continue
            name = _whole(str(key_node.value))
            if key_node.tag == _TAG + "merge":
                sources = value_node.value if isinstance(value_node, SequenceNode) else [value_node]
                inherited += [self._item(each, file, key_line, key, chain) for each in sources]
                continue
            child = self._item(value_node, file, key_line, join(key, name), chain)
            if name in entries:
                self.faults.append(
                    child.fault(
                        f"is written twice; the first time in line {entries[name].line}",
                        "keep one of them",
                    )
                )
                continue
            entries[name] = child
        for base in inherited:
            item = merge(item, base)
        if "$ref" in entries and not _PASSED_THROUGH.match(key):
            return self._referred(item, chain)
        return item

    def _referred(self, item: Item, chain: tuple[Path, ...]) -> Item:
        """The file that ``$ref`` names, with what stands beside ``$ref`` merged over it."""
        assert isinstance(item.value, dict)  # noqa: S101 - only called with mappings
        beside = {name: child for name, child in item.value.items() if name != "$ref"}
        broken = Item(beside or None, item.file, item.line, item.key, broken=True)
        if self.exhausted:
            return broken
        try:
            target = self._target(item.value["$ref"], item.file.parent, chain)
        except _Refused as refused:
            self.faults.append(refused.fault)
            return broken
        loaded = self.read(target, item.key, chain=chain)
        if loaded is None:
            return broken
        loaded.line = loaded.line or 1
        over = Item(beside, item.file, item.line, item.key)
        return merge(over, loaded) if beside else loaded

    def _target(self, ref: Item, folder: Path, chain: tuple[Path, ...]) -> Path:
        """The file that a ``$ref`` in a folder names. Raises _Refused."""
        if not isinstance(ref.value, str) or not ref.value.strip():
            raise _Refused(ref.fault("must be the path of a file", "such as $ref: ./networks.yaml"))
        self._refs += 1
        if self._refs > _MAX_REFS:
            raise _Refused(
                ref.fault(f"is one of more than {_MAX_REFS} references", "put files together")
            )
        if len(chain) > _MAX_CHAIN:
            raise _Refused(
                ref.fault(
                    f"is reached by more than {_MAX_CHAIN} references in a row",
                    "put files together",
                )
            )
        try:
            target = real_path(named_path(ref.value, folder))
            is_folder = target.is_dir()
            exists = target.exists()
        except OSError as error:
            raise _Refused(ref.fault(f"{ref.value!r}: {error.strerror}")) from None
        if target in chain:
            names = " -> ".join(show_path(step) for step in (*chain[chain.index(target) :], target))
            raise _Refused(
                ref.fault(f"goes round in a circle: {names}", "remove one of these references")
            )
        if not is_file(target):
            what = (
                "is a device or a pipe, not a regular file" if exists else "there is no such file"
            )
            what = "is a folder" if is_folder else what
            raise _Refused(ref.fault(f"{ref.value!r}: {what}", _neighbours(target, chain)))
        return target


class _Refused(Exception):
    """A reference leads nowhere."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault)
        self.fault = fault


_UNKNOWN = object()
_SURROGATES = re.compile("[\ud800-\udfff]")
_TOO_DEEP = ("is nested too deeply", f"more than {_MAX_DEPTH} levels are not read")


@lru_cache(maxsize=64)
def compose(text: str) -> Node | None:
    """The nodes of a YAML text. Nobody changes what is returned.

    Composing is nearly all of a load's time, and each stage of a run loads the same files again.
    """
    found: Node | None = YAML(typ="safe", pure=True).compose(text)
    return found


def _scalar(node: Node) -> Scalar | object:
    """The value of a scalar as YAML 1.2 reads it. Dates stay text."""
    text = _whole(str(node.value))
    kind = str(node.tag).removeprefix(_TAG)
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() == "true"
    try:
        if kind == "int" and len(text) <= _MAX_DIGITS:
            digits = text.replace("_", "")
            prefixed = digits.lstrip("+-")[:2].lower() in {"0x", "0o", "0b"}
            return int(digits, 0) if prefixed else int(digits)
        if kind == "float":
            return float(re.sub(r"\.(inf|nan)", r"\1", text.lower()).replace("_", ""))
    except ValueError:
        return text
    return text if kind in {"str", "int", "timestamp", "merge"} else _UNKNOWN


def _whole(text: str) -> str:
    """The text with surrogate pairs joined: JSON escapes some characters as two halves.

    A half alone is no character, and could be written to no file; U+FFFD takes its place.
    """
    if not _SURROGATES.search(text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _neighbours(target: Path, chain: tuple[Path, ...]) -> str:
    """The file that was probably meant, or where one was looked for."""
    try:
        files = [each for each in target.parent.iterdir() if each.suffix in (".yaml", ".yml")]
    except OSError:
        return f"the folder {show_path(target.parent)} does not exist"
    close = nearest(target.name, [each.name for each in files if each not in chain])
    return f"did you mean {close!r}?" if close else f"it was looked for at {show_path(target)}"
