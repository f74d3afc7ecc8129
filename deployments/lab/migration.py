"""What moving a guest to another node has in common for machines and containers.

Nothing here was recorded, the recording server had one node. Order of checks, texts and log lines
follow the public sources of qemu-server 9.2, pve-container 6 and pve-guest-common.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from deployments.lab import formats, images
from deployments.lab.conffile import GuestConfig, Section
from deployments.lab.errors import ApiError, bad_parameter, bad_parameters, failure
from deployments.lab.formats import storage_id
from deployments.lab.routing import Call
from deployments.lab.schema import FormatError
from deployments.lab.storage import Storage, Volume

if TYPE_CHECKING:
    from deployments.lab.cluster import Lab
    from deployments.lab.tasks import Task


@dataclass(frozen=True)
class StorageMap:
    """Where volumes of local storages go; without an entry they keep their storage's name."""

    entries: dict[str, str] = field(default_factory=dict)
    default: str | None = None
    identity: bool = False

    def target(self, storage: str) -> str:
        """The storage on the other node for volumes of ``storage``."""
        return self.entries.get(storage) or self.default or storage

    @property
    def named(self) -> list[str]:
        """Every storage that the map names as a target."""
        return [*self.entries.values(), *([self.default] if self.default else [])]


def parse_storage_map(text: str) -> StorageMap:
    """``target``, ``source:target,...`` or ``1``; raises FormatError."""
    entries: dict[str, str] = {}
    default: str | None = None
    identity = False
    for word in formats.split_list(text):
        source, colon, target = word.partition(":")
        if word == "1":
            identity = True
        elif colon:
            storage_id(source)
            storage_id(target)
            if source in entries:
                raise FormatError(f"duplicate mapping for source '{source}'")
            entries[source] = target
        else:
            storage_id(word)
            if default is not None:
                raise FormatError(f"default target ID '{default}' already given")
            default = word
    if identity and (entries or default):
        raise FormatError("identity mapping '1' cannot be combined with other mappings")
    return StorageMap(entries, default, identity)


def check_map_text(text: str) -> None:
    """The format check of a storage map."""
    parse_storage_map(text)


def enabled_storage(lab: Lab, name: str, node: str) -> Storage:
    """A storage that is switched on and exists on the node; 500 otherwise."""
    storage = lab.storages.get(name)
    if storage.config.disabled:
        raise failure(f"storage '{name}' is disabled")
    return lab.storages.get(name, node)


def check_target_node(call: Call) -> str:
    """The node to move to: another one that is a member of the cluster."""
    target = str(call.params["target"])
    if target == call.node:
        raise bad_parameter(target="target is local node.")
    if target not in call.lab.nodes:
        raise failure(f"no such cluster node '{target}'")
    return target


def storage_map_of(call: Call, name: str, content: str, target: str, lacking: str) -> StorageMap:
    """The storage map in parameter ``name``, its targets and the caller's rights checked.

    ``lacking`` is the refusal for a storage without ``content``, with ``{}`` for its name.
    """
    text = call.params.get(name)
    if text is None:
        return StorageMap()
    try:
        found = parse_storage_map(str(text))
    except FormatError as error:
        raise bad_parameters({name: f"failed to parse storage map: {error}\n"}) from None
    if not found.identity:
        call.require(f"/vms/{call.vmid}", "VM.Config.Disk")
    for one in found.named:
        storage = enabled_storage(call.lab, one, target)
        call.require(f"/storage/{one}", "Datastore.AllocateSpace")
        if content not in storage.config.content:
            raise failure(lacking.format(one))
    return found


