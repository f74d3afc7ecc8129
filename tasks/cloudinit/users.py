"""The user document: who logs in, what the system is called, what is installed and run."""

from __future__ import annotations

import re
from typing import Any

from blocks.manifest.guest import CloudInit, Guest
from blocks.proxmox.properties.cloudinit import password_hash
from tasks.iso import checks
from tasks.iso.checks import RenderError

# What cloud-init itself takes for a hash where no user is named; the rest would be a clear text.
_DEFAULT_USERS_HASH = re.compile(r"\$(?:1|2a|2y|5|6)(?:\$.+){2}")

# Debian makes only the locales on this list, whatever cloud-init asks it for, and cloud-init then
# reports an error (seen with Debian 12 and 22.4). Elsewhere there is no such list.
_LISTED_LOCALE = 'f=/etc/locale.gen; [ ! -e "$f" ] || grep -qxF "$1 $2" "$f" || echo "$1 $2" >>"$f"'


def user_data(guest: Guest, told: CloudInit) -> dict[str, Any]:
    """The document's content. Raises RenderError, which names the key of a value that is wrong."""
    name = checks.hostname("cloud_init.hostname", told.hostname)
    document: dict[str, Any] = {
        "hostname": name,
        "fqdn": fqdn(told),
        "preserve_hostname": False,
        "manage_etc_hosts": True,
        **_accounts(guest, told),
        "package_upgrade": told.upgrade,
    }
    if told.packages or told.upgrade:
        document["package_update"] = True
    if told.packages:
        document["packages"] = [checks.line("cloud_init.packages", one) for one in told.packages]
    if told.timezone is not None:
        document["timezone"] = checks.timezone("cloud_init.timezone", told.timezone)
    if told.locale is not None:
        document["locale"] = checks.lang("cloud_init.locale", told.locale)
        document["bootcmd"] = [["sh", "-c", _LISTED_LOCALE, "sh", *_charset(told.locale)]]
    document["growpart"] = {"mode": "auto", "devices": ["/"]}
    document["resize_rootfs"] = True
    if told.commands:
        document["runcmd"] = list(told.commands)
    return document


def fqdn(told: CloudInit) -> str:
    """The host name with its domain, if there is one."""
    name = f"{told.hostname}.{told.domain}" if told.domain else told.hostname
    return checks.domain("cloud_init.domain", name)


def _charset(locale: str) -> tuple[str, str]:
    """The locale and its character set, as the list has them; ISO 8859-1 is what unnamed means."""
    _, dot, charset = locale.partition("@")[0].partition(".")
    return locale, charset if dot else "ISO-8859-1"


def _accounts(guest: Guest, told: CloudInit) -> dict[str, Any]:
    """A named user takes the place of the image's own, with that one's groups and shell.

    ``hashed_passwd`` holds for a user that the image has already, ``passwd`` would not.
    """
    keys = [checks.ssh_key("cloud_init.ssh_keys", one) for one in told.ssh_keys]
    secret = password_hash(guest)
    if secret is not None:
        checks.crypt_hash("cloud_init.password_hash", secret)
    # Who has a key needs no password over the network.
    entries: dict[str, Any] = {"ssh_pwauth": secret is not None and not keys}
    if secret is not None:
        entries["chpasswd"] = {"expire": False}
    if told.user is None:
        return entries | _image_user(keys, secret)
    user: dict[str, Any] = {
        "name": checks.user("cloud_init.user", told.user),
        "lock_passwd": secret is None,
        **({"hashed_passwd": secret} if secret is not None else {}),
        **({"ssh_authorized_keys": keys} if keys else {}),
    }
    if told.user == "root":
        return entries | {"disable_root": False, "users": [user]}
    user["sudo"] = "ALL=(ALL) NOPASSWD:ALL" if told.sudo_nopasswd else "ALL=(ALL) ALL"
    return entries | {"user": user, "users": ["default"]}


def _image_user(keys: list[str], secret: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {"users": ["default"]}
    if keys:
        found["ssh_authorized_keys"] = keys
    if secret is not None:
        if not _DEFAULT_USERS_HASH.match(secret):
            raise RenderError(
                "cloud_init.password_hash",
                "the image's own user takes only hashes that mkpasswd -m sha-512 makes; "
                "name a user, or make such a hash",
            )
        found["password"] = secret
    return found
