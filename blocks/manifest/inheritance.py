"""What a node has from elsewhere in its document: the defaults, the common iso and kickstart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from blocks.manifest.tree import Item, merge

_PARTS = ("iso", "kickstart")


def merge_defaults(hypervisor: Item) -> None:
    """Put the defaults under every node, and the document's iso and kickstart under the node's."""
    defaults = hypervisor.get("defaults")
    nodes = hypervisor.get("nodes")
    if nodes is None or not isinstance(nodes.value, dict):
        return
    for label, node in nodes.value.items():
        if not isinstance(node.value, dict):
            continue
        merged = node if defaults is None else _over(node, defaults)
        assert isinstance(merged.value, dict)  # noqa: S101 - merging mappings gives a mapping
        for part in _PARTS:
            own, common = merged.get(part), hypervisor.get(part)
            if own is not None and common is not None:
                merged = replace(merged, value={**merged.value, part: merge(own, common)})
        nodes.value[label] = merged


def whole_nodes(root: Item) -> Item:
    """The tree as the models see it: the document's iso and kickstart are in its nodes alone.

    So they need not be whole, where what they lack is in each node that uses them.
    """
    spec, hypervisor = root.get("spec"), root.get("spec", "hypervisor")
    nodes = hypervisor.get("nodes") if hypervisor is not None else None
    if spec is None or hypervisor is None or nodes is None or not isinstance(nodes.value, dict):
        return root
    common = {part: item for part in _PARTS if (item := hypervisor.get(part)) is not None}
    whole = {
        label: _with(node, {part: item for part, item in common.items() if not node.get(part)})
        for label, node in nodes.value.items()
    }
    layer = _with(hypervisor, {"nodes": replace(nodes, value=whole)}, without=_PARTS)
    return _with(root, {"spec": _with(spec, {"hypervisor": layer})})


def _with(item: Item, more: Mapping[str, Item], without: tuple[str, ...] = ()) -> Item:
    """A mapping with other entries; what is no mapping stays as it is."""
    if not isinstance(item.value, dict):
        return item
    kept = {key: child for key, child in item.value.items() if key not in without}
    return replace(item, value={**kept, **more})


def _over(node: Item, defaults: Item) -> Item:
    """A node over the defaults. Tags add up, since they are a set; other lists are replaced."""
    merged = merge(node, defaults)
    own, common = node.get("tags"), defaults.get("tags")
    if (
        own is not None
        and common is not None
        and isinstance(own.value, list)
        and isinstance(common.value, list)
        and isinstance(merged.value, dict)
    ):
        both = replace(own, value=[*common.value, *own.value])
        merged = replace(merged, value={**merged.value, "tags": both})
    return merged
