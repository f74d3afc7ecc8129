"""Small images that are laid out as install ISOs are, made by xorriso."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest

ISOLINUX = Path("/usr/lib/ISOLINUX")
needs_xorriso = pytest.mark.skipif(
    not shutil.which("xorriso") or not (ISOLINUX / "isolinux.bin").exists(),
    reason="xorriso or isolinux is not installed",
)

UBUNTU_GRUB = """\
set timeout=30

loadfont unicode
menuentry "Try or Install Ubuntu Server" {
\tset gfxpayload=keep
\tlinux\t/casper/vmlinuz  ---
\tinitrd\t/casper/initrd
}
menuentry "Ubuntu Server with the HWE kernel" {
\tlinux\t/casper/hwe-vmlinuz  --- quiet
\tinitrd\t/casper/hwe-initrd
}
grub_platform
if [ "$grub_platform" = "efi" ]; then
menuentry 'UEFI Firmware Settings' {
\tfwsetup
}
else
menuentry 'Test memory' {
\tlinux16 /boot/memtest86+x64.bin
}
fi
"""
UBUNTU_LOOPBACK = """\
menuentry "Try or Install Ubuntu Server" {
\tlinux\t/casper/vmlinuz  iso-scan/filename=${iso_path} ---
\tinitrd\t/casper/initrd
}
"""
DEBIAN_GRUB = "\n".join(
    (
        "set theme=/boot/grub/theme/1",
        *(
            f"menuentry --hotkey={letter} 'Install {letter}' {{\n"
            "    set background_color=black\n"
            f"    linux    /install.amd/vmlinuz vga=788 mode={letter} --- quiet \n"
            "    initrd   /install.amd/initrd.gz\n"
            "}"
            for letter in "gihaxrs"
        ),
        "",
    )
)
DEBIAN_ISOLINUX = {
    "isolinux/isolinux.cfg": (
        "# D-I config version 2.0\npath \ninclude menu.cfg\ndefault vesamenu.c32\n"
        "prompt 0\ntimeout 0\n"
    ),
    "isolinux/gtk.cfg": (
        "default installgui\nlabel installgui\n\tmenu label ^Graphical install\n\tmenu default\n"
        "\tkernel /install.amd/vmlinuz\n"
        "\tappend vga=788 initrd=/install.amd/gtk/initrd.gz --- quiet \n"
    ),
    "isolinux/spkgtk.cfg": (
        "timeout 300\n"
        "ontimeout /install.amd/vmlinuz vga=788 initrd=/install.amd/gtk/initrd.gz "
        "speakup.synth=soft --- quiet\n"
        "menu autoboot Press a key, otherwise speech starts in # second{,s}...\n"
    ),
}

SUSE_ISOLINUX = (
    "default harddisk\n\n# hard disk\nlabel harddisk\n  localboot -2\n\n# install\nlabel linux\n"
    "  kernel linux\n  append initrd=initrd splash=silent showopts\n\n# rescue\nlabel rescue\n"
    "  kernel linux\n  append initrd=initrd splash=silent rescue=1 showopts\n\n"
    "ui\t\tgfxboot bootlogo message\nimplicit\t1\nprompt\t\t1\ntimeout\t\t600\n"
)
SUSE_GRUB = """\
search --no-floppy --file /boot/x86_64/efi --set
if sleep --interruptible 0 ; then
  timeout=60
fi
default=1
menuentry 'Boot from Hard Disk' --class os {
  exit
}
menuentry 'Installation' --class os {
  set gfxpayload=keep
  linux /boot/x86_64/loader/linux splash=silent
  initrd /boot/x86_64/loader/initrd
}
menuentry 'Rescue System' --class os {
  linux /boot/x86_64/loader/linux splash=silent rescue=1
  initrd /boot/x86_64/loader/initrd
}
"""

AGAMA_GRUB = """\
# Agama generated grub2 config file
set default=0
if [ -n "$extra_cmdline" ]; then
  submenu "Bootable snapshot $snapshot_num" {
    menuentry "If OK, run snapper rollback and reboot." { true; }
  }
fi
set timeout=60
set timeout_style=menu
if [ "${grub_platform}" != "efi" ]; then
  menuentry "Boot from Hard Disk" --class os {
    exit
  }
