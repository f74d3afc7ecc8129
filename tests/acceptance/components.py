"""Packages of Debian's installer, by the machine's own apt, in folders of their own.

The machine's sources say from where; nothing of its package lists is touched.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

# Packages of the installer without which no installation comes to its end.
WHOLE = (
    *("base-installer", "bootstrap-base", "debootstrap-udeb", "apt-setup-udeb", "apt-mirror-setup"),
    *("partman-auto-lvm", "partman-target", "libparted2-udeb", "lvm2-udeb", "e2fsprogs-udeb"),
    *("user-setup-udeb", "tzsetup-udeb", "clock-setup", "pkgsel", "grub-installer"),
    "finish-install",
)
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
SUITE = "bookworm"


@dataclass(frozen=True)
class Components:
    """The installer's packages of the mirror that this machine uses."""

    folder: Path
    uri: str

    @property
    def _options(self) -> list[str]:
        settings = {
            "Dir::Etc::sourcelist": str(self.folder / "sources.list"),
            "Dir::Etc::sourceparts": "-",
            "Dir::State::lists": str(self.folder / "lists"),
            "Dir::Cache": str(self.folder / "cache"),
            "APT::Sandbox::User": "",
            "Acquire::Languages": "none",
            "Debug::NoLocking": "1",
        }
        return [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]

    def update(self) -> bool:
        """Read the lists; False where the mirror does not carry the installer's packages."""
        for name in ("lists/partial", "cache/archives/partial", "pool"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        line = f"deb [signed-by={KEYRING}] {self.uri} {SUITE} main/debian-installer\n"
        (self.folder / "sources.list").write_text(line)
        command = ["apt-get", *self._options, "update"]
        done = subprocess.run(command, check=False, capture_output=True)
        return done.returncode == 0 and self.packages() != ""

    def packages(self) -> str:
        """The list of packages, as the mirror has it."""
        found = sorted((self.folder / "lists").glob("*debian-installer*Packages*"))
        if not found:
            return ""
        command = ["/usr/lib/apt/apt-helper", "cat-file", str(found[0])]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def release(self) -> str:
        """The signed text of the suite's Release file, without its signature."""
        (found,) = (self.folder / "lists").glob("*_InRelease")
        text = found.read_text()
        return text.partition("\n\n")[2].partition("-----BEGIN PGP SIGNATURE")[0]

    def fetch(self, *names: str) -> list[Path]:
        """Download packages by name. Raises CalledProcessError where the mirror lacks one."""
        pool = self.folder / "pool"
        subprocess.run(
            ["apt-get", *self._options, "download", *names],
            check=True,
            capture_output=True,
            cwd=pool,
        )
        return [path for name in names for path in pool.glob(f"{name}_*.udeb")]

    def by_path(self, path: str) -> Path | None:
        """The package of that path, downloaded by its name; None where the mirror lacks it.

        Some mirrors list the installer's packages and keep only those that others need, too.
        """
        stanza = next((s for s in self.packages().split("\n\n") if f"Filename: {path}\n" in s), "")
        named = re.search(r"^Package: (\S+)$", stanza, re.MULTILINE)
        try:
            return next(iter(self.fetch(named[1])), None) if named else None
        except subprocess.CalledProcessError:
            return None

    def lacking(self) -> list[str]:
        """The packages of a whole installation that the mirror does not have."""
        lacking = []
        for name in WHOLE:
            try:
                self.fetch(name)
            except subprocess.CalledProcessError:
                lacking.append(name)
        return lacking

    def upstream(self, path: str) -> bytes | None:
        """A file of the mirror as it is; None where the mirror lacks it."""
        target = self.folder / "upstream"
        target.unlink(missing_ok=True)
        command = ["/usr/lib/apt/apt-helper", "-o", "APT::Sandbox::User=", "download-file"]
        done = subprocess.run(
            [*command, f"{self.uri.rstrip('/')}/{path}", str(target)],
            check=False,
            capture_output=True,
        )
        return target.read_bytes() if done.returncode == 0 else None


def sources() -> list[str]:
    """Lines for sources.list: the machine's own sources of the release's main."""
    suites = {f"{SUITE}{more}" for more in ("", "-updates", "-security")}
    return sorted(
        f"deb [signed-by={KEYRING}] {site} {release} main"
        for site, release, component in _targets()
        if release in suites and component == "main"
    )


def components(folder: Path) -> Components | None:
    """The installer's packages, None where apt has no source of Debian's main."""
    for site, release, component in sorted(_targets()):
        if (release, component) == (SUITE, "main"):
            found = Components(folder, site)
            return found if found.update() else None
    return None


def _targets() -> set[tuple[str, str, str]]:
    """Site, release and component of every list that the machine's apt has."""
    command = ["apt-get", "indextargets", "--format", "$(SITE) $(RELEASE) $(COMPONENT)"]
    listed = subprocess.run(command, check=False, capture_output=True, text=True).stdout
    rows = (tuple(line.split()) for line in listed.splitlines())
    return {(row[0], row[1], row[2]) for row in rows if len(row) == 3}
