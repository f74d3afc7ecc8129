"""A virtual machine with the hardware that Proxmox VE gives a guest, run by QEMU without root.

The network of the guest ends at one address, where the test's own mirror listens on loopback.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.acceptance.installer import IMAGES

Firmware = Literal["seabios", "ovmf"]

MIRROR = "10.0.2.100"
OVMF = Path("/usr/share/OVMF")
_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|[()][A-Z0-9]|[=>78])|[\x0e\x0f\x00]")


@dataclass
class Machine:
    """A running machine. ``log`` is what its serial console has printed."""

    process: subprocess.Popen[bytes]
    log: Path
    accelerator: str
    began: float

    @property
    def console(self) -> str:
        """The console as text, without the movements of its cursor."""
        return _ESCAPES.sub(" ", self.log.read_bytes().decode("latin-1"))

    @property
    def age(self) -> float:
        """Seconds since it was switched on."""
        return time.monotonic() - self.began

    def wait(self, seen: Callable[[], bool], bound: float, what: str) -> float:
        """Seconds since the start when it was seen; fails, with the console, after ``bound``."""
        deadline = time.monotonic() + bound
        while not seen():
            ended = self.process.poll()
            assert ended is None, f"QEMU ended with {ended} before {what}\n{self.tail()}"
            assert time.monotonic() < deadline, f"no {what} in {bound:.0f} s\n{self.tail()}"
            time.sleep(0.5)
        return self.age

    def tail(self) -> str:
        """The last lines of the console."""
        return "\n".join(line for line in self.console.splitlines() if line.strip())[-3000:]


@dataclass(frozen=True)
class Hardware:
    """What a machine is made of.

    ``disks``: raw images of scsi0 and further; ``drives``: ISOs in ide2 and ide3. ``mirror``: port
    on loopback of what the guest finds at ``MIRROR``; ``login``: address of the guest, and the
    port on loopback that leads to its SSH server. ``kernel``: kernel, initrd and arguments, booted
    in place of disks and drives. ``again``: it goes on where its guest restarts, else it ends.
    """

    firmware: Firmware
    disks: tuple[Path, ...]
    macs: tuple[str, ...]
    drives: tuple[Path, Path] | None = None
    mirror: int | None = None
    login: tuple[str, int] | None = None
    kernel: tuple[Path, Path, str] | None = None
    again: bool = False


@contextmanager
def running(folder: Path, hardware: Hardware) -> Iterator[Machine]:
    """Switch on a machine, and off in the end."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "console.log"
    log.touch()
    chosen = accelerator(folder, IMAGES / "linux")
    command = [
        *("qemu-system-x86_64", "-machine", "pc" if hardware.firmware == "seabios" else "q35"),
        *("-accel", chosen, "-m", "1024", "-display", "none", "-nodefaults"),
        *("-cpu", "max" if chosen == "tcg" else "host", "-rtc", "base=utc"),
        *("-serial", f"file:{log}", "-device", "virtio-scsi-pci,id=scsihw0"),
        *([] if hardware.again else ["-no-reboot"]),
        *_disks(hardware.disks),
        *(_drives(hardware.firmware, *hardware.drives) if hardware.drives else ()),
        *_cards(hardware),
        *("-device", "virtio-serial", "-chardev"),
        f"socket,path={folder / 'agent'},server=on,wait=off,id=qga0",
        *("-device", "virtserialport,chardev=qga0,name=org.qemu.guest_agent.0"),
        *(ovmf(folder) if hardware.firmware == "ovmf" else ()),
    ]
    if hardware.kernel is not None:
        kernel, initrd, words = hardware.kernel
        command += ["-kernel", str(kernel), "-initrd", str(initrd), "-append", words]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        yield Machine(process, log, chosen, time.monotonic())
    finally:
        process.kill()
        process.wait()


def empty(path: Path, size: int) -> Path:
    """A disk of ``size`` bytes that holds nothing."""
    with path.open("wb") as stream:
        stream.truncate(size)
    return path


def _disks(disks: tuple[Path, ...]) -> list[str]:
    found = []
    for index, path in enumerate(disks):
        name = f"drive-scsi{index}"
        found += ["-drive", f"if=none,id={name},file={path},format=raw,discard=unmap,cache=unsafe"]
        boots = ",bootindex=100" if index == 0 else ""
        place = f"bus=scsihw0.0,scsi-id={index}"
        found += ["-device", f"scsi-hd,{place},drive={name},device_id={name}{boots}"]
    return found


def _cards(hardware: Hardware) -> list[str]:
    """The cards; the last one is the first on its bus, so that only addresses tell them apart."""
    found = []
    relay = f"{sys.executable} {Path(__file__).with_name('relay.py')} {hardware.mirror}"
    for index, mac in reversed(list(enumerate(hardware.macs))):
        words = f"user,id=net{index},restrict=on"
        if index == 0 and hardware.mirror is not None:
            words += f",guestfwd=tcp:{MIRROR}:80-cmd:{relay}"
        if index == 0 and hardware.login is not None:
            address, port = hardware.login
            words += f",hostfwd=tcp:127.0.0.1:{port}-{address}:22"
        found += ["-netdev", words, "-device", f"virtio-net-pci,mac={mac},netdev=net{index}"]
    return found


def ovmf(folder: Path) -> list[str]:
    """The arguments for UEFI, with variables of the machine's own."""
    variables, code = folder / "vars.fd", OVMF / "OVMF_CODE_4M.fd"
    shutil.copy(OVMF / "OVMF_VARS_4M.fd", variables)
    return [
        *("-drive", f"if=pflash,unit=0,format=raw,readonly=on,file={code}"),
        *("-drive", f"if=pflash,unit=1,format=raw,file={variables}"),
    ]


def _drives(firmware: Firmware, install: Path, seed: Path) -> list[str]:
    """The CD drives ide2 and ide3, where Proxmox VE puts them on either machine type."""
    places = ("ide.1,unit=0", "ide.1,unit=1") if firmware == "seabios" else ("ide.2", "ide.3")
    found = []
    for name, iso, place, index in (
        ("ide2", install, places[0], 101),
        ("ide3", seed, places[1], 0),
    ):
        found += ["-drive", f"if=none,id=drive-{name},media=cdrom,readonly=on,file={iso}"]
        boots = f",bootindex={index}" if index else ""
        found += ["-device", f"ide-cd,bus={place},drive=drive-{name},id={name}{boots}"]
    return found


def accelerator(folder: Path, kernel: Path) -> str:
    """``kvm`` if that kernel really gets going with it, else ``tcg``: some hosts only pretend."""
    log = folder / "probe.log"
    command = [
        *("qemu-system-x86_64", "-accel", "kvm", "-cpu", "host", "-m", "512", "-display", "none"),
        *("-nodefaults", "-no-reboot", "-serial", f"file:{log}", "-kernel", str(kernel)),
        *("-append", "console=ttyS0,115200n8 panic=-1"),
    ]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            if log.exists() and b"Linux version" in log.read_bytes():
                return "kvm"
            if process.poll() is not None:
                break
            time.sleep(0.1)
    finally:
        process.kill()
        process.wait()
    return "tcg"
