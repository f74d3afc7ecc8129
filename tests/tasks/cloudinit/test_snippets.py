"""Snippets: written over SSH by the real client to a real server, listed by the lab."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from blocks.manifest.guest import CloudInit, SnippetHost
from blocks.proxmox.inventory import read_inventory
from blocks.proxmox.properties import parse
from tasks.cloudinit.carry import carry
from tasks.cloudinit.changes import cloud_init_changes
from tasks.cloudinit.checks import check_cloud_init
from tasks.cloudinit.documents import documents
from tasks.cloudinit.remote import write_files
from tasks.cloudinit.snippets import all_snippets, delete_snippet, snippet_of
from tasks.errors import StageError
from tests.environments import OTHER_RUN, RUN, Place
from tests.templates import Golden

from .guests import HASH
from .machines import apply, config, make, seeds, told
from .sshserver import SshServer, needs_sshd, ssh_server

pytestmark = needs_sshd


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    with ssh_server(tmp_path_factory.mktemp("sshd")) as running:
        yield running


@pytest.fixture
def golden(place: Place, server: SshServer, monkeypatch: pytest.MonkeyPatch) -> Golden:
    server.use(monkeypatch)
    _folder(place).mkdir(parents=True, exist_ok=True)
    return Golden(place)


def _folder(place: Place) -> Path:
    """The real folder of the snippets of storage ``local`` of pve1."""
    return place.lab.state / "storage" / "pve1" / "local" / "snippets"


def by_snippets(golden: Golden, host: SnippetHost, **changes: object) -> CloudInit:
    usual = {"method": "snippets", "snippet_storage": "local", "snippet_host": host}
    return golden.cloud_init(golden.clone().name, **{**usual, **changes})


def test_all_four_documents_arrive_whole_for_their_owner_alone(
    golden: Golden, server: SshServer
) -> None:
    cloud = by_snippets(golden, server.host(_folder(golden.place)), password_hash=SecretStr(HASH))
    one = golden.clone(cloud_init=cloud)
    with golden.opened(golden.recipe(one)) as here:
        guest = make(here, one.label)
        told(here, guest)

        live = config(here, guest)
    volumes = parse("cicustom", live["cicustom"])
    made = documents(one, env=golden.name)
    folder = _folder(golden.place)
    files = {part: folder / str(volid).rpartition("/")[2] for part, volid in volumes.items()}
    assert {part: file.read_text() for part, file in files.items()} == {
        "user": made.user_data,
        "vendor": made.vendor_data,
        "network": made.network_config,
        "meta": made.meta_data,
    }
    assert {stat.S_IMODE(file.stat().st_mode) for file in files.values()} == {0o600}
    assert "cloudinit" in live["ide2"]
    assert [file.name for file in folder.iterdir() if file.name.startswith(".")] == []


def test_the_guest_starts_with_them(golden: Golden, server: SshServer) -> None:
    one = golden.clone(cloud_init=by_snippets(golden, server.host(_folder(golden.place))))
    with golden.opened(golden.recipe(one)) as here:
        guest = make(here, one.label)
        told(here, guest)

        result = here.client.run("POST", f"/nodes/{guest.node}/qemu/{guest.vmid}/status/start")

    assert result.exitstatus == "OK"


def test_what_is_there_is_not_written_again(golden: Golden, server: SshServer) -> None:
    one = golden.clone(cloud_init=by_snippets(golden, server.host(_folder(golden.place))))
    with golden.opened(golden.recipe(one)) as here:
        guest = make(here, one.label)
        told(here, guest)
        golden.place.lab.forget_requests()
        again = carry(here, guest, config(here, guest))

    assert not again.changes
    assert len(server.calls) == 1
    assert golden.place.lab.writes() == []


def test_another_run_takes_the_snippets_that_are_there(golden: Golden, server: SshServer) -> None:
    one = golden.clone(cloud_init=by_snippets(golden, server.host(_folder(golden.place))))
    recipe = golden.recipe(one)
    with golden.opened(recipe) as here:
        guest = make(here, one.label)
        told(here, guest)
    with golden.opened(recipe, OTHER_RUN) as here:
        again = carry(here, guest, config(here, guest))

    assert not again.changes
    assert len(server.calls) == 1


def test_a_runs_own_snippets_are_found_and_removed(golden: Golden, server: SshServer) -> None:
    one = golden.clone(cloud_init=by_snippets(golden, server.host(_folder(golden.place))))
    with golden.opened(golden.recipe(one)) as here:
        carry(here, make(here, one.label))
        inventory = read_inventory(here.client)

        others = all_snippets(here.client, inventory, golden.name, OTHER_RUN)
        mine = all_snippets(here.client, inventory, golden.name, RUN)
        for each in mine:
            delete_snippet(here.client, each)

    assert others == ()
    assert {each.name.part for each in mine} == {"user", "vendor", "network", "meta"}
    assert seeds(golden) == []


def test_a_snippet_that_was_cut_off_is_written_again(golden: Golden, server: SshServer) -> None:
    one = golden.clone(cloud_init=by_snippets(golden, server.host(_folder(golden.place))))
    with golden.opened(golden.recipe(one)) as here:
        guest = make(here, one.label)
        told(here, guest)
        (file,) = _folder(golden.place).glob(f"*{golden.name}_*_user.yaml")
        whole = file.read_text()
        file.write_text(whole[:20])
        carry(here, guest, config(here, guest))

    assert file.read_text() == whole


def test_changed_documents_take_the_old_ones_place_which_are_then_removed(
    golden: Golden, server: SshServer
) -> None:
    host = server.host(_folder(golden.place))
    one = golden.clone(cloud_init=by_snippets(golden, host))
    changed = one.model_copy(update={"cloud_init": by_snippets(golden, host, packages=("vim",))})
    with golden.opened(golden.recipe(one)) as here:
        guest = make(here, one.label)
        told(here, guest)
        before = config(here, guest)
        told(here, changed)
        after = config(here, guest)

    assert cloud_init_changes(one, before) == []
    assert [key for key, _, _ in cloud_init_changes(changed, before)] == ["cicustom"]
    assert cloud_init_changes(changed, after) == []
    names = [snippet_of(volid) for volid in seeds(golden)]
    assert len(names) == 4
    assert {name.digest for name in names if name} == {
        documents(changed, env=golden.name).digest[:12]
    }


def test_no_document_is_in_the_arguments_of_a_process(golden: Golden, server: SshServer) -> None:
    cloud = by_snippets(golden, server.host(_folder(golden.place)), password_hash=SecretStr(HASH))
    one = golden.clone(cloud_init=cloud)
    with golden.opened(golden.recipe(one)) as here:
        carry(here, make(here, one.label))

    (call,) = server.calls
    assert "snippets" in call
    assert HASH not in call
    assert "ssh-ed25519" not in call


def test_a_clone_of_a_template_with_options_keeps_none_of_them(
    golden: Golden, server: SshServer
) -> None:
    one = golden.clone(cloud_init=by_snippets(golden, server.host(_folder(golden.place))))
    inherited = {"ide2": "local-lvm:cloudinit", "ciuser": "admin", "ipconfig0": "ip=dhcp"}
    with golden.opened(golden.recipe(one)) as here:
        guest = make(here, one.label, **inherited)
        apply(here, guest, carry(here, guest))

        live = config(here, guest)
    assert not {"ciuser", "ipconfig0"} & live.keys()
    assert live["ide2"].startswith(f"local-lvm:vm-{guest.vmid}-cloudinit")


def _refused(golden: Golden, cloud: CloudInit) -> StageError:
    one = golden.clone(cloud_init=cloud)
    with golden.opened(golden.recipe(one)) as here:
        guest = make(here, one.label)
        with pytest.raises(StageError) as refused:
            carry(here, guest)
        assert "cicustom" not in config(here, guest)
    return refused.value


def test_a_key_that_the_node_does_not_know_is_told_with_what_to_do(
    golden: Golden, server: SshServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.use(monkeypatch, key="other")

    refused = _refused(golden, by_snippets(golden, server.host(_folder(golden.place))))

    assert "Permission denied" in refused.message
    assert "authorized_keys" in str(refused.advice)


def test_a_host_key_that_was_never_seen_is_not_accepted(
    golden: Golden, server: SshServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.use(monkeypatch, known=False)

    refused = _refused(golden, by_snippets(golden, server.host(_folder(golden.place))))

    assert "Host key verification failed" in refused.message
    assert "known_hosts" in str(refused.advice)


def test_a_host_that_does_not_answer_is_told(golden: Golden, server: SshServer) -> None:
    closed = server.host(_folder(golden.place), port=1)

    refused = _refused(golden, by_snippets(golden, closed))

    assert "refused" in refused.message
    assert "method to seed" in str(refused.advice)


def test_without_an_ssh_client_the_other_way_is_named(
    golden: Golden, server: SshServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    refused = _refused(golden, by_snippets(golden, server.host(_folder(golden.place))))

    assert "no OpenSSH client" in refused.message
    assert "seed" in str(refused.advice)


def test_a_folder_that_is_not_there_is_told(
    golden: Golden, server: SshServer, tmp_path: Path
) -> None:
    refused = _refused(golden, by_snippets(golden, server.host(tmp_path / "absent")))

    assert f"no folder {tmp_path}/absent" in refused.message


def test_the_storages_own_folder_is_used_where_none_is_declared(
    golden: Golden, server: SshServer
) -> None:
    refused = _refused(golden, by_snippets(golden, server.host()))

    assert "no folder /var/lib/vz/snippets" in refused.message


def test_a_folder_that_may_not_be_written_is_told(server: SshServer, golden: Golden) -> None:
    with pytest.raises(StageError, match="may not write") as refused:
        write_files(server.host(), "pve1", "/proc", {"a.yaml": "secret-text"})

    assert "secret-text" not in str(refused.value)


def test_a_folder_of_another_machine_is_noticed(
    golden: Golden, server: SshServer, tmp_path: Path
) -> None:
    refused = _refused(golden, by_snippets(golden, server.host(tmp_path)))

    assert "does not show it" in refused.message
    assert "snippets.directory" in str(refused.advice)


def test_a_storage_without_snippets_is_told(golden: Golden, server: SshServer) -> None:
    host = server.host(_folder(golden.place))

    refused = _refused(golden, by_snippets(golden, host, snippet_storage="local-lvm"))

    assert "takes no snippets" in refused.message
    assert "content snippets" in str(refused.advice)
    assert server.calls == []


def test_a_manifest_without_a_snippet_storage_is_found_beforehand(
    golden: Golden, server: SshServer
) -> None:
    one = golden.clone(cloud_init=by_snippets(golden, server.host(), snippet_storage=None))

    (finding,) = check_cloud_init(one, env=golden.name)

    assert "snippets.storage" in finding.problem
    assert (
        "snippets.storage"
        in _refused(golden, one.cloud_init or by_snippets(golden, server.host())).message
    )


@pytest.mark.parametrize("host", ["-oProxyCommand=id", "a b", ""])
def test_a_host_name_is_never_an_option(host: str) -> None:
    with pytest.raises(StageError, match="no user and host"):
        write_files(SnippetHost(host=host, user="x"), "-x", "/tmp", {"a": "b"})
