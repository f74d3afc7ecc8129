"""``/nodes/N/qemu``: machines."""

from __future__ import annotations

from typing import Any

from deployments.lab import formats
from deployments.lab.access import Identity
from deployments.lab.cluster import Lab
from deployments.lab.conffile import GuestConfig
from deployments.lab.errors import ApiError, bad_parameter, failure, forbidden
from deployments.lab.guests import check_lock
from deployments.lab.images import resize_image
from deployments.lab.qemu import power
from deployments.lab.qemu.create import build_values, check_drives_exist, destroy
from deployments.lab.qemu.devices import is_drive_key, parse_drive
from deployments.lab.qemu.options import DISK_KEYS, MACHINE_FORMAT, OPTIONS, typed
from deployments.lab.qemu.pace import Pace
from deployments.lab.qemu.permissions import check_options
from deployments.lab.qemu.status import current_status, qemu_row
from deployments.lab.qemu.update import Change, apply_change, check_names
from deployments.lab.qemu.volumes import check_drive
from deployments.lab.roles import VM_CONFIG_ANY
from deployments.lab.routing import Call, endpoint, on, one_of
from deployments.lab.schema import boolean, enum, integer, string
from deployments.lab.tasks import Task

VM = "/nodes/{node}/qemu/{vmid}"
_CREATE_ONLY = {
    "vmid": string(formats.vmid, optional=False),
    "pool": string(formats.pool_id),
    "start": boolean(),
    "storage": string(formats.storage_id),
    "force": boolean(modelled=False),
    "unique": boolean(modelled=False),
    "archive": string(modelled=False),
    "bwlimit": integer(0),
    "live-restore": boolean(modelled=False),
    "import-working-storage": string(formats.storage_id),
    "ha-managed": boolean(modelled=False),
}
_UPDATE_ONLY = {
    "delete": string(formats.config_key_list),
    "revert": string(formats.config_key_list),
    "digest": string(),
    "force": boolean(),
    "skiplock": boolean(),
}


def _check_pool_allocate(call: Call) -> None:
    pool = call.raw.get("pool")
    if not pool:
        raise forbidden()
    call.require(f"/pool/{pool}", "VM.Allocate")


def _check_vm_allocate(call: Call) -> None:
    call.require(f"/vms/{call.raw.get('vmid')}", "VM.Allocate")


@endpoint("GET", "/nodes/{node}/qemu", {"full": boolean()})
async def vm_list(call: Call) -> list[dict[str, Any]]:
    """Machines of the node that the caller may see."""
    return [
        qemu_row(call.lab, call.node, vmid, bool(call.params.get("full")))
        for _, _, vmid in call.lab.guests.all(call.node, "qemu")
        if call.has(f"/vms/{vmid}", "VM.Audit")
    ]


@endpoint(
    "POST",
    "/nodes/{node}/qemu",
    {**OPTIONS, **_CREATE_ONLY},
    check=one_of(_check_vm_allocate, _check_pool_allocate),
)
async def vm_create(call: Call) -> str:
    """Create a machine in a task; most refusals come at once."""
    lab, node, identity = call.lab, call.node, call.who
    params = dict(call.params)
    vmid = int(params["vmid"])
    options = {key: value for key, value in params.items() if key in OPTIONS}
    pool = params.get("pool")
    if pool is not None:
        if pool not in lab.access.pools:
            raise forbidden(f"pool '{pool}' does not exist")
        if not call.has(f"/pool/{pool}", "VM.Allocate"):
            call.require(f"/pool/{pool}", "VM.Allocate")
    check_options(call, vmid, pool, options)
    for key in sorted(k for k in options if is_drive_key(k)):
        check_drive(call, node, vmid, parse_drive(key, str(options[key])))
    place = lab.guests.locate(vmid)
    if place is not None:
        raise failure(f"unable to create VM {vmid} - VM {vmid} already exists on node '{place[0]}'")
    options = _checked_keys(options)

    async def work(task: Task) -> None:
        async with lab.guests.lock(vmid):
            await _create(lab, node, vmid, options, pool, task)
        if params.get("start"):
            task.log("Execute autostart")
            _start_task(lab, node, vmid, identity)

    return lab.tasks.start(node, "qmcreate", str(vmid), identity, work)


