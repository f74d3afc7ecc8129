"""A small cloud image of Debian 12, made of its packages by programs of others, without root.

Laid out as a publisher's: GPT, a boot partition for UEFI (shim and GRUB, both signed) and for BIOS
(SYSLINUX), and behind it the root file system, which grows on the first boot. It has cloud-init and
no guest agent: that is in a pool of packages beside it, where vendor data can fetch it from.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from blocks.paths import cache_dir
from blocks.units import MIB
from tests.acceptance import components
from tests.acceptance.components import SUITE
from tests.acceptance.machine import MIRROR

SHIM = Path("/usr/lib/shim/shimx64.efi.signed")
GRUB = Path("/usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed")
SYSLINUX = Path("/usr/lib/syslinux/mbr/gptmbr.bin")
NEEDED = {
    Path("/usr/bin/mmdebstrap"): "mmdebstrap",
    Path("/usr/bin/newuidmap"): "uidmap",
    Path("/usr/bin/fakeroot"): "fakeroot",
    Path("/usr/bin/qemu-img"): "qemu-utils",
    Path("/usr/bin/qemu-system-x86_64"): "qemu-system-x86",
    Path("/usr/share/OVMF/OVMF_CODE_4M.fd"): "ovmf",
    Path("/usr/sbin/sfdisk"): "fdisk",
    Path("/usr/sbin/mke2fs"): "e2fsprogs",
    Path("/usr/sbin/mkfs.vfat"): "dosfstools",
    Path("/usr/bin/mcopy"): "mtools",
    Path("/usr/bin/dpkg-scanpackages"): "dpkg-dev",
    Path("/usr/bin/ssh"): "openssh-client",
    Path("/usr/bin/syslinux"): "syslinux",
    SYSLINUX: "syslinux-common",
    SHIM: "shim-signed",
    GRUB: "grub-efi-amd64-signed",
}
PACKAGES = (
    *("systemd-sysv", "systemd-resolved", "dbus", "udev", "iproute2", "netplan.io", "procps"),
    *("linux-image-cloud-amd64", "cloud-init", "cloud-guest-utils", "fdisk", "e2fsprogs"),
    *("openssh-server", "sudo", "apt", "ca-certificates", "locales", "tzdata"),
)
# What the machine can install: these, with all that they need beyond the image.
POOL = ("qemu-guest-agent", "tree")
# Where the boot partition and the root file system begin, in bytes.
BOOT, ROOT = MIB, 97 * MIB
FILES = {
    "etc/hostname": "localhost\n",
    "etc/fstab": "LABEL=cloudroot / ext4 errors=remount-ro 0 1\n",
    "etc/apt/sources.list": f"deb [trusted=yes] http://{MIRROR}/ ./\n",
    # As Debian's own images have it; without one cloud-init sets en_US.UTF-8, which is not there.
    "etc/default/locale": "LANG=C.UTF-8\n",
    "etc/cloud/cloud.cfg.d/01_image.cfg": "apt: {preserve_sources_list: true}\n",
}
ARGUMENTS = "root=LABEL=cloudroot ro console=tty0 console=ttyS0,115200"
LOADERS = {
    "EFI/debian/grub.cfg": f"linux /vmlinuz {ARGUMENTS}\ninitrd /initrd.img\nboot\n",
    "syslinux.cfg": f"default linux\nlabel linux\nlinux /vmlinuz\ninitrd /initrd.img\n"
    f"append {ARGUMENTS}\n",
}
TABLE = f"""\
label: gpt
15: start={BOOT // 512}, size={(ROOT - BOOT) // 512}, type=U, attrs="LegacyBIOSBootable"
1: start={ROOT // 512}, type=4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709
"""


@dataclass(frozen=True)
class CloudImage:
    """``disk``: qcow2. ``pool``: a flat repository of packages. ``kernel``: the one in the disk."""

    disk: Path
    pool: Path
    kernel: Path
    packages: int


def missing() -> list[str]:
    """The Debian packages that this needs and that are not installed."""
    return sorted({package for path, package in NEEDED.items() if not path.exists()})


def cloud_image() -> CloudImage:
    """The image, from the cache if it has one of the very same packages."""
    sources = components.sources()
    listed = _packages(sources)
    recipe = "\n".join((*listed, Path(__file__).read_text()))
    digest = hashlib.sha256(recipe.encode()).hexdigest()[:16]
    folder = cache_dir() / "acceptance" / f"debian-12-{digest}"
    found = CloudImage(folder / "disk.qcow2", folder / "pool", folder / "kernel", len(listed))
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        older = list(folder.parent.glob("debian-12-*"))
        with tempfile.TemporaryDirectory(prefix=".making-", dir=folder.parent) as making:
            _make(Path(making), sources)
            _finished(Path(making), folder)
        for path in older:
            shutil.rmtree(path)
    return found


def _packages(sources: list[str]) -> list[str]:
    """Every package of the image with its version, as apt would install them now."""
    command = ["mmdebstrap", "--simulate", "--verbose", "--variant=essential"]
    told = subprocess.run(
        [*command, f"--include={','.join((*PACKAGES, *POOL))}", SUITE, "/dev/null", *sources],
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ).stdout
    return sorted({line for line in told.splitlines() if line.startswith("Inst ")})


def _make(folder: Path, sources: list[str]) -> None:
    tree, tar, pool = folder / "files", folder / "root.tar", folder / "pool"
    for name, text in FILES.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
    pool.mkdir()
    fetched = "/var/cache/apt/archives"
    _run(
        *("mmdebstrap", "--quiet", "--variant=essential", f"--include={','.join(PACKAGES)}"),
        "--dpkgopt=path-exclude=/usr/share/doc/*",
        "--dpkgopt=path-exclude=/usr/share/man/*",
        '--customize-hook=APT_CONFIG="$MMDEBSTRAP_APT_CONFIG" apt-get install'
        f" --yes --download-only {' '.join(POOL)}",
        f"--customize-hook=sync-out {fetched} {pool}",
        '--customize-hook=rm -f "$1"/etc/ssh/ssh_host_*',
        *(f"--customize-hook=upload {tree / name} /{name}" for name in FILES),
        *(SUITE, str(tar), *sources),
    )
    _index(pool)
    for name, pattern in (("kernel", "./boot/vmlinuz-*"), ("initrd", "./boot/initrd.img-*")):
        (folder / name).write_bytes(_output("tar", "-xOf", str(tar), "--wildcards", pattern))
    _root(folder, tar)
    _boot(folder)
    _disk(folder)


def _index(pool: Path) -> None:
    """Keep the packages alone, and list them for apt."""
    for path in pool.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.suffix != ".deb":
            path.unlink()
    listed = subprocess.run(
        ["dpkg-scanpackages", "--multiversion", "."],
        check=True,
        capture_output=True,
        text=True,
        cwd=pool,
    )
    (pool / "Packages").write_text(listed.stdout)


def _root(folder: Path, tar: Path) -> None:
    """The root file system, with owners and modes as packages want them, whoever runs this."""
    unpacked, image = folder / "root", folder / "root.img"
    with image.open("wb") as stream:
        stream.truncate(tar.stat().st_size * 5 // 4 // MIB * MIB + 128 * MIB)
    script = (
        'mkdir "$2" && tar -xpf "$1" -C "$2" && /usr/sbin/mke2fs -q -t ext4 -L "$4" -d "$2" "$3"'
    )
    _run("fakeroot", "sh", "-c", script, "sh", str(tar), str(unpacked), str(image), "cloudroot")


def _boot(folder: Path) -> None:
    """The boot partition: FAT, with kernel and initrd, and the loaders for UEFI and BIOS."""
    image = folder / "boot.img"
    with image.open("wb") as stream:
        stream.truncate(ROOT - BOOT)
    _run("/usr/sbin/mkfs.vfat", "-h", str(BOOT // 512), str(image))
    for name in ("EFI", "EFI/BOOT", "EFI/debian"):
        _run("mmd", "-i", str(image), f"::{name}")
    files = {
        "EFI/BOOT/BOOTX64.EFI": SHIM,
        "EFI/BOOT/grubx64.efi": GRUB,
        "vmlinuz": folder / "kernel",
        "initrd.img": folder / "initrd",
    }
    for name, source in files.items():
        _run("mcopy", "-i", str(image), str(source), f"::{name}")
    for name, text in LOADERS.items():
        _run("mcopy", "-i", str(image), "-", f"::{name}", given=text)
    _run("syslinux", "--install", str(image))


def _disk(folder: Path) -> None:
    raw, root = folder / "disk.raw", folder / "root.img"
    with raw.open("wb") as stream:
        # The last MiB is for the table's second copy.
        stream.truncate(ROOT + root.stat().st_size + MIB)
    _run("/usr/sbin/sfdisk", "--quiet", str(raw), given=TABLE)
    for image, offset in ((SYSLINUX, 0), (folder / "boot.img", BOOT), (root, ROOT)):
        place = ("bs=1M", f"seek={offset // MIB}", "conv=notrunc,sparse", "status=none")
        _run("dd", f"if={image}", f"of={raw}", *place)
    _run("qemu-img", "convert", "-f", "raw", "-O", "qcow2", str(raw), str(folder / "disk.qcow2"))


def _finished(making: Path, folder: Path) -> None:
    """Move what is kept to where it is looked for, at once."""
    whole = making / "whole"
    whole.mkdir()
    for name in ("disk.qcow2", "pool", "kernel"):
        (making / name).rename(whole / name)
    whole.rename(folder)


def _run(*command: str, given: str = "") -> str:
    return _output(*command, given=given).decode()


def _output(*command: str, given: str = "") -> bytes:
    done = subprocess.run(command, check=False, capture_output=True, input=given.encode())
    assert done.returncode == 0, f"{command[0]} failed\n{done.stderr.decode()[-2000:]}"
    return done.stdout
