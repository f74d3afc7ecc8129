"""What a value must look like before it may go into an installer's file.

Installer files are line-based, quoted in four different ways, and run as root. So a value with a
narrow meaning (a host name, a package) must look like one, and free text must fit on one line of
printable characters. Everything else is refused by name; nothing is repaired silently.
"""

from __future__ import annotations

import re
import unicodedata
from locale import locale_alias
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from blocks.manifest.fields import CRYPT

_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOSTNAME = re.compile(_LABEL)
_DOMAIN = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_ALIAS = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}")
_TIMEZONE = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+){0,2}")
_LANG = re.compile(r"[A-Za-z]{1,8}(?:_[A-Z]{2})?(?:\.[A-Za-z0-9-]+)?(?:@[a-z]+)?")
_KEYBOARD = re.compile(r"(?P<layout>[a-z0-9_-]+)(?: ?\((?P<variant>[A-Za-z0-9_-]+)\))?")
_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
_INTERFACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}")
_MAC = re.compile(r"(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}")
_REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_SERIAL = re.compile(r"[A-Za-z0-9._-]{1,20}")
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,61}[A-Za-z0-9])?")
_SSH_KEY = re.compile(
    r"(?:[A-Za-z][A-Za-z0-9-]*(?:=\"[^\"]*\")?(?:,[A-Za-z][A-Za-z0-9-]*(?:=\"[^\"]*\")?)* )?"
    r"(?:ssh-(?:rsa|dss|ed25519)|ecdsa-sha2-nistp(?:256|384|521)"
    r"|sk-(?:ssh-ed25519|ecdsa-sha2-nistp256)@openssh\.com)"
    r" [A-Za-z0-9+/]{16,}={0,3}(?: .*)?"
)
_LONGEST = 16_384


class RenderError(ValueError):
    """A value that no installer file can hold, by the key that it was written under."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"{key}: {problem}")
        self.key = key
        self.problem = problem


def _shown(value: str) -> str:
    return repr(value if len(value) <= 60 else value[:57] + "...")


def line(key: str, value: str, *, longest: int = _LONGEST) -> str:
    """Free text: one line, printable, encodable as UTF-8 and as XML."""
    if len(value) > longest:
        raise RenderError(key, f"is {len(value)} characters long; at most {longest} fit")
    for char in value:
        if unicodedata.category(char) in {"Cc", "Cs", "Zl", "Zp"} or ord(char) & 0xFFFE == 0xFFFE:
            raise RenderError(
                key, f"has the character U+{ord(char):04X}; it must be one printable line"
            )
    return value


def _match(key: str, value: str, pattern: re.Pattern[str], meaning: str) -> str:
    if pattern.fullmatch(value) is None:
        raise RenderError(key, f"{_shown(value)} is not {meaning}")
    return value


def hostname(key: str, value: str) -> str:
    """A host name without a domain, RFC 1123."""
    return _match(
        key, value, _HOSTNAME, "a host name: letters, digits and inner hyphens, at most 63"
    )


def domain(key: str, value: str) -> str:
    """A domain or a fully qualified host name, at most 253 characters."""
    if len(value) > 253:
        raise RenderError(key, "is longer than the 253 characters of a domain name")
    return _match(key, value, _DOMAIN, "a domain name, such as example.com")


def alias(key: str, value: str) -> str:
    """A name in /etc/hosts, where underscores are common."""
    return _match(key, value, _ALIAS, "a host name of letters, digits, dots, _ and -")


def name(key: str, value: str) -> str:
    """An environment's or guest's name, as it goes into file names: no underscore."""
    return _match(key, value, _NAME, "a name of letters, digits, dots and hyphens, at most 63")


def server(key: str, value: str) -> str:
    """A host name or an IP address."""
    return value if re.fullmatch(r"[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*", value) else domain(key, value)


def timezone(key: str, value: str) -> str:
    """A name of the time-zone database.

    Installers take a name that they do not know in many ways: one stops and asks, one breaks off,
    one takes New York.
    """
    _match(key, value, _TIMEZONE, "a time zone, such as Europe/Berlin")
    try:
        ZoneInfo(value)
    except (OSError, ValueError, LookupError):
        raise RenderError(
            key, f"{_shown(value)} is not in the time-zone database; write it as in Europe/Berlin"
        ) from None
    return value


def lang(key: str, value: str) -> str:
    """A locale."""
    return _match(key, value, _LANG, "a locale, such as en_US.UTF-8")


def utf8_lang(key: str, value: str, installer: str) -> str:
    """Language and country of a locale, for installers that know no encoding but UTF-8."""
    found = re.fullmatch(r"([a-z]{2,3}_[A-Z]{2})(?:\.(?:UTF-8|utf8))?", value)
    if found is None or found[1].lower() not in locale_alias:
        raise RenderError(
            key, f"{_shown(value)} is not a locale that {installer} takes, such as en_US.UTF-8"
        )
    return found[1]


def keyboard(key: str, value: str) -> tuple[str, str]:
    """Layout and variant of ``us`` or ``de (nodeadkeys)``."""
    found = _KEYBOARD.fullmatch(value)
    if found is None:
        raise RenderError(
            key, f"{_shown(value)} is not a keyboard layout, such as us or de (nodeadkeys)"
        )
    return found["layout"], found["variant"] or ""


def user(key: str, value: str) -> str:
    """A user name that every distribution accepts."""
    return _match(key, value, _USER, "a user name: lower-case letters, digits, _ and -, at most 32")


def interface(key: str, value: str) -> str:
    """The name of a network interface: the kernel allows 15 characters."""
    return _match(key, value, _INTERFACE, "an interface name of at most 15 characters")


def mac(key: str, value: str | None) -> str:
    """A MAC address, in lower case."""
    if value is None:
        raise RenderError(key, "the card has no MAC address, so the installer cannot tell it apart")
    return _match(key, value, _MAC, "a MAC address, such as BC:24:11:00:00:01").lower()


def repository(key: str, value: str) -> str:
    """The name of a repository, which becomes a file name."""
    return _match(key, value, _REPOSITORY, "a repository name of letters, digits, . _ -")


def serial(key: str, value: str) -> str:
    """The serial number of a disk."""
    return _match(key, value, _SERIAL, "a serial number of at most 20 letters, digits, . _ -")


def crypt_hash(key: str, value: str) -> str:
    """A crypt(3) string; the refused text is never shown."""
    if CRYPT.fullmatch(value) is None:
        raise RenderError(key, "is not a crypt(3) hash, such as mkpasswd -m sha-512 prints")
    return value


def ssh_key(key: str, value: str) -> str:
    """A line of an authorized_keys file."""
    return _match(
        key, line(key, value.strip()), _SSH_KEY, "a public SSH key: type, base64 text, comment"
    )


def url(key: str, value: str, schemes: tuple[str, ...] = ("http", "https", "ftp")) -> str:
    """An absolute URL without white space."""
    line(key, value, longest=2048)
    try:
        parts = urlsplit(value)
        usable = parts.scheme in schemes and bool(parts.hostname)
    except ValueError:
        usable = False
    if not usable or re.search(r"[\s\"'\\<>`]", value) or not value.isascii():
        raise RenderError(
            key, f"{_shown(value)} is not a URL that begins with {', '.join(schemes)}"
        )
    return value