def _checked_keys(options: dict[str, Any]) -> dict[str, Any]:
    if "sshkeys" in options and not formats.ssh_keys_valid(options["sshkeys"]):
        raise failure("SSH public key validation error")
    return options


async def _create(
    lab: Lab, node: str, vmid: int, options: dict[str, Any], pool: str | None, task: Task
) -> None:
    place = lab.guests.locate(vmid)
    if place is not None:
        raise failure(f"unable to create VM {vmid} - VM {vmid} already exists on node '{place[0]}'")
    shell = GuestConfig({"lock": "create"})
    lab.guests.save(node, "qemu", vmid, shell)
    if pool is not None:
        lab.access.pools[pool].vms.append(vmid)
        lab.access.save()
    try:
        try:
            check_drives_exist(lab, node, options)
            pace = Pace(lab.clock)
            values, _ = await build_values(lab, node, vmid, options, task.log, pace)
        except ApiError as error:
            raise failure(f"unable to create VM {vmid} - {error.as_exit_status()}") from None
        await lab.clock.work("qmcreate")
    except BaseException:
        lab.guests.delete(node, "qemu", vmid)
        lab.access.forget_guest(vmid)
        raise
    lab.guests.save(node, "qemu", vmid, GuestConfig(values))


@endpoint("GET", VM, check=on("/vms/{vmid}", "VM.Audit"))
async def vm_index(_call: Call) -> list[dict[str, str]]:
    """Names below a machine."""
    names = ("agent", "config", "pending", "resize", "status", "unlink")
    return [{"subdir": name} for name in names]


@endpoint(
    "GET",
    f"{VM}/config",
    {"current": boolean(), "snapshot": string(formats.config_id, max_length=40)},
    check=on("/vms/{vmid}", "VM.Audit"),
)
async def config_read(call: Call) -> dict[str, Any]:
    """The configuration with waiting changes laid over, or as it is live."""
    config = call.lab.guests.load(call.node, "qemu", call.vmid)
    values = config.values if call.params.get("current") else config.effective()
    if "snapshot" in call.params:
        name = call.params["snapshot"]
        if name not in config.snapshots:
            raise failure(f"snapshot '{name}' does not exist")
        values = config.snapshots[name]
    shown = {key: _shown(key, value) for key, value in values.items()}
    return {key: v for key, v in shown.items() if v != ""} | {"digest": config.digest()}


def _shown(key: str, value: str) -> Any:
    return "**********" if key == "cipassword" else typed(key, value)


@endpoint("GET", f"{VM}/pending", check=on("/vms/{vmid}", "VM.Audit"))
async def config_pending(call: Call) -> list[dict[str, Any]]:
    """Each option with its present value and what waits for it."""
    config = call.lab.guests.load(call.node, "qemu", call.vmid)
    rows: list[dict[str, Any]] = []
    for key in sorted({*config.values, *config.pending, "digest"}):
        if key == "digest":
            rows.append({"key": key, "value": config.digest()})
            continue
        row: dict[str, Any] = {"key": key}
        if key in config.values:
            row["value"] = _shown(key, config.values[key])
        if key in config.pending:
            row["pending"] = _shown(key, config.pending[key])
        if key in config.pending_delete:
            row["delete"] = 1
        rows.append(row)
    return rows


def _root_only_skiplock(call: Call) -> bool:
    if call.params.get("skiplock") and not call.who.is_root:
        raise bad_parameter(skiplock="Only root may use this option.")
    return bool(call.params.get("skiplock"))


def _change_of(call: Call) -> Change:
    change = Change(
        {key: value for key, value in call.params.items() if key in OPTIONS},
        formats.split_list(call.params.get("delete", "")),
        formats.split_list(call.params.get("revert", "")),
        bool(call.params.get("force")),
    )
    if not (change.values or change.delete or change.revert):
        raise failure("no options specified")
    check_names(change)
    return change


