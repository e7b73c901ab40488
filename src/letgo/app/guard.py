"""The door: who may speak to this server, and how much they may say. Plain ASGI, so that streams stay streams."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Iterable

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from letgo.app.limits import BODY_SECONDS, MAX_BODY

TAKES_BODIES = ("/api/solve", "/api/trajectory", "/api/race", "/api/check")
LOOPBACK = ("127.0.0.1", "localhost", "::1")
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


class Refused(Exception):
    """A request that goes no further."""

    def __init__(self, status: int, words: str):
        self.status, self.words = status, words


def host_name(authority: str) -> str:
    """The name in 'name', 'name:port' or '[v6]:port', in lower case."""
    if authority.startswith("["):
        return authority[1:].partition("]")[0].lower()
    return authority.partition(":")[0].lower().rstrip(".")


def is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class Guard:
    """Refuses foreign Host headers, posts from other sites, bodies that are no JSON, too large or too slow."""

    def __init__(self, app: ASGIApp, bound: str = "127.0.0.1", names: Iterable[str] = ()):
        self.app = app
        self.names = {*LOOPBACK, *(name.lower() for name in names), bound.lower()}
        self.any_address = is_address(bound) and ipaddress.ip_address(bound).is_unspecified

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        try:
            self._check_host(Headers(scope=scope))
            if scope["method"] == "POST":
                self._check_origin(Headers(scope=scope))
            if scope["method"] == "POST" and scope["path"] in TAKES_BODIES:
                receive = await self._read(Headers(scope=scope), receive)
        except Refused as refusal:
            await JSONResponse({"detail": refusal.words}, refusal.status, HEADERS)(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        await self.app(scope, receive, send_with_headers)

    def _check_host(self, headers: Headers) -> None:
        """A page elsewhere can point a name of its own at this machine; an address cannot be borrowed like that."""
        name = host_name(headers.get("host", ""))
        if name not in self.names and not (self.any_address and is_address(name)):
            raise Refused(403, f"this server does not answer to the host name '{name}'; start it with --allow-host")

    def _check_origin(self, headers: Headers) -> None:
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        same = origin is None or origin.partition("://")[2] == headers.get("host")
        if not same or site not in (None, "same-origin", "none"):
            raise Refused(403, "this server takes posts only from its own page, not from another site")

    async def _read(self, headers: Headers, receive: Receive) -> Receive:
        """The whole body, then whatever comes after it: the news that the client has gone."""
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise Refused(415, "send the request as JSON, with Content-Type: application/json")
        declared = headers.get("content-length", "0")
        if declared.isdecimal() and int(declared) > MAX_BODY:
            raise Refused(413, f"the request has {declared} bytes; this server takes at most {MAX_BODY}")
        body, more = b"", True
        try:
            async with asyncio.timeout(BODY_SECONDS):
                while more:
                    message = await receive()
                    body += message.get("body", b"")
                    more = message["type"] == "http.request" and message.get("more_body", False)
                    if len(body) > MAX_BODY:
                        raise Refused(413, f"the request is longer than the {MAX_BODY} bytes that this server takes")
        except TimeoutError:
            raise Refused(408, f"the request's body did not arrive within {BODY_SECONDS:g} seconds") from None
        waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            return waiting.pop() if waiting else await receive()

        return replay
