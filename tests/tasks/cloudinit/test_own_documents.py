"""An operator's own documents."""

from __future__ import annotations

import pytest

from tasks.cloudinit.documents import documents
from tasks.iso.checks import RenderError

from .guests import ENV, guest, nic

OWN = "#cloud-config\n# mine\npackages: [vim]   # kept as it is\n"
NETWORK = "version: 2\nethernets: {eth0: {dhcp4: true}}\n"
MIME = 'Content-Type: multipart/mixed; boundary="x"\nMIME-Version: 1.0\n\n--x--\n'


def test_whole_documents_take_the_place_of_the_rendered_ones_unchanged() -> None:
    one = guest(nic(), user_data=OWN, vendor_data="#!/bin/sh\ntrue\n", network_config=NETWORK)

    made = documents(one, env=ENV)

    assert (made.user_data, made.vendor_data) == (OWN, "#!/bin/sh\ntrue\n")
    assert made.network_config == NETWORK


@pytest.mark.parametrize("text", [OWN, "#!/bin/sh\n", MIME, "## template: jinja\n#cloud-config\n"])
def test_whatever_cloud_init_knows_is_accepted_as_user_data(text: str) -> None:
    assert documents(guest(nic(), user_data=text), env=ENV).user_data == text


@pytest.mark.parametrize(
    ("key", "text", "why"),
    [
        ("user_data", "packages: [vim]\n", "first line"),
        ("user_data", "", "first line"),
        ("user_data", "#cloud-config\n- a\n", "mapping"),
        ("user_data", "#cloud-config\na: [1\n", "line"),
        ("user_data", "#cloud-config\na: 1\na: 2\n", "is no YAML"),
        ("vendor_data", "echo hello\n", "first line"),
        ("network_config", "eth0: dhcp\n", "version: 2"),
        ("network_config", "version: [2\n", "is no YAML"),
    ],
)
def test_what_cloud_init_would_ignore_is_refused(key: str, text: str, why: str) -> None:
    with pytest.raises(RenderError, match=why) as refused:
        documents(guest(nic(), **{key: text}), env=ENV)

    assert refused.value.key == f"cloud_init.{key}"
