"""Cached disk images and seed ISOs: which there are, who needs them, and how they go.

Proxflow's files are told by their whole name: an image says its checksum, a seed ISO its
environment, guest, checksum and run. What only begins like one is listed, and never deleted.
"""

from __future__ import annotations

import functools
import re
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from filelock import FileLock, Timeout

from blocks.manifest.environment import Environment
from blocks.manifest.recipe import TEMPLATE
from blocks.model import Model
from blocks.paths import cache_dir
from blocks.proxmox.client import Client, api_path
from blocks.proxmox.errors import ProxmoxError
from blocks.proxmox.inventory import Inventory, read_inventory
from tasks.clock import ahead_of
from tasks.found import FoundGuest, Looked, look
from tasks.image.origin import digest_of, plain_name, stem
from tasks.iso.build import parse_seed_name
from tasks.progress import Meter
from tasks.template.generations import read_name
from tasks.template.hidden import perhaps_hidden
from tasks.template.named import Elsewhere, read_elsewhere

Kind = Literal["image", "seed", "unclear", "local"]

_IMAGE: Final = re.compile(
    r"proxflow-(?P<name>[-A-Za-z0-9_.]+)-(?P<digest>[0-9a-f]{12})\.(?P<format>qcow2|raw)"
)
_CACHED: Final = re.compile(r"(?:[0-9a-f]{64}|[0-9a-f]{128})\.(?:image|disk)")
_DAY: Final = 24 * 3600.0


class Cached(Model):
    """One file. ``place``: ``STORAGE on NODE``, or the folder of this machine's cache.

    ``name``: volume id or path. ``size`` in bytes, ``days`` since it was written. ``needed_by``:
    why it stays, one text each; ``node`` is empty for a file of this machine. ``kind``:
    ``unclear`` is what begins like a file of Proxflow and is not named like one.
    """

    kind: Kind
    name: str
    place: str
    node: str = ""
    size: int
    days: float
    needed_by: tuple[str, ...] = ()

    def may_go(self, older_than: float) -> bool:
        """Whether it is certainly ours, nobody needs it, and it is that many days old."""
        return self.kind != "unclear" and not self.needed_by and self.days >= older_than


@dataclass(frozen=True)
class Wanted:
    """What a given manifest needs. ``stem``: the image's name, None where only its name is known.

    An image whose checksum cannot be had keeps all images of that name.
    """

    env: str
    image: str
    stem: str | None
    digest: str | None


def wanted_by(environment: Environment) -> Wanted | None:
    """What the template of a manifest needs; None for one that is made of no image."""
    recipe = environment.recipe
    source = recipe.template.image if recipe is not None else None
    if source is None:
        return None
    plain = plain_name(source)
    try:
        digest = digest_of(source, Meter())
    except ProxmoxError:
        return Wanted(environment.name, plain, None, None)
    return Wanted(environment.name, plain, stem(source, digest), digest.hex)


def list_cached(client: Client, wanted: Sequence[Wanted]) -> tuple[Cached, ...]:
    """Every cached file on the cluster's storages and on this machine, with who needs it.

    Three calls, one for each guest, one for each storage that takes images or ISOs and one for each
    node that has such; those of ``perhaps_hidden``, and, where nobody needs a file so far, those of
    ``read_elsewhere``. Raises ProxmoxError.
    """
    inventory = read_inventory(client)
    looked = look(client, inventory)
    # Read after the guests: what a right that is taken away meanwhile hides is then told of.
    listed = {row.vmid for row in inventory.guests}
    seen = {guest.row.vmid for guest in looked.guests} | {row.vmid for row in looked.hidden}
    blind = perhaps_hidden(client, listed, seen)
    rows = tuple(_on_storages(client, inventory, looked, wanted, blind))
    if any(row.may_go(0) for row in rows):
        elsewhere = read_elsewhere(client, looked.guests)
        rows = tuple(_with_users(row, elsewhere) if row.may_go(0) else row for row in rows)
    return (*rows, *_on_this_machine(wanted))


def _with_users(row: Cached, elsewhere: Sequence[Elsewhere]) -> Cached:
    """The file with those that name it besides their configuration."""
    name = row.name.rpartition("/")[2]
    more = tuple(f"{each} names it" for each in elsewhere if _names(each.config, name))
    return row.model_copy(update={"needed_by": (*row.needed_by, *more)})


def remove_cached(client: Client, cached: Cached) -> bool:
    """Delete a file; False where another run of this machine uses it. Raises ProxmoxError."""
    if cached.kind != "local":
        storage = cached.name.partition(":")[0]
        client.run(
            "DELETE", api_path("nodes", cached.node, "storage", storage, "content", cached.name)
        )
        return True
    path = Path(cached.name)
    lock = FileLock(path.with_suffix(".lock"), thread_local=False)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return False
    try:
        path.unlink(missing_ok=True)
    finally:
        lock.release()
    return True


