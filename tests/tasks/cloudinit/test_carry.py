"""How what cloud-init is told gets to a guest, with the lab."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from blocks.manifest.guest import CloudInit
from blocks.proxmox.errors import ProxmoxError
from blocks.proxmox.inventory import read_inventory
from blocks.proxmox.properties import UnsupportedCloudInit
from tasks.cloudinit.carry import carry
from tasks.cloudinit.changes import cloud_init_changes
from tasks.cloudinit.checks import check_cloud_init
from tasks.errors import StageError
from tasks.template.preflight import check_template
from tests.environments import KEY, OTHER_RUN, Place
from tests.templates import Golden

from .guests import HASH
from .machines import apply, config, make, path, seeds, told


@pytest.fixture
def golden(place: Place) -> Golden:
    return Golden(place)


def by(golden: Golden, method: str = "fields", **changes: object) -> CloudInit:
    usual = {"method": method, "storage": "local" if method == "seed" else "local-lvm"}
    return golden.cloud_init(golden.clone().name, **{**usual, **changes})


def test_the_options_and_one_drive_are_set_and_then_nothing_more(golden: Golden) -> None:
    one = golden.clone(cloud_init=by(golden, domain="corp.example"))
    with golden.opened(golden.recipe(one)) as here:
        guest = make(here, one.label)

        first = told(here, guest)
        golden.place.lab.forget_requests()
        second = carry(here, guest, config(here, guest))

        live = config(here, guest)
    assert first.changes
    assert not second.changes
    assert golden.place.lab.writes() == []
    assert live["ide2"].startswith(f"local-lvm:vm-{guest.vmid}-cloudinit")
    assert (live["ciuser"], live["searchdomain"]) == ("ops", "corp.example")
    assert live["ipconfig0"].startswith("gw=")


def test_the_servers_document_has_the_declared_user_key_and_name(golden: Golden) -> None:
    one = golden.clone(cloud_init=by(golden))
    with golden.opened(golden.recipe(one)) as here:
        guest = make(here, one.label)
        told(here, guest)

        document = here.client.get(path(guest) + "/cloudinit/dump", type="user")

    assert f"hostname: {one.name}" in document
    assert "user: ops" in document
    assert KEY in document


def test_what_a_clone_inherits_and_is_not_declared_is_taken_away(golden: Golden) -> None:
    inherited = {
        "ide2": "local-lvm:cloudinit",
        "ciuser": "admin",
        "cipassword": "from-the-template",
        "nameserver": "192.0.2.99",
        "ipconfig5": "ip=dhcp",
    }
    one = golden.clone(cloud_init=by(golden))
    with golden.opened(golden.recipe(one)) as here:
        guest = make(here, one.label, **inherited)
        carried = told(here, guest)

        live = config(here, guest)
    assert set(carried.delete) == {"cipassword", "ipconfig5", "nameserver"}
    assert not {"cipassword", "ipconfig5", "nameserver"} & live.keys()
    assert live["ciuser"] == "ops"


def test_there_is_never_a_second_cloud_init_drive(golden: Golden) -> None:
    one = golden.clone(cloud_init=by(golden, slot="ide0"))
    with golden.opened(golden.recipe(one)) as here:
        guest = make(here, one.label, ide2="local-lvm:cloudinit")
        carried = told(here, guest)

        assert "ide0" not in carried.values
        assert "cloudinit" in config(here, guest)["ide2"]


def test_a_password_is_set_once_and_again_only_when_it_is_another(golden: Golden) -> None:
    first = golden.clone(cloud_init=by(golden, password=SecretStr("one")))
    second = first.model_copy(update={"cloud_init": by(golden, password=SecretStr("two"))})
    with golden.opened(golden.recipe(first)) as here:
        guest = make(here, first.label)
        told(here, guest)

        again = carry(here, guest, config(here, guest))
        changed = carry(here, second, config(here, guest))

    assert "cipassword" not in again.values
    assert again.delete == ()
    assert list(changed.values) == ["cipassword"]


def test_no_secret_is_in_the_repr_of_what_is_carried(golden: Golden) -> None:
    one = golden.clone(cloud_init=by(golden, password_hash=SecretStr(HASH)))
    with golden.opened(golden.recipe(one)) as here:
        carried = carry(here, make(here, one.label))

    assert carried.values["cipassword"] == HASH
    assert HASH not in repr(carried)


def test_what_the_options_cannot_say_is_refused_and_found_beforehand(golden: Golden) -> None:
    one = golden.clone(cloud_init=by(golden, packages=("vim",)))
    with golden.opened(golden.recipe(one)) as here:
        guest = make(here, one.label)
        with pytest.raises(UnsupportedCloudInit, match=r"cloud_init\.packages"):
            carry(here, guest)

    (finding,) = check_cloud_init(one, env=golden.name)
    assert finding.severity == "error"
    assert "method to seed" in finding.remedy


def test_a_clone_that_cannot_have_its_host_name_says_so(golden: Golden) -> None:
    one = golden.clone(cloud_init=golden.cloud_init("another"))
    with golden.opened(golden.recipe(one)) as here:
        (warning,) = carry(here, make(here, one.label)).warnings

    assert "another" in warning


def test_a_seed_is_uploaded_once_and_put_into_its_drive(golden: Golden) -> None:
    one = golden.clone(cloud_init=by(golden, "seed"))
    with golden.opened(golden.recipe(one)) as here:
        guest = make(here, one.label)
        first = told(here, guest)
        golden.place.lab.forget_requests()
        second = carry(here, guest, config(here, guest))

        live = config(here, guest)
    (volid,) = seeds(golden)
    assert live["ide2"].startswith(volid)
    assert "media=cdrom" in live["ide2"]
    assert set(first.values) == {"ide2"}
    assert not second.changes
    assert golden.place.lab.writes() == []


def test_another_run_takes_the_seed_that_is_there(golden: Golden) -> None:
    one = golden.clone(cloud_init=by(golden, "seed"))
    recipe = golden.recipe(one)
    with golden.opened(recipe) as here:
        guest = make(here, one.label)
        told(here, guest)
    with golden.opened(recipe, OTHER_RUN) as here:
        carried = carry(here, guest, config(here, guest))

    assert not carried.changes
    assert len(seeds(golden)) == 1


def test_a_torn_seed_is_sent_again(golden: Golden) -> None:
    one = golden.clone(cloud_init=by(golden, "seed"))
    with golden.opened(golden.recipe(one)) as here:
        guest = make(here, one.label)
        told(here, guest)
        (volid,) = seeds(golden)
        file = _file(golden, volid)
        whole = file.read_bytes()
        file.write_bytes(whole[:1000])

        carry(here, guest, config(here, guest))

    assert file.read_bytes() == whole


def _file(golden: Golden, volid: str) -> Path:
    storage = golden.place.lab.state / "storage"
    (found,) = storage.rglob(volid.rpartition("/")[2])
    return found


def test_a_changed_seed_takes_the_old_ones_place_which_is_then_removed(golden: Golden) -> None:
    one = golden.clone(cloud_init=by(golden, "seed"))
    changed = one.model_copy(update={"cloud_init": by(golden, "seed", packages=("vim",))})
    with golden.opened(golden.recipe(one)) as here:
        guest = make(here, one.label)
        told(here, guest)
        (old,) = seeds(golden)
        told(here, changed)

        live = config(here, guest)
    (new,) = seeds(golden)
    assert new != old
    assert live["ide2"].startswith(new)


def test_an_old_seed_that_another_guest_holds_stays(golden: Golden) -> None:
    one, other = golden.clone(1, cloud_init=by(golden, "seed")), golden.clone(2, cloud_init=None)
    changed = one.model_copy(update={"cloud_init": by(golden, "seed", packages=("vim",))})
    with golden.opened(golden.recipe(one, other)) as here:
        guest = make(here, one.label)
        told(here, guest)
        (old,) = seeds(golden)
        make(here, other.label, ide2=f"{old},media=cdrom")
        told(here, changed)

    assert old in seeds(golden)
    assert len(seeds(golden)) == 2


def test_a_seed_takes_the_place_of_all_that_the_template_was_told(golden: Golden) -> None:
    one = golden.clone(cloud_init=by(golden, "seed", slot="ide0"))
    with golden.opened(golden.recipe(one)) as here:
        guest = make(here, one.label, ide2="local-lvm:cloudinit", ciuser="a", ipconfig0="ip=dhcp")
        told(here, guest)

        live = config(here, guest)
    assert not {"ide2", "ciuser", "ipconfig0"} & live.keys()
    assert ":iso/" in live["ide0"]


def test_the_servers_drive_takes_the_place_of_an_inherited_seed(golden: Golden) -> None:
    template = golden.template(cloud_init=by(golden, "seed"))
    one = golden.clone(cloud_init=by(golden, slot="ide0"))
    with golden.opened(golden.recipe(one, template=template)) as here:
        told(here, make(here, template.label))
        (volid,) = seeds(golden)
        guest = make(here, one.label, ide2=f"{volid},media=cdrom")
        told(here, guest)

        live = config(here, guest)
    assert "ide2" not in live
    assert "cloudinit" in live["ide0"]


@pytest.mark.parametrize("method", ["fields", "seed"])
def test_a_slot_that_somebody_uses_is_not_taken(golden: Golden, method: str) -> None:
    one = golden.clone(cloud_init=by(golden, method, slot="scsi0"))
    with golden.opened(golden.recipe(one)) as here:
        guest = make(here, one.label)
        with pytest.raises(StageError, match="scsi0") as refused:
            carry(here, guest)

    assert "cloud_init.slot" in str(refused.value.advice)
    assert seeds(golden) == []


def test_a_storage_that_takes_no_seed_is_told_with_what_to_do(golden: Golden) -> None:
    one = golden.clone(cloud_init=by(golden, "seed", storage="local-lvm"))
    with golden.opened(golden.recipe(one)) as here:
        guest = make(here, one.label)
        with pytest.raises(ProxmoxError) as refused:
            carry(here, guest)

    assert "content iso" in str(refused.value.advice)


def test_differences_are_told_without_a_call(golden: Golden) -> None:
    one = golden.clone(cloud_init=by(golden))
    with golden.opened(golden.recipe(one)) as here:
        guest = make(here, one.label)
        before = config(here, guest)
        apply(here, guest, carry(here, guest, before))
        after = config(here, guest)
        here.client.run("PUT", path(guest) + "/config", ciuser="other", cipassword="x")
        edited = config(here, guest)
    golden.place.lab.forget_requests()

    assert [key for key, _, _ in cloud_init_changes(one, before)] == [
        "ide2",
        "citype",
        "ciupgrade",
        "ciuser",
        "ipconfig0",
        "sshkeys",
    ]
    assert cloud_init_changes(one, after) == []
    assert cloud_init_changes(one, edited) == [
        ("cipassword", "(set)", None),
        ("ciuser", "other", "ops"),
    ]
    assert golden.place.lab.requests() == []


def test_a_seed_differs_by_the_hash_in_its_name(golden: Golden) -> None:
    one = golden.clone(cloud_init=by(golden, "seed"))
    changed = one.model_copy(update={"cloud_init": by(golden, "seed", packages=("vim",))})
    with golden.opened(golden.recipe(one)) as here:
        guest = make(here, one.label)
        told(here, guest)
        live = config(here, guest)

    assert cloud_init_changes(one, live) == []
    ((slot, found, wanted),) = cloud_init_changes(changed, live)
    assert slot == "ide2"
    assert found in seeds(golden)
    assert "a seed ISO with the hash" in str(wanted)


def test_a_guest_without_cloud_init_is_left_alone(golden: Golden) -> None:
    one = golden.clone(cloud_init=None)
    with golden.opened(golden.recipe(one)) as here:
        guest = make(here, one.label)
        golden.place.lab.forget_requests()

        assert not carry(here, guest).changes
    assert golden.place.lab.requests() == []
    assert cloud_init_changes(one, {"ciuser": "x"}) == []


def test_somebody_who_could_never_log_in_is_warned(golden: Golden) -> None:
    one = golden.clone(cloud_init=by(golden, ssh_keys=()))

    (finding,) = check_cloud_init(one, env=golden.name)

    assert finding.severity == "warning"
    assert "log in" in finding.problem


def test_a_document_that_is_wrong_is_found_beforehand(golden: Golden) -> None:
    one = golden.clone(cloud_init=by(golden, "seed", user_data="packages: []\n"))

    (finding,) = check_cloud_init(one, env=golden.name)

    assert finding.severity == "error"
    assert "user_data" in finding.problem


def test_the_preflight_finds_what_the_options_cannot_say(golden: Golden) -> None:
    template = golden.template(cloud_init=by(golden, packages=("vim",)))
    one = golden.clone(cloud_init=by(golden, search=("a.example", "b.example")))
    with golden.opened(golden.recipe(one, template=template)) as here:
        found = check_template(
            here.client,
            here.connection,
            here.environment,
            read_inventory(here.client),
            stages=frozenset({"image", "create", "configure", "template", "clones"}),
        )

    said = [(one.guest, one.problem) for one in found if "cannot say" in one.problem]
    assert [guest for guest, _ in said] == ["template", one.label]
    assert "packages" in said[0][1]
    assert "search domains" in said[1][1]
