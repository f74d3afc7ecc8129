"""Guests that seem alive: firmware, installer, installed system, addresses, agent.

A machine's life is a row of phases with a length each; the present phase follows from the clock
whenever somebody looks, and a ticker looks a few times a second. Phases are kept on disk, so that
guests go on living when the lab is restarted.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deployments.lab import bootmenus, guestio, images
from deployments.lab.addresses import (
    AddressBook,
    container_interfaces,
    guest_interfaces,
    take_leases,
)
from deployments.lab.cloudseed import told_by_cloud_init
from deployments.lab.errors import ApiError
from deployments.lab.files import read_json, write_json
from deployments.lab.guestdisk import GuestDisks
from deployments.lab.guestio import Counters
from deployments.lab.guestmanners import AcpiManners
from deployments.lab.isos import read_file, read_iso
from deployments.lab.qemu.devices import boot_devices, drives
from deployments.lab.qemu.status import agent_enabled, memory_bytes
from deployments.lab.seeds import SEED_FILES, SeedAnswers, installer_family, parse_seed
from deployments.lab.seedscripts import setup_of
from deployments.lab.shell import Result
from deployments.lab.terminal import Lines

if TYPE_CHECKING:
    from deployments.lab.cluster import Lab

_TICK_SECONDS = 0.1
_MOVES_AT_ONCE = 10
BOOT, INSTALL, UP, WAIT = "boot", "install", "up", "wait"


@dataclass
class Run:
    """A machine that is on: one process, in which its system may boot again and again.

    ``started``, ``booted`` and ``phase_since`` are epoch times; ``note`` says why it waits.
    ``counted``: bytes read and written by drive in the phases before the present one.
    """

    node: str
    vmid: int
    pid: int
    started: float
    values: dict[str, str]
    kind: str = "qemu"
    phase: str = BOOT
    phase_since: float = 0.0
    paused: bool = False
    device: str | None = None
    mark: dict[str, Any] | None = None
    answers: dict[str, Any] | None = None
    interfaces: list[dict[str, Any]] = field(default_factory=list)
    note: str = ""
    installs: int = 0
    counted: Counters = field(default_factory=dict)
    booted: float = 0.0
    frozen: bool = False

    @property
    def qmp_status(self) -> str:
        """``running`` or ``paused``."""
        return "paused" if self.paused else "running"


def _moves(run: Run) -> bool:
    """Whether time alone changes anything about the machine."""
    return run.phase in (BOOT, INSTALL) or any(one.get("leased") for one in run.interfaces)


def _read_run(file: Path) -> Run:
    """What was kept; values that an earlier lab kept besides are left out."""
    known = {one.name for one in fields(Run)}
    return Run(**{key: value for key, value in read_json(file, {}).items() if key in known})


class GuestLife:
    """All machines that are on."""

    def __init__(self, lab: Lab) -> None:
        from deployments.lab.api.rows import Broadcast

        self._lab = lab
        self._folder = lab.root / "run"
        self._runs: dict[int, Run] = {}
        self._ticker: asyncio.Task[None] | None = None
        self._next_pid = 20000
        self.version = 0
        self._changed: dict[int, int] = {}
        self._memory: dict[str, int] = {}
        self._memory_as_of = -1
        self.broadcast = Broadcast()
        self.addresses = AddressBook(lab)
        self.disks = GuestDisks(lab)
        self.lines = Lines(lab)
        self.proxies: dict[int, Any] = {}
        self.acpi = AcpiManners(lab.root / "run" / "manners" / "acpi.json")
        self._leaving: dict[int, asyncio.Task[None]] = {}
        self._programs: dict[tuple[int, int], Result] = {}
        self._logins: dict[int, list[dict[str, Any]]] = {}
        for file in sorted(self._folder.glob("*.json")):
            run = _read_run(file)
            if lab.guests.locate(run.vmid) is None:
                file.unlink()
                continue
            self._runs[run.vmid] = run
            self._next_pid = max(self._next_pid, run.pid)

    async def start(self) -> None:
        """Begin ticking."""
        self._ticker = asyncio.create_task(self._tick())

    async def close(self) -> None:
        """Stop ticking; guests stay as they are on disk."""
        if self._ticker is not None:
            self._ticker.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._ticker

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            moving = [run.vmid for run in self._runs.values() if _moves(run)]
            for number, vmid in enumerate(moving):
                self.running(vmid)
                # A thousand machines that boot at once must not keep callers waiting.
                if number % _MOVES_AT_ONCE == 0:
                    await asyncio.sleep(0)

    # -- power -------------------------------------------------------------------------------

    def power_on(self, node: str, vmid: int, values: dict[str, str], kind: str = "qemu") -> None:
        """Switch on with a configuration; a container is up at once."""
        self._next_pid += 1
        now = time.time()
        run = Run(node, vmid, self._next_pid, now, dict(values), kind, phase_since=now)
        run.booted = now
        if kind == "lxc":
            run.phase = UP
            run.interfaces = container_interfaces(self._lab, node, run.values)
        self._runs[vmid] = run
        self._save(run)

    def power_off(self, vmid: int) -> None:
        """Switch off."""
        self._note_change(vmid)
        self._runs.pop(vmid, None)
        self._file(vmid).unlink(missing_ok=True)

    def forget(self, vmid: int) -> None:
        """A destroyed guest leaves nothing behind."""
        self.power_off(vmid)

    def reset(self, vmid: int) -> None:
        """Hard reset: the firmware begins again."""
        run = self.running(vmid)
        if run is not None:
            self._enter(run, BOOT)

    def pause(self, vmid: int) -> None:
        """Stop the processors."""
        run = self.running(vmid)
        if run is not None:
            run.paused = True
            self._save(run)

    def resume(self, vmid: int) -> None:
        """Let the processors go on."""
        run = self.running(vmid)
        if run is not None:
            run.paused = False
            self._save(run)

    def config_changed(self, vmid: int, values: dict[str, str]) -> None:
        """A running machine was reconfigured: media and cards change at once."""
        run = self._runs.get(vmid)
        if run is not None:
            run.values = dict(values)
            if run.kind == "lxc":
                run.interfaces = container_interfaces(self._lab, run.node, run.values)
            elif run.phase == UP:
                run.interfaces = guest_interfaces(self._lab, run.node, run.values, run.mark or {})
            self._save(run)

    def moved(self, vmid: int, node: str) -> None:
        """A running machine goes on living on another node."""
        run = self._runs.get(vmid)
        if run is not None:
            run.node = node
            self._save(run)

    def _file(self, vmid: int) -> Any:
        return self._folder / f"{vmid}.json"

    def _note_change(self, vmid: int) -> None:
        self.version += 1
        self._changed[vmid] = self.version

    def changed(self, vmid: int) -> int:
        """The version at which a machine's life last changed, other than by getting older."""
        return self._changed.get(vmid, 0)

    def _save(self, run: Run) -> None:
        self._note_change(run.vmid)
        write_json(self._file(run.vmid), asdict(run))

    # -- looking -----------------------------------------------------------------------------

    def running(self, vmid: int) -> Run | None:
        """The run of a machine that is on, brought up to now."""
        run = self._runs.get(vmid)
        if run is not None and not run.paused:
            self._advance(run)
        return self._runs.get(vmid)

    def all_running(self) -> list[Run]:
        """Every machine that is on."""
        found = [self.running(vmid) for vmid in sorted(self._runs)]
        return [run for run in found if run is not None]

    def uptime(self, run: Run) -> int:
        """Whole seconds since the start."""
        return int(time.time() - run.started)

    def memory_in_use(self, node: str) -> int:
        """Bytes of memory that running machines of a node take."""
        if self._memory_as_of != self.version:
            self._memory.clear()
            for run in self._runs.values():
                half = memory_bytes(run.values) // 2
                self._memory[run.node] = self._memory.get(run.node, 0) + half
            self._memory_as_of = self.version
        return self._memory.get(node, 0)

    def listens_to_acpi(self, vmid: int) -> bool:
        """Whether a system runs that reacts to the power button."""
        run = self.running(vmid)
        return run is not None and run.phase == UP and not run.paused

    def agent_answers(self, vmid: int) -> bool:
        """Whether the guest agent is there: configured, booted, not paused."""
        run = self.running(vmid)
        return run is not None and run.phase == UP and not run.paused and agent_enabled(run.values)

    def host_name(self, vmid: int) -> str:
        """The name that the guest's system has."""
        run = self.running(vmid)
        if run is None:
            return f"vm{vmid}"
        if run.kind == "lxc":
            return run.values.get("hostname", f"CT{vmid}")
        found = (run.mark or {}).get("hostname") or run.values.get("name") or f"vm{vmid}"
        return str(found)

    def agent_interfaces(self, vmid: int) -> list[dict[str, Any]]:
        """Interfaces in the form of the guest agent, loopback first."""
        run = self.running(vmid)
        return self.addresses.agent_view(run.interfaces if run else [])

    # -- from inside -------------------------------------------------------------------------

    def remember_program(self, run: Run, result: Result) -> int:
        """Keep how a program of the agent ended, until somebody asks; its number."""
        self._next_pid += 1
        self._programs[run.vmid, self._next_pid] = result
        return self._next_pid

    def recall_program(self, run: Run, pid: int) -> Result | None:
        """How a program ended; None when the agent knows none of that number."""
        return self._programs.pop((run.vmid, pid), None)

    def freeze(self, run: Run, *, on: bool) -> None:
        """Freeze or thaw the guest's file systems."""
        run.frozen = on
        self._save(run)

    def power_from_inside(self, run: Run, what: str) -> None:
        """The guest's system powers off or restarts itself, after a while."""
        self._leaving[run.vmid] = asyncio.create_task(self._leave(run, what))

    async def _leave(self, run: Run, what: str) -> None:
        await self._lab.clock.work("acpi")
        if self._runs.get(run.vmid) is not run:
            return
        if what == "reboot":
            self._restart(run)
        elif run.kind == "lxc":
            self._container_off(run)
        else:
            self._self_off(run)

    def logged_in(self, vmid: int) -> list[dict[str, Any]]:
        """Users at the guest's console, as the agent lists them."""
        return list(self._logins.get(vmid, []))

    def note_login(self, vmid: int, user: str) -> dict[str, Any]:
        """Somebody logged in; the entry is to be given back at the end."""
        entry = {"user": user, "login-time": time.time()}
        self._logins.setdefault(vmid, []).append(entry)
        return entry

    def note_logout(self, vmid: int, entry: dict[str, Any]) -> None:
        """Somebody logged out."""
        with contextlib.suppress(ValueError):
            self._logins.get(vmid, []).remove(entry)

    # -- phases ------------------------------------------------------------------------------

    def _enter(self, run: Run, phase: str, note: str = "") -> None:
        run.counted = guestio.counted(run, self._lab.clock)
        run.phase, run.phase_since, run.note = phase, time.time(), note
        if phase == BOOT:
            run.booted = run.phase_since
        if phase != UP:
            run.interfaces = []
        self._save(run)

    def _advance(self, run: Run) -> None:
        elapsed = time.time() - run.phase_since
        if run.phase == BOOT and elapsed >= self._lab.clock.phase_seconds("boot"):
            self._boot(run)
        elif run.phase == INSTALL and elapsed >= self._lab.clock.phase_seconds("install"):
            self._finish_install(run)
        elif (
            run.phase == UP
            and elapsed >= self._lab.clock.phase_seconds("dhcp")
            and take_leases(run.interfaces)
        ):
            self._save(run)

    def _boot(self, run: Run) -> None:
        for key in boot_devices(run.values):
            drive = next((d for d in drives(run.values) if d.key == key), None)
            if drive is None or ":" not in drive.file:
                continue
            try:
                storage, volume = self._lab.storages.volume(drive.file, run.node)
            except ApiError:
                continue
            file = storage.file(run.node, volume)
            if drive.is_plain_disk:
                mark = images.read_mark(file)
                if mark is not None:
                    if "image" in mark:
                        mark = mark | told_by_cloud_init(self._lab, run.node, run.values)
                    run.device, run.mark = key, mark
                    run.interfaces = guest_interfaces(self._lab, run.node, run.values, mark)
                    guestio.count(run.counted, key, read=guestio.SYSTEM_LOADED)
                    self._enter(run, UP)
                    return
            elif volume.vtype == "iso" and file.exists() and not read_iso(file).is_seed:
                run.device = key
                self._begin_install(run, volume.file_name)
                return
        self._enter(run, WAIT, "no bootable device")

    def _begin_install(self, run: Run, iso_name: str) -> None:
        guestio.count(run.counted, run.device, read=guestio.INSTALLER_LOADED)
        found = self._seed_answers(run, iso_name)
        if found is None or bootmenus.asks(found[0].family, self._menu(run, found[0].family)):
            self._enter(run, WAIT, "installer waits for somebody to answer")
            return
        answers, setup = found
        kept = self.disks.keep_setup(setup)
        run.answers = answers.to_dict() | {"iso": iso_name, "setup": kept}
        self._enter(run, INSTALL)

    def _menu(self, run: Run, family: str) -> str | None:
        """The GRUB menu of the ISO that the machine was booted from."""
        drive = next(d for d in drives(run.values) if d.key == run.device)
        storage, volume = self._lab.storages.volume(drive.file, run.node)
        return read_file(storage.file(run.node, volume), bootmenus.menu_path(family))

    def _seed_answers(self, run: Run, iso_name: str) -> tuple[SeedAnswers, dict[str, Any]] | None:
        """What the seed says, and what it has done inside the installed system."""
        family = installer_family(iso_name)
        for drive in drives(run.values):
            if not drive.is_cdrom or ":iso/" not in drive.file:
                continue
            storage, volume = self._lab.storages.volume(drive.file, run.node)
            content = read_iso(storage.file(run.node, volume))
            for name, wants in SEED_FILES.items():
                if name in content.files and family in (None, wants):
                    return parse_seed(name, content.files), setup_of(name, content.files)
        return None

    def _finish_install(self, run: Run) -> None:
        answers = run.answers or {}
        target = guestio.install_target(run.values)
        if target is None:
            self._enter(run, WAIT, "installer found no disk")
            return
        storage, volume = self._lab.storages.volume(target.file, run.node)
        mark = {
            "os": answers.get("iso", ""),
            "family": answers.get("family", ""),
            "hostname": answers.get("hostname"),
            "interfaces": answers.get("interfaces", []),
            "setup": answers.get("setup", ""),
        }
        images.write_mark(storage.file(run.node, volume), mark)
        run.installs += 1
        finish = answers.get("finish", "reboot")
        if finish == "poweroff":
            self._self_off(run)
        elif finish == "halt":
            self._enter(run, WAIT, "installer is done and waits for a key")
        else:
            self._restart(run)

    def _restart(self, run: Run) -> None:
        """The guest starts its system anew.

        A machine's process stays, with its age and its counters; that of a container is a new one
        (from the public documentation, not recorded).
        """
        if run.kind == "lxc":
            self._container_off(run)
            values = self._lab.guests.load(run.node, "lxc", run.vmid).values
            self.power_on(run.node, run.vmid, values, "lxc")
        else:
            self._enter(run, BOOT)

    def _container_off(self, run: Run) -> None:
        from deployments.lab.api.lxc import stop_container

        stop_container(self._lab, run.node, run.vmid)

    def _self_off(self, run: Run) -> None:
        from deployments.lab.qemu.power import power_off

        power_off(self._lab, run.node, run.vmid)

    def describe(self) -> list[dict[str, Any]]:
        """For the control interface: phase and addresses of every machine that is on."""
        return [
            {
                "vmid": run.vmid,
                "node": run.node,
                "phase": run.phase,
                "note": run.note,
                "device": run.device,
                "installs": run.installs,
                "paused": run.paused,
                "kind": run.kind,
                "interfaces": run.interfaces,
            }
            for run in self.all_running()
        ]
