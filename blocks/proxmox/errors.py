"""What can go wrong on the other side of the wire, as types.

Everything above this package speaks in these and never parses a text of Proxmox VE.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

_Error = TypeVar("_Error", bound="ProxmoxError")


def _rebuild(kind: type[_Error], args: tuple[Any, ...], state: dict[str, Any]) -> _Error:
    """Put a pickled error together again without calling its own ``__init__``."""
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


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

    def __reduce__(self) -> tuple[Callable[..., ProxmoxError], tuple[Any, ...]]:
        """Errors cross process borders (Prefect); their keyword arguments must survive that."""
        return _rebuild, (type(self), self.args, self.__dict__.copy())


class BadSettings(ProxmoxError):
    """What the operator wrote about the connection is wrong or missing; nothing was called.

    ``faults``: one text each, with file, line and key where there are any.
    """

    def __init__(self, faults: Sequence[str], *, advice: str | None = None) -> None:
        """All faults at once, one a line of the message."""
        super().__init__("\n".join(faults), advice=advice)
        self.faults = tuple(faults)


class Unreachable(ProxmoxError):
    """No usable answer: connection, name or proxy trouble; the node may be rebooting.

    ``effect_unknown``: the call was sent, so whatever it asks for may have happened.
    """

    transient = True

    def __init__(
        self, message: str, *, effect_unknown: bool = False, advice: str | None = None
    ) -> None:
        """``effect_unknown`` callers look at the cluster before they try again."""
        super().__init__(message, advice=advice)
        self.effect_unknown = effect_unknown


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


class Conflict(ProxmoxError):
    """Somebody else changed the config since it was read (``digest``); read it again."""

    transient = True


class WrongState(ProxmoxError):
    """A guest runs that must not, or does not run and should."""


class AgentUnavailable(ProxmoxError):
    """The guest agent does not answer; ``configured`` is False where the guest has none at all."""

    def __init__(self, message: str, *, configured: bool, advice: str | None = None) -> None:
        """A configured agent may answer later: while the guest boots, it does not."""
        super().__init__(message, advice=advice)
        self.configured = configured


class BadUpload(ProxmoxError):
    """A file that cannot be sent, or what arrived is not what was sent."""


class WrongChecksum(ProxmoxError):
    """A file has another checksum than it was asked to have."""


class NotSupported(ProxmoxError):
    """The server does not know the call (501)."""


class TaskFailed(ProxmoxError):
    """A task on the cluster ended badly; the tail of its log is part of the message.

    ``reason``: the exit status as one of the errors above (``Locked``, ``NotFound``, ...), None
    where it is none of them.
    """

    def __init__(
        self,
        upid: str,
        exitstatus: str,
        log: Sequence[str] = (),
        *,
        reason: ProxmoxError | None = None,
        advice: str | None = None,
    ) -> None:
        """``log``: the last lines of the task's log, oldest first.

        Transient, and advised on, as ``reason`` is.
        """
        tail = [line for line in log if line and not line.startswith("TASK ERROR: " + exitstatus)]
        text = exitstatus if not tail else exitstatus + "\n" + "\n".join(f"  | {x}" for x in tail)
        super().__init__(text, advice=advice or (reason.advice if reason else None))
        self.upid = upid
        self.exitstatus = exitstatus
        self.log = tuple(log)
        self.reason = reason
        self.transient = reason is not None and reason.transient


class TaskTimeout(ProxmoxError):
    """A task did not end within its bound. It may still be running on the cluster."""

    def __init__(self, upid: str, seconds: float, *, advice: str | None = None) -> None:
        """``seconds``: how long was waited."""
        super().__init__(f"still running after {seconds:.0f} s: {upid}", advice=advice)
        self.upid = upid
