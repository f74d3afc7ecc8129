"""Whole cloud-init documents: from a file, as text, as a mapping."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]  # cloud-init's reader; its stubs are not locked
from hypothesis import given, settings
from hypothesis import strategies as st

from blocks.manifest.faults import Fault
from blocks.manifest.guest import CloudInit
from blocks.manifest.template.texts import expand_documents
from blocks.manifest.tree import Item
from tests.blocks.manifest.sample import only_fault
from tests.blocks.manifest.template.sample import MINIMAL, environment

HEAD = MINIMAL[: MINIMAL.index("    ssh_keys")]
CONFIG = "#cloud-config\npackages: [htop]\n"
NETWORK = "version: 2\nethernets: {}\n"


def told(folder: Path, lines: str) -> CloudInit:
    found = environment(folder, HEAD + lines).guests[0].cloud_init
    assert found is not None
    return found


@pytest.mark.parametrize("key", ["user_data", "vendor_data"])
@pytest.mark.parametrize(
    "document",
    [
        CONFIG,
        "#!/bin/sh\nid\n",
        "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=x\n\n--x--\n",
        "Content-Type: multipart/mixed; boundary=x\nMIME-Version: 1.0\n\n--x--\n",
        "## template: jinja\n#cloud-config\nfqdn: {{ v1.local_hostname }}\n",
        "#include\nhttps://example.com/user-data\n",
        "#cloud-config\n",
    ],
)
def test_a_document_in_a_file_is_taken_word_for_word(
    key: str, document: str, tmp_path: Path
) -> None:
    (tmp_path / "doc.txt").write_text(document)

    found = told(tmp_path, f"    {key}: ./doc.txt\n")

    assert getattr(found, key) == document
    assert found.method == "seed"


def test_the_file_belongs_to_the_manifest(tmp_path: Path) -> None:
    (tmp_path / "doc.yaml").write_text(CONFIG)

    files = environment(tmp_path, HEAD + "    user_data: doc.yaml\n").source_files

    assert tmp_path / "doc.yaml" in files


def test_a_text_in_place_is_taken_word_for_word(tmp_path: Path) -> None:
    found = told(tmp_path, "    user_data: |\n      #!/bin/sh\n      echo ${HOME} {n}\n")

    assert found.user_data == "#!/bin/sh\necho ${HOME} {n}\n"


def test_a_mapping_becomes_a_cloud_config(tmp_path: Path) -> None:
    found = told(tmp_path, "    user_data: { packages: [htop], fqdn: a.example.com }\n")

    assert found.user_data == "#cloud-config\npackages:\n- htop\nfqdn: a.example.com\n"


def test_a_network_document_is_a_mapping_with_a_version(tmp_path: Path) -> None:
    (tmp_path / "net.yaml").write_text(NETWORK)

    file = told(tmp_path, "    network_config: net.yaml\n")
    inline = told(tmp_path, "    network_config: { network: { version: 1, config: [] } }\n")

    assert file.network_config == NETWORK
    assert inline.network_config == "network:\n  version: 1\n  config: []\n"


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ("", "is empty"),
        ("packages: [htop]\n", "does not begin with a line that cloud-init knows"),
        (" #cloud-config\n", "does not begin with a line that cloud-init knows"),
        ("#cloud-config\n- a\n", "is no mapping"),
        ("#cloud-config\na: b: c\n", "is no valid YAML"),
        ("#cloud-config\na: 1\na: 2\n", "is no valid YAML"),
    ],
)
def test_a_file_that_is_no_document_is_refused(document: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "doc.yaml").write_text(document)

    fault = only_fault(tmp_path, HEAD + "    user_data: doc.yaml\n")

    assert fault.key == "spec.cloud_init.user_data"
    assert fault.problem.startswith("the file doc.yaml ")
    assert words in fault.problem


def test_a_list_is_no_document(tmp_path: Path) -> None:
    fault = only_fault(tmp_path, HEAD + "    user_data: [a]\n")

    assert "is no document; write the path of a file, a text, or a mapping" in str(fault)


_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(min_value=-(2**31), max_value=2**31)
    | st.sampled_from(
        ["yes", "NO", "on", "012", "1:30", "1e3", "~", "null", "=", "2026-11-30", "#"]
    )
    | st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=20),
    lambda children: (
        st.lists(children, max_size=3)
        | st.dictionaries(st.text("abcxyz_", min_size=1, max_size=5), children, max_size=3)
    ),
    max_leaves=8,
)


def _item(value: object) -> Item:
    here = Path("t.yaml")
    if isinstance(value, dict):
        return Item({key: _item(each) for key, each in value.items()}, here, 1, "x")
    if isinstance(value, list):
        return Item([_item(each) for each in value], here, 1, "x")
    assert value is None or isinstance(value, str | int | float)
    return Item(value, here, 1, "x")


def _without_null(value: object) -> object:
    if isinstance(value, dict):
        return {key: _without_null(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_without_null(each) for each in value]
    return value


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.text("abcxyz_", min_size=1, max_size=5), _values, min_size=1, max_size=3))
def test_a_mapping_comes_back_from_its_document_unchanged(mapping: dict[str, object]) -> None:
    part = Item({"user_data": _item(mapping)}, Path("t.yaml"), 1, "c")
    faults: list[Fault] = []

    expand_documents(part, faults, [])

    text = part.text("user_data")
    assert faults == []
    assert text is not None
    assert text.startswith("#cloud-config\n")
    # PyYAML is what cloud-init reads with.
    assert (yaml.safe_load(text) or {}) == _without_null(mapping)
