"""Programs that tell about the system or change its state."""

from __future__ import annotations

import time

from deployments.lab.accounts import add_user, hash_password, set_password
from deployments.lab.programs import (
    KERNEL_RELEASE,
    KERNEL_VERSION,
    PROGRAMS,
    Process,
    account,
    program,
    split_flags,
)


@program("uname")
def _uname(process: Process, args: list[str]) -> int:
    flags, _ = split_flags(args)
    facts = {
        "s": "Linux",
        "n": process.machine.hostname,
        "r": KERNEL_RELEASE,
        "v": KERNEL_VERSION,
        "m": "x86_64",
        "o": "GNU/Linux",
    }
    wanted = facts if "a" in flags else [key for key in facts if key in (flags or "s")]
    process.say(" ".join(facts[key] for key in wanted))
    return 0


@program("hostname", "hostnamectl")
def _hostname(process: Process, args: list[str]) -> int:
    flags, rest = split_flags(args)
    name = process.machine.hostname
    if rest and rest[-1:] != ["hostname"]:
        process.machine.hostname = rest[-1]
        process.machine.tree.write("/etc/hostname", rest[-1].encode() + b"\n")
    elif "I" in flags:
        process.say(" ".join(process.machine.addresses))
    else:
        process.say(name.partition(".")[0] if "s" in flags else name)
    return 0


@program("id", "whoami")
def _id(process: Process, args: list[str]) -> int:
    flags, names = split_flags(args)
    found = account(process.machine.tree, names[0] if names else process.user)
    if found is None:
        return process.complain(f"id: '{names[0]}': no such user")
    name, uid, gid = found[0], found[2], found[3]
    if "u" in flags or "g" in flags:
        process.say(name if "n" in flags else uid if "u" in flags else gid)
    else:
        process.say(f"uid={uid}({name}) gid={gid}({name}) groups={gid}({name})")
    return 0


def _whoami(process: Process, _args: list[str]) -> int:
    process.say(process.user)
    return 0


PROGRAMS["whoami"] = _whoami


@program("getent")
def _getent(process: Process, args: list[str]) -> int:
    if args[:1] != ["passwd"]:
        process.complain(f"Unknown database: {' '.join(args[:1])}")
        return 1
    found = account(process.machine.tree, args[1]) if len(args) > 1 else None
    if found is None:
        return 2
    process.say(":".join(found))
    return 0


@program("date")
def _date(process: Process, args: list[str]) -> int:
    form = args[-1][1:] if args and args[-1].startswith("+") else "%a %b %d %H:%M:%S UTC %Y"
    process.say(time.strftime(form.replace("%s", str(int(time.time()))), time.gmtime()))
    return 0


@program("uptime")
def _uptime(process: Process, _args: list[str]) -> int:
    process.say(time.strftime(" %H:%M:%S up 1 min,  0 users,  load average: 0.00, 0.00, 0.00"))
    return 0


@program("systemctl")
def _systemctl(process: Process, args: list[str]) -> int:
    words = [word for word in args if not word.startswith("-")]
    if words[:1] in (["poweroff"], ["reboot"]):
        process.machine.power = "off" if words[0] == "poweroff" else "reboot"
    elif words[:1] == ["is-active"]:
        process.say("active")
    elif words[:1] == ["is-system-running"]:
        process.say("running")
    return 0


@program("cloud-init")
def _cloud_init(process: Process, args: list[str]) -> int:
    if args[:1] == ["status"]:
        process.say("status: done")
    return 0


@program("poweroff", "halt", "shutdown")
def _poweroff(process: Process, args: list[str]) -> int:
    process.machine.power = "reboot" if "-r" in args else "off"
    return 0


@program("reboot")
def _reboot(process: Process, _args: list[str]) -> int:
    process.machine.power = "reboot"
    return 0


@program("useradd", "adduser")
def _useradd(process: Process, args: list[str]) -> int:
    name = args[-1] if args else ""
    if not name or name.startswith("-"):
        return process.complain("useradd: missing operand")
    if account(process.machine.tree, name) is not None:
        process.complain(f"useradd: user '{name}' already exists")
        return 9
    add_user(process.machine.tree, name)
    return 0


@program("chpasswd")
def _chpasswd(process: Process, args: list[str]) -> int:
    encrypted = "-e" in args or "--encrypted" in args
    for line in process.stdin.decode(errors="replace").splitlines():
        user, _, word = line.partition(":")
        stored = word if encrypted else hash_password(word)
        if not set_password(process.machine.tree, user, stored):
            return process.complain(f"chpasswd: line 1: user '{user}' does not exist")
    return 0
