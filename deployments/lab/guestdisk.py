"""The file system of a guest by its system disk: made at first sight, kept with the disk."""

from __future__ import annotations

import json
import re
import secrets
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from deployments.lab import images
from deployments.lab.accounts import add_user, authorize, hash_cipassword, set_password
from deployments.lab.guestfs import Blobs, FileTree
from deployments.lab.lxc.volumes import mounts
from deployments.lab.programs import Machine
from deployments.lab.qemu.devices import drives, first_boot_disk
from deployments.lab.shell import Shell

if TYPE_CHECKING:
    from pathlib import Path

    from deployments.lab.cluster import Lab
    from deployments.lab.guestos import Run

_NAMES = {
    "redhat": "Red Hat Enterprise Linux",
    "ubuntu": "Ubuntu",
    "debian": "Debian GNU/Linux",
    "suse": "SUSE Linux Enterprise Server",
}
_IDS = {"redhat": "rhel", "suse": "sles"}


class GuestDisks:
    """Trees of running guests; every change is on disk before the call that made it answers."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._blobs = Blobs(lab.root / "guestfiles")

    def _system_file(self, run: Run) -> Path | None:
        if run.kind == "lxc":
            volid = next((m.volume for m in mounts(run.values) if m.key == "rootfs"), None)
        else:
            known = {drive.key: drive for drive in drives(run.values)}
            drive = known.get(run.device or "") or first_boot_disk(run.values)
            volid = drive.file if drive is not None else None
        if volid is None or ":" not in volid:
            return None
        storage, volume = self._lab.storages.volume(volid, run.node)
        return storage.file(run.node, volume)

    def open(self, run: Run) -> FileTree:
        """The guest's tree as it is now."""
        file = self._system_file(run)
        mark = images.read_mark(file) if file is not None else None
        mark = mark or {}
        if mark.get("fs"):
            tree = FileTree.load(self._blobs, mark["fs"])
        else:
            tree = self._first_tree(run, mark)
        name = self._lab.life.host_name(run.vmid)
        if mark.get("named") != name:
            tree.provide("/etc/hostname", f"{name}\n".encode())
            self._write(run, tree, named=name)
        elif tree.changed:
            self._write(run, tree)
        return tree

    def close(self, run: Run, tree: FileTree) -> None:
        """Keep what was changed."""
        if tree.changed:
            self._write(run, tree)

    def machine(self, run: Run) -> Machine:
        """The system as programs see it; its tree is to be closed after use."""
        tree = self.open(run)
        addresses = [a.partition("/")[0] for one in run.interfaces for a in one["addresses"]]
        name = tree.read("/etc/hostname").decode(errors="replace").strip()
        return Machine(tree, name, addresses)

    def _write(self, run: Run, tree: FileTree, **more: Any) -> None:
        file = self._system_file(run)
        if file is not None and file.exists():
            mark = {**(images.read_mark(file) or {}), "fs": tree.save(), **more}
            images.write_mark(file, mark)

    def _first_tree(self, run: Run, mark: dict[str, Any]) -> FileTree:
        tree = FileTree(self._blobs)
        for folder in ("/etc", "/home", "/tmp", "/var/log", "/usr/bin"):  # noqa: S108 - a guest's
            tree.mkdir(folder, parents=True)
        tree.mkdir("/root", mode=0o700)
        tree.provide("/etc/passwd", b"root:x:0:0:root:/root:/bin/bash\n")
        root = str(mark.get("root") or "!")
        tree.provide("/etc/shadow", f"root:{root}:20000:0:99999:7:::\n".encode(), 0o640)
        tree.provide("/etc/os-release", _os_release(run, mark).encode())
        tree.provide("/etc/machine-id", f"{secrets.token_hex(16)}\n".encode(), 0o444)
        authorize(tree, "/root", str(mark.get("keys") or ""))
        if mark.get("setup"):
            set_up(tree, json.loads(self._blobs.get(mark["setup"])), str(mark.get("hostname")))
        if mark.get("image") and run.kind == "qemu":
            _cloud_init(tree, run.values)
            told = (run.mark or {}).get("told")
            if told:
                set_up(tree, told, self._lab.life.host_name(run.vmid))
        return tree

    def keep_setup(self, setup: dict[str, Any]) -> str:
        """Keep what an installer shall do in the installed system; its hash."""
        return self._blobs.put(json.dumps(setup).encode())


def set_up(tree: FileTree, setup: dict[str, Any], hostname: str) -> None:
    """Do what the seed tells the installer: make its users, then run its scripts.

    What the lab's shell does not know counts as done, as it would be on a whole system.
    """
    for user, stored in setup["accounts"].items():
        if user == "root":
            set_password(tree, user, stored)
        else:
            add_user(tree, user, stored)
    for user, keys in setup["keys"].items():
        authorize(tree, add_user(tree, user), keys)
    for script in setup["scripts"]:
        Shell(Machine(tree, hostname), env={"HOME": "/root"}, lenient=True).run(script)


def _cloud_init(tree: FileTree, values: dict[str, str]) -> None:
    user = values.get("ciuser")
    keys = unquote(values.get("sshkeys", ""))
    if user or keys:
        home = add_user(tree, user or "cloud", "!")
        authorize(tree, home, keys)
    if user and values.get("cipassword"):
        set_password(tree, user, hash_cipassword(values["cipassword"]))


def _os_release(run: Run, mark: dict[str, Any]) -> str:
    medium = str(mark.get("os") or mark.get("template") or mark.get("image") or "linux")
    medium = medium.rpartition("/")[2]
    family = str(mark.get("family") or "")
    ident = _IDS.get(family, family) or str(run.values.get("ostype") or "linux")
    known = re.match(
        r"(rocky|oraclelinux|ubuntu|debian|sle|leap|rhel|alma\w*|fedora)", medium.lower()
    )
    if known:
        ident = {"oraclelinux": "ol", "sle": "sles", "leap": "opensuse-leap"}.get(
            known.group(1), known.group(1)
        )
    version = re.search(r"\d+(?:[.-]\d+)*", medium)
    number = version.group().replace("-", ".") if version else "1"
    name = _NAMES.get(family, ident.capitalize())
    return f'ID={ident}\nNAME="{name}"\nVERSION_ID="{number}"\nPRETTY_NAME="{name} {number}"\n'
