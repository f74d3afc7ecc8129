"""Cloud-init as the options of Proxmox VE: ``ciuser``, ``ipconfig0``, ``cicustom`` and the like.

They are for a call on a guest that exists: a ``cipassword`` that is given at create is stored as
typed (06-cloud-image-template, step 6).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from ipaddress import IPv4Interface, IPv6Interface
from typing import Any, Final

from blocks.manifest.guest import CloudInit, Guest, Host, Inet, Nic
from blocks.proxmox.errors import ProxmoxError
from blocks.proxmox.properties.strings import PropertyError, format, parse
from blocks.proxmox.properties.values import decode_sshkeys, encode_sshkeys
from blocks.sha512crypt import salt_for, sha512_crypt

Config = Mapping[str, Any]

HIDDEN: Final = "cipassword"
"""The one option that the server never shows; only whether it is set can be told."""

_OPTION = re.compile(
    r"ciuser|cipassword|sshkeys|nameserver|searchdomain|ciupgrade|citype|cicustom|ipconfig\d+"
)
_DEFAULTS = {"ciupgrade": "1"}
# What the server takes for a hash; anything else it hashes, also a hash of another kind.
_SERVERS_HASH = re.compile(r"\$(?:[156]|2[ay])(?:\$.+){2}")


class UnsupportedCloudInit(ProxmoxError):
    """The options of Proxmox VE cannot say what the guest is to be told."""


def encode_cloud_init(guest: Guest) -> dict[str, str | int]:
    """The options for a guest that is told by them; ``citype`` alone for one with snippets.

    Nothing for a guest without cloud-init or with a seed ISO. The drive is not among them, since
    there may be one already. Raises UnsupportedCloudInit, which names all that does not fit.
    """
    told = guest.cloud_init
    if told is None or told.method == "seed":
        return {}
    if told.method == "snippets":
        return {"citype": _type(guest)}
    if beyond := beyond_fields(guest):
        raise UnsupportedCloudInit(
            "the cloud-init options of Proxmox VE cannot say: " + "; ".join(beyond),
            advice="leave that out, or set cloud_init.method to seed (or snippets)",
        )
    wanted: dict[str, str | int | None] = {
        "citype": _type(guest),
        "ciupgrade": int(told.upgrade),
        "ciuser": told.user,
        "cipassword": password_hash(guest),
        "sshkeys": encode_sshkeys(told.ssh_keys) or None,
        "nameserver": " ".join(map(str, name_servers(guest))) or None,
        "searchdomain": " ".join(search_domains(guest)) or None,
    }
    wanted |= {f"ipconfig{number(nic)}": _ipconfig(nic.inet) for nic in guest.nics}
    return {key: value for key, value in wanted.items() if value is not None}


def beyond_fields(guest: Guest) -> tuple[str, ...]:
    """What the options of Proxmox VE cannot say of this guest's cloud-init, a text each."""
    told = guest.cloud_init
    if told is None:
        return ()
    return (*_beyond(guest, told), *(text for nic in guest.nics for text in _beyond_nic(nic)))


def decode_cloud_init(config: Config) -> dict[str, str]:
    """The cloud-init options of a config, each in one spelling so that they can be compared.

    Those at the server's default are left out; the password is ``HIDDEN``'s stars, if it is set.
    """
    found = {key: _spelled(key, str(config[key])) for key in config if _OPTION.fullmatch(key)}
    return {key: value for key, value in found.items() if value != _DEFAULTS.get(key, "")}


def cloud_init_drives(config: Config) -> dict[str, str]:
    """Slot to volume id of the drives that the server fills with cloud-init's documents."""
    drives = ((slot, str(line).partition(",")[0]) for slot, line in config.items())
    return {
        slot: volume
        for slot, volume in drives
        if re.fullmatch(r"(?:ide|sata|scsi|virtio)\d+", slot)
        and re.fullmatch(r"[^:]+:(?:.*/)?(?:vm-\d+-)?cloudinit(?:\.\w+)?", volume)
    }


def encode_cicustom(volumes: Mapping[str, str]) -> str:
    """The ``cicustom`` option: ``user``, ``vendor``, ``network``, ``meta`` to volume ids."""
    return format("cicustom", dict(volumes))


def password_hash(guest: Guest) -> str | None:
    """The hash of the user's password: the declared one, or one made of the password.

    The same password gives the same hash each time, and another one for another guest.
    """
    told = guest.cloud_init
    if told is None:
        return None
    if told.password_hash is not None:
        return told.password_hash.get_secret_value()
    if told.password is None:
        return None
    salt = salt_for(guest.name, str(guest.vmid), told.user or "")
    return sha512_crypt(told.password.get_secret_value(), salt)


