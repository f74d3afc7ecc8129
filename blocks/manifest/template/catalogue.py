"""The catalogue of cloud images: short names for what distributions publish, and the user's own."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from blocks.manifest.faults import Fault
from blocks.manifest.reader import Reader
from blocks.manifest.template.fields import Digests, UserName, WebUrl
from blocks.manifest.validation import validate
from blocks.model import Model
from blocks.paths import config_dir, is_file

FILE_NAME = "images.yaml"
_SHIPPED = Path(__file__).with_name(FILE_NAME)
_Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]{0,39}$")]


class CatalogueImage(Model):
    """An image that can be named. ``checksum``, or ``checksums`` where it changes."""

    title: str = Field(min_length=1, description="Its name in full", examples=["Debian 13"])
    aliases: tuple[_Name, ...] = Field(
        default=(), description="Further short names", examples=[["trixie"]]
    )
    url: WebUrl = Field(
        description="Where the newest one is",
        examples=["https://images.example.com/latest/golden.qcow2"],
    )
    checksum: Digests | None = Field(
        default=None,
        description="Its checksum, where the URL is of one version",
        examples=["sha256:" + "01234567" * 8],
    )
    checksums: WebUrl | None = Field(
        default=None,
        description="The publisher's list of checksums",
        examples=["https://images.example.com/latest/SHA256SUMS"],
    )
    signature: WebUrl | None = Field(
        default=None,
        description="Detached signature of the list",
        examples=["https://images.example.com/latest/SHA256SUMS.gpg"],
    )
    user: UserName | None = Field(
        default=None, description="User that the image logs in", examples=["debian"]
    )
    ostype: str = Field(
        default="l26", pattern=r"^[a-z0-9]+$", description="ostype of the VM", examples=["l26"]
    )
    firmware: tuple[Literal["seabios", "ovmf"], ...] = Field(
        default=("seabios", "ovmf"), min_length=1, description="What it boots with, best first"
    )
    secure_boot: bool = Field(default=False, description="It boots with Secure Boot")
    cpu: str | None = Field(
        default=None, description="Lowest CPU type that runs it", examples=["x86-64-v3"]
    )
    notes: str = Field(default="", description="What else is to be known")

    @model_validator(mode="after")
    def _can_be_checked(self) -> Self:
        if self.checksum is None and self.checksums is None:
            raise ValueError(
                "has neither a checksum nor a list of them; add 'checksum: sha256:HEX' or"
                " 'checksums: URL'"
            )
        return self


class Images(Model):
    """A file of the catalogue."""

    kind: Literal["Images"] = Field(description="The kind of document", examples=["Images"])
    images: dict[_Name, CatalogueImage] = Field(description="The images by short name")


class Catalogue:
    """All images that can be named, the user's before the shipped ones."""

    def __init__(self, images: Mapping[str, CatalogueImage]) -> None:
        self.images = dict(images)
        self._names: dict[str, str] = {}
        # Whoever writes an entry of that name means it, also where it is an alias elsewhere.
        for name in self.images:
            self._names[name] = name
        for name, image in self.images.items():
            for alias in image.aliases:
                self._names.setdefault(alias, name)

    def find(self, name: str) -> tuple[str, CatalogueImage] | None:
        """The image of a short name or alias, with its short name; None where there is none."""
        found = self._names.get(name.strip().lower())
        return (found, self.images[found]) if found is not None else None

    @property
    def names(self) -> tuple[str, ...]:
        """All names, aliases too."""
        return tuple(self._names)


def load_catalogue(
    beside: Path, env: Mapping[str, str], faults: list[Fault], files: list[Path]
) -> Catalogue:
    """The shipped catalogue under that of the user's folder, under ``images.yaml`` in ``beside``.

    What is wrong with the user's files is added to ``faults``, and the files to ``files``.
    """
    images = dict(shipped().images)
    for folder in (config_dir(env), beside):
        file = (folder / FILE_NAME).absolute()
        if is_file(file):
            images.update(_read(file, faults, files))
    return Catalogue(images)


@lru_cache(maxsize=1)
def shipped() -> Catalogue:
    """The images that come with this package."""
    faults: list[Fault] = []
    images = _read(_SHIPPED, faults, [])
    if faults:
        raise RuntimeError("\n".join(map(str, faults)))
    return Catalogue(images)


def _read(file: Path, faults: list[Fault], files: list[Path]) -> dict[str, CatalogueImage]:
    reader = Reader()
    root = reader.read(file)
    faults += reader.faults
    files += [each for each in reader.files if each not in files]
    if root is None or reader.exhausted:
        return {}
    kind = root.text("kind")
    found = validate(Images, root, faults)
    if found is None and kind not in (None, "Images"):
        return {}
    return dict(found.images) if found is not None else {}
