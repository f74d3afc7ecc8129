"""How messages name a guest that was found on the cluster."""

from __future__ import annotations

from typing import Any

import pytest

from blocks.proxmox.inventory import GuestRow
from tasks.found import FoundGuest
from tasks.live import Live


@pytest.mark.parametrize(
    ("listed", "config", "said"),
    [
        ("web", {"name": "renamed"}, "VM 100 (web) on pve1"),
        ("", {"name": "web"}, "VM 100 (web) on pve1"),
        ("", {"hostname": "box"}, "VM 100 (box) on pve1"),
        ("", {}, "VM 100 (unnamed) on pve1"),
    ],
)
def test_a_guest_that_the_list_has_no_name_of_yet_is_named_by_its_configuration(
    listed: str, config: dict[str, Any], said: str
) -> None:
    row = GuestRow(
        kind="qemu",
        vmid=100,
        name=listed,
        node="pve1",
        status="unknown",
        template=False,
        tags=(),
        pool=None,
        lock=None,
        maxcpu=0,
        maxmem=0,
        maxdisk=0,
        uptime=0,
    )

    assert str(FoundGuest(row, Live(config))) == said
