"""The meaning of clients' exceptions: unknown outcomes are repeated, others are raised."""

import asyncio
from typing import Any

import pytest
import redis
import redis.exceptions as client

from redis_lock_decorators._io.client_errors import (
    is_outcome,
    is_unknown,
    keeps_connection,
    meant,
    was_sent,
)
from redis_lock_decorators._io.error_replies import is_change, is_elsewhere, is_reply, lacks

#: Error replies of servers.
UNKNOWN_REPLIES = [
    "TRYAGAIN Multiple keys request during rehashing of slot",
    "CLUSTERDOWN The cluster is down",
    "READONLY You can't write against a read only replica.",
    "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
    "LOADING Redis is loading the dataset in memory",
    "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
    "UNKILLABLE Sorry the script already executed write commands against the dataset.",
    "NOREPLICAS Not enough good replicas to write.",
    "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
    "ERR WAIT cannot be used with replica instances. Please also note that since Redis 4.0 if a "
    "replica is configured to be writable (which is not the default) writes to replicas are just "
    "local and are not propagated.",
]
DEFINITE_REPLIES = [
    "MOVED 3999 127.0.0.1:6381",
    "ASK 3999 127.0.0.1:6381",
    "CROSSSLOT Keys in request don't hash to the same slot",
    "OOM command not allowed when used memory > 'maxmemory'.",
    "MISCONF Redis is configured to save RDB snapshots, but it is currently unable to.",
    "NOSCRIPT No matching script. Please use EVAL.",
    "NOAUTH Authentication required.",
    "WRONGPASS invalid username-password pair or user is disabled.",
    "NOPERM this user has no permissions to run the 'evalsha' command",
    "EXECABORT Transaction discarded because of previous errors.",
    "WRONGTYPE Operation against a key holding the wrong kind of value",
    "ERR unknown command 'DELIFEQ', with args beginning with: 'a' 'b' ",
    "ERR value is not an integer or out of range",
    "BUSYKEY Target key name already exists.",
]
#: The same, as Redis 6.2 and 7.0 report them for a failed call inside a script.
IN_SCRIPT = "ERR Error running script (call to f_0): @user_script:12: @user_script: 12: -{}"


def parsed(reply: str) -> Exception:
    """The client's exception for an error reply."""
    try:
        from redis._parsers import base
    except ImportError:  # before redis-py 5
        from redis.connection import BaseParser

        return BaseParser().parse_error(reply)  # type: ignore[no-any-return]
    return base.BaseParser.parse_error(reply)


def first_word(text: str) -> str:
    return text.partition(" ")[0]


# Replies


@pytest.mark.parametrize("reply", UNKNOWN_REPLIES, ids=first_word)
def test_reply_of_a_transient_state_is_unknown(reply: str) -> None:
    assert is_unknown(parsed(reply))


@pytest.mark.parametrize("reply", UNKNOWN_REPLIES, ids=first_word)
def test_reply_without_a_class_is_classified_by_its_text(reply: str) -> None:
    assert is_unknown(client.ResponseError(reply))


@pytest.mark.parametrize("reply", UNKNOWN_REPLIES[2:5], ids=first_word)
def test_reply_of_a_script_is_classified_by_its_text(reply: str) -> None:
    assert is_unknown(client.ResponseError(IN_SCRIPT.format(reply)))


@pytest.mark.parametrize(
    "reply",
    [
        "ERR Attempted to access a non local key in a cluster node script: on @user_script:65.",
        "ERR Error running script: Lua script attempted to access a non local key in a cluster "
        "node",
    ],
)
def test_script_that_has_emptied_a_key_of_a_moving_slot_may_have_run(reply: str) -> None:
    assert is_unknown(parsed(reply))
    assert lacks(parsed(reply)) == "moved key"


@pytest.mark.parametrize("reply", DEFINITE_REPLIES, ids=first_word)
def test_reply_of_a_lasting_state_is_definite(reply: str) -> None:
    assert not is_unknown(parsed(reply))
    assert not is_unknown(client.ResponseError(reply))


def test_word_in_the_middle_of_a_reply_is_ignored() -> None:
    assert not is_unknown(client.ResponseError("ERR the user BUSY is not LOADING"))


@pytest.mark.parametrize(
    "reply", [*UNKNOWN_REPLIES[:4], *UNKNOWN_REPLIES[5:], *DEFINITE_REPLIES], ids=first_word
)
def test_error_reply_leaves_the_connection_usable(reply: str) -> None:
    assert is_reply(client.ResponseError(reply))


