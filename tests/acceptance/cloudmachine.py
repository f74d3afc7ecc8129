"""A virtual machine that boots a cloud image, with two networks, a seed and the agent's port.

The first network is 10.0.2.0/24 and has the pool of packages at ``MIRROR``; its guest's SSH server
is reached on loopback. The second is 10.0.3.0/24. Neither leads anywhere else.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from blocks.manifest.guest import Guest
from tests.acceptance.cloudimage import CloudImage
from tests.acceptance.login import Login, free_port
from tests.acceptance.machine import MIRROR, Machine, accelerator, ovmf


@dataclass
class CloudMachine:
    """A running machine, and the ways into it; ``asked``: what it fetched from the pool."""

    machine: Machine
    folder: Path
    login: Login
    asked: list[str] = field(default_factory=list)

    def ssh(self, command: str, bound: float = 120) -> subprocess.CompletedProcess[str]:
        """Run a command inside; ``bound`` in seconds. Status 255: nobody could log in."""
        return self.login.run(command, bound)

    def inside(self, command: str, bound: float = 120) -> str:
        """What a command inside prints, which must succeed."""
        return self.login.inside(command, bound)

    def agent(self, command: str) -> Any:
        """What the guest agent returns on its port; raises OSError where nobody answers."""
        with socket.socket(socket.AF_UNIX) as port:
            port.settimeout(20)
            port.connect(str(self.folder / "agent"))
            with port.makefile("rw", encoding="utf-8") as stream:
                # The port keeps what an agent of before did not read; the number tells them apart.
                number = time.monotonic_ns() % 2**31
                asked: dict[str, Any] = {"execute": "guest-sync", "arguments": {"id": number}}
                stream.write(json.dumps(asked) + "\n")
                stream.flush()
                while json.loads(stream.readline()).get("return") != number:
                    continue
                stream.write(json.dumps({"execute": command}) + "\n")
                stream.flush()
                answer = json.loads(stream.readline())
        assert "return" in answer, answer
        return answer["return"]


@contextmanager
def booted(
    folder: Path, image: CloudImage, guest: Guest, seed: Path, key: Path, *, online: bool
) -> Iterator[CloudMachine]:
    """Switch on the machine that Proxmox VE would make of the guest, but for its size.

    Its first disk begins with the image, and its cards stand in the opposite order, so that only
    their addresses tell which is which. ``online``: whether it can reach the pool.
    """
    folder.mkdir(parents=True)
    disk, log = folder / "disk.qcow2", folder / "console.log"
    backing = ("-F", "qcow2", "-b", str(image.disk), str(disk), str(guest.disks[0].size))
    create = ["qemu-img", "create", "-q", "-f", "qcow2", *backing]
    subprocess.run(create, check=True, capture_output=True)
    log.touch()
    chosen, port = accelerator(folder, image.kernel), free_port()
    told, address = guest.cloud_init, guest.nics[0].inet.addresses[0].ip
    assert told is not None
    # QEMU would announce IPv6 prefixes and name servers of its own (ipv6=off).
    with _serving(image.pool) as (server, asked):
        relay = f"{sys.executable} {Path(__file__).with_name('relay.py')} {server}"
        offer = f",guestfwd=tcp:{MIRROR}:80-cmd:{relay}" if online else ""
        inward = f"ipv6=off,restrict=on,hostfwd=tcp:127.0.0.1:{port}-{address}:22{offer}"
        command = [
            *("qemu-system-x86_64", "-machine", machine_type(guest), "-accel", chosen),
            *("-smp", "2", "-m", "1024", "-display", "none", "-nodefaults", "-rtc", "base=utc"),
            *("-cpu", "max" if chosen == "tcg" else "host", "-serial", f"file:{log}"),
            *(ovmf(folder) if guest.firmware.bios == "ovmf" else ()),
            *_disk("scsi0", f"file={disk},format=qcow2,discard=unmap,cache=unsafe", "scsi-hd"),
            *_seed(guest, told.slot, seed),
            *("-netdev", f"user,id=net0,{inward}"),
            *("-netdev", "user,id=net1,net=10.0.3.0/24,ipv6=off,restrict=on"),
            *("-device", f"virtio-net-pci,mac={guest.nics[1].mac},netdev=net1,addr=0x12"),
            *("-device", f"virtio-net-pci,mac={guest.nics[0].mac},netdev=net0,addr=0x13"),
            *("-chardev", f"socket,path={folder / 'agent'},server=on,wait=off,id=qga0"),
            *("-device", "virtio-serial"),
            *("-device", "virtserialport,chardev=qga0,name=org.qemu.guest_agent.0"),
            *("-object", "rng-random,id=rng0,filename=/dev/urandom"),
            *("-device", "virtio-rng-pci,rng=rng0"),
        ]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        try:
            running = Machine(process, log, chosen, time.monotonic())
            yield CloudMachine(running, folder, Login(port, key, told.user or "debian"), asked)
        finally:
            process.kill()
            process.wait()
            disk.unlink()


def machine_type(guest: Guest) -> str:
    """``pc`` or ``q35``."""
    return "q35" if "q35" in guest.firmware.machine else "pc"


def _disk(name: str, drive: str, device: str) -> list[str]:
    """A drive on a SCSI controller of its own, as ``virtio-scsi-single`` has them."""
    boots = ",bootindex=100" if device == "scsi-hd" else ""
    return [
        *("-device", f"virtio-scsi-pci,id=virtio{name}", "-drive", f"if=none,id={name},{drive}"),
        *("-device", f"{device},bus=virtio{name}.0,drive={name}{boots}"),
    ]


def _seed(guest: Guest, slot: str, seed: Path) -> list[str]:
    drive = f"media=cdrom,readonly=on,file={seed}"
    if slot.startswith("scsi"):
        return _disk(slot, drive, "scsi-cd")
    assert slot == "ide2", slot
    place = "ide.1,unit=0" if machine_type(guest) == "pc" else "ide.2"
    return ["-drive", f"if=none,id={slot},{drive}", "-device", f"ide-cd,bus={place},drive={slot}"]


@contextmanager
def _serving(folder: Path) -> Iterator[tuple[int, list[str]]]:
    """The pool over HTTP on a port of loopback, and the paths of it that were given out."""
    asked: list[str] = []

    class Handler(SimpleHTTPRequestHandler):
        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            if code == 200:
                asked.append(self.path)

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port, asked
    finally:
        server.shutdown()
        server.server_close()
