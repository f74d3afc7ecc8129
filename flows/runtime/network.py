"""What of a user's environment keeps Prefect's client from its API: proxies, certificates."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

_NAMES: Final = ("NO_PROXY", "no_proxy")
# The second one is Prefect's own setting, which takes its default from the first one.
_CERTIFICATES: Final = ("SSL_CERT_FILE", "PREFECT_API_SSL_CERT_FILE")


def unproxied(url: str | None, environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables that keep a proxy out of the way to an API on the loopback interface.

    None for one elsewhere, which may well be behind a proxy. What is exempted already stays so.
    """
    host = (urlsplit(url).hostname if url else None) or ""
    if not _is_loopback(host):
        return {}
    known = os.environ if environment is None else environment
    # Python takes the name in small letters where both are set.
    given = known.get("no_proxy") or known.get("NO_PROXY") or ""
    hosts = [each.strip() for each in given.split(",") if each.strip()]
    exempted = given if {"*", host} & {*hosts} else ",".join((*hosts, host))
    return dict.fromkeys(_NAMES, exempted)


def certificate_trouble() -> str | None:
    """What is wrong with the file of certificates that a variable names, or None.

    Prefect's client reads it for each connection, also for one without TLS.
    """
    for name in _CERTIFICATES:
        file = os.environ.get(name)
        if not file:
            continue
        try:
            ssl.create_default_context(cafile=file)
        except ssl.SSLError:
            what = "holds no certificates in PEM form"
        except (OSError, ValueError) as error:
            what = f"cannot be read: {getattr(error, 'strerror', None) or error}"
        else:
            continue
        return (
            f"The file of certificates that {name} names, {file!r}, {what}.\n"
            f"  next: set {name} to a file of CA certificates in PEM form, or unset it."
        )
    return None


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