def _on_storages(
    client: Client,
    inventory: Inventory,
    looked: Looked,
    wanted: Sequence[Wanted],
    blind: tuple[str, ...],
) -> Iterator[Cached]:
    online = inventory.online()
    seen: set[tuple[str, str]] = set()
    ahead = functools.cache(lambda node: ahead_of(client, node))
    for row in inventory.storages:
        takes = row.content & {"import", "iso"}
        place = (row.storage, "" if row.shared else row.node)
        if not takes or not row.active or row.node not in online or place in seen:
            continue
        seen.add(place)
        only = next(iter(takes)) if len(takes) == 1 else None
        path = api_path("nodes", row.node, "storage", row.storage, "content")
        hidden = [g for g in looked.hidden if row.shared or g.node == row.node]
        for volume in client.get(path, content=only):
            kind = _kind(volume)
            if kind is None:
                continue
            volid, ctime = str(volume["volid"]), volume.get("ctime")
            needed = [f"VM {g.vmid} on {g.node} cannot be read" for g in hidden]
            needed += [*_users(volid, kind, looked.guests, wanted), *blind]
            yield Cached(
                kind=kind,
                name=volid,
                place=row.storage if row.shared else f"{row.storage} on {row.node}",
                node=row.node,
                size=int(volume.get("size") or 0),
                days=_days(float(ctime) + ahead(row.node)) if ctime else 0.0,
                needed_by=tuple(needed),
            )


def _kind(volume: dict[str, Any]) -> Kind | None:
    """What a volume is; None for what has nothing to do with Proxflow."""
    name = str(volume["volid"]).rpartition("/")[2]
    content = volume.get("content")
    if content not in {"import", "iso"} or not name.lower().startswith("proxflow"):
        return None
    found = _IMAGE.fullmatch(name)
    if content == "import" and found and volume.get("format") == found["format"]:
        return "image"
    return "seed" if content == "iso" and parse_seed_name(name) else "unclear"


def _users(
    volid: str, kind: Kind, guests: Sequence[FoundGuest], wanted: Sequence[Wanted]
) -> Iterator[str]:
    name = volid.rpartition("/")[2]
    yield from (f"{guest} names it" for guest in guests if _names(guest.live.config, name))
    if kind == "image":
        yield from _image_users(name, guests, wanted)
    if kind == "seed":
        yield from _seed_users(name, guests, wanted)


def _names(config: Mapping[str, Any], name: str) -> bool:
    """Whether it names a file of that name: two storages may be one folder of a node."""
    return any(name in str(value) for value in config.values())


def _image_users(
    name: str, guests: Sequence[FoundGuest], wanted: Sequence[Wanted]
) -> Iterator[str]:
    found = _IMAGE.fullmatch(name)
    digest, plain = (found["digest"], found["name"]) if found else ("", "")
    for each in wanted:
        if name.rpartition(".")[0] == each.stem:
            yield f"template {each.env}"
        elif each.stem is None and plain == each.image:
            yield f"template {each.env}, perhaps: its checksum cannot be had now"
    for guest in guests:
        mark = guest.mark
        if mark is None or mark.guest != TEMPLATE:
            continue
        prefix = read_name(str(guest.live.config.get("name", "")))[1]
        if prefix is not None and digest.startswith(prefix):
            yield f"{guest} was made of it" if mark.ready else f"{guest} is being made of it"
        elif prefix is None and not mark.ready:
            # Its manifest may have been edited since, and name another image.
            yield f"{guest}, perhaps: it is unfinished and does not tell its image"


def _seed_users(name: str, guests: Sequence[FoundGuest], wanted: Sequence[Wanted]) -> Iterator[str]:
    """Told of guests whose seed it is: older generations of a template share a label."""
    seed = parse_seed_name(name)
    for guest in guests:
        mark = guest.mark
        if seed is None or mark is None or (mark.env, mark.guest) != (seed.env, seed.guest):
            continue
        if mark.guest != TEMPLATE or not mark.ready:
            yield f"{guest}, whose seed it is"
    if seed is not None and seed.env in {each.env for each in wanted} and seed.guest != TEMPLATE:
        yield f"template {seed.env}, which declares {seed.guest}"


def _on_this_machine(wanted: Iterable[Wanted]) -> Iterator[Cached]:
    folder = cache_dir() / "images"
    users = {each.digest: each.env for each in wanted if each.digest is not None}
    for path in sorted(folder.glob("*")):
        if not _CACHED.fullmatch(path.name):
            continue
        try:
            about = path.stat()
        except OSError:  # another run has just renamed or deleted it
            continue
        if not stat.S_ISREG(about.st_mode):
            continue
        env = users.get(path.stem)
        yield Cached(
            kind="local",
            name=str(path),
            place="this machine",
            size=about.st_size,
            days=_days(about.st_mtime),
            needed_by=(f"template {env}",) if env else (),
        )


def _days(since: float) -> float:
    return max(0.0, time.time() - since) / _DAY
