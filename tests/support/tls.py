"""A TLS proxy for a local server, whose binary may have been built without TLS."""

from __future__ import annotations

import contextlib
import pathlib
import socket
import ssl
import threading
from typing import Any

HOST = "127.0.0.1"
CHUNK = 65536


class TlsFront:
    """A TLS port of 127.0.0.1 that forwards to a server, as a context manager.

    Args:
        folder: the folder for ``authority``, the CA file that verifies its certificate.
    """

    def __init__(self, server: Any, folder: pathlib.Path) -> None:
        import trustme

        self._server = (server.host, server.port)
        self._sockets: list[socket.socket] = []
        authority = trustme.CA()
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(HOST, "localhost").configure_cert(self._context)
        self.authority = str(folder / "authority.pem")
        authority.cert_pem.write_to_path(self.authority)
        self._subscriber = socket.create_server((HOST, 0))
        self.port: int = self._subscriber.getsockname()[1]

    def __enter__(self) -> TlsFront:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        for one in (self._subscriber, *self._sockets):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._subscriber.accept()
                self._start(self._serve, client)

    def _serve(self, plain: socket.socket) -> None:
        with plain, contextlib.suppress(OSError):
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # Memory BIOs, so that the threads for the two directions share no TLS socket.
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            session = self._context.wrap_bio(incoming, outgoing, server_side=True)
            with socket.create_connection(self._server) as server:
                server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._sockets += [plain, server]
                Session(plain, server, session, incoming, outgoing).forward(self._start)

    def _start(self, target: Any, *arguments: Any) -> None:
        threading.Thread(target=target, args=arguments, name="TLS front", daemon=True).start()


class Session:
    """One connection: decrypts data from the client, and encrypts data from the server."""

    def __init__(
        self,
        client: socket.socket,
        server: socket.socket,
        session: ssl.SSLObject,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
    ) -> None:
        self._client, self._server = client, server
        self._session, self._incoming, self._outgoing = session, incoming, outgoing
        self._mutex = threading.Lock()
        self._is_open = False

    def forward(self, start: Any) -> None:
        """Forward until either side closes; data from the server on a second thread."""
        start(self._to_client)
        try:
            while data := self._client.recv(CHUNK):
                with self._mutex:
                    self._incoming.write(data)
                    plain = self._decrypted()
                    self._flush()
                if plain:
                    self._server.sendall(plain)
        finally:
            self._end()

    def _to_client(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._server.recv(CHUNK):
                with self._mutex:
                    self._session.write(data)
                    self._flush()
        self._end()

    def _decrypted(self) -> bytes:
        plain = b""
        try:
            if not self._is_open:
                self._session.do_handshake()
                self._is_open = True
            while data := self._session.read(CHUNK):
                plain += data
            self._session.unwrap()  # the client closes the TLS session and waits for our reply
        except ssl.SSLWantReadError:
            pass
        return plain

    def _flush(self) -> None:
        if data := self._outgoing.read():
            self._client.sendall(data)

    def _end(self) -> None:
        for one in (self._client, self._server):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
