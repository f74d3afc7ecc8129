"""Preflight of templates: everything that would go wrong, at once, before anything is changed."""

from __future__ import annotations

from ipaddress import ip_address, ip_interface
from typing import Any

import pytest

from blocks.manifest.environment import Environment
from blocks.manifest.guest import CloneSource, Disk, Guest, ImageSource, Inet
from blocks.manifest.mark import Mark, marked
from blocks.manifest.recipe import TEMPLATE, Alias, Rebuild, Recipe
from blocks.proxmox.client import Client
from blocks.proxmox.connection import lab_connection
from blocks.proxmox.inventory import read_inventory
from blocks.units import GIB, TIB
from deployments.lab.testing import RunningLab
from tasks.findings import Finding
from tasks.template.preflight import check_template
from tests.environments import OTHER_RUN
from tests.labfixture import LabFactory
from tests.tasks.template.machines import ALL, from_image
from tests.templates import Golden

SEED = """
default_isos: false
storages:
  - {name: local, content: [images, import, iso, snippets], path: /var/lib/vz}
  - {name: local-lvm, type: lvmthin}
  - {name: shared, shared: true, content: [images, iso]}
  - {name: narrow, type: lvmthin, size_gib: 2}
  - {name: isos, content: [iso]}
  - {name: third, nodes: [pve3]}
files:
  - {storage: local, name: tiny.iso, size: 65536, nodes: [pve1]}
pools: [web]
"""


@pytest.fixture(scope="module")
def lab(lab_factory: LabFactory) -> RunningLab:
    """A cluster with storages of every kind that templates meet."""
    return lab_factory(seed=SEED)


def findings(
    golden: Golden,
    recipe: Recipe,
    stages: frozenset[str] = ALL,
    *,
    reconcile: bool = False,
    environment: Environment | None = None,
) -> list[Finding]:
    """What the preflight finds; reading must not have changed anything."""
    lab = golden.place.lab
    before = lab.snapshot()
    lab.forget_requests()
    connection = lab_connection(lab.state)
    with Client(connection) as client:
        found = check_template(
            client,
            connection,
            environment or golden.environment(recipe),
            read_inventory(client),
            stages=stages,
            reconcile=reconcile,
        )
    assert lab.writes() == []
    assert lab.snapshot() == before
    return list(found)


def texts(golden: Golden, recipe: Recipe, stages: frozenset[str] = ALL, **more: Any) -> list[str]:
    """The findings as an operator reads them."""
    return [str(finding) for finding in findings(golden, recipe, stages, **more)]


def recipe(golden: Golden, *clones: Guest, template: Guest | None = None, **more: Any) -> Recipe:
    """A recipe whose image is there."""
    return golden.recipe(*clones, template=template or from_image(golden), **more)


def ours(golden: Golden, guest: Guest, *, ready: bool = True, env: str = "", **config: Any) -> None:
    """A guest of the recipe, or of another environment, that an earlier run made."""
    mark = Mark(
        env=env or golden.name, guest=guest.label, vmid=guest.vmid, run=OTHER_RUN, ready=ready
    )
    template = config.pop("template", False)
    with golden.place.client() as client:
        path = f"/nodes/{guest.node}/qemu"
        values = {"name": guest.name, "description": marked(mark, ""), **config}
        client.run("POST", path, vmid=guest.vmid, **values)
        if template:
            client.run("POST", f"{path}/{guest.vmid}/template")


def stranger(golden: Golden, vmid: int, node: str = "pve1", **config: Any) -> None:
    """Somebody else's guest."""
    with golden.place.client() as client:
        client.run("POST", f"/nodes/{node}/qemu", vmid=vmid, **config)


def with_cards(golden: Golden, index: int, inet: Inet, **changes: Any) -> Guest:
    """A clone whose card is configured that way."""
    clone = golden.clone(index)
    return golden.clone(index, nics=(golden.card(clone.vmid, inet),), **changes)


def test_a_recipe_that_fits_has_no_findings(golden: Golden) -> None:
    assert texts(golden, recipe(golden, golden.clone(1), golden.clone(2))) == []


