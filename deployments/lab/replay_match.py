"""Comparing an answer with a recorded one: placeholders, cut-down data, order of rows."""

from __future__ import annotations

import json
import re
from typing import Any

from deployments.lab.replay_fixtures import FIXTURE_ROWS, NODE

STOCK_ONLY_KEYS = {
    *("running-qemu", "running-machine", "proxmox-support", "blockstat", "ballooninfo"),
    *("balloon", "freemem"),
}
_DISK_COUNTERS = {"diskread", "diskwrite"}
_PATTERNS = {
    "MAC": r"[0-9A-Fa-f]{2}(?::[0-9A-Fa-f]{2}){5}",
    "UUID": r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}",
    "DIGEST": r"[0-9a-f]{40}",
    "HASH": r"\$\S+",
    "REPOID": r"[0-9a-f]+",
    "HEX": r"[0-9A-Za-z]+",
    "TICKET": r"PVE:\S+",
    "CSRF": r"\S+",
    "file": r".+",
    "num": r"-?[\d.]+",
    "numstr": r"-?[\d.]+",
    "str": r".*",
}
_ROW_KEYS = (
    "volid",
    "id",
    "poolid",
    "upid",
    "key",
    "iface",
    "vmid",
    "storage",
    "node",
    "name",
    "subdir",
)


def text_pattern(expected: str) -> re.Pattern[str]:
    """The regular expression of a recorded text with placeholders."""
    text = expected.replace("{node}", NODE).replace("(<num>B/s)", "(<rate>)")

    def one(match: re.Match[str]) -> str:
        name = match.group(1)
        if name.startswith("UPID:"):
            _, kind, task_id = name.split(":", 2)
            return rf"UPID:{NODE}(?::[0-9A-F]+){{3}}:{re.escape(kind)}:{re.escape(task_id)}:\S+:"
        if name == "rate":
            return r"[\d.]+ ?[KMGT]?B/s"
        return _PATTERNS.get(name, r".*")

    parts = re.split(r"(<[^<>\s][^<>]*>)", text)
    joined = [
        one(m)
        if (m := re.fullmatch(r"<([^<>]+)>", part)) and _is_placeholder(part)
        else re.escape(part)
        for part in parts
    ]
    return re.compile("".join(joined), re.DOTALL)


def _is_placeholder(part: str) -> bool:
    return part not in ("<drive>", "<storage ID>", "<source>")


def fold_log(lines: list[str]) -> list[str]:
    """Progress lines folded as the recorder folded them."""
    folded: list[str] = []
    for raw in lines:
        line = raw
        if raw.startswith("transferred "):
            line = "transferred <progress>"
        elif re.match(r"\s+\d+K ", raw):
            line = "<wget progress>"
        if not (folded and folded[-1] == line and "progress>" in line):
            folded.append(line)
    return folded


def differences(expected: Any, actual: Any, where: str = "") -> list[str]:  # noqa: PLR0911
    """Texts that say where two values differ."""
    if isinstance(expected, str):
        return _text_differences(expected, actual, where)
    if isinstance(expected, dict):
        if not isinstance(actual, dict):
            return [f"{where}: wanted an object, got {short(actual)}"]
        found = []
        for key in sorted({*expected, *actual}):
            place = f"{where}.{key}"
            if key == "cgroup-mode" or _host_pressure(key, expected):
                continue
            if key not in expected:
                found.append(f"{place}: extra {short(actual[key])}")
            elif key not in actual:
                found.append(f"{place}: missing, wanted {short(expected[key])}")
            else:
                value = actual[key]
                if key == "content" and isinstance(value, str):
                    value = ",".join(sorted(value.split(",")))
                found += differences(expected[key], value, place)
        return found
    if isinstance(expected, list):
        if not isinstance(actual, list):
            return [f"{where}: wanted a list, got {short(actual)}"]
        return _list_differences(expected, actual, where)
    if type(expected) is not type(actual) or expected != actual:
        return [f"{where}: wanted {short(expected)}, got {short(actual)}"]
    return []


def _host_pressure(key: str, expected: dict[str, Any]) -> bool:
    """Pressure values that the recording host could not tell for containers."""
    return key.startswith("pressure") and key in expected and expected[key] is None


