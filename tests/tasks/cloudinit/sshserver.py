"""A real SSH server on loopback, for the user that runs the tests, with keys of its own."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from blocks.manifest.guest import SnippetHost

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
CLIENT = shutil.which("ssh")
needs_sshd = pytest.mark.skipif(
    SSHD is None or CLIENT is None, reason="openssh-server is not installed"
)


@dataclass(frozen=True)
class SshServer:
    """A running server; its folder holds keys: ``user`` may log in, ``other`` may not."""

    port: int
    folder: Path

    @property
    def user(self) -> str:
        """Who runs the tests."""
        return getpass.getuser()

    def host(self, directory: Path | None = None, port: int | None = None) -> SnippetHost:
        """How a manifest would name it."""
        return SnippetHost(
            host="127.0.0.1",
            user=self.user,
            port=port or self.port,
            directory=str(directory) if directory else None,
        )

    def use(
        self, monkeypatch: pytest.MonkeyPatch, *, key: str = "user", known: bool = True
    ) -> None:
        """Make it what ``ssh`` talks to, as the caller's own settings would."""
        config = self.folder / "config"
        hosts = self.folder / ("known_hosts" if known else "nobody")
        config.write_text(
            f"UserKnownHostsFile {hosts}\nGlobalKnownHostsFile none\nIdentitiesOnly yes\n"
            f"IdentityFile {self.folder / key}\nIdentityAgent none\n"
        )
        clients = self.folder / "clients"
        clients.mkdir(exist_ok=True)
        wrapper = clients / "ssh"
        note = f'echo "$*" >>{self.folder}/calls'
        wrapper.write_text(f'#!/bin/sh\n{note}\nexec {CLIENT} -F {config} "$@"\n')
        wrapper.chmod(0o755)
        (self.folder / "calls").unlink(missing_ok=True)
        monkeypatch.setenv("PATH", f"{clients}:{os.environ['PATH']}")

    @property
    def calls(self) -> list[str]:
        """The arguments of each use of ``ssh``, a text each."""
        file = self.folder / "calls"
        return file.read_text().split("ServerAliveInterval")[1:] if file.exists() else []


@contextmanager
def ssh_server(folder: Path) -> Iterator[SshServer]:
    """Start the server and wait until it answers."""
    assert SSHD is not None
    for name in ("host", "user", "other"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(command, check=True)
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    shutil.copy(folder / "user.pub", folder / "authorized_keys")
    public = (folder / "host.pub").read_text().split()
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {public[0]} {public[1]}\n")
    settings = {
        "ListenAddress": "127.0.0.1",
        "Port": port,
        "HostKey": folder / "host",
        "AuthorizedKeysFile": folder / "authorized_keys",
        "PasswordAuthentication": "no",
        "KbdInteractiveAuthentication": "no",
        "StrictModes": "no",
        "UsePAM": "no",
        "PidFile": "none",
    }
    (folder / "sshd_config").write_text("".join(f"{k} {v}\n" for k, v in settings.items()))
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    with (folder / "sshd.log").open("w") as log:
        server = subprocess.Popen(
            [SSHD, "-D", "-e", "-f", str(folder / "sshd_config")], stderr=log, stdout=log
        )
    try:
        _wait(server, port, folder / "sshd.log")
        yield SshServer(port, folder)
    finally:
        server.terminate()
        server.wait(60)


def _wait(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    for _ in range(1200):
        if server.poll() is not None:
            break
        try:
            with closing(socket.create_connection(("127.0.0.1", port), 1)) as connection:
                if connection.recv(3) == b"SSH":
                    return
        except OSError:
            time.sleep(0.05)
    sys.stderr.write(log.read_text())
    raise AssertionError("sshd did not start")
