"""The installed system without the installer: its packages, and what the seed's script does.

Where a mirror lacks the installer's own packages, this much of an installation can still be had:
the system that debootstrap makes, with the packages that the preseed file asks for, and
``setup.sh`` of the seed run inside it, as the preseed file's last command does.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tasks.iso.render import Rendered
from tests.acceptance.components import SUITE, sources

NEEDED = {
    Path("/usr/bin/mmdebstrap"): "mmdebstrap",
    Path("/usr/bin/newuidmap"): "uidmap",
    Path("/usr/bin/fakeroot"): "fakeroot",
    Path("/usr/sbin/mke2fs"): "e2fsprogs",
    Path("/usr/bin/ssh"): "openssh-client",
}
# What the installer puts into every system.
BASE = (
    *("linux-image-amd64", "initramfs-tools", "systemd-sysv", "udev", "ifupdown", "iproute2"),
    *("dbus", "locales", "tzdata", "procps", "zstd"),
)
LABEL = "installed"
SETUP = "/root/proxflow-setup.sh"


@dataclass(frozen=True)
class System:
    """``disk``: the root file system; ``kernel`` and ``initrd``: those that are in it."""

    disk: Path
    kernel: Path
    initrd: Path

    @property
    def boot(self) -> tuple[Path, Path, str]:
        """Kernel, initrd and arguments."""
        return self.kernel, self.initrd, f"root=LABEL={LABEL} ro console=ttyS0,115200"


def missing() -> list[str]:
    """The Debian packages that this needs and that are not installed."""
    return sorted({package for path, package in NEEDED.items() if not path.exists()})


def declared_packages(rendered: Rendered) -> list[str]:
    """The packages that the preseed file asks for."""
    found = re.search(
        r"^d-i pkgsel/include string (.+)$", rendered.files["preseed.cfg"], re.MULTILINE
    )
    return found[1].split() if found else []


def installed(folder: Path, rendered: Rendered, size: int) -> System:
    """Make the system, without root; ``size`` of its disk in bytes."""
    folder.mkdir(parents=True)
    setup, fstab, tar = folder / "setup.sh", folder / "fstab", folder / "root.tar"
    setup.write_text(rendered.files["setup.sh"])
    fstab.write_text(f"LABEL={LABEL} / ext4 errors=remount-ro 0 1\n")
    packages = (*BASE, *declared_packages(rendered))
    _run(
        *("mmdebstrap", "--quiet", "--variant=important", f"--include={','.join(packages)}"),
        "--dpkgopt=path-exclude=/usr/share/doc/*",
        *("--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/locale/*"),
        f"--customize-hook=upload {fstab} /etc/fstab",
        f"--customize-hook=upload {setup} {SETUP}",
        f'--customize-hook=chroot "$1" sh {SETUP}',
        f'--customize-hook=rm "$1{SETUP}"',
        *(SUITE, str(tar), *sources()),
    )
    system = System(folder / "disk.raw", folder / "kernel", folder / "initrd")
    for path, name in ((system.kernel, "vmlinuz"), (system.initrd, "initrd.img")):
        path.write_bytes(_run("tar", "-xOf", str(tar), "--wildcards", f"./boot/{name}-*"))
    with system.disk.open("wb") as stream:
        stream.truncate(size)
    # Owners and modes as packages want them, by whoever runs this.
    script = (
        'mkdir "$2" && tar -xpf "$1" -C "$2" && /usr/sbin/mke2fs -q -t ext4 -d "$2" -L "$4" "$3"'
    )
    _run(
        "fakeroot", "sh", "-c", script, "sh", *map(str, (tar, folder / "root", system.disk)), LABEL
    )
    tar.unlink()
    return system


def _run(*command: str) -> bytes:
    done = subprocess.run(command, check=False, capture_output=True)
    assert done.returncode == 0, f"{command[0]} failed\n{done.stderr.decode()[-3000:]}"
    return done.stdout
