"""The file system of a guest by its system disk: made at first sight, kept with the disk."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from deployments.lab import images
from deployments.lab.guestfs import Blobs, FileTree
from deployments.lab.lxc.volumes import mounts
from deployments.lab.programs import Machine
from deployments.lab.qemu.devices import drives, first_boot_disk

if TYPE_CHECKING:
    from pathlib import Path

    from deployments.lab.cluster import Lab
    from deployments.lab.guestos import Run

_HASH_MARK = "$lab$"
_ROUNDS = 1000
_NAMES = {
    "redhat": "Red Hat Enterprise Linux",
    "ubuntu": "Ubuntu",
    "debian": "Debian GNU/Linux",
    "suse": "SUSE Linux Enterprise Server",
}
_IDS = {"redhat": "rhel", "suse": "sles"}


def hash_password(password: str) -> str:
    """The form in which the lab keeps a password in a guest's ``/etc/shadow``."""
    salt = secrets.token_hex(8)
    digest = hashlib.pbkdf2_hmac("sha256", password.encode(), salt.encode(), _ROUNDS).hex()
    return f"{_HASH_MARK}{salt}${digest}"


def check_password(stored: str, password: str) -> bool:
    """Whether a password fits; hashes of another origin fit nothing."""
    made_here = re.fullmatch(r"\$5\$([^$]+)\$(.{43})", stored)
    if made_here is not None:
        return hmac.compare_digest(made_here.group(2), _crypt_like(made_here.group(1), password))
    if not stored.startswith(_HASH_MARK):
        return False
    salt, _, digest = stored.removeprefix(_HASH_MARK).partition("$")
    made = hashlib.pbkdf2_hmac("sha256", password.encode(), salt.encode(), _ROUNDS).hex()
    return hmac.compare_digest(made, digest)


def hash_cipassword(password: str) -> str:
    """The form in which a changed ``cipassword`` is kept: it looks like a SHA-256 crypt hash.

    A value that is a hash already stays as it is. The lab can check the ones that it made itself.
    """
    if re.match(r"\$(?:[156]|2[ay])(\$.+){2}", password):
        return password
    salt = secrets.token_hex(4)
    return f"$5${salt}${_crypt_like(salt, password)}"


def _crypt_like(salt: str, password: str) -> str:
    digest = hashlib.pbkdf2_hmac("sha256", password.encode(), salt.encode(), _ROUNDS)
    return base64.b64encode(digest, b"./").decode().rstrip("=")


def shadow_hash(tree: FileTree, user: str) -> str | None:
    """The password field of a user."""
    for line in tree.read("/etc/shadow").decode(errors="replace").splitlines():
        name, _, rest = line.partition(":")
        if name == user:
            return rest.partition(":")[0]
    return None


def set_password(tree: FileTree, user: str, stored: str) -> bool:
    """Put a hash into ``/etc/shadow``; False when there is no such user."""
    lines = tree.read("/etc/shadow").decode(errors="replace").splitlines()
    found = False
    for index, line in enumerate(lines):
        fields = line.split(":")
        if fields[0] == user and len(fields) > 1:
            fields[1], found = stored, True
            lines[index] = ":".join(fields)
    tree.write("/etc/shadow", ("\n".join(lines) + "\n").encode())
    return found


def add_user(tree: FileTree, user: str, stored: str = "!") -> str:
    """Add an ordinary user with a home folder unless there is one; the home."""
    home = "/root" if user == "root" else f"/home/{user}"
    lines = tree.read("/etc/passwd").decode(errors="replace").splitlines()
    if not any(line.startswith(f"{user}:") for line in lines):
        number = 1000 + sum(":/home/" in line for line in lines)
        tree.write(
            "/etc/passwd",
            f"{user}:x:{number}:{number}::{home}:/bin/bash\n".encode(),
            append=True,
        )
        tree.write("/etc/shadow", f"{user}:{stored}:20000:0:99999:7:::\n".encode(), append=True)
        tree.mkdir(home, parents=True)
    return home


def authorize(tree: FileTree, home: str, keys: str) -> None:
    """Put SSH keys (one a line) where the SSH server looks for them."""
    text = keys.strip("\n")
    if text:
        tree.mkdir(f"{home}/.ssh", parents=True, mode=0o700)
        tree.provide(f"{home}/.ssh/authorized_keys", f"{text}\n".encode(), 0o600)


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
        if mark.get("release"):
            tree.provide("/etc/proxflow-release", str(mark["release"]).encode())
        authorize(tree, "/root", str(mark.get("keys") or ""))
        if mark.get("image") and run.kind == "qemu":
            _cloud_init(tree, run.values)
        return tree


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
    known = re.match(r"(rocky|oraclelinux|ubuntu|debian|sle|rhel|alma\w*|fedora)", medium.lower())
    if known:
        ident = {"oraclelinux": "ol", "sle": "sles"}.get(known.group(1), known.group(1))
    version = re.search(r"\d+(?:[.-]\d+)*", medium)
    number = version.group().replace("-", ".") if version else "1"
    name = _NAMES.get(family, ident.capitalize())
    return f'ID={ident}\nNAME="{name}"\nVERSION_ID="{number}"\nPRETTY_NAME="{name} {number}"\n'
