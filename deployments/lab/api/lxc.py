"""``/nodes/N/lxc``: containers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from deployments.lab import formats
from deployments.lab.access import Identity
from deployments.lab.accounts import hash_password
from deployments.lab.cluster import Lab
from deployments.lab.conffile import GuestConfig
from deployments.lab.errors import ApiError, bad_parameter, failure, forbidden
from deployments.lab.guests import check_lock
from deployments.lab.images import resize_image, write_mark
from deployments.lab.lxc import config as containers
from deployments.lab.lxc.options import (
    FEATURES_FORMAT,
    MOUNT_KEYS,
    NET_FORMAT,
    NET_KEYS,
    OPTIONS,
    shown,
)
from deployments.lab.lxc.volumes import mounts, owned, requested, resize_lines
from deployments.lab.qemu.power import obeys
from deployments.lab.routing import Call, endpoint, on, one_of
from deployments.lab.schema import (
    boolean,
    enum,
    integer,
    number,
    parse_property_string,
    string,
)
from deployments.lab.tasks import Task

CT = "/nodes/{node}/lxc/{vmid}"
_POWER = on("/vms/{vmid}", "VM.PowerMgmt")
_AUDIT = on("/vms/{vmid}", "VM.Audit")
_SHUTDOWN_SECONDS = 60
_NETS, _MOUNTS = frozenset(NET_KEYS), frozenset(MOUNT_KEYS)
_PRIVILEGES = {
    "cores": "VM.Config.CPU",
    "cpulimit": "VM.Config.CPU",
    "cpuunits": "VM.Config.CPU",
    "memory": "VM.Config.Memory",
    "swap": "VM.Config.Memory",
    "nameserver": "VM.Config.Network",
    "searchdomain": "VM.Config.Network",
    "hostname": "VM.Config.Network",
}


def _check_create(call: Call) -> None:
    call.require(f"/vms/{call.raw.get('vmid')}", "VM.Allocate")


def _check_create_pool(call: Call) -> None:
    if not call.raw.get("pool"):
        raise forbidden()
    call.require(f"/pool/{call.raw['pool']}", "VM.Allocate")


@endpoint("GET", "/nodes/{node}/lxc")
async def ct_list(call: Call) -> list[dict[str, Any]]:
    """Containers of the node that the caller may see."""
    return [
        containers.row(call.lab, call.node, vmid)
        for _, _, vmid in call.lab.guests.all(call.node, "lxc")
        if call.has(f"/vms/{vmid}", "VM.Audit")
    ]


@endpoint(
    "POST",
    "/nodes/{node}/lxc",
    {
        **OPTIONS,
        "vmid": string(formats.vmid, optional=False),
        "ostemplate": string(optional=False, max_length=255),
        "password": string(min_length=5),
        "ssh-public-keys": string(),
        "storage": string(formats.storage_id),
        "pool": string(formats.pool_id),
        "start": boolean(),
        "force": boolean(modelled=False),
        "restore": boolean(modelled=False),
        "unique": boolean(modelled=False),
        "ha-managed": boolean(modelled=False),
        "bwlimit": number(0),
        "ignore-unpack-errors": boolean(),
    },
    check=one_of(_check_create, _check_create_pool),
)
async def ct_create(call: Call) -> str:
    """Create a container from a template in a task."""
    lab, node, params, identity = call.lab, call.node, call.params, call.who
    vmid, pool = int(params["vmid"]), params.get("pool")
    if pool is not None and pool not in lab.access.pools:
        raise forbidden(f"pool '{pool}' does not exist")
    options = {key: value for key, value in params.items() if key in OPTIONS}
    _check_options(call, vmid, options)
    place = lab.guests.locate(vmid)
    if place is not None:
        kind = "CT" if place[1] == "lxc" else "VM"
        raise failure(f"{kind} {vmid} already exists on node '{place[0]}'")
    if not formats.ssh_keys_valid(params.get("ssh-public-keys", "")):
        raise failure("SSH public key validation error")
    _, template = lab.storages.volume(params["ostemplate"], node)
    if template.vtype != "vztmpl":
        text = f"unable to use volume {template.volid} - content type needs to be 'vztmpl'"
        raise failure(text)
    options.setdefault("rootfs", f"{params.get('storage', 'local')}:4")
    _check_mounts(call, vmid, options)

    secrets = {"keys": params.get("ssh-public-keys", "")}
    if "password" in params:
        secrets["root"] = hash_password(params["password"])

    async def work(task: Task) -> None:
        async with lab.guests.lock(vmid, "lxc"):
            await _create(lab, node, vmid, params["ostemplate"], options, pool, task, secrets)
        if params.get("start"):
            _start_task(lab, node, vmid, identity)

    return lab.tasks.start(node, "vzcreate", str(vmid), identity, work)


def _check_options(call: Call, vmid: int, options: dict[str, Any]) -> None:
    features = parse_property_string(str(options.get("features", "")), FEATURES_FORMAT)
    if set(features) - {"nesting"} and not call.who.is_root:
        text = "changing feature flags (except nesting) is only allowed for root@pam"
        raise forbidden(text)
    for key in sorted(options):
        privilege = _PRIVILEGES.get(key, "VM.Config.Options")
        if key in _NETS:
            privilege = "VM.Config.Network"
            bridge = parse_property_string(str(options[key]), NET_FORMAT).get("bridge")
            if bridge:
                call.require(f"/sdn/zones/localnetwork/{bridge}", "SDN.Use")
        elif key in _MOUNTS:
            privilege = "VM.Config.Disk"
        if not call.has(f"/vms/{vmid}", "VM.Allocate"):
            call.require(f"/vms/{vmid}", privilege)


def _check_mounts(call: Call, vmid: int, options: dict[str, Any]) -> None:
    texts = {key: str(value) for key, value in options.items() if key in _MOUNTS}
    for mount in mounts(texts):
        wanted = requested(mount)
        if wanted is not None:
            storage = call.lab.storages.get(wanted[0], call.node)
            call.require(f"/storage/{storage.id}", "Datastore.AllocateSpace")
            if "rootdir" not in storage.config.content:
                raise failure(f"storage '{storage.id}' does not support container directories")
        else:
            _, volume = call.lab.storages.volume(mount.volume, call.node)
            if volume.vmid != vmid:
                call.require(f"/storage/{volume.storage}", "Datastore.Allocate")


async def _create(
    lab: Lab,
    node: str,
    vmid: int,
    template: str,
    options: dict[str, Any],
    pool: str | None,
    task: Task,
    secrets: dict[str, str],
) -> None:
    lab.guests.save(node, "lxc", vmid, GuestConfig({"lock": "create"}))
    if pool is not None:
        lab.access.pools[pool].vms.append(vmid)
        lab.access.save()
    try:
        try:
            values = containers.build(lab, node, vmid, template, options, task.log)
        except ApiError as error:
            raise failure(f"unable to create CT {vmid} - {error.as_exit_status()}") from None
        await lab.clock.work("vzcreate")
    except BaseException:
        lab.guests.delete(node, "lxc", vmid)
        lab.access.forget_guest(vmid)
        raise
    for storage, volume in owned(lab, node, vmid, values):
        write_mark(storage.file(node, volume), {"template": template, **secrets})
    lab.guests.save(node, "lxc", vmid, GuestConfig(values))


@endpoint("GET", f"{CT}/config", {"current": boolean(), "snapshot": string()}, check=_AUDIT)
async def config_read(call: Call) -> dict[str, Any]:
    """The configuration with waiting changes laid over, or as it is live."""
    config = call.lab.guests.load(call.node, "lxc", call.vmid)
    values = config.values if call.params.get("current") else config.effective()
    if "snapshot" in call.params:
        values = config.snapshots.get(call.params["snapshot"], {})
        if not values:
            raise failure(f"snapshot '{call.params['snapshot']}' does not exist")
    return {key: shown(key, value) for key, value in values.items()} | {"digest": config.digest()}


@endpoint("GET", f"{CT}/pending", check=_AUDIT)
async def config_pending(call: Call) -> list[dict[str, Any]]:
    """Each option with its present value and what waits for it."""
    config = call.lab.guests.load(call.node, "lxc", call.vmid)
    rows: list[dict[str, Any]] = [{"key": "digest", "value": config.digest()}]
    for key in {*config.values, *config.pending}:
        row: dict[str, Any] = {"key": key}
        if key in config.values:
            row["value"] = shown(key, config.values[key])
        if key in config.pending:
            row["pending"] = shown(key, config.pending[key])
        if key in config.pending_delete:
            row["delete"] = 1
        rows.append(row)
    return sorted(rows, key=lambda row: str(row["key"]))


@endpoint(
    "PUT",
    f"{CT}/config",
    {
        **OPTIONS,
        "delete": string(formats.config_key_list),
        "revert": string(formats.config_key_list),
        "digest": string(),
    },
    check=on(
        "/vms/{vmid}",
        *("VM.Config.Disk", "VM.Config.CPU", "VM.Config.Memory", "VM.Config.Network"),
        "VM.Config.Options",
        any_of=True,
    ),
)
async def config_put(call: Call) -> None:
    """Change the configuration within the call."""
    lab, node, vmid, params = call.lab, call.node, call.vmid, call.params
    values = {key: value for key, value in params.items() if key in OPTIONS}
    delete = formats.split_list(params.get("delete", ""))
    revert = formats.split_list(params.get("revert", ""))
    if not (values or delete or revert):
        raise failure("no options specified")
    containers.check_delete(delete, values)
    _check_options(call, vmid, values)
    _check_mounts(call, vmid, values)
    async with lab.guests.lock(vmid, "lxc"):
        config = lab.guests.load(node, "lxc", vmid)
        if params.get("digest") not in (None, config.digest()):
            raise failure(
                "detected modified configuration - file changed by other user? Try again."
            )
        check_lock(config, "lxc")
        for key in revert:
            config.pending.pop(key, None)
        config.pending_delete = [key for key in config.pending_delete if key not in revert]
        containers.change(lab, node, vmid, config, values, delete)
        lab.guests.save(node, "lxc", vmid, config)
        lab.life.config_changed(vmid, config.values)


@endpoint("GET", f"{CT}/status/current", check=_AUDIT)
async def status_current(call: Call) -> dict[str, Any]:
    """The container's present state."""
    return containers.row(call.lab, call.node, call.vmid) | {"ha": {"managed": 0}}


