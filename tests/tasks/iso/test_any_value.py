"""Whatever the models accept is rendered right or refused by name, and nothing else happens."""

from __future__ import annotations

import string
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st
from pykickstart.constants import SELINUX_DISABLED, SELINUX_ENFORCING, SELINUX_PERMISSIVE

from blocks.manifest.guest import Guest, Installation
from blocks.manifest.kickstart import WITHOUT_SELINUX
from tasks.iso.render import Rendered, RenderError, render

from .guests import HASH, KEY, nic, plain
from .reading import (
    NS,
    agama,
    autoinstall,
    installed_late,
    kickstart,
    preseed,
    profile,
    puts,
    setup,
)

NASTY = (
    "%end",
    "---",
    "a b",
    "#x",
    "'",
    '"',
    "\\",
    "$(reboot)",
    "${HOME}",
    "`id`",
    "a\nb",
    "a\rb",
    "\0",
    "]]>",
    "<a&b>",
    "{{ x }}",
    "{% raw %}",
    "yes",
    "0x1f",
    "~",
    "é",
    "名前",
    "\u2028",
    "\ud800",
    "\ufffe",
    "- x: y",
    "!!python/object",
    "x" * 5000,
    "",
)
SELINUX = {
    None: SELINUX_ENFORCING,
    "enforcing": SELINUX_ENFORCING,
    "permissive": SELINUX_PERMISSIVE,
    "disabled": SELINUX_DISABLED,
}
nasty = st.one_of(st.sampled_from(NASTY), st.text(max_size=40))
words = st.text(string.ascii_lowercase + string.digits, min_size=1, max_size=12)


