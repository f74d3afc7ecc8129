"""Boot menus of install ISOs: what the lab's own hold, and whether an installer would ask.

Ubuntu's installer asks before it wipes a disk, and Debian's asks everything, unless the kernel
command line of the entry that is booted says otherwise. Others read their answers by themselves.
"""

from __future__ import annotations

import re

GRUB = "boot/grub/grub.cfg"
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
MENUS = {"ubuntu": _UBUNTU, "debian": _DEBIAN}
"""The GRUB menu of an untouched install ISO, by family of installer."""
REWRITTEN = {"ubuntu": _UBUNTU.replace("vmlinuz  ---", "vmlinuz autoinstall ---")}
"""The GRUB menu of an ISO that was rewritten so that its installer asks nothing."""

_KERNEL = re.compile(r"^\s*linux(?:efi)?\s+\S*vmlinuz\S*(?P<arguments>.*)$", re.MULTILINE)
_ENOUGH = {
    "ubuntu": re.compile(r"(?:^|\s)autoinstall(?:\s|$)"),
    "debian": re.compile(r"(?:^|\s)(?:auto(?:=true)?|preseed/file=\S+|file=\S+)(?:\s|$)"),
}


def asks(family: str, menu: str | None) -> bool:
    """Whether an installer that was booted by the menu's first entry waits for answers.

    ``menu`` is the GRUB menu of the ISO, None where it has none. Arguments behind ``---`` are for
    the installed system.
    """
    enough = _ENOUGH.get(family)
    if enough is None:
        return False
    found = _KERNEL.search(menu or "")
    return found is None or enough.search(found["arguments"].partition("---")[0]) is None
