"""Whether a list of checksums is signed by a key of the operator's keyring, as gpgv tells."""

from __future__ import annotations

import base64
import binascii
import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from blocks.paths import read_small
from blocks.units import MIB
from tasks.errors import StageError

_CLEAR: Final = b"-----BEGIN PGP SIGNED MESSAGE-----"
_ARMOR: Final = re.compile(
    r"-----BEGIN PGP PUBLIC KEY BLOCK-----\s*?\n(?P<body>.*?)-----END PGP PUBLIC KEY BLOCK-----",
    re.DOTALL,
)
_SECONDS: Final = 30.0
_KEYRING_MOST: Final = 16 * MIB


def verified(text: bytes, signature: bytes | None, keyring: Path, what: str) -> bytes:
    """The signed text: all of ``text`` where the signature is detached, else what is signed in it.

    ``what`` names the list in messages. Raises StageError: no gpgv, keyring not readable, not
    signed, signed by another key, altered.
    """
    if signature is None and text.count(_CLEAR) != 1:
        raise StageError(
            f"{what} is not signed in itself",
            advice="name its detached signature in `image.signature`, or leave `image.keyring` out",
        )
    with tempfile.TemporaryDirectory(prefix="proxflow-") as made:
        folder = Path(made)
        (folder / "list").write_bytes(text)
        names = ["list"]
        if signature is not None:
            (folder / "signature").write_bytes(signature)
            names = ["signature", "list"]
        (folder / "keys.gpg").write_bytes(_keys(keyring))
        status = _gpgv(folder, names)
        _judge(status, what, keyring, detached=signature is not None)
        if signature is not None:
            return text
        # Only what gpgv wrote is signed; the file may have more before and behind.
        return (folder / "signed").read_bytes()


def check_keyring(keyring: Path) -> None:
    """Raise StageError where a keyring cannot be read or has no keys, or gpgv is not installed."""
    _keys(keyring)
    try:
        subprocess.run(["gpgv", "--version"], capture_output=True, check=False, timeout=_SECONDS)
    except FileNotFoundError:
        raise _no_gpgv() from None


def _keys(keyring: Path) -> bytes:
    """The keyring as gpgv reads it: binary."""
    try:
        data = read_small(keyring, _KEYRING_MOST, encoding="latin-1")
        raw = keyring.read_bytes()
    except OSError as error:
        raise StageError(
            f"the keyring {keyring} cannot be read: {error.strerror or error}",
            advice="`image.keyring` is a file with the publisher's public keys, on this machine",
        ) from None
    if "PRIVATE KEY" in data:
        raise StageError(
            f"the keyring {keyring} has a private key in it",
            advice="give the publisher's public keys: gpg --export --armor KEY > FILE",
        )
    blocks = [found["body"] for found in _ARMOR.finditer(data)]
    if blocks:
        return b"".join(_dearmored(block, keyring) for block in blocks)
    # An OpenPGP packet has the highest bit set; a keybox says KBXf in its ninth byte.
    if not raw or not (raw[0] & 0x80 or raw[8:12] == b"KBXf"):
        raise _no_keys(keyring)
    return raw


def _dearmored(block: str, keyring: Path) -> bytes:
    """The packets of an armored block: what is behind its headers, without the check sum."""
    lines = [line.strip() for line in block.splitlines()]
    if "" in lines:
        lines = lines[lines.index("") + 1 :]
    try:
        data = base64.b64decode(
            "".join(line for line in lines if not line.startswith("=")), validate=True
        )
    except binascii.Error:
        raise _no_keys(keyring) from None
    if not data:
        raise _no_keys(keyring)
    return data


def _no_keys(keyring: Path) -> StageError:
    return StageError(
        f"{keyring} is no keyring",
        advice="`image.keyring` takes public keys as `gpg --export` writes them, armored or not",
    )


def _no_gpgv() -> StageError:
    return StageError(
        "gpgv is not installed on this machine, so that no signature can be checked",
        advice="install it (Debian, Ubuntu: gpgv; Fedora, Rocky: gnupg2; Alpine: gpgv), or leave "
        "`image.keyring` out",
    )


def _gpgv(folder: Path, names: list[str]) -> list[list[str]]:
    """The words of gpgv's status lines."""
    command = ["gpgv", "--homedir", ".", "--keyring", "./keys.gpg", "--status-fd", "1"]
    if len(names) == 1:
        command += ["--output", "signed"]
    try:
        ended = subprocess.run(
            [*command, *names],
            cwd=folder,
            capture_output=True,
            check=False,
            timeout=_SECONDS,
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"},
        )
    except FileNotFoundError:
        raise _no_gpgv() from None
    except subprocess.TimeoutExpired:
        raise StageError(
            f"gpgv did not end within {_SECONDS:.0f} s",
            advice="look whether this machine is overloaded, and whether the keyring can be read",
        ) from None
    lines = ended.stdout.decode(errors="replace").splitlines()
    return [line.split()[1:] for line in lines if line.startswith("[GNUPG:] ")]


def _judge(status: list[list[str]], what: str, keyring: Path, *, detached: bool) -> None:
    """Raise StageError unless a key of the keyring signed the text, and nothing was altered.

    gpgv ends well, too, where the file given as signature is a whole signed message, and then has
    not looked at the text: such a message gives itself away by PLAINTEXT.
    """
    said = {line[0]: line[1:] for line in status if line}
    known = f"a key of {keyring}"
    if "BADSIG" in said:
        why = "was altered after it was signed"
    elif detached == ("PLAINTEXT" in said):
        why = "has a signature of another kind: it does not sign this list"
    elif "GOODSIG" in said:
        return
    elif "REVKEYSIG" in said or "EXPKEYSIG" in said or "EXPSIG" in said:
        why = f"is signed by {known} that has expired or was revoked"
    elif "NO_PUBKEY" in said:
        why = f"is not signed by {known}, but by {said['NO_PUBKEY'][0]}"
    else:
        why = "has no signature that gpgv can read"
    raise StageError(
        f"{what} {why}",
        advice="get the publisher's keys anew, or look whether `image.signature` belongs to it",
    )