@pytest.mark.parametrize("reply", UNKNOWN_REPLIES, ids=first_word)
def test_reply_in_a_pipeline_is_classified_by_its_text(reply: str) -> None:
    prefix = "Command # 1 (DEL OOM) of pipeline caused error: "

    assert is_unknown(client.ResponseError(prefix + reply))
    assert is_unknown(client.ResponseError(f"{prefix}{(reply,)}"))


@pytest.mark.parametrize("reply", [*UNKNOWN_REPLIES[2:5], *UNKNOWN_REPLIES[-3:]], ids=first_word)
def test_connection_to_a_replica_is_dropped(reply: str) -> None:
    assert is_elsewhere(parsed(reply))
    assert not keeps_connection(client.ResponseError(reply))


# Watched keys


def test_changed_watched_key_is_no_failure() -> None:
    error = client.WatchError("Watched variable changed.")

    assert is_change(error)
    assert meant(object(), error) is error


@pytest.mark.parametrize(
    "sentence",
    [
        "A ConnectionError occurred on while watching one or more keys",
        "A TimeoutError occurred while watching one or more keys",
    ],
)
def test_connection_broken_while_watching_is_unknown(sentence: str) -> None:
    error = client.WatchError(sentence)

    found = meant(redis.Redis(), error)

    assert not is_change(error)
    assert is_unknown(found)
    assert was_sent(found)
    assert found.__cause__ is error


def test_other_errors_of_a_pipeline_are_not_translated() -> None:
    error = client.ResponseError("ERR wrong")

    assert meant(redis.Redis(), error) is error


# Connections


@pytest.mark.parametrize(
    "error",
    [
        client.ConnectionError("Connection closed by server."),
        client.ConnectionError("Error 111 connecting to localhost:6379. Connection refused."),
        client.TimeoutError("Timeout reading from socket"),
        client.BusyLoadingError("Redis is loading the dataset in memory"),
        client.ConnectionError("max number of clients reached"),
    ],
    ids=str,
)
def test_broken_connection_is_unknown(error: Exception) -> None:
    assert is_unknown(error)
    assert not is_reply(error)


def test_unreadable_reply_is_unknown() -> None:
    assert is_unknown(client.InvalidResponse("Protocol Error: b'HTTP/1.1 400'"))


@pytest.mark.parametrize(
    "name",
    [
        *("MaxConnectionsError", "ReadOnlyError", "TryAgainError", "ClusterDownError"),
        *("MasterDownError", "SlotNotCoveredError", "ClusterError"),
    ],
)
def test_transient_error_of_a_newer_client_is_unknown(name: str) -> None:
    if not hasattr(client, name):
        pytest.skip("this client does not have it")

    assert is_unknown(getattr(client, name)("wrong"))


@pytest.mark.parametrize(
    "sentence",
    [
        "Redis Cluster cannot be connected. Please provide at least one reachable node: timed out",
        "All slots are not covered after query all startup_nodes. 5 of 16384 covered...",
        "No way to dispatch this command to Redis Cluster. Missing key.",  # ASKING, repeated
    ],
)
def test_unreachable_cluster_is_unknown(sentence: str) -> None:
    if not hasattr(client, "RedisClusterException"):
        pytest.skip("this client does not have it")

    assert is_unknown(client.RedisClusterException(sentence))


@pytest.mark.parametrize("name", ["AuthenticationError", "AuthorizationError"])
def test_refused_credentials_are_definite(name: str) -> None:
    if not hasattr(client, name):
        pytest.skip("this client does not have it")

    assert not is_unknown(getattr(client, name)("wrong"))


@pytest.mark.parametrize("home", ["valkey.exceptions", "rediscluster.exceptions"])
@pytest.mark.parametrize("name", ["ConnectionError", "TimeoutError", "ClusterDownError"])
def test_errors_of_related_clients_are_known(home: str, name: str) -> None:
    exceptions = pytest.importorskip(home)
    if not hasattr(exceptions, name):
        pytest.skip("this client does not have it")

    error = getattr(exceptions, name)("MASTERDOWN wrong")

    assert is_unknown(error)


