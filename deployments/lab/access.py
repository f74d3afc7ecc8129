"""Users, tokens, roles, pools and access control lists, combined as the real server does.

The most specific entry on a path wins over those above it; a token with privilege separation has
what both it and its user have; ``root@pam`` has everything. Pools lend their rights to members.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deployments.lab.errors import forbidden, unauthorized
from deployments.lab.files import read_json, write_json
from deployments.lab.roles import PRIVILEGES, ROLES

ROOT = "root@pam"
TICKET_SECONDS = 2 * 3600


@dataclass
class AclEntry:
    """One line of the access control list; ``who`` is a user, ``user!token`` or ``@group``."""

    path: str
    who: str
    role: str
    propagate: bool = True


@dataclass
class Pool:
    """A pool of guests and storages."""

    poolid: str
    comment: str | None = None
    vms: list[int] = field(default_factory=list)
    storages: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Identity:
    """Who calls. ``token`` is None for a login by password; ``csrf`` marks a ticket."""

    user: str
    token: str | None = None
    csrf: bool = False

    @property
    def authid(self) -> str:
        """``user@realm`` or ``user@realm!token``."""
        return f"{self.user}!{self.token}" if self.token else self.user

    @property
    def is_root(self) -> bool:
        """Root itself; a token of root is not root."""
        return self.user == ROOT and self.token is None


class Access:
    """Everything that decides who may do what; kept in ``access.json``."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "access.json"
        data = read_json(self._file, {})
        self.users: dict[str, dict[str, Any]] = data.get("users", {})
        self.tokens: dict[str, dict[str, Any]] = data.get("tokens", {})
        self.groups: dict[str, list[str]] = data.get("groups", {})
        self.roles: dict[str, list[str]] = {**ROLES, **data.get("roles", {})}
        self.acl = [AclEntry(**entry) for entry in data.get("acl", [])]
        self.pools = {pool["poolid"]: Pool(**pool) for pool in data.get("pools", [])}
        self.secret: str = data.get("secret") or secrets.token_hex(16)
        self.ticket_seconds: float = TICKET_SECONDS
        self.version = 0

    def save(self) -> None:
        """Write the file; passwords and secrets are kept as hashes only."""
        self.version += 1
        write_json(
            self._file,
            {
                "users": self.users,
                "tokens": self.tokens,
                "groups": self.groups,
                "roles": {k: v for k, v in self.roles.items() if k not in ROLES},
                "acl": [vars(entry) for entry in self.acl],
                "pools": [vars(pool) for pool in self.pools.values()],
                "secret": self.secret,
            },
            0o600,
        )

    def add_user(self, userid: str, password: str | None = None, enable: bool = True) -> None:
        """Create or replace a user."""
        self.users[userid] = {"enable": enable, "hash": self._hash(password) if password else None}

    def add_token(self, tokenid: str, secret: str, privsep: bool = True) -> None:
        """Create or replace a token, ``user@realm!name``."""
        self.tokens[tokenid] = {"privsep": privsep, "hash": self._hash(secret)}

    def _hash(self, secret: str) -> str:
        return hashlib.sha256(f"{self.secret}:{secret}".encode()).hexdigest()

    # -- who calls ---------------------------------------------------------------------------

    def login(self, username: str, password: str) -> tuple[str, str]:
        """Ticket and CSRF token for a password (or a still valid ticket given as password)."""
        user = self.users.get(username)
        known = user is not None and user["enable"] and user["hash"]
        renewed = password.startswith("PVE:") and self._ticket_user(password) == username
        if not renewed and not (
            known and user and hmac.compare_digest(user["hash"], self._hash(password))
        ):
            error = unauthorized("authentication failure")
            error.bare = False
            raise error
        return self._sign_ticket(username), self._csrf(username)

    def _sign_ticket(self, username: str) -> str:
        plain = f"PVE:{username}:{int(time.time()):08X}"
        return f"{plain}::{self._mac(plain)}"

    def _mac(self, text: str) -> str:
        return hmac.new(self.secret.encode(), text.encode(), hashlib.sha256).hexdigest()

    def _csrf(self, username: str) -> str:
        stamp = f"{int(time.time()):08X}"
        return f"{stamp}:{self._mac(f'csrf:{stamp}:{username}')}"

    def _ticket_user(self, ticket: str) -> str | None:
        plain, separator, mac = ticket.partition("::")
        parts = plain.split(":")
        if not separator or len(parts) != 3 or not hmac.compare_digest(mac, self._mac(plain)):
            return None
        try:
            age = time.time() - int(parts[2], 16)
        except ValueError:
            return None
        user = self.users.get(parts[1])
        fresh = -300 < age < self.ticket_seconds
        return parts[1] if fresh and user is not None and user["enable"] else None

    def by_ticket(self, ticket: str) -> Identity:
        """Who holds the ticket; 401 when it is forged or too old."""
        user = self._ticket_user(ticket)
        if user is None:
            raise unauthorized("Authentication failed!")
        return Identity(user, csrf=True)

    def console_ticket(self, user: str, path: str, port: int) -> str:
        """A short-lived ticket for one console."""
        stamp = f"{int(time.time()):08X}"
        return f"PVEVNC:{stamp}::{self._mac(f'PVEVNC:{stamp}:{user}:{path}:{port}')}"

    def check_console_ticket(
        self, ticket: str, user: str, path: str, port: int, seconds: float
    ) -> None:
        """401 unless the ticket was made for this user, path and port not long ago."""
        match = re.fullmatch(r"PVEVNC:([0-9A-F]{8})::([0-9a-f]+)", ticket)
        if match is not None:
            stamp, mac = match.groups()
            made = self._mac(f"PVEVNC:{stamp}:{user}:{path}:{port}")
            if hmac.compare_digest(mac, made) and time.time() - int(stamp, 16) < seconds:
                return
        raise unauthorized("permission denied - invalid PVEVNC ticket")

    def check_csrf(self, identity: Identity, token: str | None) -> None:
        """Writes by ticket need the CSRF token that came with it."""
        stamp, _, mac = (token or "").partition(":")
        if not hmac.compare_digest(mac, self._mac(f"csrf:{stamp}:{identity.user}")):
            raise unauthorized("Permission denied - invalid csrf token")

    def by_header(self, header: str) -> Identity:
        """Who holds an API token: ``PVEAPIToken=user@realm!name=secret``."""
        scheme, _, value = header.partition("=")
        tokenid, _, secret = value.partition("=")
        token = self.tokens.get(tokenid)
        user, _, name = tokenid.partition("!")
        owner = self.users.get(user)
        if (
            scheme != "PVEAPIToken"
            or token is None
            or owner is None
            or not owner["enable"]
            or not hmac.compare_digest(token["hash"], self._hash(secret))
        ):
            raise unauthorized("Authentication failed!")
        return Identity(user, name)

    # -- what they may do --------------------------------------------------------------------

    def privileges(self, identity: Identity, path: str) -> dict[str, int]:
        """Privileges on ``path`` with 1 where they reach further down, else 0."""
        if identity.user == ROOT:
            own = dict.fromkeys(PRIVILEGES, 1)
        else:
            own = self._with_pools(identity.user, path)
        if identity.token is None or not self.tokens[identity.authid]["privsep"]:
            return own
        token = self._with_pools(identity.authid, path)
        return {priv: min(flag, own[priv]) for priv, flag in token.items() if priv in own}

    def _with_pools(self, who: str, path: str) -> dict[str, int]:
        found = self._from_acl(who, path)
        kind, _, name = path.strip("/").partition("/")
        for pool in self.pools.values():
            member = (kind == "vms" and name.isdigit() and int(name) in pool.vms) or (
                kind == "storage" and name in pool.storages
            )
            if member:
                for priv, flag in self._from_acl(who, f"/pool/{pool.poolid}").items():
                    found[priv] = max(flag, found.get(priv, 0))
        return found

    def _from_acl(self, who: str, path: str) -> dict[str, int]:
        groups = [f"@{name}" for name, members in self.groups.items() if who in members]
        current: dict[str, int] = {}
        for level in _levels(path):
            here = [entry for entry in self.acl if entry.path == level]
            for names in ([who], groups):
                matching = [e for e in here if e.who in names and (level == path or e.propagate)]
                if matching:
                    current = {}
                    for entry in matching:
                        for priv in self.roles.get(entry.role, []):
                            current[priv] = max(int(entry.propagate), current.get(priv, 0))
                    break
        return current

    def has(self, identity: Identity, path: str, *privs: str, any_of: bool = False) -> bool:
        """Whether all (or any) of the privileges are held on ``path``."""
        held = self.privileges(identity, path)
        test = any if any_of else all
        return test(priv in held for priv in privs)

    def require(self, identity: Identity, path: str, *privs: str, any_of: bool = False) -> None:
        """Refuse with 403, path and privilege in the text."""
        held = self.privileges(identity, path)
        if any_of:
            if not any(priv in held for priv in privs):
                raise forbidden(f"{path}, {'|'.join(privs)}")
            return
        for priv in privs:
            if priv not in held:
                raise forbidden(f"{path}, {priv}")

    def effective(self, identity: Identity) -> dict[str, dict[str, int]]:
        """All paths that matter with the privileges on them; paths without any are left out."""
        paths = {"/", "/access", "/access/groups", "/nodes", "/pool", "/sdn", "/storage", "/vms"}
        paths |= {entry.path for entry in self.acl}
        for pool in self.pools.values():
            paths |= {f"/vms/{vmid}" for vmid in pool.vms}
            paths |= {f"/storage/{name}" for name in pool.storages}
        found = {path: self.privileges(identity, path) for path in sorted(paths)}
        return {path: privs for path, privs in found.items() if privs}

    def pool_of(self, vmid: int) -> str | None:
        """The pool that holds a guest."""
        return next((p.poolid for p in self.pools.values() if vmid in p.vms), None)

    def pools_of_guests(self) -> dict[int, str]:
        """The pool of every guest that is in one."""
        return {vmid: pool.poolid for pool in self.pools.values() for vmid in pool.vms}

    def sees_guests(self, identity: Identity) -> Callable[[int], bool]:
        """A test whether the caller may see a guest; rights above the guests are looked up once."""
        special = {entry.path for entry in self.acl} | {
            f"/vms/{vmid}" for vmid in self.pools_of_guests()
        }
        usual = self.has(identity, "/vms/0", "VM.Audit")

        def sees(vmid: int) -> bool:
            path = f"/vms/{vmid}"
            return self.has(identity, path, "VM.Audit") if path in special else usual

        return sees

    def forget_guest(self, vmid: int) -> None:
        """Take a destroyed guest out of its pool and the access control list."""
        for pool in self.pools.values():
            if vmid in pool.vms:
                pool.vms.remove(vmid)
        self.acl = [entry for entry in self.acl if entry.path != f"/vms/{vmid}"]
        self.save()


def _levels(path: str) -> list[str]:
    parts = [part for part in path.split("/") if part]
    return ["/"] + ["/" + "/".join(parts[: n + 1]) for n in range(len(parts))]