@endpoint("GET", f"{CT}/interfaces", check=_AUDIT)
async def interfaces(call: Call) -> list[dict[str, Any]] | None:
    """Interfaces as the host sees them; null while stopped."""
    call.lab.guests.load(call.node, "lxc", call.vmid)
    run = call.lab.life.running(call.vmid)
    if run is None:
        return None
    rows = []
    for one in call.lab.life.addresses.agent_view(run.interfaces):
        addresses = [
            {
                "ip-address": address["ip-address"],
                "ip-address-type": "inet" if address["ip-address-type"] == "ipv4" else "inet6",
                "prefix": str(address["prefix"]),
            }
            for address in one["ip-addresses"]
        ]
        mac = one["hardware-address"]
        row: dict[str, Any] = {"name": one["name"], "hardware-address": mac, "hwaddr": mac}
        for address in addresses:
            text = f"{address['ip-address']}/{address['prefix']}"
            row.setdefault(address["ip-address-type"], text)
        rows.append(row | {"ip-addresses": addresses})
    return rows


def _load_stopped(call: Call, stopped_text: str | None, running_text: str | None) -> GuestConfig:
    config = call.lab.guests.load(call.node, "lxc", call.vmid)
    running = call.lab.life.running(call.vmid) is not None
    if running and running_text:
        raise failure(running_text)
    if not running and stopped_text:
        raise failure(stopped_text)
    return config


