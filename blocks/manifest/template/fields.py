"""The kinds of values that only a template has."""

from __future__ import annotations

import re
from ipaddress import ip_interface
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, WithJsonSchema

from blocks.manifest.fields import DISK_SLOT, URL, refuse_reserved
from blocks.manifest.guest import Digest

_DIGEST = re.compile(r"(?:(?P<algorithm>[A-Za-z0-9-]+)[:=])?(?P<hex>[0-9A-Fa-f]+)")
_PCI = re.compile(r"(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-7])?")
_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
_CRYPT = re.compile(r"\$[a-z0-9]{1,8}\$[^\s:]{8,}")
_DRIVE = re.compile(r"ide[0-3]|sata[0-5]|scsi(?:[12]?[0-9]|30)")
_HEX_DIGITS = {"sha256": 64, "sha512": 128}
_RANGE = re.compile(r"(?P<first>\d{1,9})\s*(?:-|\.\.)\s*(?P<last>\d{1,9})")

LOWEST_ID, HIGHEST_ID = 100, 999_999_999


def one_line(text: str) -> str:
    """A text without characters that would end a value of Proxmox VE or a path of its API."""
    if re.search(r"[\s,/?#%\x00-\x1f\x7f]", text):
        raise ValueError("is no name of a node; write it as Proxmox VE lists it, such as pve1")
    return text


def digest(text: str) -> Digest:
    """The checksum in ``sha256:HEX``, ``sha512:HEX`` or bare digits. Raises ValueError."""
    found = _DIGEST.fullmatch(text.strip())
    name = (found["algorithm"] or "").lower().replace("-", "") if found else ""
    if found is None or (name and name not in _HEX_DIGITS):
        raise ValueError(
            "is no checksum; write sha256: or sha512: and the digits of sha256sum or sha512sum"
        )
    digits = found["hex"].lower()
    by_length = {length: each for each, length in _HEX_DIGITS.items()}
    meant = name or by_length.get(len(digits))
    if meant is None or len(digits) != _HEX_DIGITS[meant]:
        wanted = " or ".join(f"{length} ({each})" for each, length in _HEX_DIGITS.items())
        raise ValueError(
            f"has {len(digits)} hexadecimal digits; a checksum has {wanted}, such as sha256:HEX"
        )
    return Digest.model_validate({"algorithm": meant, "hex": digits})


def id_range(value: Any) -> tuple[int, int]:
    """First and last number of ``9000-9009``, ``[9000, 9009]`` or one number. Raises ValueError."""
    first: Any
    last: Any
    if isinstance(value, str) and (found := _RANGE.fullmatch(value.strip())):
        first, last = int(found["first"]), int(found["last"])
    elif isinstance(value, list | tuple) and len(value) == 2:
        first, last = value
    else:
        raise ValueError("is no range of numbers; write it such as 9000-9009")
    if any(isinstance(each, bool) or not isinstance(each, int) for each in (first, last)):
        raise ValueError("is no range of numbers; write it such as 9000-9009")
    if not LOWEST_ID <= first <= last <= HIGHEST_ID:
        raise ValueError(
            f"is no range of VM numbers; the first is at least {LOWEST_ID}, the last not below it"
        )
    return first, last


def _digest_text(text: str) -> str:
    return str(digest(text))


def _web_url(text: str) -> str:
    if not URL.fullmatch(text.strip()):
        raise ValueError("is no URL; write https://HOST/PATH, without a password in it")
    return text.strip()


def _image_path(text: str) -> str:
    if not text.strip() or "\0" in text:
        raise ValueError("is no path; write the path of an image file")
    if "://" in text:
        raise ValueError("is a URL; write it under 'url'")
    return text.strip()


def _pci(text: str) -> str:
    if not _PCI.fullmatch(text.lower()):
        raise ValueError(
            "is no PCI id; write it as lspci -D shows it, such as 0000:01:00.0 (0000:01:00 for all"
            " functions), or quote it: YAML reads 01:00 as a number"
        )
    return text.lower() if text.count(":") == 2 else f"0000:{text.lower()}"


def _user(text: str) -> str:
    if not _USER.fullmatch(text):
        raise ValueError(
            "is no login name; use up to 32 lower-case letters, digits, '-' and '_', a letter first"
        )
    return text


def _crypt(secret: SecretStr) -> SecretStr:
    if not _CRYPT.fullmatch(secret.get_secret_value()):
        raise ValueError(
            "is no crypt(3) hash; make one with 'openssl passwd -6' or 'mkpasswd', "
            "or use 'password' for the password itself"
        )
    return secret


def _slot(text: str) -> str:
    if not DISK_SLOT.fullmatch(text):
        raise ValueError("is no disk slot; use scsi0 to scsi30, virtio0 to 15, sata0 to 5, ide0..3")
    return text


def _drive(text: str) -> str:
    if not _DRIVE.fullmatch(text):
        raise ValueError("is no slot of a CD drive; use ide0 to ide3, sata0 to 5 or scsi0 to 30")
    return text


def _address(version: int, words: tuple[str, ...], example: str) -> Any:
    def check(text: Any) -> Any:
        if not isinstance(text, str):
            raise ValueError(f"is no address; write it such as {example}, or {words[0]}")  # noqa: TRY004 - for pydantic
        if text.lower() in words:
            return text.lower()
        if "/" not in text or "%" in text:
            raise ValueError(f"needs its prefix length, such as {example} (or {', '.join(words)})")
        try:
            found = ip_interface(text.strip())
        except ValueError:
            raise ValueError(f"is no address with a prefix length, such as {example}") from None
        if found.version != version:
            other = "address6" if version == 4 else "address"
            raise ValueError(f"is an IPv{found.version} address; write it under '{other}'")
        refuse_reserved(found)
        return str(found)

    return check


VmId = Annotated[int, Field(ge=LOWEST_ID, le=HIGHEST_ID)]
VmIds = Annotated[
    tuple[int, int], BeforeValidator(id_range), WithJsonSchema({"type": ["string", "array"]})
]
WebUrl = Annotated[str, AfterValidator(_web_url)]
ImageOrigin = Annotated[str, AfterValidator(_image_path)]
Digests = Annotated[str, AfterValidator(_digest_text)]
PciId = Annotated[str, AfterValidator(_pci)]
UserName = Annotated[str, AfterValidator(_user)]
PasswordHash = Annotated[SecretStr, AfterValidator(_crypt)]
DataSlot = Annotated[str, AfterValidator(_slot)]
DriveSlot = Annotated[str, AfterValidator(_drive)]
V4 = Annotated[
    str,
    BeforeValidator(_address(4, ("dhcp", "none"), "10.0.0.11/24")),
    WithJsonSchema({"type": "string", "pattern": r"^(dhcp|none)$|/|\$\{"}),
]
V6 = Annotated[
    str,
    BeforeValidator(_address(6, ("auto", "dhcp", "none"), "2001:db8::11/64")),
    WithJsonSchema({"type": "string", "pattern": r"^(auto|dhcp|none)$|/|\$\{"}),
]
