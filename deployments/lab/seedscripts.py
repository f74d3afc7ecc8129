"""What an installer does inside the system that it has installed: users, keys, scripts.

Read from the same answer files as the addresses (see :mod:`.seeds`). Scripts are run by the lab's
own shell when the guest's file system is first looked at.
"""

from __future__ import annotations

import re
import shlex
import xml.etree.ElementTree as ET
from typing import Any

from deployments.lab.accounts import hash_password

_POST = re.compile(r"^%post\b[^\n]*\n(.*?)^%end", re.MULTILINE | re.DOTALL)
_NO_LOGIN = "!"


def setup_of(name: str, files: dict[str, str]) -> dict[str, Any]:
    """``scripts`` in their order, ``accounts`` (user to password hash), ``keys`` (user to text)."""
    text = files[name]
    setup: dict[str, Any] = {"scripts": [], "accounts": {}, "keys": {}}
    if name == "ks.cfg":
        setup["scripts"] += _POST.findall(text)
        _kickstart_accounts(text, setup)
    elif name == "user-data":
        _autoinstall(text, setup)
    elif name == "preseed.cfg":
        _preseed_accounts(text, setup)
    elif name == "autoinst.json":
        _agama(text, setup)
    else:
        _autoyast(text, setup)
    setup["scripts"] += [body for other, body in sorted(files.items()) if other.endswith(".sh")]
    return setup


def _kickstart_accounts(text: str, setup: dict[str, Any]) -> None:
    for line in text.splitlines():
        if not line.startswith(("rootpw ", "user ")):
            continue
        try:
            words = shlex.split(line)
        except ValueError:
            continue
        options = dict(word.partition("=")[::2] for word in words[1:] if word.startswith("--"))
        plain = [word for word in words[1:] if not word.startswith("--")]
        name = options.get("--name", "root" if words[0] == "rootpw" else "")
        given = options.get("--password") or (plain[-1] if plain else "")
        if name:
            setup["accounts"][name] = _stored(given, crypted="--iscrypted" in options)


def _stored(given: str, *, crypted: bool) -> str:
    if not given:
        return _NO_LOGIN
    return given if crypted else hash_password(given)


def _autoinstall(text: str, setup: dict[str, Any]) -> None:
    from deployments.lab.seeds import read_yaml

    document = read_yaml(text)
    install = document.get("autoinstall", document)
    identity = install.get("identity") or {}
    if identity.get("username"):
        stored = _stored(str(identity.get("password") or ""), crypted=True)
        setup["accounts"][str(identity["username"])] = stored
        keys = (install.get("ssh") or {}).get("authorized-keys") or []
        setup["keys"][str(identity["username"])] = "\n".join(str(key) for key in keys)
    for command in install.get("late-commands") or []:
        words = [str(word) for word in command] if isinstance(command, list) else []
        line = shlex.join(words) if words else str(command)
        setup["scripts"].append(line.replace("/target/", "/"))


def _preseed_accounts(text: str, setup: dict[str, Any]) -> None:
    values: dict[str, str] = {}
    for line in text.replace("\\\n", " ").splitlines():
        parts = line.split(None, 3)
        if len(parts) == 4 and not line.lstrip().startswith("#"):
            values[parts[1]] = parts[3]
    other = values.get("passwd/username", "")
    for user, key in (("root", "passwd/root-password"), (other, "passwd/user-password")):
        given = values.get(f"{key}-crypted") or values.get(key)
        if user and (given or user != "root"):
            crypted = f"{key}-crypted" in values
            setup["accounts"][user] = _stored(given or "", crypted=crypted)


def _autoyast(text: str, setup: dict[str, Any]) -> None:
    try:
        root = ET.fromstring(text)  # noqa: S314 - the file comes from the operator's own seed
    except ET.ParseError:
        return
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
    for user in root.iter("user"):
        name = user.findtext("username")
        if name:
            crypted = user.findtext("encrypted") == "true"
            setup["accounts"][name] = _stored(user.findtext("user_password") or "", crypted=crypted)
    setup["scripts"] += [source.text or "" for source in root.iter("source")]


def _agama(text: str, setup: dict[str, Any]) -> None:
    from deployments.lab.seeds import agama_scripts, read_json

    profile = read_json(text)
    root, user = (profile.get(kind) or {} for kind in ("root", "user"))
    for name, account in (("root", root), (str(user.get("userName") or ""), user)):
        if name and account:
            given = str(account.get("password") or "")
            crypted = account.get("hashedPassword") is True
            setup["accounts"][name] = _stored(given, crypted=crypted)
    if root.get("sshPublicKey"):
        setup["keys"]["root"] = str(root["sshPublicKey"])
    setup["scripts"] += agama_scripts(profile)
