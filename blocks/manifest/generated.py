"""Generated secrets: unguessable, and the same for one environment each time.

What they come from is kept in the user's state folder, readable by that user only.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import shutil
import string
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

_ALPHABET = string.ascii_letters + string.digits
_SEED_BYTES = 32
KEY_TYPES = ("ed25519", "ecdsa", "rsa")


class Generator:
    """Makes the generated secrets of one environment.

    ``root`` is the state folder. ``seed`` takes the place of the kept one (32 bytes). Nothing is
    read or written before the first secret is asked for. Methods raise OSError where the folder
    cannot be used.
    """

    def __init__(self, root: Path, environment: str, seed: bytes | None = None) -> None:
        self._root = root
        self._environment = environment
        self._seed = seed

    def password(self, length: int, label: str = "") -> str:
        """Letters and digits, from HMAC-SHA-256 over the environment's seed and ``label``."""
        seed = self._seed or self._kept_seed()
        self._seed = seed
        # 256 is no multiple of 62: bytes beyond the last whole multiple would favour letters.
        limit = 256 - 256 % len(_ALPHABET)
        chosen: list[str] = []
        block = 0
        while len(chosen) < length:
            text = f"{self._environment}\0{label}\0{block}"
            stream = hmac.new(seed, text.encode(), hashlib.sha256).digest()
            chosen += [_ALPHABET[byte % len(_ALPHABET)] for byte in stream if byte < limit]
            block += 1
        return "".join(chosen[:length])

    def ssh_public_key(self, kind: str) -> str:
        """The public half of a key pair that is kept in the state folder.

        Raises ValueError for a kind that is not in ``KEY_TYPES``.
        """
        if kind not in KEY_TYPES:
            raise ValueError(f"{kind!r} is no type of SSH key; use one of {', '.join(KEY_TYPES)}")
        folder = self.key_folder(kind)
        public = folder / "id.pub"
        if not public.is_file():
            _make_key_pair(folder, kind, f"{self._environment}@proxflow")
        return public.read_text(encoding="utf-8").strip()

    def key_folder(self, kind: str) -> Path:
        """Where a generated key pair is: ``id`` and ``id.pub`` in this folder."""
        return self._root / "keys" / self._environment / kind

    def _kept_seed(self) -> bytes:
        path = self._root / "seeds" / self._environment
        with suppress(FileNotFoundError):
            return _read_seed(path)
        _private_folder(path.parent)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(secrets.token_bytes(_SEED_BYTES))
            # Of two processes the first link wins; the other one reads what the first wrote.
            with suppress(FileExistsError):
                os.link(name, path)
        finally:
            Path(name).unlink()
        return _read_seed(path)


def _read_seed(path: Path) -> bytes:
    seed = path.read_bytes()
    if len(seed) != _SEED_BYTES:
        raise OSError(f"{path} does not hold {_SEED_BYTES} bytes; restore it from a backup")
    return seed


def _private_folder(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)


def _make_key_pair(folder: Path, kind: str, comment: str) -> None:
    _private_folder(folder.parent)
    made = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".new-"))
    try:
        command = ["ssh-keygen", "-q", "-t", kind, "-N", "", "-C", comment, "-f", str(made / "id")]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=60)
        except (OSError, subprocess.SubprocessError) as error:
            raise OSError("ssh-keygen made no key; install the OpenSSH client") from error
        # A folder only replaces an empty one, so that the first of two processes wins.
        with suppress(OSError):
            made.rename(folder)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    if not (folder / "id.pub").is_file():
        raise OSError(f"{folder} holds no key pair; remove the folder")
