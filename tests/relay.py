"""A relay before an HTTP server that delays its answers, cuts them, and answers itself with errors.

``python -m tests.relay PORT MILLISECONDS`` relays to that port with that latency, and prints its own.
"""

from __future__ import annotations

import http.client
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SLOW_DOWN = (
    b'<?xml version="1.0"?><Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>'
)
FAULTS = ("500", "503", "slow down", "cut", "reset", "short")
"""Answers of its own, a body that ends in its middle, a connection that ends without an answer, and fewer bytes."""


class Relay:
    """The server; ``fault`` says of each request, by its method and path, what goes wrong with it, if anything."""

    def __init__(
        self, port: int, latency_s: float = 0.0, fault: Callable[[str, str], str | None] = lambda method, path: None
    ) -> None:
        self.requests: list[str] = []
        relay = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except OSError:
                    self.close_connection = True

            def relayed(self) -> None:
                relay.requests.append(f"{self.command} {self.path}")
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                kind = relay.fault(self.command, self.path)
                time.sleep(relay.latency_s)
                if kind == "reset":
                    self.close_connection = True
                    self.connection.close()
                    return
                if kind in ("500", "503", "slow down"):
                    self.answer(int(kind) if kind.isdigit() else 503, {}, SLOW_DOWN if kind == "slow down" else b"")
                    return
                server = http.client.HTTPConnection("127.0.0.1", port)
                headers = {name: value for name, value in self.headers.items() if name.lower() != "connection"}
                server.request(self.command, self.path, body, headers)
                answer = server.getresponse()
                content = answer.read()
                server.close()
                if kind == "short":
                    content = content[: len(content) // 2]
                self.answer(answer.status, dict(answer.getheaders()), content, cut=kind == "cut")

            def answer(self, status: int, headers: dict[str, Any], content: bytes, *, cut: bool = False) -> None:
                self.send_response(status)
                length = headers.get("Content-Length") if self.command == "HEAD" else None
                for name, value in headers.items():
                    if name.lower() not in ("connection", "content-length", "transfer-encoding", "date", "server"):
                        self.send_header(name, value)
                self.send_header("Content-Length", length or str(len(content)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content[: len(content) // 2] if cut else content)
                if cut:
                    self.close_connection = True

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = relayed  # noqa: N815 - as http.server calls them

            def log_message(self, *arguments: Any) -> None:
                pass

        self.latency_s, self.fault = latency_s, fault
        ThreadingHTTPServer.request_queue_size = 256
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


if __name__ == "__main__":
    relay = Relay(int(sys.argv[1]), float(sys.argv[2]) / 1000)
    print(relay.url, flush=True)
    sys.stdin.read()
