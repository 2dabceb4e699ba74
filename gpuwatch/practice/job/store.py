"""A slow HTTP server beside a practice job: object storage, or where a logger sends its lines.

A request says itself how slow it is: ``/MILLISECONDS/BYTES`` of the answer.
"""

import http.client
import os
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from gpuwatch.practice.ending import end_with

UPLOAD_MS_PER_MIB = 16.0


class Store:
    """The job's side of it; can be given to loader workers."""

    def __init__(self) -> None:
        self._port: int | None = None
        self._links: dict[tuple[int, int], http.client.HTTPConnection] = {}

    def open(self) -> None:
        """Start the server if need be; not below this process, of whose job it would be a part."""
        if self._port is None:
            command = [sys.executable, "-P", "-m", __name__, str(os.getpid())]
            started = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            self._port = int(started.stdout)

    def ask(self, milliseconds: float, bytes_: int = 0, body: bytes = b"") -> None:
        """Send ``body`` and wait for so many bytes, on a connection of this thread."""
        self.open()
        mine = (os.getpid(), threading.get_ident())
        if mine not in self._links:
            self._links[mine] = http.client.HTTPConnection("127.0.0.1", self._port)
        self._links[mine].request("POST", f"/{milliseconds}/{bytes_}", body)
        self._links[mine].getresponse().read()

    def take(self, mebibytes: int) -> None:
        self.ask(mebibytes * UPLOAD_MS_PER_MIB, body=bytes(mebibytes << 20))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        _, milliseconds, size = self.path.split("/")
        time.sleep(float(milliseconds) / 1000)
        self.send_response(200)
        self.send_header("Content-Length", size)
        self.end_headers()
        self.wfile.write(bytes(int(size)))

    def log_message(self, *values: object) -> None:
        """Nobody reads it."""


def main() -> None:
    """Print the port and serve beside the job, until the process of that PID ends."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    print(server.server_address[1], flush=True)
    if os.fork():
        os._exit(0)
    os.setsid()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    end_with(int(sys.argv[1]))
    server.serve_forever()


if __name__ == "__main__":
    main()
