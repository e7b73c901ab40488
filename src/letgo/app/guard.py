"""The door: who may speak to this server, and how much they may say. Plain ASGI, so that streams stay streams."""

from __future__ import annotations

import asyncio
import ipaddress
import re
from collections.abc import Iterable

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from letgo.app.limits import BODY_SECONDS, MAX_BODY, MAX_HEAD, MAX_HEADERS

TAKES_BODIES = ("/api/solve", "/api/trajectory", "/api/race", "/api/until-sure", "/api/check")
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
    """The request goes no further."""

    def __init__(self, status: int, words: str):
        self.status, self.words = status, words


AUTHORITY = re.compile(r"(?:\[([0-9a-f:.]+)\]|([0-9a-z._-]+?)\.?)(?::[0-9]{0,5})?", re.IGNORECASE)  # v6, or a name


def host_name(authority: str) -> str:
    """Return the name in 'name', 'name:port' or '[v6]:port', in lower case; nothing if it is none of these."""
    match = AUTHORITY.fullmatch(authority)
    return (match[1] or match[2]).lower() if match else ""


def is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class Guard:
    """It refuses foreign Host headers, requests from other sites, bodies that are no JSON, too large or too slow."""

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
            self._check_size(scope)
            self._check_host(Headers(scope=scope))
            if scope["method"] not in ("GET", "HEAD") or scope["path"].startswith(("/api/", "/metrics")):
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

    def _check_size(self, scope: Scope) -> None:
        """Refuse a body that is too large; the server below bounds only what comes in pieces."""
        headers, target = scope["headers"], len(scope.get("raw_path") or b"") + len(scope["query_string"])
        if len(headers) > MAX_HEADERS or target + sum(len(n) + len(v) for n, v in headers) > MAX_HEAD:
            raise Refused(431, f"this server takes {MAX_HEADERS} headers and {MAX_HEAD} bytes of them and the address")

    def _check_host(self, headers: Headers) -> None:
        """A page elsewhere can point a name of its own at this machine; an address cannot be borrowed like that."""
        hosts = headers.getlist("host")
        name = host_name(hosts[0]) if len(hosts) == 1 else ""
        if name not in self.names and not (self.any_address and is_address(name)):
            raise Refused(403, f"this server does not answer to the host name '{name}'; start it with --allow-host")

    def _check_origin(self, headers: Headers) -> None:
        """A browser says where a request comes from; whatever else asks need not say."""
        own = {f"{scheme}://{headers['host']}" for scheme in ("http", "https")}
        origins, sites = headers.getlist("origin"), headers.getlist("sec-fetch-site")
        if len(origins) > 1 or not own.issuperset(origins) or not {"same-origin", "none"}.issuperset(sites):
            raise Refused(403, "this server answers only its own page and programs, not another site")

    async def _read(self, headers: Headers, receive: Receive) -> Receive:
        """Return a receiver of the whole body, then of whatever comes after it: the news that the client has gone."""
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
