"""Which distributions can be installed unattended, and what their installers want."""

from __future__ import annotations

from typing import Literal

from blocks.model import Model

Family = Literal["anaconda", "subiquity", "debian-installer", "autoyast", "agama"]
Stack = Literal["networkmanager", "netplan", "ifupdown", "wicked"]


class Distro(Model):
    """One release of a distribution.

    ``ksversion`` is pykickstart's name of the syntax (anaconda only). ``remaster`` says that the
    install ISO must be rewritten, since its installer does not act on the seed by itself, or is
    not what the ISO boots by itself.
    """

    name: str
    title: str
    family: Family
    release: str
    label: str
    files: tuple[str, ...]
    stack: Stack
    ksversion: str | None = None
    sudo_group: Literal["wheel", "sudo"]
    remaster: bool = False


class UnknownDistro(LookupError):
    """No such distribution; the text lists those there are."""

    def __init__(self, name: str) -> None:
        super().__init__(f"unknown distro {name!r}; known are {', '.join(DISTROS)}")
        self.name = name


def _anaconda(name: str, title: str, release: str, ksversion: str) -> Distro:
    return Distro(
        name=name,
        title=title,
        family="anaconda",
        release=release,
        label="OEMDRV",
        files=("ks.cfg",),
        stack="networkmanager",
        ksversion=ksversion,
        sudo_group="wheel",
    )


def _ubuntu(release: str) -> Distro:
    return Distro(
        name=f"ubuntu{release.replace('.', '')}",
        title=f"Ubuntu {release}",
        family="subiquity",
        release=release,
        label="cidata",
        files=("meta-data", "setup.sh", "user-data"),
        stack="netplan",
        sudo_group="sudo",
        remaster=True,
    )


def _debian(release: str) -> Distro:
    return Distro(
        name=f"debian{release}",
        title=f"Debian {release}",
        family="debian-installer",
        release=release,
        label="PROXFLOW",
        files=("preseed.cfg", "setup.sh"),
        stack="ifupdown",
        sudo_group="sudo",
        remaster=True,
    )


def _suse(name: str, title: str) -> Distro:
    return Distro(
        name=name,
        title=title,
        family="autoyast",
        release="15",
        label="OEMDRV",
        files=("autoinst.xml",),
        stack="wicked",
        sudo_group="wheel",
        remaster=True,
    )


def _agama(name: str, title: str, release: str) -> Distro:
    return Distro(
        name=name,
        title=title,
        family="agama",
        release=release,
        label="OEMDRV",
        files=("autoinst.json",),
        stack="networkmanager",
        sudo_group="wheel",
        remaster=True,
    )


_EL = {
    "oraclelinux": "Oracle Linux",
    "rhel": "Red Hat Enterprise Linux",
    "rocky": "Rocky Linux",
    "alma": "AlmaLinux",
}

DISTROS: dict[str, Distro] = {
    distro.name: distro
    for distro in (
        *(
            _anaconda(f"{name}{release}", f"{title} {release}", release, f"RHEL{release}")
            for name, title in _EL.items()
            for release in ("8", "9", "10")
        ),
        _anaconda("fedora", "Fedora 45", "45", "F45"),
        _ubuntu("22.04"),
        _ubuntu("24.04"),
        _ubuntu("26.04"),
        _debian("12"),
        _debian("13"),
        _suse("sles15", "SUSE Linux Enterprise Server 15"),
        _suse("leap15", "openSUSE Leap 15"),
        _agama("sles16", "SUSE Linux Enterprise Server 16", "16"),
        _agama("leap16", "openSUSE Leap 16.0", "16.0"),
        _agama("leap161", "openSUSE Leap 16.1", "16.1"),
    )
}


def distro(name: str) -> Distro:
    """The distribution of that name. Raises UnknownDistro."""
    try:
        return DISTROS[name]
    except KeyError:
        raise UnknownDistro(name) from None
