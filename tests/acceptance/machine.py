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


@contextmanager
def running(
    folder: Path, firmware: Firmware, install: Path, seed: Path, macs: tuple[str, ...], port: int
) -> Iterator[Machine]:
    """Switch on a machine with an empty disk, the two ISOs in its drives, and a card a MAC.

    ``port``: where on loopback the mirror listens that the guest finds at ``MIRROR``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    disk, log = folder / "disk.raw", folder / "console.log"
    with disk.open("wb") as stream:
        stream.truncate(8 * 2**30)
    log.touch()
    accelerator = _accelerator(folder)
    relay = f"{sys.executable} {Path(__file__).with_name('relay.py')} {port}"
    command = [
        "qemu-system-x86_64",
        *("-accel", accelerator, "-m", "1024", "-display", "none", "-no-reboot", "-nodefaults"),
        *("-cpu", "max" if accelerator == "tcg" else "host", "-rtc", "base=utc"),
        *("-serial", f"file:{log}"),
        *("-drive", f"if=none,id=drive-scsi0,file={disk},format=raw,discard=unmap,cache=unsafe"),
        *("-device", "virtio-scsi-pci,id=scsihw0"),
        *("-device", "scsi-hd,bus=scsihw0.0,drive=drive-scsi0,device_id=drive-scsi0,bootindex=100"),
        *_drives(firmware, install, seed),
    ]
    for index, mac in enumerate(macs):
        forward = f",guestfwd=tcp:{MIRROR}:80-cmd:{relay}" if index == 0 else ""
        command += ["-netdev", f"user,id=net{index},restrict=on{forward}"]
        command += ["-device", f"virtio-net-pci,mac={mac},netdev=net{index}"]
    if firmware == "ovmf":
        variables = folder / "vars.fd"
        shutil.copy(OVMF / "OVMF_VARS_4M.fd", variables)
        code = OVMF / "OVMF_CODE_4M.fd"
        command += ["-drive", f"if=pflash,unit=0,format=raw,readonly=on,file={code}"]
        command += ["-drive", f"if=pflash,unit=1,format=raw,file={variables}"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        yield Machine(process, log, accelerator, time.monotonic())
    finally:
        process.kill()
        process.wait()
        disk.unlink()


def _drives(firmware: Firmware, install: Path, seed: Path) -> list[str]:
    """The CD drives ide2 and ide3, where Proxmox VE puts them on either machine type."""
    places = ("ide.1,unit=0", "ide.1,unit=1") if firmware == "seabios" else ("ide.2", "ide.3")
    found = ["-machine", "pc" if firmware == "seabios" else "q35"]
    for name, iso, place, index in (
        ("ide2", install, places[0], 101),
        ("ide3", seed, places[1], 0),
    ):
        found += ["-drive", f"if=none,id=drive-{name},media=cdrom,readonly=on,file={iso}"]
        boots = f",bootindex={index}" if index else ""
        found += ["-device", f"ide-cd,bus={place},drive=drive-{name},id={name}{boots}"]
    return found


def _accelerator(folder: Path) -> str:
    """``kvm`` if a kernel really gets going with it, else ``tcg``: some hosts only pretend."""
    log = folder / "probe.log"
    command = [
        *("qemu-system-x86_64", "-accel", "kvm", "-cpu", "host", "-m", "512", "-display", "none"),
        *("-nodefaults", "-no-reboot", "-serial", f"file:{log}", "-kernel", str(IMAGES / "linux")),
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
