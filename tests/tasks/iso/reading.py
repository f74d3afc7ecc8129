"""Reads rendered files back with the installers' own parsers, where there are any."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import warnings
from typing import Any
from xml.etree import ElementTree as ET

from pykickstart.parser import KickstartParser
from pykickstart.version import makeVersion
from ruamel.yaml import YAML

from tasks.iso.render import Rendered

NS = {"y": "http://www.suse.com/1.0/yast2ns"}


def kickstart(rendered: Rendered) -> Any:
    """The handler of pykickstart; every warning of it is an error."""
    parser = KickstartParser(makeVersion(rendered.distro.ksversion))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parser.readKickstartFromString(rendered.files["ks.cfg"])
    return parser.handler


def autoinstall(rendered: Rendered) -> dict[str, Any]:
    text = rendered.files["user-data"]
    assert text.startswith("#cloud-config\n")
    found: dict[str, Any] = YAML(typ="safe", pure=True).load(text)["autoinstall"]
    return found


def profile(rendered: Rendered) -> ET.Element:
    return ET.fromstring(rendered.files["autoinst.xml"])


def agama(rendered: Rendered) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(rendered.files["autoinst.json"])
    return found


def preseed(rendered: Rendered) -> dict[str, str]:
    answers = {}
    for line in rendered.files["preseed.cfg"].splitlines():
        if line and not line.startswith("#"):
            _owner, name, _kind, *value = line.split(" ", 3)
            answers[name] = value[0] if value else ""
    return answers


def setup(rendered: Rendered) -> str:
    """The shell scripts that run in the installed system, in the order that they run in."""
    family = rendered.distro.family
    if family == "anaconda":
        (script,) = kickstart(rendered).scripts
        return str(script.script)
    if family == "autoyast":
        scripts = profile(rendered).findall("y:scripts/*/y:script/y:source", NS)
        return "".join(source.text or "" for source in scripts)
    if family == "agama":
        scripts = agama(rendered)["scripts"]
        return "".join(one["content"] for one in (*scripts["post"], *scripts["init"]))
    return rendered.files["setup.sh"]


def installed_late(rendered: Rendered) -> list[str]:
    """Packages and patterns that the scripts install, in order, as the shell splits the words."""
    managers = ("dnf --assumeyes install ", "apt-get --yes install ", "fetch install ")
    found: list[str] = []
    for line in setup(rendered).splitlines():
        if line.startswith(managers):
            words = shlex.split(line)[2 if line.startswith("fetch") else 3 :]
            patterns = words[:1] == ["-t"]
            found += [f"pattern:{word}" for word in words[2:]] if patterns else words
    return found


def puts(rendered: Rendered) -> list[tuple[str, str, str]]:
    """The files that the script writes, as the shell splits its words: path, mode, text."""
    lexer = shlex.shlex(setup(rendered), posix=True, punctuation_chars=";&|()<>")
    lexer.whitespace_split = True
    words = list(lexer)
    return [
        (words[index + 1], words[index + 2], words[index + 3])
        for index, word in enumerate(words[:-3])
        if word == "put" and re.fullmatch(r"0[0-7]{3}", words[index + 2])
    ]


def put_files(rendered: Rendered) -> dict[str, tuple[str, str]]:
    """The same by path, for those with a path of their own."""
    return {path: (mode, text) for path, mode, text in puts(rendered)}


def shell_accepts(script: str) -> bool:
    return subprocess.run(["sh", "-n"], input=script, text=True, check=False).returncode == 0
