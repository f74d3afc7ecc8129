"""What a client needs to log in; made once, when a state folder is made."""

from __future__ import annotations

from dataclasses import dataclass, field

CREDENTIALS = "etc/credentials.json"


@dataclass(frozen=True)
class Credentials:
    """The default token, the password of root, and the token of the control interface."""

    token_id: str
    token_secret: str = field(repr=False)
    user: str
    password: str = field(repr=False)
    control_token: str = field(repr=False)
