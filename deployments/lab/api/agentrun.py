"""The guest agent at work: programs, files, passwords.

The refusals without an agent are recorded (scenario 11); nothing of a successful call is. Answers
follow the public sources of qemu-server 9.2 and of the QEMU guest agent.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

from deployments.lab.accounts import hash_password, set_password
from deployments.lab.api.agent import ALL, EXEC, command, reach
from deployments.lab.errors import failure
from deployments.lab.guestfs import GuestFileError
from deployments.lab.guestos import Run
from deployments.lab.routing import Call, on
from deployments.lab.schema import Prop, boolean, integer, string
from deployments.lab.shell import Result, is_program, run_program

MAX_READ_BYTES = 16 << 20
MAX_OUTPUT_BYTES = 16 << 20
_PIECE_BYTES = 1 << 20
_FILE_READ = on("/vms/{vmid}", "VM.GuestAgent.FileRead", ALL, any_of=True)
_FILE_WRITE = on("/vms/{vmid}", "VM.GuestAgent.FileWrite", ALL, any_of=True)
_required = string(optional=False)


def _as_shown(data: bytes) -> str:
    """Bytes as the server puts them into JSON: each byte one character."""
    return data.decode("latin-1")


def _as_bytes(text: str) -> bytes:
    """A parameter as bytes; the server can only encode characters below 256."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        where = "/usr/share/perl5/PVE/API2/Qemu/Agent.pm"
        raise failure(f"Wide character in subroutine entry at {where} line 500.") from None


def _encoded(data: bytes) -> str:
    """Base64 of each piece that the agent is asked for, one behind the other."""
    pieces = (data[at : at + _PIECE_BYTES] for at in range(0, len(data), _PIECE_BYTES))
    return "".join(base64.b64encode(piece).decode() for piece in pieces)


def _open_failure(path: str, mode: str, error: GuestFileError) -> Exception:
    return failure(f"Agent error: failed to open file '{path}' (mode: '{mode}'): {error}")


@command(
    "POST",
    "exec",
    EXEC,
    {"command": Prop("array", optional=False), "input-data": string(max_length=65536)},
)
async def execute(call: Call) -> dict[str, int]:
    """Start a program; its number."""
    run = await reach(call)
    arguments = call.params["command"]
    data = _as_bytes(call.params["input-data"]) if "input-data" in call.params else b""
    machine = call.lab.life.disks.machine(run)
    if not is_program(machine, arguments[0]):
        child = f"Failed to execute child process “{arguments[0]}” (No such file or directory)"
        raise failure(f"Agent error: Guest agent command failed, error was '{child}'")
    result = run_program(machine, arguments, data)
    call.lab.life.disks.close(run, machine.tree)
    pid = call.lab.life.remember_program(run, result)
    if machine.power:
        call.lab.life.power_from_inside(run, machine.power)
    return {"pid": pid}


@command("GET", "exec-status", EXEC, {"pid": integer(optional=False)})
async def execute_status(call: Call) -> dict[str, Any]:
    """How a program ended; asked once, the agent forgets it."""
    run = await reach(call)
    result = call.lab.life.recall_program(run, call.params["pid"])
    if result is None:
        raise failure("Agent error: Invalid parameter 'pid'")
    return _outcome(result)


def _outcome(result: Result) -> dict[str, Any]:
    row: dict[str, Any] = {"exited": 1, "exitcode": result.code}
    for name, data in (("out", result.out), ("err", result.err)):
        if data:
            row[f"{name}-data"] = _as_shown(data[:MAX_OUTPUT_BYTES])
        if len(data) > MAX_OUTPUT_BYTES:
            row[f"{name}-truncated"] = 1
    return row


@command(
    "GET",
    "file-read",
    _FILE_READ,
    {
        "file": _required,
        "count": integer(1, MAX_READ_BYTES),
        "offset": integer(0),
        "decode": boolean(),
    },
)
async def file_read(call: Call) -> dict[str, Any]:
    """A file's content, or as much of it as one call may bring."""
    run = await reach(call)
    path = call.params["file"]
    try:
        data = call.lab.life.disks.open(run).read(path)
    except GuestFileError as error:
        raise _open_failure(path, "r", error) from None
    begin = call.params.get("offset", 0)
    piece = data[begin : begin + call.params.get("count", MAX_READ_BYTES)]
    shown = _as_shown(piece) if call.params.get("decode", 1) else _encoded(piece)
    row: dict[str, Any] = {"content": shown, "bytes-read": len(piece)}
    # The agent sees the end of a file only when it is asked for more than there is.
    if len(piece) == call.params.get("count", MAX_READ_BYTES):
        row["truncated"] = 1
    return row


@command(
    "POST",
    "file-write",
    _FILE_WRITE,
    {
        "file": _required,
        "content": string(optional=False, max_length=61440),
        "encode": boolean(),
    },
)
async def file_write(call: Call) -> None:
    """Replace a file's content."""
    run = await reach(call)
    path, text = call.params["file"], call.params["content"]
    data = _as_bytes(text)
    if not call.params.get("encode", 1):
        try:
            data = base64.b64decode(data, validate=True)
        except binascii.Error:
            raise failure("Agent error: Invalid parameter 'buf-b64'") from None
    tree = call.lab.life.disks.open(run)
    try:
        tree.write(path, data)
    except GuestFileError as error:
        raise _open_failure(path, "wb", error) from None
    call.lab.life.disks.close(run, tree)


@command(
    "POST",
    "set-user-password",
    EXEC,
    {
        "username": _required,
        "password": string(optional=False, min_length=5, max_length=1024),
        "crypted": boolean(),
    },
)
async def set_user_password(call: Call) -> dict[str, Any]:
    """Change a password in the guest."""
    run: Run = await reach(call)
    tree = call.lab.life.disks.open(run)
    text = call.params["password"]
    stored = text if call.params.get("crypted") else hash_password(text)
    if not set_password(tree, call.params["username"], stored):
        raise failure("Agent error: child process has failed to set user password")
    call.lab.life.disks.close(run, tree)
    return {"result": {}}
