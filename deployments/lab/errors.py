"""Refusals of the simulated API, in the shape in which the real server sends them."""

from __future__ import annotations

from typing import Any


class SeedError(ValueError):
    """A seed file that cannot be used; the text says file, place and reason."""


class StateFolderError(RuntimeError):
    """A state folder that cannot be used: another lab serves it, or it is something else."""


class ApiError(Exception):
    """A refusal: HTTP status, reason phrase and, for bad parameters, one text per parameter.

    ``bare`` replies carry no JSON: the body is ``body`` and ``content_type`` may be absent.
    """

    def __init__(
        self,
        status: int,
        reason: str,
        *,
        errors: dict[str, str] | None = None,
        newline: bool = True,
        bare: bool = False,
        body: str = "",
        content_type: str | None = None,
    ) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.errors = errors
        self.newline = newline
        self.bare = bare
        self.body = body
        self.content_type = content_type

    def payload(self) -> dict[str, Any]:
        """Members of the JSON body: ``data`` (null), ``message`` and perhaps ``errors``."""
        message = self.reason + ("\n" if self.newline else "")
        body: dict[str, Any] = {"data": None, "message": message}
        if self.errors is not None:
            body["errors"] = self.errors
        return body

    def as_exit_status(self) -> str:
        """The text under which a task ends that met this refusal."""
        if not self.errors:
            return self.reason
        details = ", ".join(f"{key}: {text.strip()}" for key, text in sorted(self.errors.items()))
        return f"{self.reason} {details}"


def failure(text: str) -> ApiError:
    """An ordinary refusal: 500 with the text as reason phrase."""
    return ApiError(500, text)


def bad_parameter(**errors: str) -> ApiError:
    """One or more refused parameters; ``_`` in a name stands for ``-``."""
    return bad_parameters({key.replace("_", "-"): text for key, text in errors.items()})


def bad_parameters(errors: dict[str, str]) -> ApiError:
    """Refused parameters by their real names."""
    return ApiError(400, "Parameter verification failed.", errors=errors)


def forbidden(detail: str = "") -> ApiError:
    """A missing privilege; ``detail`` names path and privilege."""
    return ApiError(
        403, f"Permission check failed ({detail})" if detail else "Permission check failed"
    )


def unauthorized(reason: str) -> ApiError:
    """A missing or wrong login: 401 without a body."""
    return ApiError(401, reason, bare=True)


def not_implemented(method: str, path: str) -> ApiError:
    """What the lab does not model: 501, as the real server answers unknown calls."""
    return ApiError(501, f"Method '{method} {path}' not implemented", newline=False)