def name_servers(guest: Guest) -> tuple[Host, ...]:
    """Name servers of the guest and of its cards, each once, in order."""
    told = guest.cloud_init.dns if guest.cloud_init else ()
    return tuple(dict.fromkeys((*told, *(one for nic in guest.nics for one in nic.inet.dns))))


def search_domains(guest: Guest) -> tuple[str, ...]:
    """Search domains of the guest and of its cards; its own domain comes first."""
    told = guest.cloud_init
    own = (told.domain,) if told and told.domain else ()
    listed = told.search if told else ()
    cards = (one for nic in guest.nics for one in nic.inet.search)
    return tuple(dict.fromkeys((*own, *listed, *cards)))


def number(nic: Nic) -> int:
    """The number in a card's slot."""
    return int(nic.slot.removeprefix("net"))


def gateways(inet: Inet) -> tuple[Host | None, Host | None]:
    """The IPv4 and the IPv6 gateway of a card."""
    first = inet.gateway
    fourth = first if first is not None and first.version == 4 else None
    sixth = first if first is not None and first.version == 6 else None
    return fourth, inet.gateway6 or sixth


def addresses(inet: Inet) -> tuple[tuple[IPv4Interface, ...], tuple[IPv6Interface, ...]]:
    """The fixed IPv4 and IPv6 addresses of a card; none of IPv4 where DHCP gives them."""
    fourth = [one for one in inet.addresses if isinstance(one, IPv4Interface)]
    sixth = [one for one in inet.addresses if isinstance(one, IPv6Interface)]
    return tuple(fourth if inet.method == "static" else ()), tuple(sixth)


def _type(guest: Guest) -> str:
    """Cloudbase-Init, for Windows, reads no other kind; the server's own choice is the same."""
    return "configdrive2" if re.match(r"w(?:in|xp|2k|vista)", guest.ostype) else "nocloud"


def _ipconfig(inet: Inet) -> str | None:
    """A card's option; none of an unconfigured card. An empty one would mean DHCP."""
    fourth, sixth = addresses(inet)
    gateway4, gateway6 = gateways(inet)
    value: dict[str, str] = {}
    if inet.method == "dhcp":
        value["ip"] = "dhcp"
    elif fourth:
        value["ip"] = str(fourth[0])
        if gateway4 is not None:
            value["gw"] = str(gateway4)
    if inet.ipv6 != "static":
        value["ip6"] = inet.ipv6
    elif sixth:
        value["ip6"] = str(sixth[0])
        if gateway6 is not None:
            value["gw6"] = str(gateway6)
    return format("ipconfig", dict(value)) or None


def _beyond(guest: Guest, told: CloudInit) -> Iterator[str]:
    documents = ("user_data", "vendor_data", "network_config")
    for name in (*documents, "packages", "commands", "timezone", "locale"):
        if getattr(told, name):
            yield f"cloud_init.{name}"
    if not told.sudo_nopasswd:
        yield "cloud_init.sudo_nopasswd: the image decides on sudo"
    given = told.password_hash
    if given is not None and not _SERVERS_HASH.match(given.get_secret_value()):
        yield (
            "cloud_init.password_hash of this kind: the server would hash it once more; "
            "make it with mkpasswd -m sha-512"
        )
    domains = search_domains(guest)
    if len(domains) > 1 and "." not in guest.name:
        yield (
            f"the search domains {', '.join(domains)} beside the name {guest.name}: the server "
            "would append all of them to the host name"
        )


def _beyond_nic(nic: Nic) -> Iterator[str]:
    fourth, sixth = addresses(nic.inet)
    if len(fourth) > 1 or len(sixth) > 1:
        yield f"{nic.slot} with several addresses of one family"
    if nic.inet.ipv6 != "static" and sixth:
        yield f"{nic.slot} with both a fixed and an automatic IPv6 address"
    if nic.name is not None and nic.name != f"eth{number(nic)}":
        yield f"{nic.slot} named {nic.name}: the server names it eth{number(nic)}"


def _spelled(key: str, text: str) -> str:
    """A value in its one spelling; one that is none stays as the text that it is."""
    if key == "sshkeys":
        return encode_sshkeys(decode_sshkeys(text))
    if key in {"nameserver", "searchdomain"}:
        return " ".join(re.split(r"[\s,;]+", text.strip()))
    if key == "cicustom" or key.startswith("ipconfig"):
        kind = "cicustom" if key == "cicustom" else "ipconfig"
        with suppress(PropertyError):
            return format(kind, parse(kind, text))
    return text
