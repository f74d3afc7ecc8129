"""Reading installers' answer files: host name, addresses of each card, how the install ends.

The lab understands what decides whether a guest can be reached: kickstart ``network`` lines,
netplan, preseed, AutoYaST, Agama, and the files that late scripts write (:mod:`.netscripts`).
"""

from __future__ import annotations

import ipaddress
import json
import re
import shlex
import xml.etree.ElementTree as ET
from dataclasses import asdict, dataclass, field
from typing import Any

from deployments.lab.netscripts import cards_in_script

SEED_FILES: dict[str, str] = {
    "ks.cfg": "redhat",
    "user-data": "ubuntu",
    "preseed.cfg": "debian",
    "autoinst.xml": "suse",
    "autoinst.json": "agama",
}
_FAMILIES = (
    ("redhat", r"rhel|rocky|alma|oracle|centos|fedora|^ol\d"),
    ("ubuntu", r"ubuntu"),
    ("debian", r"debian"),
    ("agama", r"^sles-16|leap-16|agama"),
    ("suse", r"^sle|suse|^sles"),
)
_MAC = re.compile(r"(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}")


@dataclass
class SeedAnswers:
    """What an installer learns. ``interfaces``: mac or device, dhcp, addresses with prefix."""

    family: str
    hostname: str | None = None
    interfaces: list[dict[str, Any]] = field(default_factory=list)
    finish: str = "reboot"

    def to_dict(self) -> dict[str, Any]:
        """Plain data for the state file."""
        return asdict(self)

    def put(
        self, mac: str | None, device: str | None, addresses: list[str], dhcp: bool = False
    ) -> None:
        """Add a card, or replace what was said about it before."""
        entry = {"mac": mac, "device": device, "addresses": addresses, "dhcp": dhcp}
        self.interfaces = [
            old
            for old in self.interfaces
            if not (
                (mac and str(old["mac"]).lower() == mac.lower())
                or (device and not mac and old["device"] == device)
            )
        ]
        self.interfaces.append(entry)


def installer_family(iso_name: str) -> str | None:
    """The kind of installer on a medium, by its file name."""
    lowered = iso_name.lower()
    return next((family for family, pattern in _FAMILIES if re.search(pattern, lowered)), None)


def parse_seed(name: str, files: dict[str, str]) -> SeedAnswers:
    """Read one answer file; ``files`` has its neighbours, for cloud-init's network-config."""
    text = files[name]
    if name == "ks.cfg":
        return parse_kickstart(text)
    if name == "user-data":
        return parse_user_data(text, files.get("network-config"), files.get("meta-data"))
    if name == "preseed.cfg":
        scripts = [body for other, body in sorted(files.items()) if other.endswith(".sh")]
        return parse_preseed(text, "\n".join(scripts))
    if name == "autoinst.json":
        return parse_agama(text)
    return parse_autoyast(text)


def _with_prefix(address: str, mask: str | None) -> str | None:
    try:
        return str(ipaddress.ip_interface(f"{address}/{mask}" if mask else address))
    except ValueError:
        return None


# -- kickstart -----------------------------------------------------------------------------------


def parse_kickstart(text: str) -> SeedAnswers:
    """Kickstart; without ``reboot`` or ``poweroff`` the installer waits for a key at the end."""
    answers = SeedAnswers("redhat", finish="halt")
    commands, scripts = _split_kickstart(text)
    for line in commands:
        words = shlex.split(line, comments=True)
        if not words:
            continue
        if words[0] == "network":
            _kickstart_network(answers, _options(words[1:]))
        elif words[0] in ("reboot", "poweroff", "shutdown", "halt"):
            answers.finish = "poweroff" if words[0] in ("poweroff", "shutdown") else words[0]
    _read_scripts(answers, *scripts)
    return answers


