"""Users of a guest: passwords, homes, SSH keys, kept in the guest's own files."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets

from deployments.lab.guestfs import FileTree

_HASH_MARK = "$lab$"
_ROUNDS = 1000


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
