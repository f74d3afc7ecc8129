"""Power tasks of machines: start, stop, shutdown, reboot, reset, suspend, resume."""

from __future__ import annotations

import asyncio
from typing import Any

from deployments.lab import images
from deployments.lab.cluster import Lab
from deployments.lab.conffile import GuestConfig
from deployments.lab.errors import ApiError, failure
from deployments.lab.guests import check_lock
from deployments.lab.qemu.create import media_volumes
from deployments.lab.qemu.devices import drives, nets
from deployments.lab.qemu.passthrough import PciUse, choose_devices
from deployments.lab.qemu.status import agent_enabled
from deployments.lab.qemu.update import apply_pending
from deployments.lab.schema import parse_property_string
from deployments.lab.tasks import Task

DEFAULT_SHUTDOWN_SECONDS = 60
_AGENT_SILENT = (
    "QEMU Guest Agent is not running - VM {} qga command 'guest-ping' failed - got timeout"
)


async def start(lab: Lab, node: str, vmid: int, task: Task, skiplock: bool = False) -> None:
    """Start a machine; problems are raised as the task's exit status."""
    async with lab.guests.lock(vmid):
        config = lab.guests.load(node, "qemu", vmid)
        if config.values.get("template") == "1":
            raise failure("you can't start a vm if it's a template")
        if not skiplock:
            check_lock(config, allowed=("suspended",))
        if lab.life.running(vmid):
            raise failure(f"VM {vmid} already running")
        suspended = config.values.get("lock") == "suspended"
        apply_pending(lab, node, vmid, config)
        lab.guests.save(node, "qemu", vmid, config)
        _check_devices(lab, node, config)
        devices = choose_devices(lab, node, vmid, config.values)
        if any(drive.is_cloudinit for drive in drives(config.values)):
            check_snippets(lab, node, config.values)
            task.log("generating cloud-init ISO")
        if "tpmstate0" in config.values:
            task.log("swtpm_setup: Not overwriting existing state file.")
        await lab.clock.work("qmstart")
        if suspended:
            task.log("Resuming suspended VM", "Resumed VM, removing state")
            config.values.pop("lock", None)
            lab.guests.save(node, "qemu", vmid, config)
        lab.life.power_on(node, vmid, config.values)
        lab.part(PciUse).take(node, vmid, devices)
        _warn_certificates(task, vmid, config.values)


def _check_devices(lab: Lab, node: str, config: GuestConfig) -> None:
    for storage, volume in media_volumes(lab, node, config.values):
        if not storage.exists(node, volume):
            raise failure(f"volume '{volume.volid}' does not exist")
    for _, card in nets(config.values):
        name = card.get("bridge")
        if name and lab.bridge(node, str(name)) is None:
            raise failure(f"bridge '{name}' does not exist")


def check_snippets(lab: Lab, node: str, values: dict[str, str]) -> None:
    """Refuse when a file named in ``cicustom`` is missing."""
    from deployments.lab.qemu.options import CICUSTOM_FORMAT

    if "cicustom" not in values:
        return
    for volid in parse_property_string(values["cicustom"], CICUSTOM_FORMAT).values():
        storage, volume = lab.storages.volume(str(volid), node)
        if not storage.exists(node, volume):
            raise failure(f"volume '{volid}' does not exist")


def _warn_certificates(task: Task, vmid: int, values: dict[str, str]) -> None:
    efi = next((d for d in drives(values) if d.key == "efidisk0"), None)
    if (
        efi is None
        or not efi.values.get("pre-enrolled-keys")
        or efi.values.get("ms-cert") == "2023k"
    ):
        return
    task.warn(
        "WARN: EFI disk without 'ms-cert=2023k' option, suggesting that not all UEFI 2023",
        "certificates from Microsoft are enrolled yet.",
        "The UEFI 2011 certificates expire in June 2026! The new certificates are required",
        "for secure boot update for Windows and common Linux distributions.",
        "Use 'Disk Action > Enroll Updated Certificates' in the UI or, while the VM is",
        f"shut down, run 'qm enroll-efi-keys {vmid}' to enroll the new certificates.",
        "",
        "For Windows with BitLocker, run the following command inside Powershell:",
        "  manage-bde -protectors -disable <drive>",
        "for each drive with BitLocker (for example, <drive> could be 'C:').",
        "This is required for each drive with BitLocker before proceeding with enrollment.",
        "Otherwise, you will be prompted for the BitLocker recovery key on the next boot.",
    )


