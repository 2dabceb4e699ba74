"""The exporter's HTTP side: who may have the page, and what is refused."""

import base64
import gzip
import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from threading import Thread

import pytest

from gpuwatch.core.text import SentenceError
from gpuwatch.outputs.exporter import server
from gpuwatch.outputs.exporter.server import CONNECTIONS_MOST, Server, WebConfig
from tests.support.children import wait_until

PEM = Path(__file__).with_name("localhost.pem")
"""A certificate of localhost with its key, for a hundred years."""
KIND = "text/plain; version=0.0.4"
LOCAL = "GET /metrics HTTP/1.1\r\nHost: localhost"


@contextmanager
def serving(web: WebConfig | None = None, *hosts: str) -> Iterator[int]:
    """The port of a server whose page says what it was asked for."""
    address, web = ("127.0.0.1", 0), web or WebConfig()
    with Server(address, lambda *asked: (repr(asked).encode(), KIND), web, hosts) as made:
        Thread(target=made.serve_forever, args=(0.01,), daemon=True).start()
        yield made.server_address[1]
        made.shutdown()


def answer(port: int, request: str = LOCAL, tls: ssl.SSLContext | None = None) -> str:
    """All of it, from ``HTTP/1.0 200`` on; empty where the connection is ended."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as raw:
        wrap = partial(tls.wrap_socket, server_hostname="localhost") if tls else nullcontext
        with wrap(raw) as connection, suppress(ConnectionError):
            connection.sendall(f"{request}\r\n\r\n".encode("latin-1"))
            return connection.makefile("rb").read().decode()
    return ""


def test_the_page_is_for_the_address_that_asks() -> None:
    """With what it accepts and the window it names; no page of another origin may read it."""
    asked = f"{LOCAL}\r\nAccept: text/plain\r\nOrigin: http://evil.example"
    with serving() as port:
        page = answer(port, asked)
        assert page.endswith("\r\n\r\n('127.0.0.1', None, 'text/plain')")
        assert f"\r\nContent-Type: {KIND}\r\n" in page
        assert "access-control" not in page.lower()
        assert "60.0" in answer(port, asked.replace("metrics", "metrics?window=60s"))
        assert "/metrics" in answer(port, asked.replace("/metrics", "/"))
    with serving(None, "*") as port:
        assert " 200 " in answer(port, LOCAL.replace("localhost", "whatever.example"))


def exchange(port: int, request: str) -> tuple[str, bytes]:
    """The head and the body of an answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(f"{request}\r\n\r\n".encode())
        head, _, body = connection.makefile("rb").read().partition(b"\r\n\r\n")
    return head.decode(), body


@pytest.mark.parametrize(
    ("accepted", "compressed"),
    [("gzip", True), ("deflate, GZIP;q=0.5", True), ("gzip;q=0", False), ("gzip; q=0.0", False),
     ("xgzip", False), ("", False)],
)  # fmt: skip
def test_the_page_is_compressed_for_who_accepts_gzip(accepted: str, compressed: bool) -> None:
    """The same page, and the length that is said is that of what is sent."""
    with serving() as port:
        head, body = exchange(port, f"{LOCAL}\r\nAccept-Encoding: {accepted}")
        assert ("\r\nContent-Encoding: gzip" in head) is compressed
        assert f"\r\nContent-Length: {len(body)}" in head
        assert (gzip.decompress(body) if compressed else body) == b"('127.0.0.1', None, '')"


def test_health_is_answered_without_a_password_and_without_the_page() -> None:
    """A probe has no password; the metrics still need one, and another's host name is refused."""
    web = WebConfig()
    web.users, web._matches = {"anna": server._NOBODY}, lambda *_: False
    healthz = LOCAL.replace("/metrics", "/healthz")
    with serving(web) as port:
        head, body = exchange(port, healthz)
        assert head.startswith("HTTP/1.0 200 ")
        assert body == b"ok\n"
        assert exchange(port, LOCAL)[0].startswith("HTTP/1.0 401 ")
        assert " 403 " in answer(port, healthz.replace("localhost", "evil.example"))