def _prepare(call: Call) -> Change:
    change = _change_of(call)
    pool = call.lab.access.pool_of(call.vmid)
    check_options(call, call.vmid, pool, [*change.values, *change.delete, *change.revert])
    _checked_keys(change.values)
    for key in sorted(k for k in change.values if is_drive_key(k)):
        check_drive(call, call.node, call.vmid, parse_drive(key, str(change.values[key])))
    return change


def _load_for_change(call: Call, skiplock: bool) -> GuestConfig:
    config = call.lab.guests.load(call.node, "qemu", call.vmid)
    digest = call.params.get("digest")
    if digest and digest != config.digest():
        raise failure("checksum mismatch (file change by other user?)")
    if not skiplock:
        check_lock(config)
    return config


@endpoint(
    "PUT",
    f"{VM}/config",
    {**OPTIONS, **_UPDATE_ONLY},
    check=on("/vms/{vmid}", *VM_CONFIG_ANY, any_of=True),
)
async def config_put(call: Call) -> None:
    """Change the configuration within the call."""
    skiplock = _root_only_skiplock(call)
    change = _prepare(call)
    async with call.lab.guests.lock(call.vmid):
        config = _load_for_change(call, skiplock)
        await apply_change(call.lab, call.node, call.vmid, config, change, lambda *_: None)


@endpoint(
    "POST",
    f"{VM}/config",
    {
        **OPTIONS,
        **_UPDATE_ONLY,
        "background_delay": integer(1, 30, modelled=False),
        "import-working-storage": string(formats.storage_id),
    },
    check=on("/vms/{vmid}", *VM_CONFIG_ANY, any_of=True),
)
async def config_post(call: Call) -> str:
    """Change the configuration in a task."""
    lab, node, vmid = call.lab, call.node, call.vmid
    skiplock = _root_only_skiplock(call)
    change = _prepare(call)
    async with lab.guests.lock(vmid):
        _load_for_change(call, skiplock)

    async def work(task: Task) -> None:
        async with lab.guests.lock(vmid):
            words = [f"-{key} {value}" for key, value in call.params.items() if key in OPTIONS]
            words += [f"-delete {','.join(change.delete)}"] if change.delete else []
            task.log(f"update VM {vmid}: {' '.join(words)}")
            await lab.clock.work("qmconfig")
            config = _load_for_change(call, skiplock)
            await apply_change(lab, node, vmid, config, change, task.log)

    return lab.tasks.start(node, "qmconfig", str(vmid), call.who, work)


@endpoint(
    "PUT",
    f"{VM}/unlink",
    {"idlist": string(formats.config_key_list, optional=False), "force": boolean()},
    check=on("/vms/{vmid}", "VM.Config.Disk"),
)
async def unlink(call: Call) -> None:
    """Detach disks; with ``force`` destroy them."""
    change = Change(
        {}, formats.split_list(call.params["idlist"]), [], bool(call.params.get("force"))
    )
    check_names(change)
    async with call.lab.guests.lock(call.vmid):
        config = _load_for_change(call, skiplock=False)
        await apply_change(call.lab, call.node, call.vmid, config, change, lambda *_: None)


@endpoint(
    "PUT",
    f"{VM}/resize",
    {
        "disk": enum(*DISK_KEYS, optional=False),
        "size": string(optional=False, pattern=r"\+?\d+(?:\.\d+)?[KMGT]?"),
        "digest": string(max_length=40),
        "skiplock": boolean(),
    },
    check=on("/vms/{vmid}", "VM.Config.Disk"),
)
async def resize(call: Call) -> str:
    """Grow a disk in a task."""
    lab, node, vmid = call.lab, call.node, call.vmid
    skiplock = _root_only_skiplock(call)
    config = lab.guests.load(node, "qemu", vmid)
    key, wanted = call.params["disk"], call.params["size"]
    if key in config.values:
        storage_id = parse_drive(key, config.values[key]).file.partition(":")[0]
        call.require(f"/storage/{storage_id}", "Datastore.AllocateSpace")

    async def work(task: Task) -> None:
        async with lab.guests.lock(vmid):
            await lab.clock.work("resize")
            _resize(lab, node, vmid, _load_for_change(call, skiplock), key, wanted, task)

    return lab.tasks.start(node, "resize", str(vmid), call.who, work)


