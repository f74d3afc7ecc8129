"""What can go wrong on the other side of the wire, as types.

Everything above this package speaks in these and never parses a text of Proxmox VE.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


class ProxmoxError(Exception):
    """Anything the cluster, or the way to it, refused.

    ``transient``: the same call may pass next time. ``advice``: what the operator can do.
    """

    transient = False

    def __init__(self, message: str, *, advice: str | None = None) -> None:
        """Keep the words of Proxmox VE in ``message``; ours go into ``advice``."""
        super().__init__(message)
        self.message = message
        self.advice = advice


class Unreachable(ProxmoxError):
    """No usable answer: connection, name or proxy trouble; the node may be rebooting."""

    transient = True


class UntrustedCertificate(ProxmoxError):
    """The server's certificate is unknown, expired or not the pinned one."""


class NotProxmox(ProxmoxError):
    """Something answers there, but no Proxmox VE API."""


class AuthenticationFailed(ProxmoxError):
    """Unknown user, token or password; expired token."""


class PermissionDenied(ProxmoxError):
    """The caller lacks a privilege on a path; both None where the server did not say."""

    def __init__(
        self,
        message: str,
        *,
        privileges: Sequence[str] = (),
        path: str | None = None,
        advice: str | None = None,
    ) -> None:
        """``privileges``: any or all of which were asked, as the server named them."""
        super().__init__(message, advice=advice)
        self.privileges = tuple(privileges)
        self.path = path


class NotFound(ProxmoxError):
    """A guest, node, storage, volume, pool or task that does not exist."""


class AlreadyExists(ProxmoxError):
    """A guest id or a file that is taken."""


class Locked(ProxmoxError):
    """A guest or storage is locked; a file lock passes soon, a guest lock may not.

    ``lock`` names the guest's lock (``backup``, ``migrate``, ...), None for a file lock.
    """

    def __init__(self, message: str, *, lock: str | None = None, advice: str | None = None) -> None:
        """File locks are transient, locks that a guest's config carries are not."""
        super().__init__(message, advice=advice)
        self.lock = lock
        self.transient = lock is None


class InvalidParameter(ProxmoxError):
    """The server refused one or more parameters: name to reason."""

    def __init__(
        self, message: str, *, fields: Mapping[str, str], advice: str | None = None
    ) -> None:
        """``fields`` as the server gave them."""
        super().__init__(message, advice=advice)
        self.fields = dict(fields)


class NotSupported(ProxmoxError):
    """The server does not know the call (501)."""


class TaskFailed(ProxmoxError):
    """A task on the cluster ended badly; the tail of its log is part of the message."""

    def __init__(
        self,
        upid: str,
        exitstatus: str,
        log: Sequence[str] = (),
        *,
        transient: bool = False,
        advice: str | None = None,
    ) -> None:
        """``log``: the last lines of the task's log, oldest first."""
        tail = [line for line in log if line and not line.startswith("TASK ERROR: " + exitstatus)]
        text = exitstatus if not tail else exitstatus + "\n" + "\n".join(f"  | {x}" for x in tail)
        super().__init__(text, advice=advice)
        self.upid = upid
        self.exitstatus = exitstatus
        self.log = tuple(log)
        self.transient = transient


class TaskTimeout(ProxmoxError):
    """A task did not end within its bound. It may still be running on the cluster."""

    def __init__(self, upid: str, seconds: float, *, advice: str | None = None) -> None:
        """``seconds``: how long was waited."""
        super().__init__(f"still running after {seconds:.0f} s: {upid}", advice=advice)
        self.upid = upid
