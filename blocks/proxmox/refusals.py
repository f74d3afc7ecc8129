"""What Proxmox VE's refusals mean: status and text to one of the errors.

The only place that reads the server's wording. Texts are recorded from a Proxmox VE 9.2 server
(02-auth-errors, 03-uploads, 05-iso-vm-life, 07-clones, 10-tasks-and-locks, 10b-locks, 11-power-
and-agent); those that a single recorded node cannot say (quorum, storage locks) are the server's
public messages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from blocks.proxmox.errors import (
    AgentUnavailable,
    AlreadyExists,
    AuthenticationFailed,
    Conflict,
    InvalidParameter,
    Locked,
    NotFound,
    NotProxmox,
    NotSupported,
    PermissionDenied,
    ProxmoxError,
    Unreachable,
    WrongState,
)

GATEWAY_STATUSES = frozenset({502, 503, 504, 595, 596, 597, 598, 599})
"""Statuses of a proxy that got no answer: a reverse proxy's, and those of Proxmox VE's own."""

NEVER_SENT_STATUSES = frozenset({595})
"""the node that took the call could not connect to the one that should have done it."""

_DENIED = re.compile(r"Permission check failed(?: \((?P<path>/[^,)]*), *(?P<privileges>[^)]+)\))?")
_GUEST_LOCK = re.compile(r"\b(?:VM|CT) is locked \((?P<lock>[\w-]+)\)")
_FILE_LOCK = re.compile(
    r"can't lock file .* - got timeout"
    r"|cfs-lock .* error: got lock request timeout"
    r"|can't a(?:c)?quire lock .* - got timeout"
    r"|unable to acquire lock"
)
_ROOT_ONLY = re.compile(r"\bonly root (?:can|may)\b|is only allowed for root@pam", re.IGNORECASE)
_EXISTS = re.compile(r"already exists|refusing to override existing file|name '.*' already used")
_MISSING = re.compile(
    r"does not exist"
    r"|unable to find configuration file"
    r"|no such (?:cluster node|logical volume|task|storage|volume|pool)"
    r"|hostname lookup '.*' failed"
    r"|volume_size_info on '.*' failed - no format"
    r"|failed to stat '.*'"
    # The words of the guest agent.
    r"|failed to open file .*: No such file or directory",
    re.IGNORECASE,
)
# Said where a guest starts or its cloud-init drive is made anew (06-cloud-image-template, 23, 24).
_SNIPPET = re.compile(r"volume '(?P<volume>[^']*:snippets/[^']*)' does not exist")
_BOOT_ORDER = re.compile(r"invalid bootorder")
_WRONG_STATE = re.compile(
    r"(?:VM|CT) \d+ (?:is )?(?:not|already) running"
    r"|(?:VM|CT) \d+ is running|container is running"
    r"|if (?:the )?(?:VM|CT) is running"
)


def _file_lock(text: str) -> ProxmoxError | None:
    if not _FILE_LOCK.search(text):
        return None
    return Locked(text, advice="another task works on it; the same call usually passes soon")


def _guest_lock(text: str) -> ProxmoxError | None:
    found = _GUEST_LOCK.search(text)
    if found is None:
        return None
    lock = found["lock"]
    return Locked(
        text,
        lock=lock,
        advice=f"wait until the {lock} ends; if none is under way, a broken-off task left the "
        "lock: `qm unlock ID` (or `pct unlock ID`) on the node removes it",
    )


def _root_only(text: str) -> ProxmoxError | None:
    if not _ROOT_ONLY.search(text):
        return None
    return PermissionDenied(
        text,
        advice="Proxmox VE keeps this for root@pam with a password; no API token may do it, not "
        "even one of root",
    )


def _agent(text: str) -> ProxmoxError | None:
    if "No QEMU guest agent configured" in text:
        return AgentUnavailable(
            text, configured=False, advice="set the guest's option `agent: 1` and restart it"
        )
    if "QEMU guest agent is not running" in text:
        return AgentUnavailable(
            text,
            configured=True,
            advice="install and start qemu-guest-agent in the guest, or wait until it is up",
        )
    return None


def _plain(
    pattern: re.Pattern[str], kind: type[ProxmoxError]
) -> Callable[[str], ProxmoxError | None]:
    return lambda text: kind(text) if pattern.search(text) else None


def _conflict(text: str) -> ProxmoxError | None:
    if "file change by other user" not in text:
        return None
    return Conflict(text, advice="somebody else edits this guest; read its config again")


def _no_quorum(text: str) -> ProxmoxError | None:
    if "no quorum" not in text:
        return None
    return Unreachable(text, advice="the cluster has no quorum: see `pvecm status` on a node")


def _no_snippet(text: str) -> ProxmoxError | None:
    found = _SNIPPET.search(text)
    if found is None:
        return None
    return NotFound(
        text,
        advice=f"the snippet {found['volume']}, which the guest's option `cicustom` names, was "
        "removed; run the same again, which writes it anew, or put it back on that node",
    )


# First match wins: locks and rights say more than the "does not exist" that may follow them.
_READERS: tuple[Callable[[str], ProxmoxError | None], ...] = (
    _file_lock,
    _guest_lock,
    _root_only,
    _agent,
    _conflict,
    _no_quorum,
    _no_snippet,
    _plain(_BOOT_ORDER, ProxmoxError),
    _plain(_EXISTS, AlreadyExists),
    _plain(_MISSING, NotFound),
    _plain(_WRONG_STATE, WrongState),
)


def understand(text: str) -> ProxmoxError | None:
    """The error that a text of the server stands for, None where it stands for none in particular.

    Serves refusals (500) and exit statuses of tasks alike: the server uses the same texts in both.
    """
    for read in _READERS:
        error = read(text)
        if error is not None:
            return error
    return None


def _denied(text: str) -> ProxmoxError:
    known = understand(text)
    if known is not None:
        return known
    found = _DENIED.search(text)
    path = found["path"] if found else None
    privileges = tuple(re.split(r"[|,]\s*", found["privileges"])) if found and path else ()
    if path is None:
        advice = "the server did not say which privilege; compare the role with docs/connecting.md"
    else:
        needed = " or ".join(privileges)
        advice = (
            f"give {needed} on {path} to the user, and to the token itself if it has privilege "
            "separation (`pveum acl modify`, see docs/connecting.md)"
        )
    return PermissionDenied(text, privileges=privileges, path=path, advice=advice)


def _invalid(text: str, errors: Mapping[str, str]) -> ProxmoxError:
    fields = {name: " ".join(reason.split()) for name, reason in errors.items()}
    if len(fields) == 1:
        known = understand(next(iter(fields.values())))
        if known is not None:
            return known
    listed = "; ".join(f"{name}: {reason}" for name, reason in sorted(fields.items()))
    return InvalidParameter(listed or text, fields=fields)


def _not_supported(text: str, _: Mapping[str, str]) -> ProxmoxError:
    return NotSupported(
        text, advice="this version of Proxmox VE lacks the call, or the path is misspelt"
    )


_BY_STATUS: Mapping[int, Callable[[str, Mapping[str, str]], ProxmoxError]] = {
    400: _invalid,
    401: lambda text, _: AuthenticationFailed(text or "not logged in"),
    403: lambda text, _: _denied(text),
    501: _not_supported,
}


def refusal(status: int, text: str, errors: Mapping[str, str] | None = None) -> ProxmoxError:
    """The error of an answer with ``status`` >= 300.

    ``text``: the answer's ``message``, or its reason phrase where it has no body.
    ``errors``: reasons by parameter, as 400 carries them.
    """
    text = text.strip()
    if status in _BY_STATUS:
        return _BY_STATUS[status](text, errors or {})
    if status in GATEWAY_STATUSES:
        return Unreachable(
            f"{status} {text}".strip(),
            effect_unknown=status not in NEVER_SENT_STATUSES,
            advice="the node that should answer is down, rebooting or not reachable from the "
            "others",
        )
    if status == 404 or status < 400:
        return NotProxmox(f"answered {status} {text}".strip())
    return understand(text) or ProxmoxError(text or f"status {status}")
