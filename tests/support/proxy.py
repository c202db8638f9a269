"""A TCP proxy that parses Redis commands and injects faults into chosen ones."""

import collections
import contextlib
import dataclasses
import enum
import itertools
import select
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import redis

HOST = "127.0.0.1"
STUCK_SECONDS = 5
RESET_ON_CLOSE = struct.pack("ii", 1, 0)
# They are answered by one push message per channel, not by one reply.
SUBSCRIPTIONS = {
    prefix + verb for prefix in (b"", b"P", b"S") for verb in (b"SUBSCRIBE", b"UNSUBSCRIBE")
}
PUSHES = {name.lower() for name in SUBSCRIPTIONS} | {b"message", b"pmessage", b"smessage"}
ITEMS_PER_COUNT = {b"*": 1, b"~": 1, b">": 1, b"%": 2, b"|": 2}

Command = list[bytes]
Matching = Callable[[Command], bool]


class Fate(enum.Enum):
    """What happens to one command."""

    DELIVER = enum.auto()
    DROP_REPLY = enum.auto()
    DROP_REQUEST = enum.auto()
    SWALLOW = enum.auto()


@dataclasses.dataclass
class Rule:
    """The fate of the next commands that match."""

    matching: Matching
    fate: Fate
    times: int


def frame_end(data: bytes | bytearray, start: int = 0) -> int | None:
    """Return where the RESP frame at `start` ends, or None while it is incomplete."""
    awaited = 1
    while awaited:
        line_end = data.find(b"\r\n", start)
        if line_end < 0:
            return None
        kind, size = bytes(data[start : start + 1]), data[start + 1 : line_end]
        start = line_end + 2
        awaited -= 1
        if kind in (b"$", b"=", b"!") and int(size) >= 0:
            start += int(size) + 2
        elif kind in ITEMS_PER_COUNT:
            awaited += max(int(size), 0) * ITEMS_PER_COUNT[kind]
        # An attribute precedes the reply that it describes.
        awaited += kind == b"|"
    return start if start <= len(data) else None


def take_frames(data: bytearray) -> Iterator[bytes]:
    """Remove the complete frames from the start of `data`, one by one."""
    while (end := frame_end(data)) is not None:
        frame = bytes(data[:end])
        del data[:end]
        yield frame


def words(frame: bytes) -> Command:
    """Return the bulk strings of an array, or the parts of an inline command."""
    if not frame.startswith((b"*", b">")):
        return frame.split()
    found, start = [], frame.index(b"\r\n") + 2
    while start < len(frame):
        head = frame.index(b"\r\n", start)
        end = frame_end(frame, start) or len(frame)
        found.append(frame[head + 2 : end - 2])
        start = end
    return found


