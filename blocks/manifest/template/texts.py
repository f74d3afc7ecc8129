"""Whole cloud-init documents of the operator's: read, checked, and put into the tree as text."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.scalarstring import DoubleQuotedScalarString

from blocks.manifest.faults import Fault
from blocks.manifest.reader import compose
from blocks.manifest.tree import Item, plain, scalars
from blocks.paths import named_path, read_small

CLOUD_CONFIG = "#cloud-config"
_LARGEST = 512 * 1024
_BEGINNINGS = (
    CLOUD_CONFIG,
    "#!",
    "Content-Type: multipart",
    "MIME-Version:",
    "## template: jinja",
    "#include",
    "#cloud-boothook",
    "#part-handler",
)
_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_/.-]*(?: [A-Za-z0-9_/.-]+)*")
_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
_KEYS = ("user_data", "vendor_data", "network_config")


def expand_documents(cloud_init: Item, faults: list[Fault], files: list[Path]) -> None:
    """Replace paths and mappings of whole documents by their text, and check what they are."""
    assert isinstance(cloud_init.value, dict)  # noqa: S101 - only called with mappings
    for key in _KEYS:
        item = cloud_init.value.get(key)
        if item is None or item.value is None or item.broken:
            continue
        network = key == "network_config"
        try:
            made, where = _document(item, network=network, files=files)
            _check(made.value, where, network=network)
        except _Refused as refused:
            faults.append(item.fault(refused.problem, refused.remedy))
            cloud_init.value[key] = Item(None, item.file, item.line, item.key, broken=True)
        else:
            cloud_init.value[key] = made


class _Refused(Exception):
    """A document is none: what is wrong, and what would be right."""

    def __init__(self, problem: str, remedy: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.remedy = remedy


def _document(item: Item, *, network: bool, files: list[Path]) -> tuple[Item, str]:
    """The document as one text, and how messages name it."""
    if isinstance(item.value, dict):
        head = "" if network else f"{CLOUD_CONFIG}\n"
        text = head + _dumped(plain(item))
        hidden = any(each.masked is not None for each in scalars(item))
        made = Item(text, item.file, item.line, item.key, masked="***" if hidden else None)
        return made, ""
    if not isinstance(item.value, str):
        raise _Refused("is no document", "write the path of a file, a text, or a mapping")
    text = item.value
    if "\n" in text.strip() or text.lstrip().startswith("#"):
        return item, ""
    shown = item.masked or text
    try:
        path = named_path(text.strip(), item.file.parent)
        content = read_small(path, _LARGEST)
    except UnicodeDecodeError:
        raise _Refused(f"the file {shown} is no UTF-8 text; save it as UTF-8") from None
    except OSError as error:
        raise _Refused(
            f"the file {shown} cannot be read: {error.strerror}",
            "write the path of an existing file, a text, or a mapping",
        ) from None
    if path not in files:
        files.append(path)
    return Item(content, item.file, item.line, item.key), f"the file {shown} "


def _dumped(document: Any) -> str:
    out = io.StringIO()
    yaml = YAML(typ="rt", pure=True)
    yaml.default_flow_style = False
    yaml.width = 4096
    yaml.dump(_quoted(document), out)
    return out.getvalue()


def _quoted(value: Any) -> Any:
    """The same with quotes around every text that YAML 1.1, which cloud-init reads, takes for
    something else: ``yes``, ``012``, ``1:30``.
    """
    if isinstance(value, dict):
        return {_quoted(key): _quoted(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_quoted(each) for each in value]
    if isinstance(value, str) and (not _PLAIN.fullmatch(value) or value.lower() in _WORDS):
        return DoubleQuotedScalarString(value)
    return value


def _check(text: Any, where: str, *, network: bool) -> None:
    assert isinstance(text, str)  # noqa: S101 - documents are text by now
    if not text.strip():
        raise _Refused(f"{where}is empty")
    if network:
        _check_network(text, where)
        return
    if not text.startswith(_BEGINNINGS):
        raise _Refused(
            f"{where}does not begin with a line that cloud-init knows",
            f"begin it with {CLOUD_CONFIG}, or with #! for a script",
        )
    if re.match(r"#cloud-config\s*$", text, re.MULTILINE):
        _mapping(text, where)


def _check_network(text: str, where: str) -> None:
    document = _mapping(text, where)
    inner = document.get("network", document)
    version = inner.get("version") if isinstance(inner, dict) else None
    if version not in (1, 2):
        raise _Refused(
            f"{where}is no network configuration: 'version' is missing or unknown",
            "write version: 2 and ethernets: ..., as netplan has it",
        )


def _mapping(text: str, where: str) -> dict[str, Any]:
    """The document as plain data. Raises _Refused for what is no mapping of YAML."""
    try:
        compose(text)
        document = YAML(typ="safe", pure=True).load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f" (line {mark.line + 1} of it)" if mark else ""
        raise _Refused(
            f"{where}is no valid YAML: {error.problem or error.context}{place}"
        ) from None
    except (YAMLError, RecursionError, ValueError):
        raise _Refused(f"{where}is no valid YAML") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise _Refused(f"{where}is no mapping", "write it as 'key: value' lines")
    return document