def _text_differences(expected: str, actual: Any, where: str) -> list[str]:
    wrong = [f"{where}: wanted {short(expected)}, got {short(actual)}"]
    if expected == "<num>":
        good = isinstance(actual, int | float) and not isinstance(actual, bool)
        return [] if good else wrong
    if expected == "<saved>":
        return [] if str(actual) in ("0", "1") else wrong
    if expected == "<rights dict, int 1 each>":
        good = isinstance(actual, dict) and all(v == 1 for v in actual.values())
        return [] if good else wrong
    if not isinstance(actual, str):
        return wrong
    return [] if text_pattern(expected).fullmatch(actual) else wrong


def _list_differences(expected: list[Any], actual: list[Any], where: str) -> list[str]:
    if len(expected) != len(actual):
        return [f"{where}: wanted {len(expected)} rows {short(expected)}, got {short(actual)}"]
    return [
        text
        for index, (one, other) in enumerate(zip(expected, actual, strict=True))
        for text in differences(one, other, f"{where}[{row_name(one) or index}]")
    ]


def row_name(row: Any) -> str:
    """What a row of a list is about."""
    if not isinstance(row, dict):
        return ""
    return next((str(row[key]) for key in _ROW_KEYS if key in row), "")


def short(value: Any) -> str:
    """A value in one line."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 300 else text[:297] + "..."


def cut_like(expected: Any, actual: Any, path: str) -> Any:
    """The part of an answer that the recorder kept, judged by the shape of what it wrote down."""
    if isinstance(expected, list) and isinstance(actual, list):
        return _cut_list(expected, actual, path)
    if not (isinstance(expected, dict) and isinstance(actual, dict)):
        return actual
    if path.endswith("/status/current"):
        actual = _without_stock_only(actual, path)
    config_cut = path.endswith("/config") and "digest" not in expected and "/snapshot/" not in path
    status_cut = path.endswith("/status/current") and "cpu" not in expected
    if config_cut:
        stems = {_stem(key) for key in expected}
        return {k: v for k, v in actual.items() if _stem(k) in stems}
    if status_cut:
        return {key: value for key, value in actual.items() if key in expected}
    return actual


def _stem(key: str) -> str:
    return key.rstrip("0123456789")


def _without_stock_only(row: dict[str, Any], path: str) -> dict[str, Any]:
    """A row without what the recording server could not tell; containers have disk counters."""
    unknown = STOCK_ONLY_KEYS | (_DISK_COUNTERS if "/qemu" in path else set())
    return {key: value for key, value in row.items() if key not in unknown}


def _cut_list(expected: list[Any], actual: list[Any], path: str) -> list[Any]:
    names = {row_name(row) for row in expected}
    rows = [_without_stock_only(row, path) if isinstance(row, dict) else row for row in actual]
    if path.endswith("/pending") and "digest" not in names:
        rows = [r for r in rows if "pending" in r or "delete" in r or row_name(r) in names]
    if path.endswith("/capabilities/qemu/cpu"):
        rows = [row for row in rows if row["name"] in names]
    rows = [row for row in rows if row_name(row) in names or row_name(row) not in FIXTURE_ROWS]
    rows = [_cut_members(row, expected) for row in rows]
    if path.endswith("/tasks"):
        return rows[: len(expected)] if path == "/cluster/tasks" else rows
    if path.endswith(("/log", "/snapshot")):
        return rows
    return sorted(rows, key=_sort_key)


def _cut_members(row: Any, expected: list[Any]) -> Any:
    if not (isinstance(row, dict) and isinstance(row.get("members"), list)):
        return row
    known = next((e for e in expected if row_name(e) == row_name(row)), None)
    if not known or not known.get("members"):
        return row
    keys = set(known["members"][0])
    full = "cpu" in keys
    return row | {
        "members": [
            m if full else {k: v for k, v in m.items() if k in keys} for m in row["members"]
        ]
    }


def sorted_like(expected: Any, path: str) -> Any:
    """Recorded rows in the order in which answers are sorted for the comparison."""
    if not isinstance(expected, list):
        return expected
    if path.endswith(("/tasks", "/log", "/snapshot")):
        return expected
    return sorted(expected, key=_sort_key)


def _sort_key(row: Any) -> str:
    return row_name(row).replace("{node}", NODE) if isinstance(row, dict) else str(row)
