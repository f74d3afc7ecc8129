"""``/access`` and ``/pools``: login, permissions, users, pools."""

from __future__ import annotations

from typing import Any

from deployments.lab import formats
from deployments.lab.access import Identity, Pool
from deployments.lab.api.rows import pool_members
from deployments.lab.errors import failure
from deployments.lab.routing import Call, endpoint
from deployments.lab.schema import boolean, string

_CAP_PATHS = {
    "access": "/access",
    "dc": "/",
    "mapping": "/mapping",
    "nodes": "/nodes",
    "sdn": "/sdn",
    "storage": "/storage",
    "vms": "/vms",
}


@endpoint(
    "POST",
    "/access/ticket",
    {
        "username": string(optional=False, max_length=64),
        "password": string(optional=False),
        "realm": string(),
        "otp": string(),
        "path": string(),
        "privs": string(),
        "new-format": boolean(),
        "tfa-challenge": string(),
    },
    login=False,
    needs_quorum=False,
)
async def create_ticket(call: Call) -> dict[str, Any]:
    """Log in by password."""
    name = call.params["username"]
    if "realm" in call.params:
        name = f"{name}@{call.params['realm']}"
    ticket, csrf = call.lab.access.login(name, call.params["password"])
    identity = Identity(name)
    cap = {
        key: dict.fromkeys(call.lab.access.privileges(identity, path), 1)
        for key, path in _CAP_PATHS.items()
    }
    return {"username": name, "ticket": ticket, "CSRFPreventionToken": csrf, "cap": cap}


@endpoint("GET", "/access/domains", login=False)
async def domains(call: Call) -> list[dict[str, str]]:
    """Realms; no login needed."""
    return call.lab.config.realms


@endpoint("GET", "/access/permissions", {"path": string(), "userid": string()})
async def permissions(call: Call) -> dict[str, dict[str, int]]:
    """Effective privileges of the caller, or of ``userid``."""
    identity = call.who
    if "userid" in call.params:
        user, _, token = call.params["userid"].partition("!")
        if user != identity.user:
            call.require("/access", "Sys.Audit")
        if user not in call.lab.access.users:
            raise failure(f"no such user ('{user}')")
        identity = Identity(user, token or None)
    if "path" in call.params:
        path = call.params["path"]
        return {path: call.lab.access.privileges(identity, path)}
    return call.lab.access.effective(identity)


@endpoint("GET", "/access/acl")
async def access_list(call: Call) -> list[dict[str, Any]]:
    """Who has which role where; without Sys.Audit only of paths whose rights one may change."""
    all_seen = call.has("/access", "Sys.Audit")
    return [
        {
            "path": entry.path,
            "propagate": int(entry.propagate),
            "roleid": entry.role,
            "type": _kind_of(entry.who),
            "ugid": entry.who.removeprefix("@"),
        }
        for entry in call.lab.access.acl
        if all_seen or call.has(entry.path, "Permissions.Modify")
    ]


def _kind_of(who: str) -> str:
    if who.startswith("@"):
        return "group"
    return "token" if "!" in who else "user"


@endpoint("GET", "/access/users", {"enabled": boolean(), "full": boolean()})
async def users(call: Call) -> list[dict[str, Any]]:
    """Users; only oneself without rights."""
    all_seen = call.has("/access/groups", "Sys.Audit", "User.Modify", any_of=True)
    return [
        {"userid": name, "enable": int(data["enable"]), "realm-type": name.partition("@")[2]}
        for name, data in sorted(call.lab.access.users.items())
        if all_seen or name == call.who.user
    ]


@endpoint("GET", "/access/roles")
async def roles(call: Call) -> list[dict[str, Any]]:
    """Roles and their privileges."""
    from deployments.lab.roles import ROLES

    return [
        {"roleid": name, "privs": ",".join(sorted(privs)), "special": int(name in ROLES)}
        for name, privs in sorted(call.lab.access.roles.items())
    ]


def _visible_pools(call: Call) -> list[Pool]:
    return [
        pool
        for _, pool in sorted(call.lab.access.pools.items())
        if call.has(f"/pool/{pool.poolid}", "Pool.Audit")
    ]


def _pool(call: Call, poolid: str) -> Pool:
    call.require(f"/pool/{poolid}", "Pool.Audit")
    pool = call.lab.access.pools.get(poolid)
    if pool is None:
        raise failure(f"pool '{poolid}' does not exist")
    return pool


