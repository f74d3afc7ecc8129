"""Where a cluster is, who asks, and how its certificate is trusted; and where that is written.

Nothing here imports Prefect: command lines that only read must start quickly.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr, ValidationError, model_validator

from blocks.model import Model
from blocks.proxmox.contexts import Written, context_settings, current_context, settings_file
from blocks.proxmox.errors import BadSettings

DEFAULT_PORT = 8006

ENVIRONMENT: Mapping[str, str] = {
    "endpoint": "PROXMOX_ENDPOINT",
    "token_id": "PROXMOX_TOKEN_ID",
    "token_secret": "PROXMOX_TOKEN_SECRET",
    "user": "PROXMOX_USER",
    "password": "PROXMOX_PASSWORD",
    "ca_file": "PROXMOX_CA_FILE",
    "fingerprint": "PROXMOX_FINGERPRINT",
    "verify": "PROXMOX_VERIFY",
    "guest_proxy": "PROXMOX_GUEST_PROXY",
}

_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+(?:%\w+)?\]")
_USER = re.compile(r"[^\s:/@!]+(?:@[^\s:/@!]+)*@[A-Za-z][A-Za-z0-9._-]+")
_TOKEN = re.compile(rf"(?:{_USER.pattern})![A-Za-z0-9][A-Za-z0-9._-]*")
_PROXY = re.compile(r"socks5h?://(?:[^\s/@]+@)?(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}/?")
_HEX = re.compile(r"[0-9A-F]+")
_ENDPOINT_FORMS = "write https://HOST:8006, HOST:8006 or HOST"


def _endpoint(text: str) -> str:
    """``https://host:port`` of any accepted form."""
    text = text.strip()
    if not text:
        raise ValueError(f"is empty; {_ENDPOINT_FORMS}")
    if text.lower().startswith("http://"):
        raise ValueError("Proxmox VE speaks HTTPS only; write https:// instead of http://")
    if "://" in text and not text.lower().startswith("https://"):
        raise ValueError(f"is no HTTPS address; {_ENDPOINT_FORMS}")
    address = text.split("://", 1)[-1]
    host_port, _, path = address.partition("/")
    if path.strip("/") not in {"", "api2", "api2/json"}:
        raise ValueError("has a path that is not /api2/json; leave the path out")
    if "@" in host_port:
        raise ValueError("has a user name in it; user and token have settings of their own")
    if host_port.count(":") > 1 and not host_port.startswith("["):
        raise ValueError("an IPv6 address goes into brackets: https://[2001:db8::1]:8006")
    found = re.fullmatch(rf"(?P<host>{_HOST.pattern})(?::(?P<port>\d{{1,5}}))?", host_port)
    if found is None:
        raise ValueError(f"is no host and port; {_ENDPOINT_FORMS}")
    port = int(found["port"] or DEFAULT_PORT)
    if not 0 < port < 65536:
        raise ValueError(f"port {port} does not exist; the usual one is {DEFAULT_PORT}")
    return f"https://{found['host'].lower()}:{port}"


def _fingerprint(text: str) -> str:
    """``AB:CD:...`` of 32 bytes, however it was pasted."""
    bare = text.strip().upper()
    bare = re.sub(r"^SHA-?256( FINGERPRINT)?[:= ]\s*", "", bare)
    digits = re.sub(r"[:\s]", "", bare)
    if len(digits) == 40 and _HEX.fullmatch(digits):
        raise ValueError("is a SHA-1 fingerprint; take the SHA-256 one (`pvenode cert info`)")
    if len(digits) != 64 or not _HEX.fullmatch(digits):
        raise ValueError("is no SHA-256 fingerprint; it has 32 pairs of hexadecimal digits")
    return ":".join(digits[i : i + 2] for i in range(0, 64, 2))


def _user(text: str) -> str:
    if not _USER.fullmatch(text):
        raise ValueError("must name its realm: root@pam, automation@pve")
    return text


def _token(text: str) -> str:
    if "=" in text:
        raise ValueError("holds the secret too; only USER@REALM!NAME belongs here")
    if not _TOKEN.fullmatch(text):
        raise ValueError("is no token id; it reads USER@REALM!NAME, as in automation@pve!proxflow")
    return text


def _proxy(text: str) -> str:
    if not _PROXY.fullmatch(text):
        raise ValueError("is no SOCKS address; write socks5://HOST:PORT")
    return text.rstrip("/")


def _expanded(path: Path) -> Path:
    return path.expanduser()


