"""How the server's certificate is trusted, decided by the connection alone.

Nothing of the environment (``REQUESTS_CA_BUNDLE``, ``SSL_CERT_FILE``, proxy variables) has a say.
"""

from __future__ import annotations

import hashlib
import socket
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import certifi
import requests
import urllib3
from requests.adapters import HTTPAdapter
from requests.models import PreparedRequest
from urllib3.exceptions import InsecureRequestWarning

from blocks.proxmox.connection import Connection
from blocks.proxmox.errors import BadSettings, ProxmoxError, UntrustedCertificate

BLOCK_SIZE = 1024 * 1024
"""Bytes of one write of a streamed body; the default of 16 KiB makes uploads slow."""

POOL_SIZE = 32
"""Connections kept open: one for each thread that may work at once."""

# X509_V_ERR_* of OpenSSL, as SSLCertVerificationError.verify_code gives them.
_EXPIRED = frozenset({10})
_NOT_YET_VALID = frozenset({9})
_WRONG_NAME = frozenset({62, 64})


def fingerprint_of(certificate: bytes) -> str:
    """The SHA-256 fingerprint of a DER certificate, as Proxmox VE shows it (``AB:CD:..``)."""
    digest = hashlib.sha256(certificate).hexdigest().upper()
    return ":".join(digest[i : i + 2] for i in range(0, len(digest), 2))


def system_store() -> tuple[ssl.SSLContext, str]:
    """A context that trusts the operating system's authorities, and where these were found.

    The locations are the ones that OpenSSL was built with; where a machine keeps nothing there,
    the list of the ``certifi`` package serves.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    built_in = ssl.get_default_verify_paths()
    file, folder = Path(built_in.openssl_cafile), Path(built_in.openssl_capath)
    if file.is_file():
        context.load_verify_locations(cafile=file)
        return context, str(file)
    if folder.is_dir() and any(folder.iterdir()):
        context.load_verify_locations(capath=folder)
        return context, str(folder)
    context.load_verify_locations(cafile=certifi.where())
    return context, certifi.where()


def _from_file(path: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # A node's own certificate may be given in place of the authority that signed it.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cafile=path)
    except FileNotFoundError:
        raise BadSettings([f"ca_file: {path} does not exist"]) from None
    except PermissionError:
        raise BadSettings([f"ca_file: {path} cannot be read by this user"]) from None
    except (ssl.SSLError, OSError):
        raise BadSettings(
            [f"ca_file: {path} holds no PEM certificate"],
            advice="on a node the right file is /etc/pve/pve-root-ca.pem",
        ) from None
    return context


class TrustingAdapter(HTTPAdapter):
    """A requests adapter with one TLS context, made once from a connection.

    ``trust`` says in words what is trusted. A pinned fingerprint decides alone: neither issuer,
    name nor dates of the certificate matter then.
    """

    def __init__(self, connection: Connection) -> None:
        """Raise BadSettings where the CA file is missing or is none."""
        self.fingerprint = connection.fingerprint
        if connection.fingerprint is not None:
            self.context = _unverified()
            self.trust = f"the certificate with SHA-256 fingerprint {connection.fingerprint}"
        elif connection.ca_file is not None:
            self.context = _from_file(connection.ca_file)
            self.trust = f"certificates signed by {connection.ca_file}"
        elif connection.verify:
            self.context, where = system_store()
            self.trust = f"certificates signed by an authority of this machine ({where})"
        else:
            self.context = _unverified()
            self.trust = "any certificate: verification is off"
            # Said once by the client's notices, not by urllib3 at every connection.
            urllib3.disable_warnings(InsecureRequestWarning)
        super().__init__(pool_connections=4, pool_maxsize=POOL_SIZE)

    def init_poolmanager(
        self, connections: int, maxsize: int, block: bool = False, **pool_kwargs: object
    ) -> None:
        """Large blocks, so that uploads are not cut into crumbs."""
        super().init_poolmanager(
            connections, maxsize, block=block, blocksize=BLOCK_SIZE, **pool_kwargs
        )

    def build_connection_pool_key_attributes(  # type: ignore[override]
        self, request: PreparedRequest, verify: object, cert: object = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Ignore what requests would verify by; the context and the fingerprint decide."""
        url = urlsplit(request.url or "")
        host = {"scheme": url.scheme, "host": url.hostname, "port": url.port}
        return host, {"ssl_context": self.context, "assert_fingerprint": self.fingerprint}

    def cert_verify(self, conn: object, url: str, verify: object, cert: object) -> None:
        """Leave the connection as the pool made it."""


def _unverified() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def seen_fingerprint(host: str, port: int, *, timeout: float = 5.0) -> str | None:
    """The fingerprint of whatever certificate the server shows now; None where it shows none."""
    try:
        with (
            socket.create_connection((host, port), timeout=timeout) as plain,
            _unverified().wrap_socket(plain, server_hostname=host) as secured,
        ):
            certificate = secured.getpeercert(binary_form=True)
    except OSError:
        return None
    return fingerprint_of(certificate) if certificate else None


def causes(error: BaseException) -> list[BaseException]:
    """An error and those that it came from, through urllib3's wrappers too."""
    found: list[BaseException] = []
    queue: list[object] = [error]
    while queue:
        current = queue.pop(0)
        if isinstance(current, BaseException) and current not in found:
            found.append(current)
            queue += [getattr(current, "reason", None), current.__cause__, current.__context__]
            queue += list(current.args)
    return found


def tls_trouble(error: requests.exceptions.SSLError, connection: Connection) -> ProxmoxError | None:
    """The certificate trouble behind an error of requests; None where it is no such trouble."""
    host, port = connection.host, connection.port
    if connection.fingerprint is not None:
        if "Fingerprints did not match" not in str(error):
            return None
        seen = seen_fingerprint(host, port)
        return UntrustedCertificate(
            f"the certificate of {host}:{port} is not the pinned one: expected SHA-256 "
            f"fingerprint {connection.fingerprint}, seen {seen or 'none'}",
            advice="if the node got a new certificate, compare with `pvenode cert info` on the "
            "node and pin the new fingerprint; if not, somebody is in between",
        )
    found = next((e for e in causes(error) if isinstance(e, ssl.SSLCertVerificationError)), None)
    if found is None:
        return None
    seen = seen_fingerprint(host, port)
    return UntrustedCertificate(
        f"the certificate of {host}:{port} {_complaint(found, connection)}; its SHA-256 "
        f"fingerprint is {seen or 'not to be had'}",
        advice="compare the fingerprint with `pvenode cert info` on the node; if it is the same, "
        f"pin it: `fingerprint: {seen}` in clusters.yaml, or PROXMOX_FINGERPRINT; or give the "
        "cluster's own authority, /etc/pve/pve-root-ca.pem, as `ca_file` (PROXMOX_CA_FILE)",
    )


def _complaint(error: ssl.SSLCertVerificationError, connection: Connection) -> str:
    code = error.verify_code
    if code in _EXPIRED:
        return "has expired"
    if code in _NOT_YET_VALID:
        return "is not valid yet (or this machine's clock is wrong)"
    if code in _WRONG_NAME:
        return f"was made for another name than {connection.host}"
    if connection.ca_file is not None:
        return f"is not signed by {connection.ca_file} ({error.verify_message})"
    return f"is not signed by an authority that this machine knows ({error.verify_message})"