def test_everything_is_found_at_once(golden: Golden) -> None:
    stranger(golden, golden.vmid, name="other")
    template = golden.template(
        source=ImageSource(name="tiny", origin="/nowhere/tiny.qcow2", storage="shared"),
        disks=(Disk(slot="scsi0", storage="isos", size=GIB),),
        nics=(golden.card(golden.vmid).model_copy(update={"bridge": "vmbr9"}),),
        cpu="Pentium9",
    )

    found = texts(golden, recipe(golden, golden.clone(1, node="pve7"), template=template))

    for part in (
        f"vm_id {golden.vmid} is taken by VM other on pve1, which Proxflow did not make",
        "does not take disk images",
        "does not take content 'images', needed for disks",
        "node pve1 has no bridge vmbr9",
        "does not know processor Pentium9",
        "the cluster has no node pve7",
        "/nowhere/tiny.qcow2",
    ):
        assert any(part in text for text in found), part


def test_only_what_the_stages_asked_for_need_is_looked_at(golden: Golden) -> None:
    template = from_image(golden, disks=(Disk(slot="scsi0", storage="isos", size=GIB),))
    clone = golden.clone(1, node="pve7")
    wanted = recipe(golden, clone, template=template)

    assert texts(golden, wanted, frozenset({"image", "create"})) == []


@pytest.mark.parametrize("index", [0, 1])
def test_a_number_of_somebody_elses(golden: Golden, index: int) -> None:
    stranger(golden, golden.vmid + index, node="pve2", name="theirs")

    (text,) = texts(golden, recipe(golden, golden.clone(1)))

    assert text.endswith(
        f"vm_id {golden.vmid + index} is taken by VM theirs on pve2, which Proxflow did not make; "
        f"choose another; the next free one is {golden.vmid + 2}"
    )


def test_a_clone_whose_notes_were_overwritten_is_told_as_such_and_nothing_else(
    golden: Golden,
) -> None:
    clone = golden.clone(1)
    address = f"ip={clone.ssh_addresses[0]}/24"
    card = f"virtio={clone.nics[0].mac},bridge=vmbr0"
    config = {"name": clone.name, "net0": card, "ipconfig0": address}
    stranger(golden, clone.vmid, description="my notes", **config)

    (text,) = texts(golden, recipe(golden, clone))

    assert f"the notes of VM {clone.vmid} do not hold the mark of Proxflow any more" in text
    assert f"<!-- proxflow env={golden.name} guest={clone.label} vmid={clone.vmid} " in text


def test_a_number_of_another_environment(golden: Golden) -> None:
    ours(golden, golden.clone(1), env="elsewhere")

    (text,) = texts(golden, recipe(golden, golden.clone(1)))

    assert "which belongs to elsewhere" in text


def test_a_copy_of_our_template_is_not_ours(golden: Golden) -> None:
    mark = Mark(env=golden.name, guest=TEMPLATE, vmid=1, run=OTHER_RUN, ready=True)
    stranger(golden, golden.vmid, name="copy", description=marked(mark, ""))

    (text,) = texts(golden, recipe(golden))

    assert "which is a copy of VM 1" in text


def test_two_clones_of_one_number_and_one_name(golden: Golden) -> None:
    first = golden.clone(1)
    second = golden.clone(2, vmid=first.vmid, name=first.name)

    found = texts(golden, recipe(golden, first, second))

    assert any(
        f"{first.vmid} is given to {first.label} and to {second.label}" in text for text in found
    )
    assert any(
        f"{first.name} is given to {first.label} and to {second.label}" in text for text in found
    )


def test_a_name_that_is_taken(golden: Golden) -> None:
    clone = golden.clone(1)
    stranger(golden, golden.vmid + 9, name=clone.name)

    (text,) = texts(golden, recipe(golden, clone))

    assert f"the name {clone.name} is taken by VM {golden.vmid + 9} on pve1" in text


def test_guests_of_ours_are_no_conflict(golden: Golden) -> None:
    template = from_image(golden)
    clone = golden.clone(1)
    ours(golden, template, template=True)
    ours(golden, clone, net0="virtio,bridge=vmbr0", ipconfig0=f"ip={clone.ssh_addresses[0]}/24")

    assert texts(golden, recipe(golden, clone, golden.clone(2), template=template)) == []


def test_a_clone_of_ours_that_was_moved_to_another_node(golden: Golden) -> None:
    clone = golden.clone(1)
    ours(golden, clone.model_copy(update={"node": "pve2"}))

    (text,) = texts(golden, recipe(golden, clone))

    assert f"{clone.name} ({clone.vmid}) lives on pve2, and the manifest says pve1" in text