def _skiplock(call: Call) -> bool:
    if call.params.get("skiplock") and not call.who.is_root:
        raise bad_parameter(skiplock="Only root may use this option.")
    return bool(call.params.get("skiplock"))


async def start_container(
    lab: Lab, node: str, vmid: int, task: Task, skiplock: bool = False, locked: bool = False
) -> None:
    """Start; problems are the task's exit status. ``locked`` says that the caller has the lock."""
    async with contextlib.nullcontext() if locked else lab.guests.lock(vmid, "lxc"):
        config = lab.guests.load(node, "lxc", vmid)
        if config.values.get("template") == "1":
            raise failure("you can't start a CT if it's a template")
        if not skiplock:
            check_lock(config, "lxc")
        containers.apply_pending(lab, node, vmid, config)
        for key in sorted(k for k in config.values if k in _NETS):
            bridge = parse_property_string(config.values[key], NET_FORMAT).get("bridge")
            if bridge and lab.bridge(node, str(bridge)) is None:
                raise failure(f"bridge '{bridge}' does not exist")
        await lab.clock.work("vzstart")
        lab.guests.save(node, "lxc", vmid, config)
        lab.life.power_on(node, vmid, config.values, "lxc")


def _start_task(lab: Lab, node: str, vmid: int, identity: Identity, skiplock: bool = False) -> str:
    async def work(task: Task) -> None:
        await start_container(lab, node, vmid, task, skiplock)

    return lab.tasks.start(node, "vzstart", str(vmid), identity, work)