def _resize(
    lab: Lab, node: str, vmid: int, config: GuestConfig, key: str, wanted: str, task: Task
) -> None:
    if key not in config.values:
        raise failure(f"disk '{key}' does not exist")
    drive = parse_drive(key, config.values[key])
    if drive.is_cdrom:
        raise failure("you can't resize a cdrom")
    storage, volume = lab.storages.volume(drive.file, node)
    now = storage.info(node, volume).size
    asked = formats.parse_size(wanted.lstrip("+")) or 0
    size = now + asked if wanted.startswith("+") else asked
    if size < now:
        raise failure("shrinking disks is not supported")
    if size == now:
        return
    if volume.is_template_base and not storage.block:
        _refuse_base(storage.shown_path(volume), volume.format, size, task)
    resize_image(storage.file(node, volume), volume.format, size)
    if not storage.block and not lab.life.running(vmid):
        task.log("Image resized.")
    config.values[key] = drive.with_values(size=formats.format_size(size)).text()
    lab.guests.save(node, "qemu", vmid, config)


def _refuse_base(shown: str, fmt: str, size: int, task: Task) -> None:
    task.log(
        f"qemu-img: Could not open '{shown}': Could not open '{shown}': Operation not permitted"
    )
    mode = "metadata" if fmt == "qcow2" else "off"
    command = f"/usr/bin/qemu-img resize '--preallocation={mode}' -f {fmt} {shown} {size}"
    raise failure(f"command '{command}' failed: exit code 1")


@endpoint(
    "DELETE",
    VM,
    {"purge": boolean(), "skiplock": boolean(), "destroy-unreferenced-disks": boolean()},
    check=on("/vms/{vmid}", "VM.Allocate"),
)
async def vm_destroy(call: Call) -> str:
    """Destroy a stopped machine with its disks in a task."""
    lab, node, vmid, params = call.lab, call.node, call.vmid, call.params
    skiplock = _root_only_skiplock(call)
    config = lab.guests.load(node, "qemu", vmid)
    if config.values.get("protection") == "1":
        raise failure(f"can't remove VM {vmid} - protection mode enabled")
    if lab.life.running(vmid):
        raise failure(f"VM {vmid} is running - destroy failed")

    async def work(task: Task) -> None:
        async with lab.guests.lock(vmid):
            now = lab.guests.load(node, "qemu", vmid)
            if not skiplock:
                check_lock(now)
            if lab.life.running(vmid):
                raise failure(f"VM {vmid} is running - destroy failed")
            await lab.clock.work("qmdestroy")
            unreferenced = bool(params.get("destroy-unreferenced-disks"))
            task.log(*destroy(lab, node, vmid, now, unreferenced))
            lab.access.forget_guest(vmid)
            lab.life.forget(vmid)
            if params.get("purge"):
                task.log(f"purging VM {vmid} from related configurations..")

    return lab.tasks.start(node, "qmdestroy", str(vmid), call.who, work)


@endpoint("GET", f"{VM}/status/current", check=on("/vms/{vmid}", "VM.Audit"))
async def status_current(call: Call) -> dict[str, Any]:
    """The machine's present state."""
    return current_status(call.lab, call.node, call.vmid)


_POWER = on("/vms/{vmid}", "VM.PowerMgmt")
_TIMEOUT = {"timeout": integer(0), "skiplock": boolean()}


def _start_task(lab: Lab, node: str, vmid: int, identity: Identity, skiplock: bool = False) -> str:
    async def work(task: Task) -> None:
        await power.start(lab, node, vmid, task, skiplock)

    return lab.tasks.start(node, "qmstart", str(vmid), identity, work)