def test_what_is_finished_is_not_looked_at_again(golden: Golden) -> None:
    template = from_image(golden, disks=(Disk(slot="scsi0", storage="isos", size=GIB),))
    ours(golden, template, template=True)

    assert texts(golden, recipe(golden, template=template)) == []


def test_stages_that_need_what_nobody_makes(golden: Golden) -> None:
    wanted = recipe(golden, golden.clone(1))

    (configure,) = texts(golden, wanted, frozenset({"configure", "template"}))
    (clones,) = texts(golden, wanted, frozenset({"clones"}))

    assert "does not exist, and stage `create` is left out" in configure
    assert "clones are asked for, and VM" in clones
    assert "is no template yet" in clones


def test_a_number_on_a_node_that_is_offline_may_be_the_clones_own(golden: Golden) -> None:
    clone = golden.clone(1, node="pve3")
    ours(golden, clone)
    golden.place.lab.node_offline("pve3")

    try:
        said = texts(golden, recipe(golden, clone))
    finally:
        golden.place.lab.node_offline("pve3", on=False)

    (taken,) = [text for text in said if "is taken by" in text]
    assert f"it may be {clone.label} itself: look when node pve3 can be read" in taken
    assert "choose another" not in taken


def test_a_clone_on_a_node_that_is_offline(golden: Golden) -> None:
    template = from_image(
        golden,
        disks=(Disk(slot="scsi0", storage="shared", size=GIB),),
        cloud_init=golden.cloud_init(golden.name, storage="shared"),
    )
    golden.place.lab.node_offline("pve3")
    clone = golden.clone(1, node="pve3", cloud_init=template.cloud_init)
    try:
        found = texts(golden, recipe(golden, clone, template=template))
    finally:
        golden.place.lab.node_offline("pve3", on=False)

    assert found == [
        f"{clone.label}: node pve3 is offline; bring it back, or give the guest another node"
    ]


def test_a_bridge_that_a_clones_node_does_not_have(golden: Golden) -> None:
    clone = golden.clone(1)
    card = clone.nics[0].model_copy(update={"bridge": "vmbr7"})

    (text,) = texts(golden, recipe(golden, golden.clone(1, nics=(card,))))

    assert text.startswith(f"{clone.label}: node pve1 has no bridge vmbr7")


def test_an_address_that_another_guest_has(golden: Golden) -> None:
    address = golden.place.address(1)
    stranger(golden, golden.vmid + 9, name="there", ipconfig0=f"ip={address}/24")

    (text,) = texts(golden, recipe(golden, golden.clone(1)))

    assert f"address {address} is configured for VM {golden.vmid + 9} (there) on pve1" in text


def test_an_address_that_is_given_twice(golden: Golden) -> None:
    first = golden.clone(1)
    second = with_cards(golden, 2, first.nics[0].inet)

    (text,) = texts(golden, recipe(golden, first, second))

    assert f"is given to {first.label} and to {second.label}" in text


@pytest.mark.parametrize(
    ("inet", "expected"),
    [
        (
            Inet(
                method="static",
                addresses=(ip_interface("10.9.9.5/24"),),
                gateway=ip_address("10.9.8.1"),
            ),
            "gateway 10.9.8.1 of net0 is in none of its networks (10.9.9.0/24)",
        ),
        (
            Inet(method="static", addresses=(ip_interface("10.9.9.0/24"),)),
            "10.9.9.0 of net0 is the network's own address of 10.9.9.0/24",
        ),
        (
            Inet(method="static", addresses=(ip_interface("10.9.9.255/24"),)),
            "10.9.9.255 of net0 is the broadcast address of 10.9.9.0/24",
        ),
        (
            Inet(
                method="static",
                addresses=(ip_interface("10.9.9.5/24"),),
                gateway=ip_address("10.9.9.5"),
            ),
            "10.9.9.5 of net0 is its own gateway",
        ),
        (
            Inet(
                method="static",
                addresses=(ip_interface("2001:db8::5/64"),),
                gateway6=ip_address("2001:db8:1::1"),
            ),
            "gateway 2001:db8:1::1 of net0 is in none of its networks (2001:db8::/64)",
        ),
        (
            Inet(method="dhcp", dns=(ip_address("224.0.0.1"),)),
            "name server 224.0.0.1 is no address of a machine",
        ),
    ],
)
def test_a_network_that_cannot_work(golden: Golden, inet: Inet, expected: str) -> None:
    found = texts(golden, recipe(golden, with_cards(golden, 1, inet)))

    assert any(expected in text for text in found)


