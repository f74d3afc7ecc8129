"""Loads an environment or a template: files, profile, secrets, checks, guests."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, SecretStr

from blocks.manifest.checks import check
from blocks.manifest.compile import compile_guests
from blocks.manifest.document import Env
from blocks.manifest.environment import Environment
from blocks.manifest.faults import Fault, ManifestError, nearest, show_path, suggestion
from blocks.manifest.generated import Generator
from blocks.manifest.hooks import OLDER_SPELLINGS
from blocks.manifest.inheritance import merge_defaults, whole_nodes
from blocks.manifest.layers import layers
from blocks.manifest.origins import expand_origins
from blocks.manifest.profiles import known_profiles, profile_files
from blocks.manifest.reader import Reader
from blocks.manifest.secrets import Resolver, Secrets
from blocks.manifest.sshkeys import expand_keys, is_whole
from blocks.manifest.template import loading as template
from blocks.manifest.template.document import Template
from blocks.manifest.tree import Item, merge
from blocks.manifest.validation import validate
from blocks.paths import is_file, named_path, state_dir

_MASTERS = ("Env", template.KIND)


@dataclass(frozen=True)
class Loaded:
    """An environment, with the tree that it was made from and the secrets that are in it."""

    environment: Environment
    tree: Item
    secrets: Secrets


def load_environment(
    path: Path | str, *, env: Mapping[str, str] | None = None, seed: bytes | None = None
) -> Environment:
    """The environment in a master file (``kind: Env`` or ``Template``), checked and compiled.

    ``env`` takes the place of the process's environment variables, ``seed`` (32 bytes) that of the
    kept seed of generated secrets. Raises ManifestError with everything that is wrong.
    """
    return load(path, env=env, seed=seed).environment


def load(
    path: Path | str, *, env: Mapping[str, str] | None = None, seed: bytes | None = None
) -> Loaded:
    """As load_environment, with what a rendering needs."""
    variables = os.environ if env is None else env
    master = _master(path)
    reader = Reader()
    root = _read(master, reader, variables)
    # What is more than can be read is not checked either: that takes even longer.
    if root is None or reader.exhausted:
        raise ManifestError(_in_order(reader.faults, reader.files, Secrets()))
    faults, files = reader.faults, reader.files

    resolver = Resolver(
        root,
        variables,
        lambda name: Generator(state_dir(variables), name, seed),
        faults,
        files,
    )
    resolver.resolve()
    _present_hooks(root)
    make = _template if _is_template(root) else _env
    return make(_Sources(root, master, variables, faults, files, resolver.secrets))


@dataclass(frozen=True)
class _Sources:
    """What was read, secrets in place: one of the kinds makes an environment of it."""

    root: Item
    master: Path
    variables: Mapping[str, str]
    faults: list[Fault]
    files: list[Path]
    secrets: Secrets

    def refuse(self) -> ManifestError:
        return ManifestError(_in_order(self.faults, self.files, self.secrets))

    def environment(self, document: Env | Template, **more: Any) -> Environment:
        """The environment that a document's metadata describe, with ``more`` of its fields."""
        _remember(document, self.secrets)
        metadata = document.metadata
        return Environment(
            name=metadata.name,
            domain=metadata.domain,
            description=metadata.description,
            path=self.master,
            context=metadata.proxmox_context,
            tags=metadata.tags,
            hooks=document.hooks,
            source_files=tuple(dict.fromkeys(self.files)),
            **more,
        )

    def loaded(self, environment: Environment) -> Loaded:
        return Loaded(environment, self.root, self.secrets)


def _env(read: _Sources) -> Loaded:
    """``kind: Env``."""
    root, faults, files = read.root, read.faults, read.files
    hypervisor = root.get("spec", "hypervisor")
    if hypervisor is not None:
        merge_defaults(hypervisor)
        expand_keys(hypervisor, faults, files)
        expand_origins(hypervisor, faults)
    # Files that could not be read leave holes, of which nothing more is to be said.
    document = validate(Env, whole_nodes(root), faults)
    faults += check(layers(root))
    if faults or document is None:
        raise read.refuse()
    environment = read.environment(
        document,
        cluster_type=document.spec.cluster.type if document.spec.cluster else None,
        storage_classes=document.spec.storage_classes.classes,
        guests=compile_guests(document),
    )
    notices = tuple(dict.fromkeys(_notices(environment)))
    return read.loaded(environment.model_copy(update={"notices": notices}))


def _template(read: _Sources) -> Loaded:
    """``kind: Template``."""
    checked = template.prepare(read.root, read.master, read.variables, read.faults, read.files)
    if read.faults or checked is None:
        raise read.refuse()
    recipe = checked.recipe()
    environment = read.environment(
        checked.document,
        guests=(recipe.template, *recipe.clones),
        notices=tuple(dict.fromkeys(checked.notices(recipe))),
        recipe=recipe,
    )
    return read.loaded(environment)


def _master(path: Path | str) -> Path:
    """The absolute path of the master file. Raises ManifestError where there is none."""
    try:
        master = named_path(str(path)).absolute()
        if is_file(master):
            return master
        problem = "is a folder; name the master file in it" if master.is_dir() else "no such file"
        shown = show_path(master)
    except OSError as error:
        shown, problem = str(path), error.strerror or "cannot be read"
    raise ManifestError((Fault(file=shown, problem=problem),))