class Progress:
    """The log of one migration: each line with its time, problems marked."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._began = time.time()

    def info(self, text: str) -> None:
        """An ordinary line; of several lines each gets its time."""
        self._write(text, "")

    def error(self, text: str) -> None:
        """A problem."""
        self._write(text, "ERROR: ")

    def _write(self, text: str, mark: str) -> None:
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        self._task.log(*(f"{stamp} {mark}{line}" for line in text.rstrip("\n").split("\n")))

    def duration(self) -> str:
        """``HH:MM:SS`` since the start."""
        seconds = int(time.time() - self._began)
        return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


@contextmanager
def migration(task: Task) -> Iterator[Progress]:
    """The frame of a migration task: its last line, and ``migration aborted`` for any refusal."""
    progress = Progress(task)
    try:
        yield progress
    except ProblemsError:
        progress.error(f"migration finished with problems (duration {progress.duration()})")
        raise failure("migration problems") from None
    except ApiError as error:
        text = error.as_exit_status()
        progress.error(f"migration aborted (duration {progress.duration()}): {text}")
        raise failure("migration aborted") from None
    progress.info(f"migration finished successfully (duration {progress.duration()})")


class ProblemsError(ApiError):
    """The guest stays where it was after the target had already been involved."""

    def __init__(self) -> None:
        super().__init__(500, "migration problems")


def connect(lab: Lab, target: str, progress: Progress) -> None:
    """Refuse when the target node cannot be reached."""
    if lab.online(target):
        return
    address = lab.nodes[target].ip
    progress.info(
        f"# /usr/bin/ssh -e none -o 'BatchMode=yes' -o 'HostKeyAlias={target}' "
        f"root@{address} /bin/true\nssh: connect to host {address} port 22: No route to host"
    )
    raise failure("Can't connect to destination address using public key")


def target_volume(
    lab: Lab, target: Storage, node: str, vmid: int, volume: Volume, keep_name: bool
) -> Volume:
    """The volume's name on the other node: its own, or the next free one if that is taken."""
    stem = volume.file_name.rpartition(".")[0] or volume.file_name
    if volume.vtype == "images" and "." not in volume.file_name:
        stem = volume.file_name
    fmt = "raw" if target.block else volume.format
    wanted = target.named(vmid, stem, fmt)
    if not target.exists(node, wanted):
        return wanted
    if keep_name:
        raise failure(f"volume '{wanted.volid}' already exists")
    return target.next_name(node, vmid, fmt, stem.partition("-")[0])


def send_volume(
    lab: Lab,
    place: tuple[Storage, str, Volume],
    target: tuple[Storage, str],
    vmid: int,
    *,
    keep_name: bool = False,
    mirror: bool = False,
) -> Volume:
    """Copy a volume to a storage of another node; its snapshots go along.

    A copied stream keeps the image's format; ``mirror`` (a running disk) may change it.
    """
    origin, source_node, source = place
    storage, node = target
    stays = not storage.block or source.format == "raw"
    if not mirror and not stays:
        kinds = f"'{origin.config.type}' to '{storage.config.type}'"
        raise failure(f"cannot migrate from storage type {kinds}")
    info = origin.info(source_node, source)
    lab.check_space(storage, node, info.used, f"volume '{source.volid}'")
    made = target_volume(lab, storage, node, vmid, source, keep_name)
    file = storage.file(node, made)
    if stays:
        images.copy_sparse(origin.file(source_node, source), file)
    else:
        storage.allocate(node, made, info.size)
        images.replace_mark(file, images.read_mark(origin.file(source_node, source)))
    states = origin.state_file(source_node, source)
    if states.exists():
        images.copy_sparse(states, storage.state_file(node, made))
    return made


def rename_volumes(config: GuestConfig, names: dict[str, str]) -> None:
    """Put the new volume names into every section of a configuration."""

    def renamed(section: Section) -> None:
        for key, text in section.items():
            head, comma, rest = text.partition(",")
            if head in names:
                section[key] = names[head] + comma + rest
            elif head.startswith(("file=", "volume=")):
                prefix, _, volid = head.partition("=")
                if volid in names:
                    section[key] = f"{prefix}={names[volid]}{comma}{rest}"

    for section in (config.values, config.pending, *config.snapshots.values()):
        renamed(section)
