"""Checks a tree against a pydantic model, and says each refusal with its place."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from blocks.manifest.faults import Fault, nearest, suggestion
from blocks.manifest.hooks import HOOK_TYPES
from blocks.manifest.tree import Item, plain

M = TypeVar("M", bound=BaseModel)

# Nobody reads more of them, and looking for what was meant takes its time with each.
_MOST_ERRORS = 1_000

_WANTED = {
    "string": "must be text",
    "int": "must be a whole number",
    "float": "must be a number",
    "bool": "must be true or false",
    "tuple": "must be a list",
    "list": "must be a list",
    "dict": "must be a mapping",
    "model": "must be a mapping",
    "ip": "is no IP address",
}
_REMEDIES = {
    "string": "put it in quotes",
    "bool": "write true or false",
    "tuple": "write it as [one, two] or as '- one' lines",
    "list": "write it as [one, two] or as '- one' lines",
    "dict": "write it as 'key: value' lines",
    "model": "write it as 'key: value' lines",
    "ip": "write it such as 10.0.0.11",
}
# What people call things that have another name here.
_MEANT_VALUES = {"uefi": "ovmf", "efi": "ovmf", "bios": "seabios", "legacy": "seabios"}
_MEANT_KEYS = {"firmware": "bios", "uefi": "bios"}
_LIMITS = {
    "greater_than_equal": ("ge", "must be at least {}"),
    "greater_than": ("gt", "must be more than {}"),
    "less_than_equal": ("le", "must be at most {}"),
    "less_than": ("lt", "must be less than {}"),
    "too_short": ("min_length", "needs at least {} entries"),
    "string_too_short": ("min_length", "is too short; at least {} characters"),
    "string_too_long": ("max_length", "is too long; at most {} characters"),
    "string_pattern_mismatch": ("pattern", "does not have the form {}"),
}


def validate(model: type[M], root: Item, faults: list[Fault]) -> M | None:
    """The model of a tree, or None after adding everything that is wrong to ``faults``."""
    try:
        return model.model_validate(plain(root))
    except ValidationError as error:
        errors = error.errors(include_url=False, include_input=False)
    known = {_identity(fault) for fault in faults}
    for each in errors[:_MOST_ERRORS]:
        fault = _fault(model, root, each)
        # What stands in defaults is refused once for every node that it is merged under.
        if fault is not None and _identity(fault) not in known:
            known.add(_identity(fault))
            faults.append(fault)
    return None


def _identity(fault: Fault) -> tuple[str, int | None, str, str]:
    """What two faults share that say the same."""
    key = fault.key if fault.problem == "is missing" else ""
    return fault.file, fault.line, fault.problem, key


def _fault(model: type[BaseModel], root: Item, error: ErrorDetails) -> Fault | None:
    loc, kind = error["loc"], error["type"]
    context: Mapping[str, Any] = error.get("ctx") or {}
    item, used, rest = _locate(root, loc)
    if item is None:
        return None
    if kind == "missing":
        name = str(loc[-1])
        # A key that is null is there, and counts as missing all the same.
        below = "" if used == list(loc) else name
        return item.fault("is missing", f"add '{name}: ...'", below=below)
    if kind == "extra_forbidden":
        return _unknown_key(model, item, used)
    if kind.startswith("union_tag"):
        given = item.text("type")
        if given is None:
            return item.fault("is missing", f"add one of {', '.join(HOOK_TYPES)}", below="type")
        where = item.get("type") or item
        return where.fault(f"unknown type {given!r}", suggestion(given, HOOK_TYPES, "types"))
    problem, remedy = _words(kind, context, error["msg"], item)
    if rest and kind in {"string_type", "tuple_type"} and loc[-1] in ("str", "tuple[str, ...]"):
        problem, remedy = "must be text or a list of texts", ""
    return item.fault(problem, remedy)


def _locate(
    root: Item, loc: Sequence[int | str]
) -> tuple[Item | None, list[int | str], list[int | str]]:
    """The deepest item of a location, the steps that led there, and those that led nowhere.

    pydantic puts names of union members between the keys, which the tree does not have. None
    stands for an item that has a fault already.
    """
    item = root
    used: list[int | str] = []
    rest: list[int | str] = []
    for step in loc:
        if item.broken:
            return None, used, rest
        value = item.value
        if (isinstance(value, dict) and step in value) or (
            isinstance(value, list) and isinstance(step, int) and step < len(value)
        ):
            item = value[step]  # type: ignore[index]
            used.append(step)
        else:
            rest.append(step)
    return (None if item.broken else item), used, rest


def _unknown_key(model: type[BaseModel], item: Item, used: Sequence[int | str]) -> Fault:
    name = str(used[-1])
    owner = _model_at(model, used[:-1])
    known = _keys_of(owner)
    close = nearest(name, known) or _other_name(owner, _MEANT_KEYS.get(name.lower(), name))
    listed = f"(known: {', '.join(sorted(known))})"
    return item.fault(
        f"unknown key {name!r}",
        f"did you mean {close!r}? {listed}" if close else f"remove it {listed}",
    )


def _other_name(owner: type[BaseModel] | None, name: str) -> str | None:
    """The key itself, or in the only mapping below that has it: ``resources: {bios: ...}``."""
    fields = owner.model_fields if owner is not None else {}
    if name in fields:
        return name
    homes = [part for part, field in fields.items() if name in _keys_below(field.annotation)]
    if len(homes) == 1 and _model_at(fields[homes[0]].annotation, ()) is not None:
        return f"{homes[0]}: {{{name}: ...}}"
    return None


def _keys_below(annotation: Any) -> list[str]:
    """The keys of a mapping, or of the mappings in a list."""
    return _keys_of(_model_at(annotation, ()) or _model_at(annotation, (0,)))


def _keys_of(model: type[BaseModel] | None) -> list[str]:
    return list(model.model_fields) if model is not None else []


def _model_at(annotation: Any, path: Sequence[int | str]) -> type[BaseModel] | None:
    """The model that validates what is at a path, if one does."""
    annotation = _bare(annotation)
    if not path:
        is_model = isinstance(annotation, type) and issubclass(annotation, BaseModel)
        return annotation if is_model else None
    step, rest = path[0], path[1:]
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        field = annotation.model_fields.get(str(step))
        if field is not None:
            return _model_at(field.annotation, rest)
        extra = get_type_hints(annotation).get("__pydantic_extra__")
        return _model_at(get_args(extra)[1], rest) if get_args(extra) else None
    arguments = get_args(annotation)
    if get_origin(annotation) is dict:
        return _model_at(arguments[1], rest)
    if get_origin(annotation) in (tuple, list):
        return _model_at(arguments[0], rest)
    return None


def _bare(annotation: Any) -> Any:
    """A type without Annotated and without None."""
    if get_origin(annotation) is Annotated:
        return _bare(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        members = [each for each in get_args(annotation) if each is not type(None)]
        return _bare(members[0]) if len(members) == 1 else annotation
    return annotation


def _words(kind: str, context: Mapping[str, Any], message: str, item: Item) -> tuple[str, str]:
    """What is wrong and what would be right, without the value: it may be a secret."""
    if kind == "value_error":
        problem, _, remedy = str(context.get("error", message)).partition("; ")
        return problem, remedy
    if kind == "literal_error":
        return _choice(str(context.get("expected", "")), item)
    if kind in ("too_short", "string_too_short") and context.get("min_length") == 1:
        return "is empty", "at least one entry is needed" if kind == "too_short" else ""
    if kind in _LIMITS:
        name, text = _LIMITS[kind]
        return text.format(context.get(name)), ""
    family = kind.partition("_")[0]
    if family in _WANTED:
        return _WANTED[family], _REMEDIES.get(family, "")
    return message[:1].lower() + message[1:], ""


def _choice(expected: str, item: Item) -> tuple[str, str]:
    names = [name.strip().strip("'") for name in expected.replace(" or ", ", ").split(",")]
    given = item.value if isinstance(item.value, str) and item.masked is None else ""
    meant = _MEANT_VALUES.get(given.lower(), given)
    close = meant if meant in names else nearest(given, names) if given else None
    problem = f"must be one of {', '.join(names)}" if len(names) > 1 else f"must be {names[0]}"
    return problem, f"did you mean {close!r}?" if close else ""
