"""TLS before a local server, whose program may have been built without it."""

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
    """A port of 127.0.0.1 that speaks TLS and leads to a server, as a context manager.

    Args:
        folder: where its certificate is put; ``authority`` is the file to check that by.
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
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]

    def __enter__(self) -> TlsFront:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        for one in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._start(self._serve, client)

    def _serve(self, plain: socket.socket) -> None:
        with plain, contextlib.suppress(OSError):
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # Bytes and TLS apart, so that both ways are served by threads that share no TLS socket.
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            session = self._context.wrap_bio(incoming, outgoing, server_side=True)
            with socket.create_connection(self._server) as server:
                server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._sockets += [plain, server]
                Session(plain, server, session, incoming, outgoing).send_batch(self._start)

    def _start(self, target: Any, *arguments: Any) -> None:
        threading.Thread(target=target, args=arguments, name="TLS front", daemon=True).start()


class Session:
    """One connection: what the client encrypts is told to the server, and the other way round."""

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
        self._turn = threading.Lock()
        self._is_open = False

    def send_batch(self, start: Any) -> None:
        """Carry until either side leaves; the server's words on a thread of its own."""
        start(self._to_client)
        try:
            while data := self._client.recv(CHUNK):
                with self._turn:
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
                with self._turn:
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
            self._session.unwrap()  # the client takes its leave, and waits for ours
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
