"""Logins to a machine's guest by OpenSSH, with the declared key and nothing else."""

from __future__ import annotations

import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Login:
    """``port`` on loopback leads to the guest's SSH server; ``key``: the private key's file."""

    port: int
    key: Path
    user: str

    def run(self, command: str, bound: float = 120) -> subprocess.CompletedProcess[str]:
        """Run a command inside; ``bound`` in seconds. Status 255: nobody could log in."""
        options = {
            "BatchMode": "yes",
            "IdentitiesOnly": "yes",
            "StrictHostKeyChecking": "accept-new",
            "UserKnownHostsFile": str(self.key.with_name(f"known_hosts.{self.port}")),
            "ConnectTimeout": "30",
            "LogLevel": "ERROR",
        }
        return subprocess.run(
            [
                *("ssh", "-F", "none", "-i", str(self.key), "-p", str(self.port)),
                *(word for key, value in options.items() for word in ("-o", f"{key}={value}")),
                *(f"{self.user}@127.0.0.1", command),
            ],
            check=False,
            capture_output=True,
            text=True,
            timeout=bound,
        )

    def inside(self, command: str, bound: float = 120) -> str:
        """What a command inside prints, which must succeed."""
        done = self.run(command, bound)
        assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout.strip()


def new_key(folder: Path) -> tuple[Path, str]:
    """A pair of keys made now: the private one's file, and the text of the public one."""
    path = folder / "key"
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "made@test", "-f", str(path)]
    subprocess.run(command, check=True)
    return path, path.with_suffix(".pub").read_text().strip()


def free_port() -> int:
    """A port of loopback that is free now."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])