class Connection(Model):
    """All that a client needs. Either a token or a user with password; the token wins.

    Trust in the server's certificate, strictest first: ``fingerprint`` pins one certificate,
    ``ca_file`` names the authority (PEM), ``verify`` asks the machine's own authorities or, when
    false, nobody.
    """

    endpoint: Annotated[str, AfterValidator(_endpoint)] = Field(
        description="Any node of the cluster: HOST, HOST:PORT or https://HOST:PORT.",
        examples=["https://pve.example.com:8006"],
    )
    token_id: Annotated[str, AfterValidator(_token)] | None = Field(
        default=None, description="API token id.", examples=["automation@pve!proxflow"]
    )
    token_secret: SecretStr | None = Field(default=None, description="The token's secret.")
    user: Annotated[str, AfterValidator(_user)] | None = Field(
        default=None, description="User with realm, for password logins.", examples=["root@pam"]
    )
    password: SecretStr | None = Field(default=None, description="The user's password.")
    ca_file: Annotated[Path, AfterValidator(_expanded)] | None = Field(
        default=None,
        description="PEM file of the authority that signed the node's certificate.",
        examples=["~/pve-root-ca.pem"],
    )
    fingerprint: Annotated[str, AfterValidator(_fingerprint)] | None = Field(
        default=None, description="SHA-256 fingerprint of the node's certificate, to pin it."
    )
    verify: bool = Field(default=True, description="False trusts any certificate. Labs only.")
    guest_proxy: Annotated[str, AfterValidator(_proxy)] | None = Field(
        default=None,
        description="SOCKS5 proxy through which guests' addresses are reached; calls to the "
        "cluster itself never use it.",
        examples=["socks5://127.0.0.1:1080"],
    )
    name: str = Field(default="", description="The context or block that this came from.")

    @model_validator(mode="after")
    def _whole(self) -> Connection:
        if self.token_id and self.token_secret is None:
            raise ValueError("token_id has no token_secret beside it")
        if self.token_secret is not None and not self.token_id:
            raise ValueError("token_secret has no token_id beside it")
        if not self.token_id and not (self.user and self.password):
            missing = "password" if self.user else "user" if self.password else None
            if missing:
                raise ValueError(f"{missing} is missing")
            raise ValueError("no credentials: give token_id and token_secret, or user and password")
        if not self.verify and (self.ca_file or self.fingerprint):
            raise ValueError(
                "verify is off although a ca_file or fingerprint is given; take one of them out"
            )
        return self

    @property
    def host(self) -> str:
        """Host name or address, without the brackets of IPv6."""
        return urlsplit(self.endpoint).hostname or ""

    @property
    def port(self) -> int:
        """TCP port."""
        return urlsplit(self.endpoint).port or DEFAULT_PORT

    @property
    def identity(self) -> str:
        """Who asks: the token's id or the user's name."""
        return self.token_id or self.user or ""

    @property
    def label(self) -> str:
        """The name to show people: the context, else the host."""
        return self.name or self.host


def resolve(name: str | None = None, *, context: str | None = None) -> Connection:
    """The connection that an operator means.

    ``name`` (of ``--cluster``): ``lab``, ``block:NAME`` (a Prefect block), or a context of
    clusters.yaml. Without one, in this order: PROXMOX_ENDPOINT and its companions of the
    environment, ``context`` (the manifest's ``proxmox_context``, same forms as ``name``), and the
    ``current`` context of clusters.yaml. Raises BadSettings with every fault at once.
    """
    if name:
        return _named(name)
    if os.environ.get(ENVIRONMENT["endpoint"]):
        return _from_environment()
    if context:
        return _named(context)
    chosen = current_context()
    if chosen is not None:
        return _named(chosen)
    raise BadSettings(
        ["no cluster is chosen"],
        advice="name one with --cluster, set PROXMOX_ENDPOINT, or write a context into "
        f"{settings_file()} (docs/connecting.md); to try without a cluster: "
        "`python -m deployments.lab start`, then --cluster lab",
    )


def _named(name: str) -> Connection:
    if name == "lab":
        return lab_connection()
    if name.startswith("block:"):
        return _from_block(name.removeprefix("block:"))
    return _build(context_settings(name), name)


def _from_environment() -> Connection:
    values = {
        key: value
        for key, variable in ENVIRONMENT.items()
        if (value := os.environ.get(variable, "").strip())
    }
    where = {key: f"environment variable {variable}" for key, variable in ENVIRONMENT.items()}
    return _build(Written(values=values, where=where, source="environment variables PROXMOX_*"), "")


def _from_block(name: str) -> Connection:
    from blocks.proxmox.cluster import load_cluster

    return load_cluster(name).to_connection()


def lab_state() -> Path:
    """The embedded lab's state folder: PROXFLOW_LAB_STATE, else .demo/lab below here."""
    return Path(os.environ.get("PROXFLOW_LAB_STATE") or Path(".demo") / "lab").expanduser()


def lab_connection(state: Path | None = None) -> Connection:
    """The connection to the lab that serves from ``state`` (default: ``lab_state()``)."""
    folder = (state or lab_state()).absolute()
    file = folder / "connection.json"
    advice = "start the lab: `python -m deployments.lab start`"
    # The default folder depends on where a command runs: a start elsewhere is a second lab.
    elsewhere = (
        f"if it runs with another state folder than {folder}, set PROXFLOW_LAB_STATE to that one; "
        f"else {advice}"
    )
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadSettings(
            [f"the lab does not run: {file} does not exist"], advice=elsewhere
        ) from None
    except (OSError, ValueError):
        raise BadSettings([f"{file} cannot be read"], advice=advice) from None
    keys = ("endpoint", "token_id", "token_secret", "ca_file", "guest_proxy")
    values = {key: found[key] for key in keys if isinstance(found, dict) and found.get(key)}
    return _build(Written(values=values, where={}, source=str(file)), "lab")


def _build(written: Written, name: str) -> Connection:
    """A connection of what was written; every fault with the place where it was written."""
    values: dict[str, Any] = dict(written.values)
    faults = []
    if "endpoint" not in values:
        faults.append(f"{written.source}: endpoint is missing; {_ENDPOINT_FORMS}")
        values["endpoint"] = "missing.invalid"
    try:
        connection = Connection(**values, name=name)
    except ValidationError as error:
        for fault in error.errors(include_input=False, include_url=False):
            key = str(fault["loc"][0]) if fault["loc"] else ""
            problem = fault["msg"].removeprefix("Value error, ")
            place = written.where.get(key, written.source)
            faults.append(f"{place}: {key + ' ' if key else ''}{problem}")
        raise BadSettings(faults) from None
    if faults:
        raise BadSettings(faults)
    return connection