@endpoint("POST", f"{CT}/status/start", {"skiplock": boolean(), "debug": boolean()}, check=_POWER)
async def status_start(call: Call) -> str:
    """Start a stopped container."""
    skiplock = _skiplock(call)
    _load_stopped(call, None, f"CT {call.vmid} already running")
    return _start_task(call.lab, call.node, call.vmid, call.who, skiplock)


def _off_task(call: Call, kind: str, again: bool = False) -> str:
    lab, node, vmid = call.lab, call.node, call.vmid
    skiplock = _skiplock(call)
    _load_stopped(call, f"CT {vmid} not running", None)

    async def work(task: Task) -> None:
        async with lab.guests.lock(vmid, "lxc", task.log):
            if not skiplock:
                check_lock(lab.guests.load(node, "lxc", vmid), "lxc")
            if kind == "vzstop":
                await lab.clock.work("qmstop")
            else:
                await _shut_down(lab, vmid, call.params, task, kill=again)
            stop_container(lab, node, vmid)
        if again:
            await start_container(lab, node, vmid, task)

    return lab.tasks.start(node, kind, str(vmid), call.who, work)


async def _shut_down(
    lab: Lab, vmid: int, params: dict[str, Any], task: Task, *, kill: bool
) -> None:
    """Let a container end itself; one that does not is killed, or the task fails.

    Not recorded: order and texts follow the public source of pve-container 6.
    """
    seconds = int(params.get("timeout", _SHUTDOWN_SECONDS))
    if await obeys(lab, vmid, seconds * lab.clock.scale) or kill or params.get("forceStop"):
        return
    task.log(f"command 'lxc-stop -n {vmid} --nokill --timeout {seconds}' failed: exit code 1")
    raise failure("container did not stop")


def stop_container(lab: Lab, node: str, vmid: int) -> None:
    """The container is off now; waiting changes become real."""
    lab.life.power_off(vmid)
    config = lab.guests.load(node, "lxc", vmid)
    containers.apply_pending(lab, node, vmid, config)
    lab.guests.save(node, "lxc", vmid, config)


_OFF = {"skiplock": boolean(), "timeout": integer(0)}


@endpoint(
    "POST",
    f"{CT}/status/stop",
    {"skiplock": boolean(), "overrule-shutdown": boolean()},
    check=_POWER,
)
async def status_stop(call: Call) -> str:
    """Stop at once."""
    return _off_task(call, "vzstop")


@endpoint("POST", f"{CT}/status/shutdown", {**_OFF, "forceStop": boolean()}, check=_POWER)
async def status_shutdown(call: Call) -> str:
    """Ask the container to power off."""
    return _off_task(call, "vzshutdown")


@endpoint("POST", f"{CT}/status/reboot", {"timeout": integer(0)}, check=_POWER)
async def status_reboot(call: Call) -> str:
    """Shut down and start again."""
    return _off_task(call, "vzreboot", again=True)


