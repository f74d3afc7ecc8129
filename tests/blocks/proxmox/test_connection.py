import subprocess
import sys
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from blocks.proxmox.connection import Connection

TOKEN = {"token_id": "automation@pve!proxflow", "token_secret": SecretStr("s3cret")}
HEX = "ab" * 32
COLONS = ":".join(["AB"] * 32)


@pytest.mark.parametrize(
    ("written", "endpoint", "host", "port"),
    [
        ("pve.example.com", "https://pve.example.com:8006", "pve.example.com", 8006),
        ("PVE", "https://pve:8006", "pve", 8006),
        ("pve.example.com:443", "https://pve.example.com:443", "pve.example.com", 443),
        ("https://pve.example.com", "https://pve.example.com:8006", "pve.example.com", 8006),
        ("https://192.0.2.7:8006/", "https://192.0.2.7:8006", "192.0.2.7", 8006),
        ("https://pve:8006/api2/json", "https://pve:8006", "pve", 8006),
        ("https://pve:8006/api2/json/", "https://pve:8006", "pve", 8006),
        ("[2001:DB8::1]", "https://[2001:db8::1]:8006", "2001:db8::1", 8006),
        ("https://[2001:db8::1]:8443", "https://[2001:db8::1]:8443", "2001:db8::1", 8443),
        (" pve ", "https://pve:8006", "pve", 8006),
    ],
)
def test_every_usual_way_to_write_an_endpoint_is_understood(
    written: str, endpoint: str, host: str, port: int
) -> None:
    connection = Connection(endpoint=written, **TOKEN)
    assert (connection.endpoint, connection.host, connection.port) == (endpoint, host, port)


@pytest.mark.parametrize(
    ("written", "what"),
    [
        ("", "is empty"),
        ("http://pve:8006", "HTTPS only"),
        ("ssh://pve", "no HTTPS address"),
        ("https://pve:8006/pve2/", "has a path"),
        ("https://root:pw@pve:8006", "user name in it"),
        ("2001:db8::1", "brackets"),
        ("pve:80060", "port 80060 does not exist"),
        ("pve:0", "port 0 does not exist"),
        ("pve:port", "no host and port"),
        ("p v e", "no host and port"),
        ("-pve", "no host and port"),
    ],
)
def test_a_bad_endpoint_says_what_is_wrong(written: str, what: str) -> None:
    with pytest.raises(ValidationError, match=what) as told:
        Connection(endpoint=written, **TOKEN)
    assert "pw" not in str(told.value)


@pytest.mark.parametrize(
    "written",
    [HEX, HEX.upper(), COLONS, COLONS.lower(), f"SHA256:{HEX}", f"sha256 Fingerprint={COLONS}"],
)
def test_a_fingerprint_is_understood_however_it_was_pasted(written: str) -> None:
    assert Connection(endpoint="pve", fingerprint=written, **TOKEN).fingerprint == COLONS


@pytest.mark.parametrize(
    ("written", "what"), [("ab" * 20, "SHA-1"), ("ab" * 31, "32 pairs"), ("zz" * 32, "32 pairs")]
)
def test_a_bad_fingerprint_says_what_is_wrong(written: str, what: str) -> None:
    with pytest.raises(ValidationError, match=what):
        Connection(endpoint="pve", fingerprint=written, **TOKEN)


@pytest.mark.parametrize(
    ("credentials", "what"),
    [
        ({}, "no credentials"),
        ({"token_id": "a@pve!b"}, "no token_secret"),
        ({"token_secret": SecretStr("x")}, "no token_id"),
        ({"user": "root@pam"}, "password is missing"),
        ({"password": SecretStr("x")}, "user is missing"),
        ({"user": "root", "password": SecretStr("x")}, "realm"),
        ({"token_id": "root!b", "token_secret": SecretStr("x")}, "USER@REALM!NAME"),
        ({"token_id": "a@pve!b=c0ffee", "token_secret": SecretStr("x")}, "holds the secret too"),
        ({**TOKEN, "verify": False, "ca_file": "x.pem"}, "take one of them out"),
        ({**TOKEN, "guest_proxy": "http://proxy:3128"}, "socks5://HOST:PORT"),
    ],
)
def test_credentials_and_trust_that_do_not_fit_together_are_refused(
    credentials: dict[str, Any], what: str
) -> None:
    with pytest.raises(ValidationError, match=what) as told:
        Connection(endpoint="pve", **credentials)
    assert "c0ffee" not in str(told.value)


def test_the_token_speaks_where_a_password_is_given_too() -> None:
    connection = Connection(endpoint="pve", user="root@pam", password=SecretStr("x"), **TOKEN)
    assert connection.identity == "automation@pve!proxflow"


def test_secrets_are_not_shown() -> None:
    connection = Connection(endpoint="pve", **TOKEN)
    assert "s3cret" not in f"{connection!r} {connection} {connection.model_dump_json()}"


def test_the_label_is_the_context_or_else_the_host() -> None:
    assert Connection(endpoint="pve", name="prod", **TOKEN).label == "prod"
    assert Connection(endpoint="https://pve:8006", **TOKEN).label == "pve"


def test_neither_the_package_nor_the_client_imports_prefect() -> None:
    code = "import sys, blocks, blocks.proxmox.client; print('prefect' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "False"
