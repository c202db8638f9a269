"""Calls of the scripts on a simulated server: EVALSHA and EVAL."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from redis.exceptions import NoScriptError, ResponseError, TryAgainError

from redis_lock_decorators import _lua
from redis_lock_decorators._rules.keys import slot_of
from redis_lock_decorators.testing.fake.leases import LeaseScripts
from redis_lock_decorators.testing.fake.owner_info import attach, split
from redis_lock_decorators.testing.fake.scripts import Scripts

if TYPE_CHECKING:
    from redis_lock_decorators.testing.fake.commands import Commands
    from redis_lock_decorators.testing.fake.server import SimulatedServer

VERBS = (
    *("acquire", "release", "extend", "renew", "min_hold"),
    *("acquire_fenced", "settle", "time_left", "adjust"),
    *("enqueue", "enter", "cancel", "recheck", "unlock", "force"),
)
#: Each script, with the name of its verb; and those that store information about the holder.
SCRIPTS = {_lua.script(verb): verb for verb in VERBS}
STORING = {_lua.with_owner_info(verb): verb for verb in VERBS}
BY_SHA = {script.sha: verb for script, verb in (SCRIPTS | STORING).items()}
BY_TEXT = {script.text: verb for script, verb in (SCRIPTS | STORING).items()}
SHA_OF = {script.text: script.sha for script in SCRIPTS | STORING}
STORING_SHA = {script.sha for script in STORING}


class ScriptCalls:
    """Runs scripts on a simulated server."""

    def __init__(self, server: SimulatedServer, commands: Commands) -> None:
        self._server = server
        self._commands = commands
        scripts, leases = Scripts(commands), LeaseScripts(server, commands)
        self._verbs: dict[str, Callable[..., Any]] = {
            "acquire": leases.acquire,
            "release": scripts.release,
            "enqueue": scripts.enqueue,
            "enter": scripts.enter,
            "min_hold": scripts.min_hold,
            "cancel": scripts.cancel,
            "recheck": scripts.recheck,
            "force": scripts.force,
            "extend": leases.extend,
            "renew": leases.renew,
            "acquire_fenced": leases.acquire_fenced,
            "settle": leases.settle,
            "time_left": leases.time_left,
            "adjust": leases.adjust,
            "unlock": leases.unlock,
        }

    def by_sha(self, sha: bytes, *arguments: Any) -> Any:
        if sha not in self._server.loaded:
            raise NoScriptError("No matching script. Please use EVAL.")
        return self._script(sha, *arguments)

    def by_text(self, text: bytes, *arguments: Any) -> Any:
        sha = SHA_OF[text]
        self._server.loaded.add(sha)
        return self._script(sha, *arguments)

    def _script(self, sha: bytes, count: int, *arguments: Any) -> Any:
        keys, arguments = arguments[:count], arguments[count:]
        if self._server.cluster and len({slot_of(key) for key in keys}) > 1:
            raise ResponseError("CROSSSLOT Keys in request don't hash to the same slot")
        if self._server.is_slot_moving and count > 1:
            raise TryAgainError("Multiple keys request during rehashing of slot")
        if sha not in STORING_SHA:
            return _encoded(self._run_verb(BY_SHA[sha], keys, arguments))
        keys, arguments, infos = split(keys, arguments)
        verb = partial(self._run_verb, BY_SHA[sha], keys, arguments)
        return _encoded(attach(self._commands, arguments[1], infos, verb))

    def _run_verb(self, verb: str, keys: Any, arguments: Any) -> Any:
        identifier, serial, *details = arguments
        return self._verbs[verb](as_bytes(f"{identifier}:{serial}"), keys, identifier, *details)


def _encoded(reply: Any) -> Any:
    if isinstance(reply, list):
        return [_encoded(item) for item in reply]
    return as_bytes(reply) if isinstance(reply, str) else reply


def as_bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")