def require_known(lab: Lab, node: str, vmid: int) -> GuestConfig:
    """The configuration, refused in the words of the stop tasks."""
    try:
        return lab.guests.load(node, "qemu", vmid)
    except ApiError:
        text = f"unable to find configuration file for VM {vmid} on node '{node}'"
        raise failure(text) from None


async def stop(lab: Lab, node: str, vmid: int, skiplock: bool = False) -> None:
    """Pull the plug."""
    require_known(lab, node, vmid)
    async with lab.guests.lock(vmid):
        if not lab.life.running(vmid):
            return
        if not skiplock:
            check_lock(lab.guests.load(node, "qemu", vmid), allowed=("suspended",))
        await lab.clock.work("qmstop")
        power_off(lab, node, vmid)


def power_off(lab: Lab, node: str, vmid: int) -> None:
    """The machine is off now; waiting configuration changes become real."""
    lab.life.power_off(vmid)
    config = lab.guests.load(node, "qemu", vmid)
    apply_pending(lab, node, vmid, config)
    lab.guests.save(node, "qemu", vmid, config)


async def shutdown(
    lab: Lab,
    node: str,
    vmid: int,
    task: Task,
    timeout: int | None,
    force: bool = False,
    skiplock: bool = False,
) -> None:
    """Ask the guest to power off; ``timeout`` in seconds, then fail or pull the plug."""
    require_known(lab, node, vmid)
    async with lab.guests.lock(vmid):
        if not lab.life.running(vmid):
            return
        config = lab.guests.load(node, "qemu", vmid)
        if not skiplock:
            check_lock(config, allowed=("suspended",))
        if agent_enabled(config.values) and not lab.life.agent_answers(vmid):
            task.log(_AGENT_SILENT.format(vmid))
        limit = DEFAULT_SHUTDOWN_SECONDS if timeout is None else timeout
        if not await obeys(lab, vmid, limit * lab.clock.scale):
            if not force:
                raise failure("VM quit/powerdown failed - got timeout")
            task.log("VM still running - terminating now with SIGTERM")
        power_off(lab, node, vmid)


async def obeys(lab: Lab, vmid: int, limit: float) -> bool:
    """Wait until a guest has powered itself off; False when ``limit`` real seconds were too few."""
    manner = lab.life.acpi.of(vmid)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + limit
    while manner.never or not lab.life.listens_to_acpi(vmid):
        left = deadline - loop.time()
        if left <= 0:
            return False
        await asyncio.sleep(min(left, 0.05))
    needed = lab.clock.seconds("acpi")
    if manner.seconds is not None:
        needed = manner.seconds * lab.clock.scale
    left = max(deadline - loop.time(), 0)
    await asyncio.sleep(min(needed, left) if limit > 0 else needed)
    return needed <= left or limit <= 0


async def reboot(lab: Lab, node: str, vmid: int, task: Task, timeout: int | None) -> None:
    """Shut down and start again, so that waiting changes become real."""
    await shutdown(lab, node, vmid, task, timeout)
    await start(lab, node, vmid, task)


def require_running(lab: Lab, node: str, vmid: int) -> GuestConfig:
    """500 at once for a stopped machine."""
    if not lab.life.running(vmid):
        raise failure(f"VM {vmid} not running")
    return lab.guests.load(node, "qemu", vmid)


def installed_mark(lab: Lab, node: str, volid: str) -> dict[str, Any] | None:
    """What is installed on a volume."""
    storage, volume = lab.storages.volume(volid, node)
    return images.read_mark(storage.file(node, volume))
