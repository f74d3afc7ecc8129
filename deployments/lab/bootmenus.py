"""Boot menus of install ISOs: what the lab's own hold, and whether an installer would ask.

Ubuntu's installer asks before it wipes a disk, and Debian's asks everything, unless the kernel
command line of the entry that is booted says otherwise. Agama asks nothing, but its medium's menu
boots the disk. Others read their answers by themselves.
"""

from __future__ import annotations

import re

GRUB = "boot/grub/grub.cfg"
GRUB2 = "boot/grub2/grub.cfg"
_UBUNTU = """\
set timeout=30

menuentry "Try or Install Ubuntu Server" {
\tset gfxpayload=keep
\tlinux\t/casper/vmlinuz  ---
\tinitrd\t/casper/initrd
}
menuentry "Test memory" {
\tlinux16\t/boot/memtest86+x64.bin
}
"""
_DEBIAN = """\
set theme=/boot/grub/theme/1
menuentry --hotkey=g 'Graphical install' {
    set background_color=black
    linux    /install.amd/vmlinuz vga=788 --- quiet
    initrd   /install.amd/gtk/initrd.gz
}
menuentry --hotkey=i 'Install' {
    set background_color=black
    linux    /install.amd/vmlinuz vga=788 --- quiet
    initrd   /install.amd/initrd.gz
}
"""
_AGAMA = """\
set default=0
set timeout=10
menuentry "Boot from Hard Disk" --class os {
  exit
}
menuentry "Install SUSE SLE 16 (x86_64)" --class os --unrestricted {
    linux ($root)/boot/x86_64/loader/linux ${extra_cmdline} ${isoboot} splash=silent
    initrd ($root)/boot/x86_64/loader/initrd
}
"""
MENUS = {"ubuntu": _UBUNTU, "debian": _DEBIAN, "agama": _AGAMA}
"""The GRUB menu of an untouched install ISO, by family of installer."""
REWRITTEN = {
    "ubuntu": _UBUNTU.replace("vmlinuz  ---", "vmlinuz autoinstall ---"),
    "agama": f'{_AGAMA}set default="Install SUSE SLE 16 (x86_64)"\n',
}
"""The GRUB menu of an ISO that was rewritten so that its installer asks nothing."""

_KERNEL = re.compile(r"^\s*linux(?:efi)?\s+\S*vmlinuz\S*(?P<arguments>.*)$", re.MULTILINE)
_DEFAULT = re.compile(r"^\s*set default=[\"']?([^\"'\n]+)", re.MULTILINE)
_ENTRY = re.compile(r"^\s*menuentry [\"']([^\"'\n]+)[^{]*\{(.*?)^\s*\}", re.MULTILINE | re.DOTALL)
_ENOUGH = {
    "ubuntu": re.compile(r"(?:^|\s)autoinstall(?:\s|$)"),
    "debian": re.compile(r"(?:^|\s)(?:auto(?:=true)?|preseed/file=\S+|file=\S+)(?:\s|$)"),
}


def menu_path(family: str) -> str:
    """Where an install ISO has its GRUB menu."""
    return GRUB2 if family == "agama" else GRUB


def asks(family: str, menu: str | None) -> bool:
    """Whether an installer that was booted by the menu waits for answers, or is not booted at all.

    ``menu`` is the GRUB menu of the ISO, None where it has none. Its first entry counts, with
    Agama the one that it names as the default. Arguments behind ``---`` are for the installed
    system.
    """
    if family == "agama":
        return not _boots_agama(menu or "")
    enough = _ENOUGH.get(family)
    if enough is None:
        return False
    found = _KERNEL.search(menu or "")
    return found is None or enough.search(found["arguments"].partition("---")[0]) is None


def _boots_agama(menu: str) -> bool:
    """Whether the entry that the menu names last as its default loads a kernel."""
    named = _DEFAULT.findall(menu)
    entries = _ENTRY.findall(menu)
    wanted = named[-1] if named else "0"
    chosen = [
        body for number, (title, body) in enumerate(entries) if wanted in {title, str(number)}
    ]
    return bool(chosen) and "/loader/linux" in chosen[0]
