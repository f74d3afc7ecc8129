"""Sizes as operators and Proxmox VE write them, in bytes inside."""

import math
import re

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
TIB = 1024 * GIB

_FACTORS = {"": 1, "K": KIB, "M": MIB, "G": GIB, "T": TIB}
_SIZE = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[KMGT]?)(?:i?B)?", re.IGNORECASE)


def parse_size(text: str) -> int:
    """Bytes of ``64G``, ``3.5T``, ``528K`` or a bare number of bytes.

    Units are binary, as in Proxmox VE (``4G`` is 4 GiB). Raises ValueError with the accepted forms.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no size; write a number and a unit, such as 64G, 512M or 4T")
    size = float(found["number"]) * _FACTORS[found["unit"].upper()]
    if not math.isfinite(size) or size < 1:
        raise ValueError(f"{text!r} is no size; it must be larger than zero")
    return round(size)


def format_size(size: int) -> str:
    """The shortest exact form of a number of bytes: ``64G``, ``3584M``, ``528K``, ``1000``."""
    for unit in "TGMK":
        if size and size % _FACTORS[unit] == 0:
            return f"{size // _FACTORS[unit]}{unit}"
    return str(size)


def human_size(size: float) -> str:
    """A size for people, three digits at most: ``1.5 GiB``."""
    for unit, factor in (("TiB", TIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if size >= factor:
            return (
                f"{size / factor:.3g} {unit}"
                if size < 1000 * factor
                else f"{size / factor:.0f} {unit}"
            )
    return f"{size:.0f} B"


def gib(size: int) -> str:
    """A size as the create call wants it: GiB without a unit, fractions allowed.

    Recorded: ``4G`` is taken for a volume name and refused (05-iso-vm-life).
    """
    return f"{size / GIB:.9f}".rstrip("0").rstrip(".")
