"""What is wrong with a guest's cloud-init, told before anything is changed."""

from __future__ import annotations

from blocks.manifest.guest import Guest
from blocks.proxmox.properties import beyond_fields
from tasks.cloudinit.documents import documents
from tasks.findings import Finding, error, warning
from tasks.iso.checks import RenderError


def check_cloud_init(guest: Guest, *, env: str) -> list[Finding]:
    """Findings that need no call: values that the declared method cannot carry.

    Storages, rights and the host of the snippets are the preflight's to check.
    """
    told = guest.cloud_init
    if told is None:
        return []
    found: list[Finding] = []
    if told.method == "fields":
        remedy = "leave it out, or set cloud_init.method to seed (or snippets)"
        for text in beyond_fields(guest):
            problem = f"the cloud-init options of Proxmox VE cannot say {text}"
            found.append(error(problem, remedy, guest=guest.label))
    else:
        try:
            documents(guest, env=env)
        except RenderError as refused:
            found.append(error(f"{refused.key} {refused.problem}", guest=guest.label))
    if told.method == "snippets" and told.snippet_storage is None:
        remedy = "name a storage with content snippets"
        found.append(error("cloud_init.snippets.storage is not set", remedy, guest=guest.label))
    if not (told.ssh_keys or told.password_hash or told.password or told.user_data):
        problem = "nobody can log in: there is neither an SSH key nor a password"
        found.append(warning(problem, "give cloud_init.ssh_keys", guest=guest.label))
    return found
