"""Throw-away OpenPGP keys, and what they sign."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

MISSING = [name for name in ("gpg", "gpgv") if shutil.which(name) is None]


@dataclass(frozen=True)
class Key:
    """A key pair in a GnuPG folder of its own, used now or at another time."""

    home: Path
    when: str | None = None

    def gpg(self, *words: str, data: bytes = b"") -> bytes:
        """What gpg writes, given ``data``."""
        command = ["gpg", "--homedir", str(self.home), "--batch", "--quiet"]
        command += ["--faked-system-time", self.when] if self.when else []
        command += words
        return subprocess.run(command, input=data, capture_output=True, check=True).stdout

    def public(self, folder: Path, *, armored: bool = False) -> Path:
        """A keyring with the public key."""
        path = folder / ("keys.asc" if armored else "keys.gpg")
        path.write_bytes(self.gpg("--export", *(["--armor"] if armored else [])))
        return path

    def secret(self) -> bytes:
        """The private key, armored."""
        return self.gpg("--armor", "--export-secret-keys")

    def clear(self, text: bytes) -> bytes:
        """A clear-signed text."""
        return self.gpg("--clear-sign", data=text)

    def detached(self, text: bytes, *, armored: bool = True) -> bytes:
        """A signature beside the text."""
        return self.gpg("--detach-sign", *(["--armor"] if armored else []), data=text)

    def inline(self, text: bytes) -> bytes:
        """A binary message with the text in it."""
        return self.gpg("--sign", data=text)


@contextmanager
def a_key(*, expires: str = "never", when: str | None = None) -> Iterator[Key]:
    """A new key, without a pass phrase; its folder is short, for the sake of gpg's socket.

    ``when``: the time that it lives in.
    """
    with tempfile.TemporaryDirectory(prefix="pgp-") as home:
        key = Key(Path(home), when)
        key.gpg("--passphrase", "", "--quick-gen-key", "Publisher", "ed25519", "sign", expires)
        try:
            yield key
        finally:
            subprocess.run(
                ["gpgconf", "--homedir", home, "--kill", "all"], check=False, capture_output=True
            )
