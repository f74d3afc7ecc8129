"""The ASGI application: login, routing, parameter checks, answers and refusals."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote

from starlette.requests import Request

from deployments.lab import api, control
from deployments.lab.access import Identity
from deployments.lab.api import console
from deployments.lab.cluster import Lab
from deployments.lab.errors import ApiError, bad_parameters, not_implemented, unauthorized
from deployments.lab.protocol import reason_header
from deployments.lab.routing import ENDPOINTS, Call, Endpoint, JsonBody, Router
from deployments.lab.schema import validate

if TYPE_CHECKING:
    from deployments.lab.faultrules import CallFault

PREFIX = "/api2/json"
JSON_TYPE = "application/json;charset=UTF-8"
BODY_LIMIT = 512 * 1024
_DUPLICATE = "duplicate parameter (already defined in URI)"

Send = Callable[[dict[str, Any]], Awaitable[None]]


class Application:
    """Serves one lab."""

    def __init__(self, lab: Lab, control_token: str) -> None:
        api.load()
        self.lab = lab
        self._control_token = control_token
        self._router = Router(ENDPOINTS)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """ASGI entry."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        raw_path = unquote_path(scope["raw_path"])
        if scope["type"] == "websocket":
            await self._socket(scope, raw_path, receive, send)
            return
        request = Request(scope, receive)
        if raw_path.startswith("/_lab/"):
            status, body = await control.handle(self.lab, self._control_token, request)
            await reply(send, status, "", json.dumps(body).encode(), JSON_TYPE)
            return
        await self._serve(scope, request, raw_path, send)

    async def _lifespan(self, receive: Any, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await self.lab.life.start()
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await self.lab.life.close()
                await self.lab.tasks.stop_all()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _serve(self, scope: Any, request: Request, full_path: str, send: Send) -> None:
        path = full_path[len(PREFIX) :] if full_path.startswith(PREFIX + "/") else full_path
        path = path.rstrip("/") or "/"
        method = request.method
        fault = self.lab.faults.for_call(method, path)
        if fault is not None and fault.rate:
            request = Request(scope, slowed(request.receive, fault.rate))
        identity: Identity | None = None
        status = 0
        try:
            if fault is not None and await self._before(fault, scope, request):
                status = 0
                return
            try:
                identity, payload = await self._answer(method, path, request, full_path, fault)
            except ApiError as error:
                status = error.status
                await self._abort_if(fault, scope, request)
                await send_error(send, error)
            else:
                status = 200
                await self._abort_if(fault, scope, request)
                await reply(send, 200, "OK", payload_text(payload), JSON_TYPE)
        except ConnectionAbortedError:
            status = 0
        finally:
            user = identity.authid if identity else None
            self.lab.faults.record(method, path, status, user)

    async def _socket(self, scope: Any, full_path: str, receive: Any, send: Any) -> None:
        """A web socket: the same checks as for a GET of its path, then the console behind it."""
        await receive()
        path = full_path.removeprefix(PREFIX).rstrip("/")
        request = Request({**scope, "type": "http", "method": "GET"}, receive)
        identity: Identity | None = None
        status = 101
        try:
            found = self._router.find("GET", path)
            identity = self._login("GET", request, found[0] if found else None)
            if found is None or identity is None or not path.endswith("/vncwebsocket"):
                raise not_implemented("GET", path)
            raw = collect(parse_qsl(request.url.query, keep_blank_values=True))
            call = Call(self.lab, "GET", path, identity, found[1], raw)
            await run_endpoint(found[0], call)
        except ApiError as error:
            status = error.status
            await refuse_socket(send, error)
            return
        finally:
            self.lab.faults.record("GET", path, status, identity.authid if identity else None)
        offered = scope.get("subprotocols") or []
        chosen = "binary" if "binary" in offered else None
        await send({"type": "websocket.accept", "subprotocol": chosen})
        await console.serve(self.lab, int(call.params["port"]), receive, send)

    async def _before(self, fault: CallFault, scope: Any, request: Request) -> bool:
        if fault.delay:
            await asyncio.sleep(fault.delay)
        if fault.reset == "before":
            await abort(scope, request)
            return True
        return False

    async def _abort_if(self, fault: CallFault | None, scope: Any, request: Request) -> None:
        if fault is not None and fault.reset == "after":
            await abort(scope, request)
            raise ConnectionAbortedError

    async def _answer(
        self, method: str, path: str, request: Request, full_path: str, fault: CallFault | None
    ) -> tuple[Identity | None, dict[str, Any]]:
        if fault is not None and fault.status is not None:
            raise ApiError(fault.status, fault.words)
        if not full_path.startswith(PREFIX + "/"):
            raise ApiError(501, "no such file", newline=False)
        found = self._router.find(method, path)
        identity = self._login(method, request, found[0] if found else None)
        if found is None:
            raise not_implemented(method, path)
        route, uri = found
        upload = await api.upload.receive(self.lab, identity, request, uri, route)
        raw = upload if upload is not None else await read_params(request)
        call = Call(self.lab, method, path, identity, uri, raw)
        try:
            return identity, await run_endpoint(route, call)
        finally:
            if upload is not None:
                api.upload.discard(upload)

    def _login(self, method: str, request: Request, route: Endpoint | None) -> Identity | None:
        if route is not None and not route.login:
            return None
        header = request.headers.get("authorization")
        if header:
            return self.lab.access.by_header(header)
        ticket = request.cookies.get("PVEAuthCookie")
        if not ticket:
            raise unauthorized("No ticket")
        identity = self.lab.access.by_ticket(unquote(ticket))
        if method != "GET":
            self.lab.access.check_csrf(identity, request.headers.get("csrfpreventiontoken"))
        return identity


async def run_endpoint(route: Endpoint, call: Call) -> dict[str, Any]:
    """Permission, node, parameters, handler, in the order of the real server."""
    duplicates = {name: _DUPLICATE for name in call.uri if name in call.raw}
    if duplicates:
        raise bad_parameters(duplicates)
    if route.check is not None:
        route.check(call)
    if "node" in call.uri:
        call.lab.require_node(call.node)
        if not call.lab.online(call.node):
            raise ApiError(
                595, "Errors during connection establishment, proxy handshake: No route to host"
            )
    schema = route.full_schema
    call.params, errors = validate({**call.raw, **call.uri}, schema)
    if errors:
        raise bad_parameters(errors)
    if any(value and not schema[name].modelled for name, value in call.params.items()):
        raise not_implemented(call.method, call.path)
    if route.method != "GET" and route.needs_quorum:
        call.lab.require_quorum()
    for name in call.uri:
        call.params.pop(name, None)
    data = await route.handler(call)
    return {"data": data, **call.extra}


def payload_text(payload: dict[str, Any]) -> bytes:
    """The body of an answer; ``data`` may stand for a body that is text already."""
    data = payload["data"]
    return data.text if isinstance(data, JsonBody) else json.dumps(payload).encode()


def unquote_path(raw: bytes) -> str:
    """The decoded path of a request, without the query."""
    return unquote(raw.partition(b"?")[0].decode("ascii", "replace"))


async def read_params(request: Request) -> dict[str, Any]:
    """Form or JSON body of POST and PUT, and the query, which wins; lists for repeated keys.

    That the query counts for writes too is from the public source of the server, not recorded.
    """
    query = collect(parse_qsl(request.url.query, keep_blank_values=True))
    if request.method in ("GET", "DELETE"):
        return query
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_LIMIT:
            raise ApiError(501, "for data too large", bare=True)
    if request.headers.get("content-type", "").startswith("application/json"):
        return parse_json(bytes(body).decode()) | query
    return collect(parse_qsl(bytes(body).decode(), keep_blank_values=True)) | query


def collect(pairs: list[tuple[str, str]]) -> dict[str, Any]:
    """Key-value pairs as a dict; repeated keys give a list."""
    values: dict[str, Any] = {}
    for key, value in pairs:
        if key in values:
            before = values[key] if isinstance(values[key], list) else [values[key]]
            values[key] = [*before, value]
        else:
            values[key] = value
    return values


def parse_json(text: str) -> dict[str, Any]:
    """A JSON object; a broken one is a bare 500 with the parser's complaint."""
    try:
        parsed = json.loads(text or "{}")
    except json.JSONDecodeError as error:
        rest = text[error.pos : error.pos + 20] or "(end of string)"
        where = "/usr/share/perl5/PVE/APIServer/AnyEvent.pm line 1120."
        message = f'\'"\' expected, at character offset {error.pos} (before "{rest}") at {where}'
        raise ApiError(500, message, bare=True, body=message + "\n") from None
    return parsed if isinstance(parsed, dict) else {}


def slowed(receive: Any, rate: float) -> Any:
    """A ``receive`` that takes ``rate`` bytes a second; the sender notices by its full buffers."""

    async def slowly() -> Any:
        message = await receive()
        await asyncio.sleep(len(message.get("body", b"")) / rate)
        return message

    return slowly


async def abort(scope: Any, request: Request) -> None:
    """Cut the connection and wait until the server has noticed."""
    scope["lab.abort"]()
    with contextlib.suppress(Exception):
        while (await request.receive())["type"] != "http.disconnect":
            pass


async def send_error(send: Send, error: ApiError) -> None:
    """Send a refusal."""
    if error.bare:
        await reply(send, error.status, error.reason, error.body.encode(), error.content_type)
    else:
        body = json.dumps(error.payload()).encode()
        await reply(send, error.status, error.reason, body, JSON_TYPE)


async def refuse_socket(send: Send, error: ApiError) -> None:
    """Refuse a web socket before it is one."""
    body = b"" if error.bare else json.dumps(error.payload()).encode()
    headers = [(b"content-length", str(len(body)).encode()), (b"content-type", JSON_TYPE.encode())]
    start = {"type": "websocket.http.response.start", "status": error.status, "headers": headers}
    await send(start)
    await send({"type": "websocket.http.response.body", "body": body})


async def reply(
    send: Send, status: int, reason: str, body: bytes, content_type: str | None
) -> None:
    """Send one answer with its own reason phrase."""
    headers = [(b"content-length", str(len(body)).encode()), (b"server", b"pve-api-daemon/3.0")]
    if reason:
        headers.append(reason_header(reason))
    if content_type:
        headers.append((b"content-type", content_type.encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