@endpoint(
    "POST",
    f"{VM}/status/start",
    _TIMEOUT
    | {
        "machine": string(MACHINE_FORMAT, modelled=False),
        "force-cpu": string(modelled=False),
        "migratedfrom": string(formats.node_name, modelled=False),
        "migration_network": string(formats.cidr, modelled=False),
        "migration_type": enum("secure", "insecure", modelled=False),
        "nets-host-mtu": string(modelled=False),
        "stateuri": string(max_length=128, modelled=False),
        "targetstorage": string(modelled=False),
        "with-conntrack-state": boolean(modelled=False),
    },
    check=_POWER,
)
async def status_start(call: Call) -> str:
    """Start; every problem shows in the task."""
    return _start_task(call.lab, call.node, call.vmid, call.who, _root_only_skiplock(call))


@endpoint(
    "POST",
    f"{VM}/status/stop",
    _TIMEOUT
    | {
        "keepActive": boolean(modelled=False),
        "migratedfrom": string(formats.node_name, modelled=False),
        "overrule-shutdown": boolean(),
    },
    check=_POWER,
)
async def status_stop(call: Call) -> str:
    """Pull the plug; ``overrule-shutdown`` interrupts shutdowns that still wait."""
    lab, node, vmid = call.lab, call.node, call.vmid
    skiplock = _root_only_skiplock(call)
    if call.params.get("overrule-shutdown"):
        for waiting in lab.tasks.running("qmshutdown", str(vmid)):
            await lab.tasks.stop(waiting.upid)

    async def work(_task: Task) -> None:
        await power.stop(lab, node, vmid, skiplock)

    return lab.tasks.start(node, "qmstop", str(vmid), call.who, work)


@endpoint(
    "POST",
    f"{VM}/status/shutdown",
    _TIMEOUT | {"forceStop": boolean(), "keepActive": boolean(modelled=False)},
    check=_POWER,
)
async def status_shutdown(call: Call) -> str:
    """Ask the guest to power off."""
    lab, node, vmid, params = call.lab, call.node, call.vmid, call.params
    skiplock = _root_only_skiplock(call)

    async def work(task: Task) -> None:
        force = bool(params.get("forceStop"))
        await power.shutdown(lab, node, vmid, task, params.get("timeout"), force, skiplock)

    return lab.tasks.start(node, "qmshutdown", str(vmid), call.who, work)


@endpoint("POST", f"{VM}/status/reboot", {"timeout": integer(0)}, check=_POWER)
async def status_reboot(call: Call) -> str:
    """Shut down and start again."""
    lab, node, vmid = call.lab, call.node, call.vmid
    power.require_running(lab, node, vmid)

    async def work(task: Task) -> None:
        await power.reboot(lab, node, vmid, task, call.params.get("timeout"))

    return lab.tasks.start(node, "qmreboot", str(vmid), call.who, work)


def _short_task(call: Call, kind: str, action: Any) -> str:
    lab, node, vmid = call.lab, call.node, call.vmid
    skiplock = _root_only_skiplock(call)
    power.require_running(lab, node, vmid)

    async def work(_task: Task) -> None:
        async with lab.guests.lock(vmid):
            if not skiplock:
                check_lock(lab.guests.load(node, "qemu", vmid), allowed=("suspended",))
            await lab.clock.work(kind)
            action(vmid)

    return lab.tasks.start(node, kind, str(vmid), call.who, work)


@endpoint("POST", f"{VM}/status/reset", {"skiplock": boolean()}, check=_POWER)
async def status_reset(call: Call) -> str:
    """Hard reset."""
    return _short_task(call, "qmreset", call.lab.life.reset)


@endpoint(
    "POST",
    f"{VM}/status/suspend",
    {
        "skiplock": boolean(),
        "todisk": boolean(modelled=False),
        "statestorage": string(formats.storage_id, requires="todisk"),
    },
    check=_POWER,
)
async def status_suspend(call: Call) -> str:
    """Pause; suspending to disk is not modelled."""
    return _short_task(call, "qmpause", call.lab.life.pause)


@endpoint(
    "POST", f"{VM}/status/resume", {"skiplock": boolean(), "nocheck": boolean()}, check=_POWER
)
async def status_resume(call: Call) -> str:
    """Go on after a pause."""
    return _short_task(call, "qmresume", call.lab.life.resume)
