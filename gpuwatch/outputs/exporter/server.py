"""The HTTP side of ``gpuwatch exporter``: one page, and who may have it.

A few connections at a time, one request each. The Host header must name this machine, so that no
web page can read it through a browser (DNS rebinding); no CORS header is sent. The web-config file
is that of Prometheus' exporters, as far as it says who may come in:
https://prometheus.io/docs/prometheus/latest/configuration/https/
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import ipaddress
import os
import re
import socket
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import TCPServer, ThreadingMixIn
from threading import BoundedSemaphore, Lock, Timer
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct

from gpuwatch.core.text import SentenceError, bug_place, clean

CONNECTIONS_MOST, REQUEST_SECONDS = 16, 10.0
GZIP_LEVEL = 5
Page = Callable[[str, float | None, str], tuple[bytes, str]]
"""As ``Metrics.page``."""
_QUERY = re.compile(r"(?:window=([1-9]\d?|[12]\d\d|300)s?)?", re.ASCII)
_Hash = Annotated[str, Meta(pattern=r"^\$2[abxy]\$\d\d\$[./A-Za-z0-9]{53}$")]
_NOBODY = "$2b$10$" + 53 * "."
"""A hash that no password has, checked for who is not known, so that an answer takes as long."""


class _Tls(Struct, forbid_unknown_fields=True):
    cert_file: str
    key_file: str


class _WebFile(Struct, forbid_unknown_fields=True):
    tls_server_config: _Tls | None = None
    basic_auth_users: dict[str, _Hash] = {}


class WebConfig:
    """Certificate and users. Raises ``SentenceError`` for a file that cannot be used, or says more,
    and ``ImportError`` where what reads it is missing."""

    def __init__(self, path: Path | None = None) -> None:
        self.tls: Any = None
        self.users: dict[str, _Hash] = {}
        self._admitted: set[bytes] = set()
        self._one_at_a_time = Lock()
        if path is None:
            return
        try:
            found = msgspec.yaml.decode(path.read_bytes(), type=_WebFile)
            self.users, tls = found.basic_auth_users, found.tls_server_config
            if self.users:
                import bcrypt  # noqa: PLC0415 - only for those who have such a file

                self._matches = bcrypt.checkpw
            if tls is not None:
                import ssl  # noqa: PLC0415

                self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                self.tls.load_cert_chain(path.parent / tls.cert_file, path.parent / tls.key_file)
        except (OSError, msgspec.MsgspecError) as error:
            known = getattr(error, "strerror", None)
            why = known or f"this is no web configuration ({error})"
            raise SentenceError(f"{clean(str(path), 200)}: {clean(why, 200)}.") from error

    def admits(self, authorization: str) -> bool:
        kind, _, given = authorization.partition(" ")
        try:
            name, _, password = base64.b64decode(given, validate=True).partition(b":")
            wanted = self.users.get(name.decode(), _NOBODY)
            digest = hashlib.sha256(name + b":" + password).digest()
            # A check takes long, as it is meant to: who was let in once is known.
            with self._one_at_a_time:
                if digest not in self._admitted and self._matches(password, wanted.encode()):
                    self._admitted.add(digest)
                return kind.lower() == "basic" and digest in self._admitted
        except ValueError:
            return False


class Server(ThreadingMixIn, TCPServer):
    """Bound when it is made: raises ``OSError``."""

    daemon_threads = allow_reuse_address = True

    def __init__(
        self, address: tuple[str, int], page: Page, web: WebConfig, hosts: Iterable[str] = ()
    ) -> None:
        """``hosts``: names, beside this machine's own, that requests may be for; ``*``: any."""
        self.page, self.web = page, web
        self.hosts = {"localhost", os.uname().nodename.lower(), *map(str.lower, hosts)}
        self._free = BoundedSemaphore(CONNECTIONS_MOST)
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Handler)

    def verify_request(self, *_: Any) -> bool:
        """Send away, not queue, whoever comes when all are taken."""
        return self._free.acquire(blocking=False)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        # The time limit of a socket begins anew with each byte.
        over = Timer(REQUEST_SECONDS, lambda: _cut(request))
        over.daemon = True
        over.start()
        try:
            request.settimeout(REQUEST_SECONDS)
            if self.web.tls is not None:
                request = self.web.tls.wrap_socket(request, server_side=True)
            super().process_request_thread(request, client_address)
        except OSError:
            self.shutdown_request(request)
        finally:
            over.cancel()
            self._free.release()

    def handle_error(self, *_: Any) -> None:
        """Say nothing of a client that hangs up; report anything else as a bug."""
        error = sys.exception()
        if error is not None and not isinstance(error, OSError):
            bug = f"gpuwatch: a request failed: {bug_place(error)}. This is a bug in gpuwatch."
            print(bug, file=sys.stderr)

    def expects(self, host: str) -> bool:
        """Check whether a request names this machine by number, or by a name that is ours: no
        other can have been made to point here."""
        try:
            name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
            known = name in self.hosts or "*" in self.hosts
            return known or bool(ipaddress.ip_address(name))
        except ValueError:
            return False


def _cut(request: socket.socket) -> None:
    with suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)


def _accepts_gzip(accept_encoding: str) -> bool:
    """Whether this header names gzip, other than to refuse it (``gzip;q=0``)."""
    for choice in accept_encoding.lower().split(","):
        name, *parameters = map(str.strip, choice.split(";"))
        if name == "gzip":
            return not any(re.fullmatch(r"q\s*=\s*0(\.0*)?", each) for each in parameters)
    return False


class _Handler(BaseHTTPRequestHandler):
    server: Server
    server_version, sys_version = "gpuwatch", ""
    error_message_format, error_content_type = "%(message)s\n", "text/plain; charset=utf-8"

    def do_GET(self) -> None:
        hosts = self.headers.get_all("Host") or ()
        path, _, query = self.path.partition("?")
        asked = _QUERY.fullmatch(query)
        if len(hosts) != 1 or not self.server.expects(hosts[0]):
            self._answer(403, b"This host name is not known here: see --allow-host.\n")
        elif self.path == "/healthz":
            # Before the password: a probe of Kubernetes has none, and no reading is told here.
            self._answer(200, b"ok\n")
        elif self.server.web.users and not self.server.web.admits(
            self.headers.get("Authorization", "")
        ):
            self._answer(401, b"A name and a password are needed.\n")
        elif path == "/":
            self._answer(200, b"gpuwatch exporter: the metrics are at /metrics\n")
        elif path != "/metrics":
            self._answer(404, b"Only /metrics is here.\n")
        elif asked is None:
            self._answer(400, b"What can be asked for is ?window= with 1 to 300 seconds.\n")
        else:
            window = float(asked[1]) if asked[1] else None
            accept = self.headers.get("Accept", "")
            body, kind = self.server.page(self.client_address[0], window, accept)
            self._answer(200, body, kind, may_compress=True)

    def _answer(
        self,
        code: int,
        body: bytes,
        kind: str = "text/plain; charset=utf-8",
        *,
        may_compress: bool = False,
    ) -> None:
        self.send_response(code)
        if may_compress:
            self.send_header("Vary", "Accept-Encoding")
            if _accepts_gzip(self.headers.get("Accept-Encoding", "")):
                body = gzip.compress(body, GZIP_LEVEL)
                self.send_header("Content-Encoding", "gzip")
        if code == 401:
            self.send_header("WWW-Authenticate", 'Basic realm="gpuwatch", charset="UTF-8"')
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Write no log: anybody can send a request, with any text."""
