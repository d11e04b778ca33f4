"""An HTTP server of tests: it keeps what it is asked, and answers as it is told."""

from __future__ import annotations

import contextlib
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

from tests.certificates import Certificate


@dataclass
class Asked:
    """One request."""

    path: str
    headers: dict[str, str]
    form: dict[str, list[str]]


@dataclass
class Server:
    """The answers to come, the last one for ever, and the requests so far.

    :ivar may_answer: an answer waits until this is set.
    """

    answers: list[tuple[int, dict[str, str], bytes]]
    asked: list[Asked] = field(default_factory=list)
    url: str = ""
    may_answer: threading.Event = field(default_factory=threading.Event)


@contextlib.contextmanager
def serving(
    *answers: tuple[int, dict[str, str], bytes], certificate: Certificate | None = None
) -> Iterator[Server]:
    """Serve these answers: status, headers, body; inside TLS, if there is a certificate."""
    made = Server(list(answers))
    made.may_answer.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            made.asked.append(Asked(self.path, dict(self.headers.items()), parse_qs(body)))
            made.may_answer.wait()
            status, headers, content = made.answers.pop(0) if len(made.answers) > 1 else made.answers[0]
            self.send_response(status)
            for name, value in {"Content-Length": str(len(content)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST  # noqa: N815 - http.server asks for this name

        def log_message(self, *_: object) -> None:
            """Write nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.url = f"{'https' if certificate else 'http'}://127.0.0.1:{server.server_port}/token"
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate.chain, certificate.key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield made
    finally:
        made.may_answer.set()
        server.shutdown()
        thread.join()
        server.server_close()