def _summary(pool: Pool) -> dict[str, Any]:
    return {"poolid": pool.poolid} | ({"comment": pool.comment} if pool.comment else {})


@endpoint("GET", "/pools", {"poolid": string(formats.pool_id), "type": string()})
async def pools(call: Call) -> list[dict[str, Any]]:
    """Pools; with ``poolid`` a list of one, with its members."""
    if "poolid" in call.params:
        pool = _pool(call, call.params["poolid"])
        return [_summary(pool) | {"members": pool_members(call.lab, pool)}]
    return [_summary(pool) for pool in _visible_pools(call)]


@endpoint("GET", "/pools/{poolid}")
async def pool_read(call: Call) -> dict[str, Any]:
    """One pool in the older form."""
    pool = _pool(call, call.uri["poolid"])
    shown = {"comment": pool.comment} if pool.comment else {}
    return shown | {"poolid": pool.poolid, "members": pool_members(call.lab, pool)}


def _check_allocate(call: Call) -> None:
    poolid = call.raw.get("poolid") or call.uri.get("poolid", "")
    call.require(f"/pool/{poolid}", "Pool.Allocate")


@endpoint(
    "POST",
    "/pools",
    {"poolid": string(formats.pool_id, optional=False), "comment": string()},
    check=_check_allocate,
)
async def pool_create(call: Call) -> None:
    """Create an empty pool."""
    poolid = call.params["poolid"]
    if poolid in call.lab.access.pools:
        raise failure(f"create pool failed: pool '{poolid}' already exists")
    call.lab.access.pools[poolid] = Pool(poolid, call.params.get("comment"))
    call.lab.access.save()


def _update(call: Call, pool: Pool) -> None:
    remove = bool(call.params.get("delete"))
    for word in formats.split_list(call.params.get("vms", "")):
        vmid = int(word)
        call.require(f"/vms/{vmid}", "VM.Allocate")
        _move_member(call, pool, vmid, remove)
    for storage in formats.split_list(call.params.get("storage", "")):
        call.require(f"/storage/{storage}", "Datastore.Allocate")
        if remove and storage in pool.storages:
            pool.storages.remove(storage)
        elif not remove and storage not in pool.storages:
            pool.storages.append(storage)
    if "comment" in call.params:
        pool.comment = call.params["comment"]
    call.lab.access.save()


def _move_member(call: Call, pool: Pool, vmid: int, remove: bool) -> None:
    if remove:
        if vmid not in pool.vms:
            raise failure(f"update pools failed: VM {vmid} is not a pool member")
        pool.vms.remove(vmid)
        return
    other = call.lab.access.pool_of(vmid)
    if other == pool.poolid:
        raise failure(f"update pools failed: VM {vmid} is already a pool member")
    if other is not None:
        if not call.params.get("allow-move"):
            raise failure(f"update pools failed: VM {vmid} belongs already to pool '{other}'")
        call.lab.access.pools[other].vms.remove(vmid)
    pool.vms.append(vmid)


_UPDATE = {
    "comment": string(),
    "vms": string(),
    "storage": string(),
    "delete": boolean(),
    "allow-move": boolean(),
}


@endpoint(
    "PUT",
    "/pools",
    {"poolid": string(formats.pool_id, optional=False)} | _UPDATE,
    check=_check_allocate,
)
async def pool_update(call: Call) -> None:
    """Change members or comment."""
    _update(call, _pool(call, call.params["poolid"]))


@endpoint("PUT", "/pools/{poolid}", _UPDATE, check=_check_allocate)
async def pool_update_old(call: Call) -> None:
    """The same in the older form."""
    _update(call, _pool(call, call.uri["poolid"]))


def _remove(call: Call, poolid: str) -> None:
    pool = _pool(call, poolid)
    if pool.vms or pool.storages:
        raise failure(f"delete pool failed: pool '{poolid}' is not empty")
    del call.lab.access.pools[poolid]
    call.lab.access.save()


@endpoint(
    "DELETE", "/pools", {"poolid": string(formats.pool_id, optional=False)}, check=_check_allocate
)
async def pool_delete(call: Call) -> None:
    """Delete an empty pool."""
    _remove(call, call.params["poolid"])


@endpoint("DELETE", "/pools/{poolid}", check=_check_allocate)
async def pool_delete_old(call: Call) -> None:
    """The same in the older form."""
    _remove(call, call.uri["poolid"])
