"""What Ansible variables tell cloud-init: who logs in, addresses, packages."""

from __future__ import annotations

from typing import Any

from blocks.manifest.template.ansible_file import Vars
from blocks.manifest.template.ansible_values import address_of, flag, lines, word, words


def cloud_init_of(found: Vars) -> dict[str, Any]:
    """The ``cloud_init`` part."""
    told: dict[str, Any] = {}
    user = found.take(
        "ci_user",
        "ciuser",
        "cloud_init_user",
        "cloudinit_user",
        "vm_ciuser",
        "cloud_user",
        "ci_username",
        "vm_user",
        "username",
        into=word,
    )
    if user:
        told["user"] = user
    keys = [
        key
        for names in (
            ("ssh_key_file", "ssh_key_path", "ssh_public_key_file", "ssh_pubkey_file"),
            ("ssh_keys", "ssh_key", "ssh_public_key", "ssh_public_keys", "sshkeys", "ssh_pub_key"),
            ("ci_ssh_keys", "cloud_init_ssh_keys", "ci_sshkeys", "ci_ssh_key"),
        )
        for key in found.take(*names, several=True, into=lines) or ()
    ]
    if keys:
        told["ssh_keys"] = list(dict.fromkeys(keys))
    told |= _password(found)
    for part, spellings in (
        ("dns", ("dns", "nameserver", "nameservers", "dns_servers", "vm_nameservers")),
        ("search", ("searchdomain", "search_domain", "dns_search", "search_domains", "search")),
    ):
        several = found.take(*spellings, several=True, into=words)
        if several:
            told[part] = several
    address, gateway = address_of(found)
    if address is not None:
        told["ip"] = [address]
    if gateway is not None:
        told["gateway"] = gateway
    for key, names in (
        ("timezone", ("timezone", "tz", "ci_timezone")),
        ("locale", ("locale", "ci_locale")),
        ("storage", ("cloudinit_storage", "cloud_init_storage", "ci_storage", "ci_drive_storage")),
    ):
        value = found.take(*names, into=word)
        if value:
            told[key] = value
    for key, names in (
        ("packages", ("packages", "ci_packages", "cloud_init_packages", "install_packages")),
        ("commands", ("runcmd", "commands", "ci_runcmd", "cloud_init_runcmd")),
    ):
        several = found.take(*names, several=True, into=lines)
        if several:
            told[key] = several
    if found.take("upgrade", "ci_upgrade", "package_upgrade", "upgrade_packages", into=flag):
        told["upgrade"] = True
    snippets = found.take("snippets_storage", "snippet_storage", "snippets", into=word)
    if snippets:
        told["snippets"] = {"storage": snippets.partition(":")[0]}
    return told


def _password(found: Vars) -> dict[str, str]:
    names = (
        "ci_password",
        "cipassword",
        "cloud_init_password",
        "cloudinit_password",
        "vm_cipassword",
        "user_password",
        "vm_password",
        "password",
    )
    value = found.take(*names, secret=True)
    if value is None:
        return {}
    hashed = isinstance(value, str) and value.startswith("$") and value.count("$") > 2
    name = "CI_PASSWORD_HASH" if hashed else "CI_PASSWORD"
    found.notes.append(f"password: not copied; put it into the environment variable {name}")
    return {"password_hash" if hashed else "password": f"${{env:{name}}}"}