@endpoint(
    "DELETE",
    CT,
    {"force": boolean(), "purge": boolean(), "destroy-unreferenced-disks": boolean()},
    check=on("/vms/{vmid}", "VM.Allocate"),
)
async def ct_destroy(call: Call) -> str:
    """Destroy a container with its volumes in a task; ``force`` stops it first."""
    lab, node, vmid, params = call.lab, call.node, call.vmid, call.params
    config = lab.guests.load(node, "lxc", vmid)
    if config.values.get("protection") == "1":
        raise failure(f"can't remove CT {vmid} - protection mode enabled")
    check_lock(config, "lxc")
    starting = bool(lab.tasks.running("vzstart", str(vmid)))
    if lab.life.running(vmid) and not params.get("force") and not starting:
        raise failure(f"unable to destroy CT {vmid} - container is running")

    async def work(task: Task) -> None:
        async with lab.guests.lock(vmid, "lxc", task.log):
            now = lab.guests.load(node, "lxc", vmid)
            check_lock(now, "lxc")
            if lab.life.running(vmid):
                if not params.get("force"):
                    raise failure(f"unable to destroy CT {vmid} - container is running")
                task.log(f"forced to stop CT {vmid} before destroying!")
                lab.life.power_off(vmid)
            await lab.clock.work("vzdestroy")
            _free_all(lab, node, vmid, now, task.log)
            lab.guests.delete(node, "lxc", vmid)
            lab.access.forget_guest(vmid)
            lab.life.forget(vmid)
            if params.get("purge"):
                task.log(f"purging CT {vmid} from related configurations..")

    return lab.tasks.start(node, "vzdestroy", str(vmid), call.who, work)


def _free_all(
    lab: Lab, node: str, vmid: int, config: GuestConfig, log: Callable[..., None]
) -> None:
    volumes = {}
    for section in (config.values, config.pending, *config.snapshots.values()):
        for storage, volume in owned(lab, node, vmid, section):
            volumes[volume.volid] = (storage, volume)
    for storage, volume in volumes.values():
        log(*storage.free(node, volume))


@endpoint(
    "PUT",
    f"{CT}/resize",
    {
        "disk": enum(*MOUNT_KEYS, optional=False),
        "size": string(optional=False, pattern=r"\+?\d+(?:\.\d+)?[KMGT]?"),
        "digest": string(max_length=40),
    },
    check=on("/vms/{vmid}", "VM.Config.Disk"),
)
async def resize(call: Call) -> str:
    """Grow a mount point in a task; a smaller or equal size is refused at once."""
    lab, node, vmid, key = call.lab, call.node, call.vmid, call.params["disk"]
    config = lab.guests.load(node, "lxc", vmid)
    check_lock(config, "lxc")
    mount = next((m for m in mounts(config.values) if m.key == key), None)
    if call.params.get("digest") not in (None, config.digest()):
        raise failure("detected modified configuration - file changed by other user? Try again.")
    if mount is None:
        missing = "property is missing and it is not optional"
        raise ApiError(500, "format error", errors={"mp": missing, "volume": missing})
    storage, volume = lab.storages.volume(mount.volume, node)
    call.require(f"/storage/{storage.id}", "Datastore.AllocateSpace")
    before = storage.info(node, volume).size
    text = call.params["size"]
    asked = formats.parse_size(text.lstrip("+")) or 0
    size = before + asked if text.startswith("+") else asked
    if size == before:
        raise failure("disk is already at specified size")
    if size < before:
        raise failure("unable to shrink disk size")

    async def work(task: Task) -> None:
        async with lab.guests.lock(vmid, "lxc"):
            await lab.clock.work("resize")
            now = lab.guests.load(node, "lxc", vmid)
            resize_image(storage.file(node, volume), volume.format, size)
            now.values[key] = mount.with_volume(volume.volid, size).text()
            lab.guests.save(node, "lxc", vmid, now)
            task.log(*resize_lines(storage, volume, before, size))

    return lab.tasks.start(node, "resize", str(vmid), call.who, work)
