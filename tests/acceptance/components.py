"""Packages of Debian's installer, by the machine's own apt, in folders of their own.

The machine's sources say from where; nothing of its package lists is touched.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

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
        """Download packages by name."""
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


def components(folder: Path) -> Components | None:
    """The installer's packages, None where apt has no source of Debian's main."""
    command = ["apt-get", "indextargets", "--format", "$(SITE) $(RELEASE) $(COMPONENT)"]
    listed = subprocess.run(command, check=False, capture_output=True, text=True).stdout
    for line in listed.splitlines():
        words = line.split()
        if words[1:] == [SUITE, "main"]:
            found = Components(folder, words[0])
            return found if found.update() else None
    return None