@pytest.mark.parametrize(
    "inet",
    [
        Inet(method="static", addresses=(ip_interface("10.9.9.0/31"),)),
        Inet(
            method="static",
            addresses=(ip_interface("2001:db8::5/64"),),
            gateway6=ip_address("fe80::1"),
        ),
        Inet(method="dhcp", gateway6=ip_address("2001:db8::1")),
    ],
)
def test_networks_that_look_strange_and_work(golden: Golden, inet: Inet) -> None:
    assert texts(golden, recipe(golden, with_cards(golden, 1, inet))) == []


def test_storages_of_every_purpose_are_looked_at(golden: Golden) -> None:
    told = golden.cloud_init("x", method="snippets", storage="isos", snippet_storage="shared")
    seeded = golden.clone(1, cloud_init=golden.cloud_init("y", method="seed", storage="local-lvm"))
    template = from_image(golden, cloud_init=told)

    found = texts(golden, recipe(golden, seeded, template=template))

    assert any("isos on pve1" in text and "the cloud-init drive" in text for text in found)
    assert any("shared on pve1" in text and "the cloud-init snippets" in text for text in found)
    assert any("local-lvm on pve1" in text and "the seed ISO" in text for text in found)


def test_a_full_storage_has_no_room_for_a_seed(golden: Golden) -> None:
    golden.place.lab.storage_full("isos")
    told = golden.cloud_init("y", method="seed", storage="isos")
    try:
        (text,) = texts(golden, recipe(golden, template=from_image(golden, cloud_init=told)))
    finally:
        golden.place.lab.storage_full("isos", on=False)

    assert "storage isos on pve1 is full" in text