fi
menuentry "Install SUSE SLE 16 (x86_64)" --class os --unrestricted {
    linux ($root)/boot/x86_64/loader/linux ${extra_cmdline} ${isoboot} splash=silent
    initrd ($root)/boot/x86_64/loader/initrd
}
menuentry "Rescue System" --class os --unrestricted {
    linux ($root)/boot/x86_64/loader/linux ${extra_cmdline} systemd.unit=multi-user.target
    initrd ($root)/boot/x86_64/loader/initrd
}
"""


def ubuntu(folder: Path) -> Path:
    return _image(
        folder,
        "Ubuntu-Server 24.04 LTS amd64",
        {
            "boot/grub/grub.cfg": UBUNTU_GRUB,
            "boot/grub/loopback.cfg": UBUNTU_LOOPBACK,
            "casper/vmlinuz": "kernel",
            "casper/install-sources.yaml": "- id: ubuntu-server\n",
            "pool/main/a/very-long-name-of-a-package_1.2.3-4ubuntu5.6_amd64.deb": "package" * 999,
        },
    )


def debian(folder: Path) -> Path:
    return _image(
        folder,
        "Debian 12.8.0 amd64 n",
        {
            "boot/grub/grub.cfg": DEBIAN_GRUB,
            "boot/grub/x86_64-efi/grub.cfg": "source /boot/grub/grub.cfg\n",
            **DEBIAN_ISOLINUX,
            "install.amd/vmlinuz": "kernel",
            ".disk/info": "Debian\n",
        },
    )


def suse(folder: Path, grub: str = SUSE_GRUB) -> Path:
    """The second menu, which UEFI reads, is inside the image that it boots from."""
    return _image(
        folder,
        "SLE-15-SP6-Full-x86_64",
        {
            "boot/x86_64/loader/isolinux.cfg": SUSE_ISOLINUX,
            "boot/x86_64/loader/linux": "kernel",
            "EFI/BOOT/grub.cfg": SUSE_GRUB,
        },
        efi=efi_image(folder, grub),
    )


def efi_image(folder: Path, menu: str) -> bytes:
    """A FAT file system with a loader and a menu, such as UEFI boots from."""
    image, path = folder / "efi", folder / "grub.cfg"
    (folder / "loader.efi").write_bytes(b"signed shim and grub " * 20_000)
    path.write_text(menu, encoding="utf-8")
    for command in (
        ("mformat", "-C", "-i", image, "-T", "2000", "-h", "4", "-s", "63", "::"),
        ("mmd", "-i", image, "::/EFI", "::/EFI/BOOT"),
        ("mcopy", "-i", image, folder / "loader.efi", "::/EFI/BOOT/grub.efi"),
        ("mcopy", "-i", image, path, "::/EFI/BOOT/grub.cfg"),
    ):
        subprocess.run(command, check=True, capture_output=True)
    return image.read_bytes()


def agama_medium(folder: Path) -> Path:
    """The menu is one for both firmwares; that of UEFI's own folder only leads to it."""
    return _image(
        folder,
        "Install-SUSE-SLE-16-x86_64",
        {
            "boot/grub2/grub.cfg": AGAMA_GRUB,
            "boot/x86_64/loader/linux": "kernel",
            "EFI/BOOT/grub.cfg": "search --file --set=root /boot/id\n"
            "set prefix=($root)/boot/grub2\nconfigfile ($root)/boot/grub2/grub.cfg\n",
        },
    )


def _image(
    folder: Path, label: str, files: dict[str, str], efi: bytes = b"signed shim and grub " * 20_000
) -> Path:
    """BIOS by isolinux, UEFI by an image of its own, hybrid partition table, checksums."""
    tree = folder / "tree"
    for name, text in files.items():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (tree / "isolinux").mkdir(exist_ok=True)
    shutil.copy(ISOLINUX / "isolinux.bin", tree / "isolinux")
    image = tree / "boot" / "grub" / "efi.img"
    image.parent.mkdir(parents=True, exist_ok=True)
    image.write_bytes(efi)
    sums = [
        f"{hashlib.md5(path.read_bytes()).hexdigest()}  ./{path.relative_to(tree)}\n"
        for path in sorted(tree.rglob("*"))
        if path.is_file() and path.name != "isolinux.bin"
    ]
    (tree / "md5sum.txt").write_text("".join(sums), encoding="utf-8")
    target = folder / "install.iso"
    subprocess.run(
        [
            *("xorriso", "-as", "mkisofs", "-quiet", "-r", "-J", "-joliet-long", "-V", label),
            *("-isohybrid-mbr", str(ISOLINUX / "isohdpfx.bin")),
            *("-b", "isolinux/isolinux.bin", "-c", "isolinux/boot.cat"),
            *("-no-emul-boot", "-boot-load-size", "4", "-boot-info-table"),
            *("-eltorito-alt-boot", "-e", "boot/grub/efi.img", "-no-emul-boot"),
            *("-isohybrid-gpt-basdat", "-o", str(target), str(tree)),
        ],
        check=True,
        capture_output=True,
    )
    return target