def mostly(good: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Good values, with bad ones among them."""
    return st.integers(0, 30).flatmap(lambda n: nasty if n == 0 else good)


comments = st.one_of(st.sampled_from(NASTY), st.text(max_size=30))
keys = st.one_of(st.just(KEY), mostly(comments.map(lambda text: f"{KEY} {text}")))
tuples = st.lists(mostly(words), max_size=2).map(tuple)


@st.composite
def guests(draw: st.DrawFn, distro: str) -> Guest:
    apt = distro.startswith(("ubuntu", "debian"))
    url = mostly(words.map(lambda word: f"http://{word}.example/os"))
    base = mostly(words.map(lambda w: f"http://{w}.example/r" + (" stable main" if apt else "")))
    users = st.fixed_dictionaries(
        {
            "name": mostly(words.map(lambda word: f"u{word}")),
            "sudo": st.booleans(),
            "ssh_keys": st.lists(keys, max_size=2).map(tuple),
            "password_hash": st.one_of(st.none(), mostly(st.just(HASH))),
        }
    )
    hosts = st.fixed_dictionaries(
        {"ip": st.ip_addresses(), "names": st.lists(mostly(words), min_size=1, max_size=2)}
    )
    keys_of_repos = st.one_of(st.none(), url)
    repos = st.fixed_dictionaries(
        {"name": mostly(words), "baseurl": base, "gpg_key": keys_of_repos}
    )
    optional: dict[str, st.SearchStrategy[Any]] = {
        "domain": st.one_of(st.none(), mostly(words)),
        "timezone": mostly(st.sampled_from(["UTC", "Europe/Berlin", "America/Argentina/Ushuaia"])),
        "keyboard": mostly(st.sampled_from(["us", "de", "de (deadkeys)"])),
        "lang": mostly(st.sampled_from(["en_US.UTF-8", "de_DE.UTF-8@euro", "C.UTF-8"])),
        "mode": st.sampled_from(["text", "graphical"]),
        "ipv6": st.booleans(),
        "install_url": st.one_of(st.none(), url),
        "ntp_servers": tuples,
        "sudo_nopasswd": st.booleans(),
        "packages": tuples,
        "packages_post": tuples,
        "repositories": st.lists(repos, max_size=1),
        "firewall": st.booleans(),
        "update_system": st.booleans(),
        **({} if distro in WITHOUT_SELINUX else {"selinux": st.sampled_from(list(SELINUX))}),
        "root_password_hash": st.one_of(st.none(), mostly(st.just(HASH))),
        "root_ssh_keys": st.lists(keys, max_size=2).map(tuple),
        "users": st.lists(users, max_size=2),
        "hosts": st.lists(hosts, max_size=2),
    }
    given_fields: dict[str, Any] = draw(
        st.fixed_dictionaries({"hostname": mostly(words)}, optional=optional)
    )
    name = draw(st.one_of(st.none(), mostly(words)))
    return plain(distro, nics=(nic(0, name=name),), agent=draw(st.booleans()), **given_fields)


def rendered_or_refused(guest: Guest) -> Rendered | None:
    refusal = None
    try:
        rendered = render(guest, env="prod")
    except RenderError as error:
        refusal = error
    if refusal is None:
        event("rendered")
        return rendered
    event("refused")
    assert refusal.key.split("[")[0].split(".")[0] in {"installation", "nics"}
    assert len(str(refusal)) < 400
    return None


def installation(guest: Guest) -> Installation:
    assert guest.install is not None
    return guest.install.installation


def common(rendered: Rendered, guest: Guest) -> None:
    """What the setup script must give back, in every family."""
    inst = installation(guest)
    files = puts(rendered)
    written = [text.splitlines() for path, _, text in files if path.endswith("authorized_keys")]
    accounts = (inst.root_ssh_keys, *(user.ssh_keys for user in inst.users))
    assert written == [[key.strip() for key in listed] for listed in accounts if listed]
    script = setup(rendered)
    assert all(repo.gpg_key in script for repo in inst.repositories if repo.gpg_key)
    (hosts,) = (text.splitlines() for path, _, text in files if path == "/etc/hosts")
    for entry in inst.hosts:
        assert f"{entry.ip} {' '.join(entry.names)}" in hosts


def asked_for(inst: Installation, rendered: Rendered, early: list[str]) -> None:
    """Each package is installed: by the installer, or by the script, which knows repositories."""
    late = installed_late(rendered)
    if inst.repositories and rendered.distro.family != "anaconda":
        assert late == [*inst.packages, *inst.packages_post]
    else:
        assert set(inst.packages) <= set(early)
        assert late == list(inst.packages_post)


# Shrinking a guest takes minutes and says little more than the guest itself.
SETTINGS = settings(
    phases=(Phase.explicit, Phase.generate),
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,
)


@SETTINGS
@pytest.mark.parametrize("distro", ["rocky8", "rocky9", "rocky10", "fedora"])
@given(data=st.data())
def test_anaconda_gives_every_value_back(distro: str, data: st.DataObject) -> None:
    guest = data.draw(guests(distro))
    rendered = rendered_or_refused(guest)
    if rendered is None:
        return
    inst = installation(guest)

    handler = kickstart(rendered)

    common(rendered, guest)
    assert handler.timezone.timezone == inst.timezone
    assert handler.lang.lang == inst.lang
    asked_for(inst, rendered, handler.packages.packageList)
    assert [user.name for user in handler.user.userList] == [user.name for user in inst.users]
    for made, user in zip(handler.user.userList, inst.users, strict=True):
        secret = user.password_hash
        assert made.password == (secret.get_secret_value() if secret else "")
        assert made.isCrypted is (secret is not None)
    assert {r.name: r.baseurl for r in handler.repo.repoList} == {
        repo.name: repo.baseurl for repo in inst.repositories
    }
    servers = (
        handler.timezone.ntpservers
        if distro == "rocky8"
        else [source.ntp_server for source in handler.timesource.timesource_list]
    )
    assert sorted(servers) == sorted(inst.ntp_servers)
    assert handler.url.url == inst.install_url
    name = f"{inst.hostname}.{inst.domain}" if inst.domain else inst.hostname
    assert handler.network.network[-1].hostname == name
    assert handler.rootpw.lock is (inst.root_password_hash is None)
    assert handler.selinux.selinux == SELINUX[inst.selinux]


@SETTINGS
@pytest.mark.parametrize("distro", ["ubuntu2204", "ubuntu2604"])
@given(data=st.data())
def test_subiquity_gives_every_value_back(distro: str, data: st.DataObject) -> None:
    guest = data.draw(guests(distro))
    rendered = rendered_or_refused(guest)
    if rendered is None:
        return
    inst = installation(guest)

    config = autoinstall(rendered)

    common(rendered, guest)
    assert config["locale"] == inst.lang
    assert config["timezone"] == inst.timezone
    asked_for(inst, rendered, config["packages"])
    assert config["network"]["ethernets"]["net0"].get("set-name") == guest.nics[0].name
    if inst.install_url:
        assert config["apt"]["primary"][0]["uri"] == inst.install_url


@SETTINGS
@pytest.mark.parametrize("distro", ["debian12", "debian13"])
@given(data=st.data())
def test_debians_installer_gives_every_value_back(distro: str, data: st.DataObject) -> None:
    guest = data.draw(guests(distro))
    rendered = rendered_or_refused(guest)
    if rendered is None:
        return
    inst = installation(guest)

    answers = preseed(rendered)

    common(rendered, guest)
    assert answers["debian-installer/locale"] == inst.lang
    assert answers["time/zone"] == inst.timezone
    assert answers["netcfg/get_hostname"] == inst.hostname
    assert answers["netcfg/get_domain"] == (inst.domain or "")
    asked_for(inst, rendered, answers["pkgsel/include"].split(" "))
    secret = inst.root_password_hash
    expected = secret.get_secret_value() if secret else "!"
    assert answers["passwd/root-password-crypted"] == expected


@SETTINGS
@pytest.mark.parametrize("distro", ["sles15", "leap15"])
@given(data=st.data())
def test_autoyast_gives_every_value_back(distro: str, data: st.DataObject) -> None:
    guest = data.draw(guests(distro))
    rendered = rendered_or_refused(guest)
    if rendered is None:
        return
    inst = installation(guest)

    root = profile(rendered)

    common(rendered, guest)
    assert root.findtext("y:timezone/y:timezone", None, NS) == inst.timezone
    assert root.findtext("y:networking/y:dns/y:hostname", None, NS) == inst.hostname
    packages = [node.text or "" for node in root.findall("y:software/y:packages/y:package", NS)]
    asked_for(inst, rendered, packages)
    servers = [node.text for node in root.findall(".//y:ntp_server/y:address", NS)]
    assert servers == list(inst.ntp_servers)


@SETTINGS
@pytest.mark.parametrize("distro", ["sles16", "leap161"])
@given(data=st.data())
def test_agama_gives_every_value_back(distro: str, data: st.DataObject) -> None:
    guest = data.draw(guests(distro))
    rendered = rendered_or_refused(guest)
    if rendered is None:
        return
    inst = installation(guest)

    told = agama(rendered)

    common(rendered, guest)
    assert told["localization"]["timezone"] == inst.timezone
    assert told["localization"]["language"].partition(".")[0] == inst.lang.partition(".")[0]
    assert told["hostname"]["static"] == inst.hostname
    asked_for(inst, rendered, told["software"]["packages"])
    extra = told["software"].get("extraRepositories", [])
    assert [one["url"] for one in extra] == ([inst.install_url] if inst.install_url else [])
    script = setup(rendered)
    assert (f"/SELINUX={inst.selinux}/" in script) is (inst.selinux is not None)
    servers = [text for path, _, text in puts(rendered) if path == "/etc/chrony.d/proxflow.conf"]
    assert servers == (
        ["\n".join(f"server {name} iburst" for name in inst.ntp_servers)]
        if inst.ntp_servers
        else []
    )
