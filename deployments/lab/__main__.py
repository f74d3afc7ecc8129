"""Command line of the lab: ``python -m deployments.lab [serve|start|stop|status|reset|image]``."""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deployments.lab import imagefile, process
from deployments.lab.errors import SeedError, StateFolderError

DESCRIPTION = """\
A simulated Proxmox VE cluster on loopback, for people without one, for tests and rehearsals.

By default it has three nodes (pve1, pve2, pve3) with the bridges vmbr0 (10.77.0.0/16) and
vmbr1 (10.78.0.0/16), and on each node the storages local (directory, all content types, with
small install ISOs of well-known names), local-lvm (thin volumes) and shared (one directory for
all nodes). A YAML file given with --seed describes another cluster; it is read only when the
state folder is new.

Everything lives in the state folder and survives a restart: guest configurations, volumes as
sparse files, tasks, users. While the lab serves, the file connection.json (mode 0600) in it holds
endpoint, CA file, fingerprint, token, password and the SOCKS5 proxy that leads to the guests.

Durations are those of a real cluster times --time-scale: 1 is real time (an install takes five
minutes), 0 is immediate.
"""

SEED_HELP = """\
A seed file, every key optional (defaults as above):

  nodes: [{name: alpha, cores: 16, memory_mib: 131072}]
  bridges: [{name: vmbr0, cidr: 10.77.0.1/16, vlan_aware: true}]
  storages: [{name: local, type: dir, content: [iso, images], path: /var/lib/vz, size_gib: 100}]
  default_isos: false
  files: [{storage: local, name: big.iso, size: 1000000, nodes: [alpha]}]
  users: [{userid: ops@pve, password: ..., tokens: [{name: t, secret: ..., privsep: true}],
           acl: [{path: /vms, role: PVEVMAdmin, token: t}]}]
  pools: [web]
  guests: [{vmid: 100, node: alpha, pool: web, running: true,
            config: {name: web1, scsi0: "local:8", net0: "virtio,bridge=vmbr0"}},
           {vmid: 1000, count: 500, config: {name: "bulk{vmid}", scsi0: "local:8"}}]

Exit codes: 0 done, 1 failed, 2 bad option, seed file or state folder, 3 (status) not running.
More is in docs/lab.md.
"""


def build_parser() -> argparse.ArgumentParser:
    """The command line's grammar."""
    parser = argparse.ArgumentParser(
        prog="python -m deployments.lab",
        description=DESCRIPTION,
        epilog=SEED_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = ("serve", "start", "stop", "status", "reset", "image")
    parser.add_argument(
        "command",
        nargs="?",
        choices=commands,
        default="serve",
        help="serve: in the foreground (default); start: in the background, waits until it "
        "answers; stop; status; reset: stop and remove the state folder; image PATH: write a disk "
        "image to build templates from (image --help says more)",
    )
    parser.add_argument(
        "--state",
        type=Path,
        default=None,
        metavar="DIR",
        help="state folder (default: $PROXFLOW_LAB_STATE, else .demo/lab)",
    )
    parser.add_argument(
        "--port",
        type=_port,
        default=0,
        metavar="N",
        help="HTTPS port on 127.0.0.1; 0 takes a free one (default)",
    )
    parser.add_argument(
        "--proxy-port",
        type=_port,
        default=0,
        metavar="N",
        help="port of the guests' SOCKS5 proxy; 0 takes a free one (default)",
    )
    parser.add_argument(
        "--time-scale",
        type=_scale,
        default=0.05,
        metavar="X",
        help="factor on all durations, 0 is immediate (default 0.05)",
    )
    parser.add_argument(
        "--seed",
        type=Path,
        default=None,
        metavar="FILE",
        help="YAML file that describes the cluster",
    )
    return parser


def _port(text: str) -> int:
    if not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port; give 0 to 65535")
    return int(text)


def _scale(text: str) -> float:
    try:
        scale = float(text)
    except ValueError:
        scale = math.nan
    if not 0 <= scale < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no factor; give 0 or more, such as 0.05")
    return scale


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    if words[:1] == ["image"]:
        return _kept(lambda: imagefile.run(words[1:]))
    parser = build_parser()
    options, others = parser.parse_known_args(words)
    if options.command == "image":
        parser.error("image comes first and has options of its own; try: image --help")
    if others:
        parser.error(f"unrecognized arguments: {' '.join(others)}")
    state = (options.state or process.default_state()).absolute()
    return _kept(lambda: _run(options, state))


def _kept(act: Callable[[], int]) -> int:
    """The exit code of a command, with words in the place of the errors that users can meet."""
    try:
        return act()
    except (SeedError, StateFolderError, imagefile.ImageFileError) as error:
        print(f"lab: {error}", file=sys.stderr)
        return 2
    except process.LabProcessError as error:
        print(f"lab: {error}", file=sys.stderr)
        return error.code
    except OSError as error:
        named = f"{error.filename}: " if error.filename else ""
        print(f"lab: {named}{error.strerror or error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _run(options: argparse.Namespace, state: Path) -> int:
    if options.command == "serve":
        from deployments.lab.serve import serve_until_stopped

        asyncio.run(
            serve_until_stopped(
                state,
                port=options.port,
                proxy_port=options.proxy_port,
                time_scale=options.time_scale,
                seed_file=options.seed,
            )
        )
        return 0
    if options.command == "start":
        extra = ["--port", str(options.port), "--proxy-port", str(options.proxy_port)]
        extra += ["--time-scale", str(options.time_scale)]
        extra += ["--seed", str(options.seed.absolute())] if options.seed else []
        data, new = process.start(state, extra)
        _tell("started" if new else "already running", data, state, whole=new)
        return 0
    if options.command in ("stop", "reset"):
        act, yes, no = {
            "stop": (process.stop, "stopped", "was not running"),
            "reset": (process.reset, "removed", "nothing to remove"),
        }[options.command]
        print(f"lab: {yes if act(state) else no}")
        return 0
    found = process.connection_of(state)
    if found is None:
        print(f"lab: not running (state {state})")
        return 3
    _tell("running", found, state)
    return 0


def _tell(what: str, data: dict[str, Any], state: Path, *, whole: bool = True) -> None:
    print(f"lab: {what} at {data['endpoint']} (pid {data['pid']}, state {state})")
    if not whole:
        return
    print(f"lab: fingerprint {data['fingerprint']}")
    print(f"lab: connection data in {state / 'connection.json'}")


def run() -> int:
    """The command of this process; its exit code, 1 where its output could not be written."""
    try:
        code = main()
    except SystemExit as leaving:
        # By argparse, after help or a fault in the options.
        code = leaving.code if isinstance(leaving.code, int) else 0
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        # What is still in the buffer goes nowhere, or the interpreter fails on it once more.
        with Path(os.devnull).open("w") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        print(f"lab: cannot write to standard output: {error.strerror or error}", file=sys.stderr)
        return 1
    return code


if __name__ == "__main__":
    sys.exit(run())