def test_full_clones_take_room_and_linked_ones_do_not(golden: Golden) -> None:
    big = (Disk(slot="scsi0", storage="local-lvm", size=TIB // 4),)
    template = from_image(golden, disks=big)
    full = [golden.clone(number, disks=big) for number in (1, 2)]
    linked = [
        clone.model_copy(update={"source": CloneSource(template=TEMPLATE, full=False)})
        for clone in full
    ]

    (text,) = texts(golden, recipe(golden, *full, template=template))

    assert "the new disks on local-lvm of pve1 add up to 768 GiB" in text
    assert texts(golden, recipe(golden, *linked, template=template)) == []


def test_a_disk_that_is_larger_than_a_full_clones_own_storage(golden: Golden) -> None:
    source = CloneSource(template=TEMPLATE, storage="narrow")

    found = texts(golden, recipe(golden, golden.clone(1, source=source)))

    assert any("disk scsi0 of 4 GiB is larger than storage narrow (2 GiB)" in t for t in found)


def test_a_linked_clone_has_no_storage_of_its_own(golden: Golden) -> None:
    source = CloneSource(template=TEMPLATE, full=False, storage="local")

    (text,) = texts(golden, recipe(golden, golden.clone(1, source=source)))

    assert "a linked clone lies on its template's storage, not on local" in text
    assert "make it a full clone" in text


@pytest.mark.parametrize("full", [True, False])
def test_a_clone_leaves_its_node_only_from_shared_storage(golden: Golden, full: bool) -> None:
    source = CloneSource(template=TEMPLATE, full=full)

    (text,) = texts(golden, recipe(golden, golden.clone(1, node="pve2", source=source)))

    assert f"a {'full' if full else 'linked'} clone cannot go to pve2" in text
    assert "uses local storage (local-lvm); put the template on shared storage (shared)" in text


def test_a_clone_goes_elsewhere_from_shared_storage_but_not_to_a_local_one(
    golden: Golden,
) -> None:
    told = golden.cloud_init("x", storage="shared")
    disks = (Disk(slot="scsi0", storage="shared", size=GIB),)
    template = from_image(golden, disks=disks, cloud_init=told)
    there = golden.clone(1, node="pve2", disks=disks, cloud_init=told)
    local = golden.clone(2, node="pve2", source=CloneSource(template=TEMPLATE, storage="local-lvm"))

    (text,) = texts(golden, recipe(golden, there, local, template=template))

    assert text.startswith(f"{local.label}: a clone cannot go from pve1 to pve2 and to local")


@pytest.mark.parametrize("finished", [False, True])
def test_the_seed_of_a_template_on_local_storage_is_told_apart_from_its_disks(
    golden: Golden, finished: bool
) -> None:
    disks = (Disk(slot="scsi0", storage="shared", size=GIB),)
    told = golden.cloud_init("x", method="seed", storage="local")
    template = from_image(golden, disks=disks, cloud_init=told)
    if finished:
        seed = "local:iso/tiny.iso,media=cdrom"
        ours(golden, template, template=True, scsi0="shared:1", ide2=seed)

    (text,) = texts(golden, recipe(golden, golden.clone(1, node="pve2"), template=template))

    assert "the template on pve1 has what cloud-init is told on local storage (local)" in text
    assert "write shared under cloud_init.storage, or 'method: fields'" in text
    assert ("and build the template anew" in text) is finished


def test_a_finished_template_counts_as_it_is_and_not_as_it_is_declared_by_now(
    golden: Golden,
) -> None:
    disks = (Disk(slot="scsi0", storage="shared", size=GIB),)
    told = golden.cloud_init("x", method="seed", storage="local")
    template = from_image(golden, disks=disks, cloud_init=told)
    ours(golden, template, template=True, scsi0="shared:1", ide2="shared:cloudinit")
    there = golden.clone(1, node="pve2", disks=disks, cloud_init=told)

    assert texts(golden, recipe(golden, there, template=template)) == []


def test_a_pool_that_is_not_there(golden: Golden) -> None:
    template = from_image(golden, pool="wbe")
    alias = Alias(pool="web")

    (text,) = texts(golden, recipe(golden, template=template, alias=alias))

    assert "there is no pool wbe that this user may see" in text
    assert "did you mean web?" in text


def test_a_rebuild_finds_no_number(golden: Golden) -> None:
    rebuild = Rebuild(when="weekly", vmids=(golden.vmid + 4, golden.vmid + 5))
    for number in rebuild.vmids:
        stranger(golden, number, name=f"n{number}")

    (text,) = texts(golden, recipe(golden, rebuild=rebuild))

    assert f"all numbers for generations, {rebuild.vmids[0]} to {rebuild.vmids[1]}" in text


def test_running_linked_clones_of_a_template_that_is_rebuilt(golden: Golden) -> None:
    old = from_image(golden)
    clone = golden.clone(1, source=CloneSource(template=TEMPLATE, full=False))
    ours(golden, old, template=True)
    ours(golden, clone)
    with golden.place.client() as client:
        client.run("POST", f"/nodes/pve1/qemu/{clone.vmid}/status/start")
    rebuild = Rebuild(when="weekly", vmids=(golden.vmid, golden.vmid + 9))
    fresh = old.model_copy(update={"vmid": golden.vmid + 3, "name": f"{golden.name}-20261130"})
    wanted = recipe(golden, clone, template=old, rebuild=rebuild)
    environment = golden.environment(wanted).model_copy(update={"guests": (fresh, clone)})

    (found,) = findings(golden, wanted, environment=environment)

    assert found.severity == "warning"
    assert f"linked clones of the template are running: {clone.name}" in found.problem


def test_clones_that_are_to_be_set_right_are_looked_at(golden: Golden) -> None:
    template = from_image(golden)
    clone = golden.clone(1)
    card = clone.nics[0].model_copy(update={"bridge": "vmbr7"})
    wrong = golden.clone(1, nics=(card,))
    ours(golden, template, template=True)
    ours(golden, clone)

    assert texts(golden, recipe(golden, wrong, template=template)) == []
    (text,) = texts(golden, recipe(golden, wrong, template=template), reconcile=True)
    assert "no bridge vmbr7" in text


def test_more_clones_are_no_more_calls(golden: Golden) -> None:
    few = recipe(golden, golden.clone(1))
    many = recipe(golden, *(golden.clone(number) for number in range(1, 7)))

    calls = []
    for wanted in (few, many):
        assert texts(golden, wanted) == []
        calls.append(sorted(row["path"] for row in golden.place.lab.requests()))

    assert calls[0] == calls[1]