@pytest.mark.parametrize(
    ("request_text", "code"),
    [
        *[(LOCAL.replace("/metrics", path), code) for path, code in (
            ("/other", 404), ("/metrics/../etc/passwd", 404), ("http://[/metrics", 404),
            ("/metrics?window=0", 400), ("/metrics?window=301", 400), ("/metrics?window=-5", 400),
            ("/metrics?window=nan", 400), ("/metrics?window=\xb2", 400), ("/metrics?x=1", 400),
        )],
        *[(LOCAL.replace("localhost", host), code) for host, code in (
            ("LOCALHOST:1", 200), ("127.0.0.1:1", 200), ("[::1]:1", 200), ("10.1.2.3", 200),
            (os.uname().nodename, 200), ("gpu1.cluster:1", 200), ("evil.example", 403),
            ("localhost.evil.example", 403), ("127.0.0.1.evil.example", 403), ("", 403),
            ("[", 403), ("localhost\r\nHost: evil.example", 403),
        )],
        ("GET /metrics HTTP/1.1", 403), (LOCAL.replace("GET", "POST"), 501),
        (LOCAL.replace("GET", "OPTIONS"), 501),
    ],
)  # fmt: skip
def test_only_a_scraper_is_answered(request_text: str, code: int) -> None:
    """A path or a window that means nothing is refused, and so is a name that somebody made to
    point here (DNS rebinding)."""
    with serving(None, "GPU1.cluster") as port:
        assert answer(port, request_text).startswith(f"HTTP/1.0 {code} ")


def test_who_comes_when_all_connections_are_taken_is_sent_away() -> None:
    """Silent connections take some of the places, not memory without end; they get free again."""
    with serving() as port:
        with ExitStack() as held:
            for _ in range(CONNECTIONS_MOST):
                held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
            assert answer(port) == ""
        wait_until(lambda: " 200 " in answer(port))


def test_who_sends_a_request_too_slowly_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is for all of it: a byte now and then does not hold a place for longer."""
    monkeypatch.setattr(server, "REQUEST_SECONDS", 0.2)
    with serving() as port, socket.create_connection(("127.0.0.1", port), timeout=60) as slow:

        def is_cut_off() -> bool:
            try:
                slow.sendall(b"G")
            except ConnectionError:
                return True
            return False

        wait_until(is_cut_off)


def config(folder: Path, text: str) -> WebConfig:
    pytest.importorskip("yaml")
    (folder / "web.yml").write_text(text)
    return WebConfig(folder / "web.yml")


def test_a_name_and_a_password_open_the_door(tmp_path: Path) -> None:
    """As their bcrypt hash says; who was let in is let in again, and nobody else."""
    bcrypt = pytest.importorskip("bcrypt")
    hashed = bcrypt.hashpw(b"s3cret", bcrypt.gensalt(4)).decode()
    right, *wrong = (
        base64.b64encode(given).decode()
        for given in (b"p:s3cret", b"p:", b"p:wrong", b"no:s3cret", b"\xff:x", b"p:" + b"x" * 99)
    )
    with serving(config(tmp_path, f"basic_auth_users: {{p: {hashed}}}")) as port:
        for given in (f"Basic {right}", *[f"Basic {one}" for one in wrong], f"Bearer {right}", "-"):
            for _ in "ab":
                found = answer(port, f"{LOCAL}\r\nAuthorization: {given}")
                assert (" 200 " in found) == (given == f"Basic {right}")
        assert "\r\nWWW-Authenticate: Basic" in answer(port)


def test_tls_is_spoken_where_a_certificate_was_given(tmp_path: Path) -> None:
    """Who speaks plain HTTP gets nothing, and the next is served all the same."""
    web = config(tmp_path, f"tls_server_config: {{cert_file: {PEM}, key_file: {PEM}}}")
    with serving(web) as port:
        assert answer(port) == ""
        assert " 200 " in answer(port, tls=ssl.create_default_context(cafile=PEM))


def test_a_web_config_that_cannot_be_kept_to_is_refused(tmp_path: Path) -> None:
    """Nothing it says is passed over: the door would be open where somebody believes it shut."""
    for text, says in (
        ("a: [", "web.yml: .*flow"), ("5", "Expected `object`"), ("other: {http2: x}", "other"),
        ("basic_auth_users: {p: secret}", "regex"), ("tls_server_config: {cert_file: x}", "key_f"),
        ("tls_server_config: {cert_file: none, key_file: none}", "No such file"),
        ("tls_server_config: {cert_file: x, key_file: x, client_ca_file: x}", "client_ca_file"),
    ):  # fmt: skip
        with pytest.raises(SentenceError, match=says):
            config(tmp_path, text)
