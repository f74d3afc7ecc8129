"""PCI devices of the node that a starting machine takes. Documented, not recorded."""

from __future__ import annotations

from typing import Any

from deployments.lab.cluster import Lab
from deployments.lab.errors import failure
from deployments.lab.mappings import devices_of
from deployments.lab.qemu.options import HOSTPCI_FORMAT
from deployments.lab.schema import parse_property_string


class PciUse:
    """Which running machine has which device; forgotten with the lab's process."""

    def __init__(self) -> None:
        self._users: dict[tuple[str, str], int] = {}

    def user(self, lab: Lab, node: str, address: str) -> int | None:
        """The running machine that has a device."""
        vmid = self._users.get((node, address))
        return vmid if vmid is not None and lab.life.running(vmid) else None

    def take(self, node: str, vmid: int, addresses: list[str]) -> None:
        """Note what a machine has taken."""
        self._users |= {(node, address): vmid for address in addresses}


def hostpci(values: dict[str, str]) -> list[tuple[str, dict[str, Any]]]:
    """Option and parsed value of every passed through device, in order."""
    return [
        (key, parse_property_string(values[key], HOSTPCI_FORMAT))
        for key in (f"hostpci{number}" for number in range(16))
        if key in values
    ]


def choose_devices(lab: Lab, node: str, vmid: int, values: dict[str, str]) -> list[str]:
    """The addresses that the machine takes, refused in the words of a start where it cannot.

    Mediated devices are shared and take none.
    """
    chosen: list[str] = []
    for key, device in hostpci(values):
        alternatives = _alternatives(lab, node, device)
        if device.get("pcie") and "q35" not in values.get("machine", ""):
            raise failure("q35 machine model is not enabled")
        if not device.get("mdev"):
            chosen += _free(lab, node, vmid, key, alternatives, chosen)
    return chosen


def _alternatives(lab: Lab, node: str, device: dict[str, Any]) -> list[tuple[str, ...]]:
    devices = lab.nodes[node].devices
    if "mapping" in device:
        return devices_of(str(device["mapping"]), lab.mappings, node, devices)
    addresses = tuple(str(device.get("host", "")).split(";"))
    for address in addresses:
        if address not in devices and f"{address}.0" not in devices:
            raise failure(f"no PCI device found for '{address}'")
    return [addresses]


def _free(
    lab: Lab,
    node: str,
    vmid: int,
    key: str,
    alternatives: list[tuple[str, ...]],
    chosen: list[str],
) -> tuple[str, ...]:
    use = lab.part(PciUse)
    for addresses in alternatives:
        others = [use.user(lab, node, address) for address in addresses]
        taken = [a for a, user in zip(addresses, others, strict=True) if user not in (None, vmid)]
        twice = [address for address in addresses if address in chosen]
        if not taken and not twice:
            return addresses
        if len(alternatives) == 1:
            if twice:
                raise failure(f"device '{twice[0]}' assigned more than once")
            user = use.user(lab, node, taken[0])
            raise failure(f"PCI device '{taken[0]}' already in use by VMID '{user}'")
    raise failure(f"could not find a free device for '{key}'")
