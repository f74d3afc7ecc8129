"""Where install ISOs come from: a path is taken from the folder of the file that names it."""

from __future__ import annotations

from pathlib import Path

from blocks.manifest.faults import Fault
from blocks.manifest.tree import Item
from blocks.paths import named_path


def expand_origins(hypervisor: Item, faults: list[Fault]) -> None:
    """Make the path in every ``iso.source`` of a document absolute; URLs stay as they are.

    Whether the file is there is asked when it is needed: a manifest may be checked anywhere.
    """
    nodes = hypervisor.entries("nodes").values()
    seen: set[int] = set()
    for iso in (hypervisor.get("iso"), *(node.get("iso") for node in nodes)):
        source = iso.get("source") if iso is not None else None
        if source is None or id(source) in seen:
            continue
        seen.add(id(source))
        text = source.value
        if source.broken or not isinstance(text, str) or not text.strip() or "://" in text:
            continue
        try:
            path = named_path(text.strip(), source.file.parent)
        except OSError as error:
            source.broken = True
            faults.append(source.fault(f"names no file: {error.strerror}", "write a path or a URL"))
        else:
            source.value = str(Path(path).absolute())