@pytest.mark.parametrize("home", ["valkey.exceptions", "rediscluster.exceptions"])
@pytest.mark.parametrize("name", ["ResponseError", "AuthenticationError", "MovedError"])
def test_definite_errors_of_related_clients_are_known(home: str, name: str) -> None:
    exceptions = pytest.importorskip(home)
    if not hasattr(exceptions, name):
        pytest.skip("this client does not have it")

    assert not is_unknown(getattr(exceptions, name)("3999 127.0.0.1:6381"))


# Missing features of the server

NO_EXEC = "discarded because of: NOPERM User u has no permissions to run the 'exec' command"


@pytest.mark.parametrize(
    ("error", "missing"),
    [
        (client.NoScriptError("No matching script. Please use EVAL."), "script"),
        (client.ResponseError("NOSCRIPT No matching script. Please use EVAL."), "script"),
        (client.ResponseError("unknown command 'DELIFEQ', with args beginning with: "), "command"),
        (client.ResponseError("ERR unknown command `DELEX`, with args beginning with"), "command"),
        (client.ResponseError("ERR Unknown command"), "command"),
        (client.ResponseError("WRONGTYPE Operation against a key holding the wrong"), "string"),
        (client.ResponseError(IN_SCRIPT.format("WRONGTYPE Operation against a key")), "string"),
        (client.ResponseError("ERR syntax error"), ""),
        (client.ConnectionError("gone"), ""),
        (client.NoPermissionError("this user has no permissions to run 'delifeq'"), "right"),
        (client.ResponseError("ACL failure in script: User u has no permissions"), "right"),
        (client.ResponseError("ACL failure in script: No permissions to access a key"), "right"),
        (client.ResponseError("The user executing the script can't run this command"), "right"),
        (client.ExecAbortError(f"Transaction {NO_EXEC}"), "right"),
        (client.ResponseError(f"EXECABORT Transaction {NO_EXEC}"), "right"),
        (client.ExecAbortError("Transaction discarded because of previous errors."), ""),
        (client.ResponseError("OOM command not allowed when used memory > 'maxmemory'."), "memory"),
    ],
)
def test_missing_feature_of_the_server_is_named(error: Any, missing: str) -> None:
    assert lacks(error) == missing


def test_command_unknown_to_the_cluster_client_is_missing() -> None:
    error = client.RedisError("DELIFEQ command doesn't exist in Redis commands")

    assert lacks(error) == "command"


@pytest.mark.parametrize("reply", [*UNKNOWN_REPLIES[1:], DEFINITE_REPLIES[0]], ids=first_word)
def test_other_replies_name_nothing_missing(reply: str) -> None:
    assert lacks(parsed(reply)) == ""


@pytest.mark.parametrize(("sentence", "missing"), [("TTL exhausted.", "keys"), ("another", "")])
def test_cluster_client_that_gives_up_reports_missing_keys(sentence: str, missing: str) -> None:
    if not hasattr(client, "ClusterError"):
        pytest.skip("this client does not have it")
    assert lacks(client.ClusterError(sentence)) == missing


def test_keys_of_a_migrating_slot_are_missing() -> None:
    assert lacks(parsed(UNKNOWN_REPLIES[0])) == "keys"
    assert lacks(client.ResponseError(UNKNOWN_REPLIES[0])) == "keys"


# Whether a connection is used after a reply


@pytest.mark.parametrize("reply", UNKNOWN_REPLIES[2:5], ids=first_word)
def test_replica_is_asked_over_another_connection(reply: str) -> None:
    assert not keeps_connection(parsed(reply))
    assert not keeps_connection(client.ResponseError(reply))
    assert not keeps_connection(client.ResponseError(IN_SCRIPT.format(reply)))


@pytest.mark.parametrize(
    "reply",
    [None, b"OK", [1], client.ResponseError("ERR x"), client.NoScriptError("No matching script.")],
    ids=str,
)
def test_other_replies_keep_the_connection(reply: Any) -> None:
    assert keeps_connection(reply)


def used_while_closed(library: Any) -> Exception:
    """The error of a library whose connection another task has closed meanwhile."""
    used = library.Connection()
    used._parser.on_disconnect()
    try:
        asyncio.run(used._send_packed_command([b"PING"]))
    except AttributeError as error:
        return error
    raise AssertionError("it was sent")


def test_connection_closed_by_another_task_is_unknown() -> None:
    library = pytest.importorskip("redis.asyncio")
    error = used_while_closed(library)

    assert is_outcome(error)
    assert is_unknown(error)
    assert isinstance(meant(library.Redis(), error), client.ConnectionError)
    assert meant(library.Redis(), error).__cause__ is error
