"""The double as a topology: clients that read and write its in-memory server."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from redis.asyncio import Redis as AsyncRedis

from redis_lock_decorators.testing.fake import FakeServer

#: The tests that fail on a double, and why.
UNSUPPORTED = {
    "test_error_names_the_missing_async_hook": "functions that return clients are not called",
    "test_factory_is_called_once_for_each_event_loop": "the same",
    "test_error_says_which_companion_key_may_hold_other_data": "only its locks may be other data",
    "test_other_data_in_a_companion_key_is_no_loss": "the same",
    "test_drop_in_and_redis_py_lock_exclude_each_other": "redis-py's own Lock needs a server",
}
#: The fixtures with servers: what is tested on them is requests and faults.
SERVERS = {"server", "pair", "proxy", "frail"}


def why_unsupported(item: pytest.Function) -> str:
    """Why a test fails on a double; "" if it passes."""
    if SERVERS.intersection(item.fixturenames):
        return "it needs a server"
    return UNSUPPORTED.get(item.originalname, "")


class RawCommands:
    """The commands of the tests' own checks, on the server of a double."""

    def __init__(self, double: FakeServer) -> None:
        self._time, self._server = double._time, double._server

    def run(self, name: str, *arguments: Any) -> Any:
        """The reply to a command."""
        with self._time.lock:
            return getattr(self, f"_{name.lower().replace(' ', '_')}")(*arguments)

    def _get(self, key: Any) -> Any:
        return self._server.run(("GET", _bytes(key)))

    def _set(self, key: Any, value: Any, *options: Any) -> Any:
        if "NX" in options and self._exists(key):
            return None
        unit = next((name for name in ("PX", "EX") if name in options), None)
        seconds: list[float] = []
        if unit is not None:
            number = int(options[options.index(unit) + 1])
            seconds = [number / 1000 if unit == "PX" else number]
        self._server.put(_bytes(key), _bytes(value).decode(errors="surrogateescape"), *seconds)
        return b"OK"

    def _del(self, *keys: Any) -> int:
        found = self._exists(*keys)
        for key in keys:
            self._server.drop(_bytes(key))
        return found

    def _exists(self, *keys: Any) -> int:
        return sum(self._server.run(("EXISTS", _bytes(key))) for key in keys)

    def _pttl(self, key: Any) -> int:
        return self._server._pttl(_bytes(key))

    def _persist(self, key: Any) -> int:
        self._server.put(_bytes(key), self._server.value(_bytes(key)) or "")
        return 1

    def _pexpire(self, key: Any, milliseconds: Any) -> int:
        self._server._commands.pexpire(_bytes(key), int(milliseconds))
        return 1

    def _hset(self, key: Any, *pairs: Any) -> int:
        for field, value in zip(pairs[::2], pairs[1::2], strict=True):
            self._server._commands.hset(_bytes(key), str(field), str(value))
        return len(pairs) // 2

    def _rpush(self, key: Any, *values: Any) -> int:
        return self._hset(key, *[part for value in values for part in (value, "")])

    def _llen(self, key: Any) -> int:
        return len(self._server.members(_bytes(key)))

    _zcard = _llen

    def _hget(self, key: Any, field: str) -> Any:
        found = self._server._hget(_bytes(key), field)
        return None if found is None else _bytes(found)

    def _flushall(self) -> Any:
        return self._server.flush()

    def _info(self, section: str) -> Any:
        return b"# Replication\r\nconnected_slaves:%d\r\n" % self._server.replicas

    def _script_flush(self, *_: Any) -> Any:
        self._server.loaded.clear()
        return b"OK"

    def _ping(self) -> Any:
        return b"PONG"

    def _delifeq(self, key: Any, *condition: Any) -> int:
        return self._server.run(("DELIFEQ", _bytes(key), *condition))


class FakeRedis(redis.Redis):
    """A blocking client of a double."""

    raw: RawCommands

    def execute_command(self, *command: Any, **options: Any) -> Any:
        return _parsed(self, command, options)


class AsyncFakeRedis(AsyncRedis):
    """An asyncio client of a double."""

    raw: RawCommands

    async def execute_command(self, *command: Any, **options: Any) -> Any:
        return _parsed(self, command, options)


def client_of(double: FakeServer, kind: type[Any], **options: Any) -> Any:
    """A client of a double; it makes no connection."""
    client = kind(**options)
    client.raw = RawCommands(double)
    return client


def _parsed(client: Any, command: tuple[Any, ...], options: Any) -> Any:
    name, *arguments = command
    reply = client.raw.run(name, *arguments)
    parse = client.response_callbacks.get(name)
    return reply if parse is None or reply is None else parse(reply, **options)


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode(errors="surrogateescape")
