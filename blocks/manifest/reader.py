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
from blocks.paths import is_file, named_path

_TAG = "tag:yaml.org,2002:"
_MAX_ITEMS = 100_000
# Layers for other tools: what they hold is passed through, references in it included.
_PASSED_THROUGH = re.compile(r"spec\.(linux|databases\[\d+\])[.\[]")


@dataclass
class Reader:
    """Collects the faults and the names of all files on the way."""

    faults: list[Fault] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    _items: int = 0

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
            text = path.read_text(encoding="utf-8-sig")
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
        except (YAMLError, RecursionError, ValueError):
            refuse("is no valid YAML")
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
        if isinstance(node, MappingNode):
            return self._mapping(node, file, line, key, chain)
        if isinstance(node, SequenceNode):
            item = Item([], file, line, key)
            item.value = [
                self._item(child, file, child.start_mark.line + 1, join(key, index), chain)
                for index, child in enumerate(node.value)
            ]
            return item
        value = _scalar(node)
        if value is _UNKNOWN:
            item = Item(None, file, line, key, broken=True)
            self.faults.append(
                item.fault(f"has the tag {node.tag!r}, which means nothing here", "remove the tag")
            )
            return item
        return Item(value, file, line, key)  # type: ignore[arg-type]

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
            name = str(key_node.value)
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
        ref = item.value["$ref"]
        broken = Item(beside or None, item.file, item.line, item.key, broken=True)
        if not isinstance(ref.value, str) or not ref.value.strip():
            self.faults.append(
                ref.fault("must be the path of a file", "such as $ref: ./networks.yaml")
            )
            return broken
        try:
            target = named_path(ref.value, item.file.parent).resolve()
            folder = target.is_dir()
        except OSError as error:
            self.faults.append(ref.fault(f"{ref.value!r}: {error.strerror}"))
            return broken
        if target in chain:
            names = " -> ".join(show_path(step) for step in (*chain[chain.index(target) :], target))
            self.faults.append(
                ref.fault(f"goes round in a circle: {names}", "remove one of these references")
            )
            return broken
        if not is_file(target):
            what = "is a folder" if folder else "there is no such file"
            self.faults.append(ref.fault(f"{ref.value!r}: {what}", _neighbours(target, chain)))
            return broken
        loaded = self.read(target, item.key, chain=chain)
        if loaded is None:
            return broken
        loaded.line = loaded.line or 1
        over = Item(beside, item.file, item.line, item.key)
        return merge(over, loaded) if beside else loaded


_UNKNOWN = object()


@lru_cache(maxsize=64)
def compose(text: str) -> Node | None:
    """The nodes of a YAML text. Nobody changes what is returned.

    Composing is nearly all of a load's time, and each stage of a run loads the same files again.
    """
    found: Node | None = YAML(typ="safe", pure=True).compose(text)
    return found


def _scalar(node: Node) -> Scalar | object:
    """The value of a scalar as YAML 1.2 reads it. Dates stay text."""
    text = str(node.value)
    kind = str(node.tag).removeprefix(_TAG)
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() == "true"
    try:
        if kind == "int":
            digits = text.replace("_", "")
            prefixed = digits.lstrip("+-")[:2].lower() in {"0x", "0o", "0b"}
            return int(digits, 0) if prefixed else int(digits)
        if kind == "float":
            return float(re.sub(r"\.(inf|nan)", r"\1", text.lower()).replace("_", ""))
    except ValueError:
        return text
    return text if kind in {"str", "timestamp", "merge"} else _UNKNOWN


def _neighbours(target: Path, chain: tuple[Path, ...]) -> str:
    """The file that was probably meant, or where one was looked for."""
    try:
        files = [each for each in target.parent.iterdir() if each.suffix in (".yaml", ".yml")]
    except OSError:
        return f"the folder {show_path(target.parent)} does not exist"
    close = nearest(target.name, [each.name for each in files if each not in chain])
    return f"did you mean {close!r}?" if close else f"it was looked for at {show_path(target)}"
