"""HTTP/1.1 protocol for uvicorn that lets the application choose the reason phrase.

A Proxmox VE server puts the text of a refusal into the status line. ASGI has no field for it, so
the application sends one private header, ``x-lab-reason``, which never reaches the wire. The scope
carries ``lab.abort``, a call that cuts the connection instead of answering.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

REASON_HEADER = b"x-lab-reason"


class _ReasonConnection(h11.Connection):
    def send(self, event: Any) -> Any:
        if isinstance(event, h11.Response):
            headers = [(name, value) for name, value in event.headers if name != REASON_HEADER]
            reason = next((v for n, v in event.headers if n == REASON_HEADER), event.reason)
            event = h11.Response(status_code=event.status_code, headers=headers, reason=reason)
        return super().send(event)


def reason_header(reason: str) -> tuple[bytes, bytes]:
    """The private header for one reason phrase; line breaks become blanks."""
    return REASON_HEADER, " ".join(reason.split("\n")).strip().encode()


def web_socket_protocol(*args: Any, **kwargs: Any) -> asyncio.Protocol:
    """Uvicorn's web socket protocol, loaded with the first socket: few labs ever see one."""
    from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

    return WebSocketsSansIOProtocol(*args, **kwargs)


class ReasonProtocol(H11Protocol):
    """uvicorn's h11 protocol with free reason phrases and deliberate connection cuts."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.conn = _ReasonConnection(h11.SERVER)
        inner = self.app

        async def app(scope: Any, receive: Any, send: Any) -> None:
            scope["lab.abort"] = self.transport.abort
            await inner(scope, receive, send)

        self.app = app

    def shutdown(self) -> None:
        """End an idle connection at once; waiting for the peer's TLS goodbye takes a second."""
        idle = self.cycle is None or self.cycle.response_complete
        super().shutdown()
        if idle:
            self.transport.abort()