def _split_kickstart(text: str) -> tuple[list[str], list[str]]:
    commands: list[str] = []
    scripts: list[str] = []
    section: list[str] | None = None
    for line in text.replace("\\\n", " ").splitlines():
        stripped = line.strip()
        if re.match(r"%(pre|post|packages|addon|onerror|traceback|anaconda|certificate)", stripped):
            section = []
            keep = stripped.startswith(("%post", "%pre"))
            if keep:
                scripts.append("")
            section_kept = keep
        elif stripped == "%end":
            section = None
        elif section is not None:
            if section_kept:
                scripts[-1] += line + "\n"
        elif stripped and not stripped.startswith("#"):
            commands.append(stripped)
    return commands, scripts


def _options(words: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    index = 0
    while index < len(words):
        key, equals, value = words[index].partition("=")
        if key.startswith("--"):
            follows = index + 1 < len(words) and not words[index + 1].startswith("--")
            if not equals and follows:
                index += 1
                value = words[index]
            found[key[2:]] = value
        index += 1
    return found


def _kickstart_network(answers: SeedAnswers, options: dict[str, str]) -> None:
    if options.get("hostname"):
        answers.hostname = options["hostname"]
    proto = options.get("bootproto", "dhcp" if not options.get("ip") else "static")
    if set(options) <= {"hostname"}:
        return
    device = options.get("device", "link")
    mac = device if _MAC.fullmatch(device) else None
    addresses = []
    if proto == "static" and options.get("ip"):
        address = _with_prefix(options["ip"], options.get("netmask"))
        addresses = [address] if address else []
    if options.get("ipv6", "auto") not in ("auto", "dhcp", "ignore", ""):
        addresses.append(options["ipv6"])
    answers.put(mac, None if mac else device, addresses, proto == "dhcp")


def _read_scripts(answers: SeedAnswers, *scripts: str) -> None:
    for script in scripts:
        for card in cards_in_script(script):
            fixed = [a for a in (_with_prefix(text, None) for text in card.addresses) if a]
            answers.put(card.mac, None if card.mac else card.device, fixed, card.dhcp)


# -- cloud-init ----------------------------------------------------------------------------------


def parse_user_data(text: str, network: str | None, meta: str | None) -> SeedAnswers:
    """Autoinstall or plain cloud-init user data, with network-config beside it."""
    answers = SeedAnswers("ubuntu")
    document = read_yaml(text)
    install = document.get("autoinstall", document)
    for source in (
        read_yaml(meta or "").get("local-hostname"),
        document.get("hostname"),
        (install.get("user-data") or {}).get("hostname"),
        (install.get("identity") or {}).get("hostname"),
    ):
        answers.hostname = str(source) if source else answers.hostname
    if install.get("shutdown") == "poweroff":
        answers.finish = "poweroff"
    for candidate in (read_yaml(network or ""), install.get("network") or {}):
        read_netplan(answers, candidate)
    return answers


def read_yaml(text: str) -> dict[str, Any]:
    """A YAML mapping; empty for anything else."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        loaded = YAML(typ="safe", pure=True).load(text)
    except YAMLError:
        return {}
    return loaded if isinstance(loaded, dict) else {}


def read_netplan(answers: SeedAnswers, document: dict[str, Any]) -> None:
    """Netplan version 2, or cloud-init's version 1 ``config`` list."""
    document = document.get("network", document)
    for name, card in (document.get("ethernets") or {}).items():
        match = card.get("match") or {}
        addresses = [
            str(a if isinstance(a, str) else next(iter(a))) for a in card.get("addresses") or []
        ]
        mac = match.get("macaddress") or card.get("macaddress")
        device = None if mac else match.get("name") or name
        answers.put(mac, device, addresses, bool(card.get("dhcp4")))
    for card in document.get("config") or []:
        if not isinstance(card, dict) or card.get("type") != "physical":
            continue
        subnets = card.get("subnets") or []
        fixed = [_with_prefix(s["address"], s.get("netmask")) for s in subnets if s.get("address")]
        dhcp = any(str(s.get("type", "")).startswith("dhcp") for s in subnets)
        mac = card.get("mac_address")
        answers.put(mac, None if mac else card.get("name"), [a for a in fixed if a], dhcp)


# -- preseed, AutoYaST, Agama --------------------------------------------------------------------


def parse_preseed(text: str, setup: str = "") -> SeedAnswers:
    """Debian's preseed: one card from netcfg, others from files that late scripts write."""
    answers = SeedAnswers("debian")
    values: dict[str, str] = {}
    for line in text.replace("\\\n", " ").splitlines():
        parts = line.split(None, 3)
        if len(parts) >= 3 and not line.lstrip().startswith("#"):
            values[parts[1]] = parts[3] if len(parts) > 3 else ""
    answers.hostname = values.get("netcfg/hostname") or values.get("netcfg/get_hostname")
    device = values.get("netcfg/choose_interface", "auto")
    address = values.get("netcfg/get_ipaddress")
    if address:
        fixed = _with_prefix(address, values.get("netcfg/get_netmask"))
        mac = device if _MAC.fullmatch(device) else None
        answers.put(mac, None if mac else device, [fixed] if fixed else [])
    else:
        answers.put(None, device, [], dhcp=True)
    if values.get("debian-installer/exit/poweroff") == "true":
        answers.finish = "poweroff"
    _read_scripts(answers, values.get("preseed/late_command", ""), setup)
    return answers


def parse_autoyast(text: str) -> SeedAnswers:
    """AutoYaST: ``networking/interfaces``, matched to cards by udev rules where these exist."""
    answers = SeedAnswers("suse")
    try:
        root = ET.fromstring(text)  # noqa: S314 - the file comes from the operator's own seed
    except ET.ParseError:
        return answers
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
    answers.hostname = root.findtext(".//dns/hostname")
    macs = {
        rule.findtext("name"): rule.findtext("value")
        for rule in root.iter("rule")
        if rule.findtext("rule") == "ATTR{address}"
    }
    for card in root.iter("interface"):
        device = card.findtext("device") or card.findtext("name")
        address = card.findtext("ipaddr")
        mask = card.findtext("prefixlen") or card.findtext("netmask")
        fixed = _with_prefix(address, None if "/" in address else mask) if address else None
        dhcp = (card.findtext("bootproto") or "").startswith("dhcp")
        addresses = [fixed] if fixed else []
        for alias in card.iterfind("aliases/*"):
            other = alias.findtext("IPADDR") or ""
            more = _with_prefix(other, None if "/" in other else alias.findtext("PREFIXLEN"))
            addresses += [more] if more else []
        mac = macs.get(device) or (device if device and _MAC.fullmatch(device) else None)
        answers.put(mac, None if mac else device, addresses, dhcp)
    if root.findtext(".//mode/final_halt") == "true" or root.findtext(".//mode/halt") == "true":
        answers.finish = "poweroff"
    return answers


def parse_agama(text: str) -> SeedAnswers:
    """Agama: ``network.connections``, and the files that its scripts write."""
    answers = SeedAnswers("agama")
    profile = read_json(text)
    answers.hostname = (profile.get("hostname") or {}).get("static")
    for card in (profile.get("network") or {}).get("connections") or []:
        mac = card.get("macAddress")
        fixed = [a for a in (_with_prefix(one, None) for one in card.get("addresses") or []) if a]
        dhcp = card.get("method4", "disabled" if fixed else "auto") == "auto"
        answers.put(mac, None if mac else card.get("interface"), fixed, dhcp)
    _read_scripts(answers, *agama_scripts(profile))
    return answers


def read_json(text: str) -> dict[str, Any]:
    """A JSON document that is a mapping; an empty one where the text is something else."""
    try:
        document = json.loads(text)
    except json.JSONDecodeError:
        return {}
    return document if isinstance(document, dict) else {}


def agama_scripts(profile: dict[str, Any]) -> list[str]:
    """What runs in the installed system: before the restart, then in the first boot."""
    scripts = profile.get("scripts") or {}
    found = [*(scripts.get("post") or []), *(scripts.get("init") or [])]
    return [str(one.get("content") or one.get("body") or "") for one in found]