def _remember(part: object, secrets: Secrets) -> None:
    """Note secrets that are written out in the manifest, too."""
    if isinstance(part, SecretStr):
        secrets.add(part.get_secret_value())
    elif isinstance(part, BaseModel):
        for name in type(part).model_fields:
            _remember(getattr(part, name), secrets)
    elif isinstance(part, dict):
        for child in part.values():
            _remember(child, secrets)
    elif isinstance(part, tuple):
        for child in part:
            _remember(child, secrets)


def _read(master: Path, reader: Reader, env: Mapping[str, str]) -> Item | None:
    """The master file with its layers, over the profiles that it extends."""
    root = reader.read(master)
    if root is None:
        return None
    kind = root.text("kind")
    if kind is not None and nearest(kind, _MASTERS) is None:
        where = root.get("kind") or root
        reader.faults.append(
            where.fault(f"this is a {kind} document", "name the master file (kind: Env) instead")
        )
        return None
    if _is_template(root):
        return root
    chain = [master.resolve()]
    top = root
    while (extends := top.get("extends")) is not None:
        name = extends.value
        if not isinstance(name, str):
            break
        beside = chain[-1].parent
        # A profile may extend the one of the same name that it takes the place of.
        found = [file for file in profile_files(name, beside, env) if file not in chain]
        if not found:
            extends.broken = True
            names = " -> ".join(file.stem for file in chain[1:])
            if profile_files(name, beside, env):
                fault = extends.fault(
                    f"goes round in a circle: {names} -> {name}", "remove one of these extends"
                )
            else:
                fault = extends.fault(
                    f"unknown profile {name!r}",
                    suggestion(name, known_profiles(beside, env), "profiles"),
                )
            reader.faults.append(fault)
            break
        chain.append(found[0])
        profile = reader.read(found[0])
        if profile is None:
            break
        top = profile
        root = merge(root, _without_name(profile))
    return root


def _is_template(root: Item) -> bool:
    """Whether a master file is a template, its kind misspelled or forgotten perhaps."""
    kind = root.text("kind")
    if kind is None:
        return root.get("spec", "image") is not None
    return nearest(kind, _MASTERS) == template.KIND


def _without_name(profile: Item) -> Item:
    """A profile names itself; that is no name for an environment."""
    metadata = profile.get("metadata")
    if metadata is None or not isinstance(metadata.value, dict):
        return profile
    assert isinstance(profile.value, dict)  # noqa: S101 - it has metadata
    kept = {key: item for key, item in metadata.value.items() if key != "name"}
    return replace(profile, value={**profile.value, "metadata": replace(metadata, value=kept)})


def _present_hooks(root: Item) -> None:
    """Hooks under older names join those under the present ones, each with its own place."""
    hooks = root.get("hooks")
    if hooks is None or not isinstance(hooks.value, dict):
        return
    for older, present in OLDER_SPELLINGS.items():
        item = hooks.value.get(older)
        if item is None or not isinstance(item.value, list):
            continue
        del hooks.value[older]
        known = hooks.value.get(present)
        first = known.value if known is not None and isinstance(known.value, list) else []
        hooks.value[present] = replace(item, value=[*first, *item.value])


def _in_order(faults: list[Fault], files: list[Path], secrets: Secrets) -> tuple[Fault, ...]:
    """Each fault once, by file and line, without a secret in it."""
    order = {show_path(file): index for index, file in enumerate(files)}
    clean = {
        str(fault): fault
        for fault in (
            fault.model_copy(
                update={
                    "problem": secrets.mask(fault.problem),
                    "remedy": secrets.mask(fault.remedy),
                }
            )
            for fault in faults
        )
    }
    return tuple(
        sorted(
            clean.values(),
            key=lambda fault: (order.get(fault.file, len(order)), fault.file, fault.line or 0),
        )
    )


def _notices(environment: Environment) -> list[str]:
    """What is allowed, but probably not what was wanted."""
    notices: list[str] = []
    for guest in environment.guests:
        if guest.install is None:
            continue
        told = guest.install.installation
        users = [user for user in told.users if user.ssh_keys or user.password_hash]
        if not told.root_ssh_keys and told.root_password_hash is None and not users:
            notices.append(f"{guest.label}: nobody can log in; add kickstart.ssh_keys")
        notices += [
            f"{guest.label}: {user.name} has no password that sudo could ask for; give "
            f"kickstart.additional_users[{index}] a password_hash, or say "
            "kickstart.sudo.wheel_nopasswd: true"
            for index, user in enumerate(told.users)
            if user.sudo and user.password_hash is None and not told.sudo_nopasswd
        ]
        keys = [*told.root_ssh_keys, *(key for user in told.users for key in user.ssh_keys)]
        if not all(is_whole(key) for key in keys):
            notices.append(f"{guest.label}: an SSH key is cut short; SSH will not accept it")
        if not guest.nics:
            notices.append(f"{guest.label}: has no network card (nics), so nobody can reach it")
        elif not guest.ssh_addresses:
            notices.append(
                f"{guest.label}: no address is known beforehand; it is asked of the guest agent"
            )
    return notices
