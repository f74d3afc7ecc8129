"""An install ISO made of Debian's packaged installer, by programs of others.

Laid out as Debian's own: isolinux for BIOS, shim and GRUB (both signed) for UEFI. The packaged
initrd is for the network; the modules for CD drives come from the installer's own packages.
"""

from __future__ import annotations

import gzip
import re
import shutil
import subprocess
from pathlib import Path

from tests.acceptance.components import Components

IMAGES = Path("/usr/lib/debian-installer/images/12/amd64/text/debian-installer/amd64")
ISOLINUX = Path("/usr/lib/ISOLINUX")
NEEDED = {
    IMAGES / "linux": "debian-installer-12-netboot-amd64",
    ISOLINUX / "isolinux.bin": "isolinux",
    Path("/usr/lib/syslinux/modules/bios/ldlinux.c32"): "syslinux-common",
    Path("/usr/lib/shim/shimx64.efi.signed"): "shim-signed",
    Path("/usr/lib/grub/x86_64-efi-signed/gcdx64.efi.signed"): "grub-efi-amd64-signed",
    Path("/usr/share/OVMF/OVMF_CODE_4M.fd"): "ovmf",
    Path("/usr/bin/qemu-system-x86_64"): "qemu-system-x86",
    Path("/usr/bin/xorriso"): "xorriso",
    Path("/usr/bin/mcopy"): "mtools",
    Path("/usr/sbin/mkfs.vfat"): "dosfstools",
    Path("/usr/sbin/depmod"): "kmod",
    Path("/usr/bin/cpio"): "cpio",
}
MODULES = ("scsi-core", "scsi", "ata", "sata", "pata", "cdrom-core", "isofs")
# What stands in the menus before anybody rewrites them. The serial console is there to be watched;
# the local mirror has no signature of its own.
ARGUMENTS = "console=ttyS0,115200n8 debian-installer/allow_unauthenticated=true"


def missing() -> list[str]:
    """The Debian packages that this needs and that are not installed."""
    return sorted({package for path, package in NEEDED.items() if not path.exists()})


def source_iso(folder: Path, packages: Components, arguments: str = ARGUMENTS) -> Path:
    """Build the ISO, untouched: its installer would ask for everything."""
    tree = folder / "tree"
    for name in ("install.amd", "isolinux", "boot/grub", ".disk"):
        (tree / name).mkdir(parents=True, exist_ok=True)
    (tree / ".disk/info").write_text("Debian GNU/Linux 12 made for a test\n")
    shutil.copy(IMAGES / "linux", tree / "install.amd/vmlinuz")
    (tree / "install.amd/initrd.gz").write_bytes(
        (IMAGES / "initrd.gz").read_bytes() + _modules(folder / "initrd", packages)
    )
    shutil.copy(ISOLINUX / "isolinux.bin", tree / "isolinux")
    shutil.copy("/usr/lib/syslinux/modules/bios/ldlinux.c32", tree / "isolinux")
    (tree / "isolinux/isolinux.cfg").write_text(
        "prompt 0\ntimeout 300\ndefault install\nlabel install\n"
        "\tkernel /install.amd/vmlinuz\n"
        f"\tappend vga=normal initrd=/install.amd/initrd.gz {arguments} ---\n"
    )
    (tree / "boot/grub/grub.cfg").write_text(
        "set timeout=30\nmenuentry 'Install' {\n"
        f"    linux    /install.amd/vmlinuz {arguments} ---\n"
        "    initrd   /install.amd/initrd.gz\n}\n"
    )
    _efi_image(folder, tree / "boot/grub/efi.img")
    target = folder / "debian-12-acceptance.iso"
    _run(
        *("xorriso", "-as", "mkisofs", "-quiet", "-r", "-J", "-joliet-long", "-V", "DEBIAN"),
        *("-isohybrid-mbr", str(ISOLINUX / "isohdpfx.bin")),
        *("-b", "isolinux/isolinux.bin", "-c", "isolinux/boot.cat"),
        *("-no-emul-boot", "-boot-load-size", "4", "-boot-info-table"),
        *("-eltorito-alt-boot", "-e", "boot/grub/efi.img", "-no-emul-boot"),
        *("-isohybrid-gpt-basdat", "-o", str(target), str(tree)),
    )
    return target


def _efi_image(folder: Path, image: Path) -> None:
    with image.open("wb") as stream:
        stream.truncate(8 * 2**20)
    _run("/usr/sbin/mkfs.vfat", str(image))
    for name in ("EFI", "EFI/boot"):
        _run("mmd", "-i", str(image), f"::{name}")
    for source, name in (
        ("/usr/lib/shim/shimx64.efi.signed", "bootx64.efi"),
        ("/usr/lib/grub/x86_64-efi-signed/gcdx64.efi.signed", "grubx64.efi"),
    ):
        _run("mcopy", "-i", str(image), source, f"::EFI/boot/{name}")


def _modules(folder: Path, packages: Components) -> bytes:
    """A second archive for the initrd: the modules that it lacks, and new lists of all modules."""
    folder.mkdir()
    with gzip.open(IMAGES / "initrd.gz") as stream:
        # Without root its device nodes cannot be made; nobody needs them here.
        subprocess.run(
            ["cpio", "-id", "--quiet", "--no-absolute-filenames", "lib/modules/*"],
            input=stream.read(),
            check=False,
            cwd=folder,
            capture_output=True,
        )
    (version,) = [path.name for path in (folder / "lib/modules").iterdir()]
    for udeb in packages.fetch(*(f"{name}-modules-{version}-di" for name in MODULES)):
        _run("dpkg-deb", "-x", str(udeb), str(folder))
    _run("/usr/sbin/depmod", "-b", str(folder), version)
    # The packaged list of what is built in stays: there is nothing here to make a new one from.
    for path in (folder / "lib/modules" / version).glob("modules.builtin*"):
        path.unlink()
    names = sorted(str(path.relative_to(folder)) for path in (folder / "lib").rglob("*"))
    made = subprocess.run(
        ["cpio", "-o", "--quiet", "-H", "newc", "-R", "0:0"],
        input="\n".join(["lib", *names]).encode(),
        cwd=folder,
        check=True,
        capture_output=True,
    )
    return gzip.compress(made.stdout, compresslevel=1)


def kernel_version(console: str) -> str:
    """The version that the installer's kernel tells on the console."""
    found = re.search(r"Linux version (\S+)", console)
    return found[1] if found else ""


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