class FaultProxy:
    """Stands between clients and the server at `host`, `port`, as a context manager.

    `delay` is added before each reply, in seconds. While `black_hole` is true,
    connections are accepted, but all data in both directions is discarded.
    While `halves` is true, each connection delivers the first half of one reply and nothing
    after it. While `says` is not None, it replaces every reply. While `rewrite` is not None, it is
    given each command and its reply, and returns what is delivered; a message has an empty command.
    """

    host = HOST

    def __init__(self, host: str, port: int) -> None:
        self.delay = 0.0
        self.black_hole = False
        self.halves = False
        self.says: bytes | None = None
        self.rewrite: Callable[[Command, bytes], bytes] | None = None
        self.server = (host, port)
        self.stopped = threading.Event()
        self._commands: list[Command] = []
        self._rules: list[Rule] = []
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._connections: list[Connection] = []
        self._subscriber = socket.create_server((HOST, 0))
        self.port: int = self._subscriber.getsockname()[1]
        self.wake, self._waker = socket.socketpair()

    @property
    def commands(self) -> list[Command]:
        """The commands that clients sent, oldest first, black hole or not."""
        with self._lock:
            return list(self._commands)

    def clear(self) -> None:
        """Forget the commands seen so far."""
        with self._lock:
            self._commands.clear()

    def client(self, **options: Any) -> redis.Redis:
        """Return a new `redis.Redis` that talks through the proxy."""
        return redis.Redis(self.host, self.port, **options)

    def drop_reply(self, matching: Matching, times: int = 1) -> None:
        """Cut the client's connection in place of the replies to matching commands.

        The server has run them by then.
        """
        self._add(Rule(matching, Fate.DROP_REPLY, times))

    def drop_request(self, matching: Matching, times: int = 1) -> None:
        """Cut the client's connection instead of forwarding matching commands."""
        self._add(Rule(matching, Fate.DROP_REQUEST, times))

    def fate_of(self, command: Command) -> Fate:
        """Record a command and decide what happens to it."""
        with self._lock:
            self._commands.append(command)
            if self.black_hole:
                return Fate.SWALLOW
            rules = list(self._rules)
        for rule in rules:
            if rule.times and rule.matching(command):  # it may sleep, which delays its connection
                with self._lock:
                    if rule.times:
                        rule.times -= 1
                        return rule.fate
        return Fate.DELIVER

    def __enter__(self) -> "FaultProxy":
        self._spawn(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped.set()
        self._waker.close()
        # The accepting thread comes first and adds no other once it has ended.
        for thread in self._threads:
            thread.join(STUCK_SECONDS)
        self._subscriber.close()
        self.wake.close()

    def in_use(self) -> list["Connection"]:
        """The connections used for commands, without subscriptions."""
        return [one for one in list(self._connections) if one.is_in_use()]

    def forward_closed(self, later: "Connection") -> None:
        """Wait until what was sent over connections that clients have closed is forwarded.

        A server receives it before what is sent over a connection that was opened later.
        """
        until = time.monotonic() + STUCK_SECONDS
        earlier = list(itertools.takewhile(lambda one: one is not later, self._connections))
        while time.monotonic() < until and any(one.is_closed_with_requests() for one in earlier):
            time.sleep(0.0005)

    def _add(self, rule: Rule) -> None:
        with self._lock:
            self._rules.append(rule)

    def _spawn(self, target: Callable[[], None]) -> None:
        thread = threading.Thread(target=target, name="fault-proxy", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._subscriber, selectors.EVENT_READ)
            selector.register(self.wake, selectors.EVENT_READ)
            while selector.select() and not self.stopped.is_set():
                client, _ = self._subscriber.accept()
                connection = Connection(self, client)
                self._connections.append(connection)
                self._spawn(connection.run)


class Connection:
    """One client's connection and its counterpart to the server, in one thread."""

    def __init__(self, proxy: FaultProxy, client: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._client.settimeout(STUCK_SECONDS)
        self._server: socket.socket | None = None
        self._selector = selectors.DefaultSelector()
        self._requests = bytearray()
        self._replies = bytearray()
        self._pending: collections.deque[tuple[Fate, Command]] = collections.deque()
        self._has_subscribed = False
        self._is_mute = False
        self._is_forwarding = False

    def is_in_use(self) -> bool:
        """Whether it is used for commands, without a subscription."""
        is_open = self._client.fileno() >= 0
        return is_open and self._server is not None and not self._has_subscribed

    def is_closed_with_requests(self) -> bool:
        """Whether the client has closed it, and commands that it sent are not forwarded yet."""
        try:
            poll = select.poll()
            poll.register(self._client, select.POLLRDHUP)
            # Its thread sets the flag before it takes the input.
            return bool(poll.poll(0)) and (
                bool(self._client.recv(1, socket.MSG_PEEK)) or self._is_forwarding
            )
        except (OSError, ValueError):  # its thread has closed it, or nothing more can be read
            return False

    def run(self) -> None:
        """Forward commands and replies until either side closes or a fault cuts the connection."""
        with self._selector, self._client:
            self._selector.register(self._proxy.wake, selectors.EVENT_READ, lambda: False)
            self._selector.register(self._client, selectors.EVENT_READ, self._from_client)
            with contextlib.suppress(OSError):
                while all(key.data() for key, _ in self._selector.select()):
                    pass
            if self._server is not None:
                self._server.close()

    def _from_client(self) -> bool:
        self._is_forwarding = True
        received = self._client.recv(65536)
        self._requests += received
        is_open = bool(received) and all(map(self._request, take_frames(self._requests)))
        self._is_forwarding = False
        return is_open

    def _request(self, frame: bytes) -> bool:
        command = words(frame)
        fate = self._proxy.fate_of(command)
        if fate is Fate.DROP_REQUEST:
            return self._cut()
        if fate is not Fate.SWALLOW:
            self._to_server().sendall(frame)
            if command[0].upper() in SUBSCRIPTIONS:
                self._has_subscribed = True
            else:
                self._pending.append((fate, command))
        return True

    def _to_server(self) -> socket.socket:
        # Connect only when needed: a black hole accepts clients even if the server is down.
        if self._server is None:
            self._proxy.forward_closed(self)
            self._server = socket.create_connection(self._proxy.server, STUCK_SECONDS)
            self._selector.register(self._server, selectors.EVENT_READ, self._from_server)
        return self._server

    def _from_server(self) -> bool:
        server = self._to_server()
        received = server.recv(65536)
        self._replies += received
        if not received and self._proxy.black_hole:
            self._selector.unregister(server)
            return True
        return bool(received) and all(map(self._reply, take_frames(self._replies)))

    def _reply(self, frame: bytes) -> bool:
        is_answer = self._pending and not self._is_push(frame)
        fate, command = self._pending.popleft() if is_answer else (Fate.DELIVER, [])
        if fate is Fate.DROP_REPLY:
            return self._cut()
        self._proxy.stopped.wait(self._proxy.delay)
        if not self._proxy.black_hole and not self._is_mute:
            self._client.sendall(self._distorted(command, frame))
        return True

    def _distorted(self, command: Command, frame: bytes) -> bytes:
        if self._proxy.halves:
            self._is_mute = True
            return frame[: len(frame) // 2]
        if self._proxy.rewrite is not None:
            return self._proxy.rewrite(command, frame)
        return frame if self._proxy.says is None else self._proxy.says

    def _is_push(self, frame: bytes) -> bool:
        if frame.startswith(b">"):
            return True
        # RESP2 sends messages as plain arrays, to subscribers only.
        return self._has_subscribed and frame.startswith(b"*") and words(frame)[0] in PUSHES

    def _cut(self) -> bool:
        self._client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        return False
