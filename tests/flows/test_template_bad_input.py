"""Templates that cannot be built: exit code 2, words that say where and what, nothing changed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from blocks.units import MIB
from deployments.lab.testing import RunningLab
from tests.environments import KEY, Document, Place
from tests.flows.commands import Commands, Said
from tests.labfixture import LabFactory
from tests.templates import Golden
from tests.webserver import Web, served

SECRET = "11111111-2222-3333-4444-555555555555"
SEED = f"""
users:
  - userid: low@pve
    tokens: [{{name: t, secret: {SECRET}, privsep: false}}]
    acl: [{{path: /, role: PVEAuditor}}]
"""
PRIVATE = """-----BEGIN OPENSSH PRIVATE KEY-----
b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtzc2gtZW
-----END OPENSSH PRIVATE KEY-----
"""
PAGE = b"<!DOCTYPE html><html><body>Please log in</body></html>"
NOTHING = "sha256:" + "0" * 64


@pytest.fixture(scope="module")
def lab(lab_factory: LabFactory) -> RunningLab:
    """A cluster with a token that may only look."""
    return lab_factory(seed=SEED)


@pytest.fixture
def golden(place: Place) -> Golden:
    place.folder.mkdir(parents=True)
    return Golden(place)


@pytest.fixture
def image(golden: Golden, tmp_path: Path) -> Path:
    return golden.image_file(tmp_path / "images")


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Web]:
    """A publisher of images."""
    folder = tmp_path / "web"
    folder.mkdir()
    with served(folder) as running:
        yield running


def unchanged(golden: Golden, run: Commands, *words: object) -> Said:
    """``template build`` that must be refused, and must not have changed anything."""
    lab = golden.place.lab
    before = lab.snapshot()
    lab.forget_requests()
    said = run("template", "build", *words)
    assert said.code == 2, said.text
    assert said.out == ""
    assert lab.writes() == []
    assert lab.snapshot() == before
    return said


def refused(golden: Golden, run: Commands, document: Document, *words: object) -> Said:
    """The same for a document, by a dry run: it asks the cluster all that a run would ask."""
    return unchanged(golden, run, golden.write(document), "--dry-run", *words)


def sha256(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def from_url(golden: Golden, url: str, checksum: str = NOTHING) -> Document:
    document = golden.document("")
    document["spec"]["image"] = {"url": url, "checksum": checksum, "storage": "local"}
    return document


def changed(golden: Golden, image: Path, /, clones: int = 0, **spec: object) -> Document:
    document = golden.document(image, clones)
    document["spec"] |= spec
    return document


# What the image is and where it comes from


def test_an_image_that_the_publisher_does_not_have(golden: Golden, web: Web, run: Commands) -> None:
    said = refused(golden, run, from_url(golden, f"{web.url}/gone.qcow2"))

    assert f"{web.url}/gone.qcow2: the server answers 404 Not Found" in said.err
    assert "correct `image.url`" in said.err


def test_a_list_of_checksums_that_is_not_there(golden: Golden, web: Web, run: Commands) -> None:
    document = from_url(golden, web.put("a.qcow2", b"QFI\xfb"))
    document["spec"]["image"]["checksums"] = f"{web.url}/SHA256SUMS"
    del document["spec"]["image"]["checksum"]

    said = refused(golden, run, document)

    assert f"{web.url}/SHA256SUMS: the server answers 404 Not Found" in said.err
    assert "correct `image.checksums`" in said.err


@pytest.mark.parametrize("fetch", ["auto", "node", "here"])
def test_a_web_page_behind_a_right_checksum_is_no_disk_image(
    golden: Golden, web: Web, run: Commands, fetch: str
) -> None:
    document = from_url(golden, web.put("page.qcow2", PAGE), sha256(PAGE))
    document["spec"]["image"]["fetch"] = fetch

    said = refused(golden, run, document)

    assert "page.qcow2 is no disk image: it is a web page" in said.err
    assert "`image` takes qcow2 and raw disk images" in said.err


def test_a_file_here_of_another_checksum(golden: Golden, image: Path, run: Commands) -> None:
    document = golden.document(image)
    document["spec"]["image"]["checksum"] = NOTHING

    said = refused(golden, run, document)

    assert f"{image} has the SHA-256" in said.err
    assert "compare `image.checksum` with what the publisher says" in said.err


def test_a_downloaded_image_of_another_checksum_is_not_kept(
    golden: Golden, image: Path, web: Web, run: Commands
) -> None:
    lab = golden.place.lab
    before = lab.snapshot()
    manifest = golden.write(from_url(golden, web.put("a.qcow2", image.read_bytes())))

    said = run("template", "build", manifest, "--yes")

    assert said.code == 1
    assert "checksum" in said.err
    assert "compare `image.checksum` with what the publisher says" in said.err
    after = lab.snapshot()
    assert after["guests"] == before["guests"]
    assert after["volumes"] == before["volumes"]


def test_a_disk_that_is_smaller_than_the_image(golden: Golden, image: Path, run: Commands) -> None:
    said = refused(golden, run, changed(golden, image, disk={"size": "512M"}))

    assert "the image is larger than scsi0: 1 GiB" in said.err
    assert "with at least 1 GiB" in said.err


def test_a_disk_that_is_smaller_than_an_image_on_the_storage(
    golden: Golden, image: Path, run: Commands
) -> None:
    run.good("template", "build", golden.write(golden.document(image)), "--yes", "--stages=image")

    said = refused(golden, run, changed(golden, image, disk={"size": "512M"}))

    assert "the image is larger than scsi0: 1 GiB" in said.err


def test_a_checksum_list_without_the_image(golden: Golden, web: Web, run: Commands) -> None:
    document = from_url(golden, web.put("a.qcow2", b"QFI\xfb"))
    del document["spec"]["image"]["checksum"]
    document["spec"]["image"]["checksums"] = web.put("SUMS", f"{'0' * 64}  b.qcow2\n".encode())

    said = refused(golden, run, document)

    assert "SUMS does not name a.qcow2" in said.err
    assert "did you mean b.qcow2?" in said.err


# What the cluster has


def storage(name: str) -> Callable[[Document], None]:
    def change(document: Document) -> None:
        document["spec"]["image"]["storage"] = name

    return change


def spec(**values: object) -> Callable[[Document], None]:
    def change(document: Document) -> None:
        document["spec"] |= values

    return change


def first_clone(**values: object) -> Callable[[Document], None]:
    def change(document: Document) -> None:
        document["spec"]["clones"][0] |= values

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            storage("local-lvm"),
            [
                "storage local-lvm on pve1 does not take disk images",
                "`import`",
                "on pve1 there is: local, shared",
            ],
        ),
        (storage("locl"), ["node pve1 has no storage locl", "there is: local, shared"]),
        (
            spec(disk={"size": "4G", "storage": "ceph"}),
            ["node pve1 has no storage ceph for disks", "there is: local"],
        ),
        (
            spec(disk={"size": "900T", "storage": "local-lvm"}),
            ["disk scsi0 of 900 TiB is larger than storage local-lvm", "make it smaller"],
        ),
        (
            spec(
                cloud_init={"user": "ops", "ssh_keys": [KEY], "storage": "local-lvm"}
                | {"method": "seed"}
            ),
            ["storage local-lvm on pve1 does not take content 'iso'", "use local or shared"],
        ),
        (spec(nics=["vmbr9"]), ["node pve1 has no bridge vmbr9", "did you mean vmbr"]),
        (spec(pool="nowhere"), ["there is no pool nowhere", "Datacenter, Permissions, Pools"]),
        (spec(node="pve9"), ["template: the cluster has no node pve9", "did you mean pve"]),
        (
            spec(pci="gpu9"),
            ["there is no PCI mapping gpu9", "Datacenter, Resource Mappings"],
        ),
        (
            spec(pci="0000:01:00.0"),
            ["a token of root is not root", "mapping: NAME", "connect as root@pam"],
        ),
        (
            spec(firmware={"machine": "pc-q35-99.0"}),
            ["node pve1 does not know machine pc-q35-99.0", "write q35 for the newest"],
        ),
        (
            spec(resources={"memory": 1024, "cpu": "Pentium9"}),
            ["node pve1 does not know processor Pentium9"],
        ),
        (
            first_clone(node="pve2"),
            ["a full clone cannot go to pve2", "put the template on shared storage (shared)"],
        ),
        (
            first_clone(storage="nope"),
            ["node pve1 has no storage nope for disks"],
        ),
    ],
)
def test_what_the_cluster_lacks_is_named_with_what_would_be_right(
    golden: Golden,
    image: Path,
    run: Commands,
    change: Callable[[Document], None],
    words: list[str],
) -> None:
    document = golden.document(image, clones=1)
    change(document)

    said = refused(golden, run, document)

    for word in words:
        assert word in said.err, said.err
    assert "nothing was changed" in said.err


def test_everything_that_the_cluster_lacks_is_said_in_one_go(
    golden: Golden, image: Path, run: Commands
) -> None:
    golden.place.strange(1, name="payroll")
    document = changed(golden, image, 2, nics=["vmbr9"], pci="gpu9", pool="nowhere")
    document["spec"]["disk"]["size"] = "512M"
    document["spec"]["image"]["storage"] = "local-lvm"
    document["spec"]["clones"][1]["storage"] = "nope"

    said = refused(golden, run, document)

    for word in (
        "no bridge vmbr9",
        "no PCI mapping gpu9",
        "no pool nowhere",
        "the image is larger than scsi0",
        "storage local-lvm on pve1 does not take disk images",
        f"vm_id {golden.vmid + 1} is taken by VM payroll on pve1, which Proxflow did not make",
        "no storage nope",
    ):
        assert word in said.err, said.err


def test_a_tpm_on_a_storage_without_snapshots_is_a_warning_and_the_run_goes_on(
    golden: Golden, image: Path, run: Commands
) -> None:
    firmware = {"bios": "ovmf", "tpm": True, "tpm_storage": "local", "efi_storage": "local-lvm"}
    manifest = golden.write(changed(golden, image, firmware=firmware))

    said = run.good("template", "build", manifest, "--yes", "--json")

    assert "warning: template: the TPM state (tpmstate0) will be a raw file on local" in said.err
    assert "put it on local-lvm for snapshots" in said.err
    assert any("TPM state" in text for text in said.json()["warnings"])


def test_a_number_that_another_guest_has(golden: Golden, image: Path, run: Commands) -> None:
    golden.place.strange(1, name="payroll")

    said = refused(golden, run, golden.document(image, clones=2))

    taken = f"c1-{golden.place.number}: vm_id {golden.vmid + 1} is taken by VM payroll on pve1"
    assert taken in said.err
    assert f"choose another; the next free one is {golden.vmid + 3}" in said.err


def test_a_number_of_another_environment(golden: Golden, image: Path, run: Commands) -> None:
    golden.place.of_another_environment(0)

    said = refused(golden, run, golden.document(image))

    assert f"vm_id {golden.vmid} is taken" in said.err
    assert "which belongs to elsewhere" in said.err


def test_a_name_that_another_guest_has(golden: Golden, image: Path, run: Commands) -> None:
    golden.place.strange(9, name=f"c1-{golden.place.number}")

    said = refused(golden, run, golden.document(image, clones=1))

    taken = f"the name c1-{golden.place.number} is taken by VM {golden.vmid + 9} on pve"
    assert said.err.count(taken) == 1
    assert "which Proxflow did not make" in said.err
    assert "cannot be read" not in said.err


def test_a_storage_without_room(golden: Golden, image: Path, run: Commands) -> None:
    lab = golden.place.lab
    lab.storage_full("local")
    try:
        said = refused(golden, run, golden.document(image))
    finally:
        lab.storage_full("local", on=False)

    assert "storage local on pve1 has 0" in said.err
    assert "free some space, or name another storage in `image.storage`" in said.err


def test_a_node_that_is_offline(golden: Golden, image: Path, run: Commands) -> None:
    lab = golden.place.lab
    document = golden.document(image, clones=1)
    document["spec"]["node"] = "pve2"
    lab.node_offline("pve2")
    try:
        said = refused(golden, run, document)
    finally:
        lab.node_offline("pve2", on=False)

    assert "template: node pve2 is offline" in said.err


def test_a_token_that_may_only_look(
    golden: Golden, image: Path, run: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = golden.place.lab.connection
    monkeypatch.setenv("PROXMOX_ENDPOINT", golden.place.lab.endpoint)
    monkeypatch.setenv("PROXMOX_TOKEN_ID", "low@pve!t")
    monkeypatch.setenv("PROXMOX_TOKEN_SECRET", SECRET)
    monkeypatch.setenv("PROXMOX_CA_FILE", connection["ca_file"])
    monkeypatch.setenv("PROXMOX_GUEST_PROXY", connection["guest_proxy"])

    said = refused(golden, run, golden.document(image, clones=1))

    for right in ("VM.Allocate", "VM.Clone", "Datastore.AllocateTemplate", "SDN.Use"):
        assert right in said.err, said.err
    assert "low@pve!t lacks" in said.err
    assert "pveum" in said.err
    assert SECRET not in said.text


# What is in the document


def no_kind(document: Document, _: Path) -> None:
    del document["kind"]


def no_image(document: Document, _: Path) -> None:
    document["spec"]["image"] = None


def unknown_image(document: Document, _: Path) -> None:
    document["spec"]["image"] = "debain13"


def url_without_checksum(document: Document, _: Path) -> None:
    document["spec"]["image"] = "https://images.example.com/a.qcow2"


def private_key(document: Document, folder: Path) -> None:
    (folder / "id_ed25519").write_text(PRIVATE)
    document["spec"]["cloud_init"]["ssh_keys"] = ["./id_ed25519"]


def private_key_written_out(document: Document, _: Path) -> None:
    document["spec"]["cloud_init"]["ssh_keys"] = [PRIVATE]


def key_file_missing(document: Document, _: Path) -> None:
    document["spec"]["cloud_init"]["ssh_keys"] = ["./id.pub"]


def outside_the_network(document: Document, _: Path) -> None:
    document["spec"]["clones"][0]["ip"] = "10.99.0.5/24"


def network_address(document: Document, _: Path) -> None:
    clone = document["spec"]["clones"][0]
    clone["ip"] = clone["gateway"].rpartition(".")[0] + ".0/24"


def same_name(document: Document, _: Path) -> None:
    document["spec"]["clones"][1]["name"] = document["spec"]["clones"][0]["name"]


def same_number(document: Document, _: Path) -> None:
    document["spec"]["clones"][1]["vm_id"] = document["spec"]["vm_id"]


def broken_user_data(document: Document, folder: Path) -> None:
    (folder / "user.yaml").write_text("#cloud-config\nusers: [\n")
    document["spec"]["cloud_init"] = {"user_data": "./user.yaml"}


def user_data_without_a_head(document: Document, folder: Path) -> None:
    (folder / "user.yaml").write_text("hello\n")
    document["spec"]["cloud_init"] = {"user_data": "./user.yaml"}


def binary_user_data(document: Document, folder: Path) -> None:
    (folder / "user.yaml").write_bytes(bytes(range(256)))
    document["spec"]["cloud_init"] = {"user_data": "./user.yaml"}


def written_password(document: Document, _: Path) -> None:
    document["spec"]["cloud_init"]["password"] = "hunter2"


def packages_by_fields(document: Document, _: Path) -> None:
    document["spec"]["cloud_init"] |= {"method": "fields", "packages": ["htop"]}


def smaller_clone(document: Document, _: Path) -> None:
    document["spec"]["clones"][0]["disk"] = "2G"


def pattern_without_number(document: Document, _: Path) -> None:
    document["spec"]["clones"] = [{"count": 3, "name": "web", "vm_id": 20000}]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (no_kind, ["kind: is missing", "1 fault"]),
        (no_image, ["spec.image: is missing"]),
        (unknown_image, ["spec.image: unknown image 'debain13'", "did you mean 'debian13'?"]),
        (url_without_checksum, ["spec.image: has no checksum", "sha256:HEX"]),
        (private_key, ["ssh_keys[0]", "./id_ed25519 is a private key", "ends in .pub"]),
        (private_key_written_out, ["ssh_keys[0]: is a private key", "ends in .pub"]),
        (key_file_missing, ["ssh_keys[0]", "./id.pub cannot be read", "write the key itself"]),
        (outside_the_network, ["clones[0].ip: 10.99.0.5 is outside the network", "gateway"]),
        (network_address, ["clones[0].ip: is the address of the network", "choose one inside"]),
        (same_name, ["clones[1].name: the name", "is taken at", "(spec.clones[0].name)"]),
        (same_number, ["clones[1].vm_id: the number", "is taken at", "(spec.vm_id)"]),
        (broken_user_data, ["cloud_init.user_data", "./user.yaml is no valid YAML", "line 3"]),
        (user_data_without_a_head, ["./user.yaml does not begin with", "#cloud-config"]),
        (binary_user_data, ["./user.yaml is no UTF-8 text", "save it as UTF-8"]),
        (written_password, ["cloud_init.password: is written out", "${env:NAME}"]),
        (packages_by_fields, ["cloud_init.packages", "method: seed"]),
        (smaller_clone, ["clones[0].disk: 2G is smaller than the disk of the template (4G)"]),
        (pattern_without_number, ["clones[0].name: is the same for all 3 clones", "web{n:02}"]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_mistake_in_the_document_is_named_with_file_line_and_key(
    golden: Golden,
    image: Path,
    run: Commands,
    change: Callable[[Document, Path], None],
    words: list[str],
) -> None:
    document = golden.document(image, clones=2)
    change(document, golden.place.folder)

    said = refused(golden, run, document)

    assert f"{golden.name}.yaml:" in said.err
    for word in words:
        assert word in said.err, said.err
    assert "hunter2" not in said.text
    assert "b3BlbnNzaC1rZXk" not in said.text


def test_all_mistakes_in_a_document_are_said_at_once(
    golden: Golden, image: Path, run: Commands
) -> None:
    document = changed(golden, image, 1, vm_id="many", disk="big", colour="red")
    document["metadata"]["name"] = "under_score"
    document["spec"]["cloud_init"]["dns"] = "nowhere"

    said = refused(golden, run, document)

    for key in ("spec.vm_id", "spec.disk", "spec.colour", "metadata.name", "cloud_init.dns"):
        assert key in said.err, said.err
    assert "5 faults in the manifest" in said.err


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is empty"),
        (bytes(range(256)), "is no UTF-8 text"),
        (b"\0" * 100, "has a character that YAML does not allow"),
        (b"a: b\n" * (6 * MIB // 5), "it is larger than 5 MiB"),
        (b"[" * 100_000, "is nested too deeply"),
        (b"- a\n", "must be a mapping"),
        (b"kind: Template\nmetadata: { name: x\n", "file.yaml:"),
    ],
    ids=["empty", "binary", "zeros", "huge", "deep", "list", "unclosed"],
)
def test_a_file_that_is_no_template(golden: Golden, run: Commands, data: bytes, words: str) -> None:
    path = golden.place.folder / "file.yaml"
    path.write_bytes(data)

    said = unchanged(golden, run, path, "--yes")

    assert words in said.err
    assert "1 fault in the manifest" in said.err


def test_a_folder_instead_of_a_file(golden: Golden, run: Commands) -> None:
    said = unchanged(golden, run, golden.place.folder, "--yes")
    assert "is a folder; name the master file in it" in said.err


# Which stages


@pytest.mark.parametrize(
    ("words", "said_words"),
    [
        (["--stages", "imgae"], ["--stages: there is no stage 'imgae'", "did you mean 'image'?"]),
        (["--stages", ""], ["--stages: names no stage", "preflight, image, create"]),
        (["--from", ""], ["--from: names no stage"]),
        (["--skip", "clone"], ["--skip: there is no stage 'clone'", "'clones'"]),
        (["--from", "configure"], ["does not exist", "stage `create` is left out"]),
        (["--stages", "template"], ["does not exist", "add it to --stages"]),
        (["--stages", "image,clones"], ["is no template yet", "stages before `clones`"]),
        (["--skip", "all"], ["no stage is left to do"]),
        (["--parallel", "0"], ["--parallel"]),
    ],
    ids=lambda value: " ".join(value) if value[0].startswith("--") else "",
)
def test_stages_that_cannot_be_done(
    golden: Golden, image: Path, run: Commands, words: list[str], said_words: list[str]
) -> None:
    manifest = golden.write(golden.document(image, clones=1))

    said = unchanged(golden, run, manifest, "--yes", *words)

    for word in said_words:
        assert word in said.err, said.err
