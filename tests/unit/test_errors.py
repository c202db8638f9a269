"""The errors: their base classes, attributes and messages."""

import copy
import math
import pickle
from typing import Any

import pytest
import redis.exceptions

from redis_lock_decorators.errors import (
    AT_MOST,
    HOLDS,
    KEY_GONE,
    NEVER_SENT,
    RAN_OUT,
    UNANSWERED,
    UNRENEWED,
    ConfigurationError,
    LockError,
    LockLostError,
    LockNameError,
    LockNotOwnedError,
    LockTimeoutError,
    LockUnconfirmedError,
    in_seconds,
    shortened,
    shown,
)

IDENTIFIER = "0123456789abcdef0123456789abcdef"
KINDS = [
    LockError,
    LockTimeoutError,
    LockNotOwnedError,
    LockLostError,
    LockNameError,
    ConfigurationError,
    LockUnconfirmedError,
]
ERRORS = [
    LockError("it is wrong", "report"),
    LockError("it is wrong"),
    LockError(),
    LockTimeoutError("report", waited=3.0, holder=IDENTIFIER, free_in=1.5),
    LockTimeoutError("report", waited=0),
    LockTimeoutError("report", waited=0.5, holder=IDENTIFIER, free_in=math.inf),
    LockNotOwnedError("report", holder=IDENTIFIER),
    LockNotOwnedError("report", why="this lease of it was released"),
    LockLostError("report", holder=IDENTIFIER),
    LockLostError("report"),
    LockNameError("a lock's name is empty"),
    LockUnconfirmedError("report", why="0 of 1 replicas confirmed it in time"),
    ConfigurationError("expire=0: a lease lives more than 0 s", "report"),
]
every_error = pytest.mark.parametrize("error", ERRORS, ids=repr)
#: Control characters that must not reach a terminal.
HOSTILE = "\x1b[31m\r\nroot logged in\x00"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.0000123, "0.000012 s"),
        (0.0001, "0.0001 s"),
        (0.123456, "0.123 s"),
        (2.5, "2.5 s"),
        (999.6, "1000 s"),
        (1800, "1800 s"),
        (86_400.0, "86400 s"),
        (3e7, "30000000 s"),
    ],
)
def test_durations_have_no_exponent(seconds: float, text: str) -> None:
    assert in_seconds(seconds) == text


def test_message_names_a_long_time_in_full() -> None:
    error = LockTimeoutError("report", waited=1234.5, holder=IDENTIFIER, free_in=1800)

    assert "within 1234 s" in str(error)
    assert "for at most 1800 s" in str(error)


def content(error: LockError) -> Any:
    return type(error), str(error), error.args, vars(error)


# Base classes


@pytest.mark.parametrize(
    ("kind", "bases"),
    [
        (LockError, {redis.exceptions.LockError}),
        (LockTimeoutError, {LockError, TimeoutError}),
        (LockNotOwnedError, {LockError, redis.exceptions.LockNotOwnedError}),
        (LockLostError, {LockNotOwnedError}),
        (LockNameError, {LockError}),
        (ConfigurationError, {LockError}),
        (LockUnconfirmedError, {LockError}),
    ],
)
def test_each_error_has_the_documented_base_classes(kind: type, bases: set[type]) -> None:
    assert set(kind.__bases__) == bases


@pytest.mark.parametrize("kind", [LockNameError, ConfigurationError])
def test_wrong_names_and_options_are_value_errors(kind: type) -> None:
    assert issubclass(kind, ValueError)


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_is_caught_as_a_lock_error_of_the_client(kind: type) -> None:
    assert issubclass(kind, redis.exceptions.LockError)
    assert issubclass(kind, redis.exceptions.RedisError)


@pytest.mark.parametrize("kind", KINDS)
def test_no_error_is_a_connection_error(kind: type) -> None:
    assert not issubclass(kind, redis.exceptions.ConnectionError)
    assert not issubclass(kind, redis.exceptions.TimeoutError)


def test_contended_lost_and_invalid_are_distinct() -> None:
    apart = [
        *(LockTimeoutError, LockUnconfirmedError, LockNotOwnedError),
        *(LockNameError, ConfigurationError),
    ]

    assert [kind for kind in apart if sum(issubclass(kind, other) for other in apart) != 1] == []


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_has_a_first_line_of_documentation(kind: type) -> None:
    assert (kind.__doc__ or "").splitlines()[0].endswith(".")


# Attributes


def test_lock_error_has_the_name() -> None:
    assert LockError("wrong", "report").lock_name == "report"
    assert LockError("wrong").lock_name is None


def test_timeout_error_has_its_details() -> None:
    error = LockTimeoutError("report", waited=3.0, holder=IDENTIFIER, free_in=1.5)

    assert (error.lock_name, error.waited, error.free_in) == ("report", 3.0, 1.5)
    assert error.holder == "01234567…"


def test_timeout_error_without_a_known_holder() -> None:
    error = LockTimeoutError("report", waited=3.0)

    assert error.holder is error.free_in is None


@pytest.mark.parametrize("kind", [LockNotOwnedError, LockLostError])
def test_not_owned_error_has_the_name_and_the_holder(kind: Any) -> None:
    error = kind("report", holder=IDENTIFIER)

    assert (error.lock_name, error.holder) == ("report", "01234567…")
    assert kind("report").holder is None


def test_timeout_error_has_no_errno() -> None:
    error = LockTimeoutError("report", waited=3.0)

    assert error.errno is error.strerror is None


# Pickles and copies


@every_error
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickle_keeps_everything(error: LockError, protocol: int) -> None:
    again = pickle.loads(pickle.dumps(error, protocol))  # noqa: S301  # own data

    assert content(again) == content(error)


@every_error
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_copy_keeps_everything(error: LockError, copied: Any) -> None:
    again = copied(error)

    assert again is not error
    assert content(again) == content(error)


@every_error
def test_pickle_keeps_added_attributes(error: LockError) -> None:
    error = copy.copy(error)
    error.job = "nightly"  # type: ignore[attr-defined]

    again = pickle.loads(pickle.dumps(error))  # noqa: S301  # own data

    assert again.job == "nightly"


def test_copy_shares_no_attributes_with_the_error() -> None:
    error = LockError("wrong", "report")

    copy.copy(error).lock_name = "another"

    assert error.lock_name == "report"


def test_pickle_keeps_the_class_of_a_user_error() -> None:
    again = pickle.loads(pickle.dumps(OwnError("report", waited=1)))  # noqa: S301  # own data

    assert type(again) is OwnError
    assert again.waited == 1


class OwnError(LockTimeoutError):
    """An error class of a user."""


# Messages


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (
            LockTimeoutError("report", waited=3, holder=IDENTIFIER, free_in=1.5),
            "lock 'report' was not free within 3 s: held by 01234567… for at most 1.5 s unless "
            "renewed; wait longer (acquire_time=…), or in @redis_lock handle it by on_busy=…",
        ),
        (
            LockLostError("report", holder=IDENTIFIER),
            "the lease of lock 'report' ended before the work did: it is held by 01234567… (the "
            "key was deleted, evicted, released by force, or lost by the server, or it expired); "
            "check what the protected code did since then",
        ),
        (
            LockNotOwnedError("report", why="this lease of it was released"),
            "lock 'report' is not held by this caller: this lease of it was released",
        ),
    ],
)
def test_message_has_the_lock_the_cause_and_the_cure(error: LockError, sentence: str) -> None:
    assert str(error) == sentence


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (LockTimeoutError("r", waited=0.0), ["when tried once", "held by another client"]),
        (LockTimeoutError("r", waited=3, free_in=math.inf), ["without an expiry", "delete the"]),
        (LockNotOwnedError("r"), ["it is not locked"]),
        (LockNotOwnedError("r", holder="abc"), ["it is held by"]),
        (LockLostError("r"), ["ended before the work did"]),
        (LockLostError("r", why=KEY_GONE), ["deleted, evicted, released by force", "check"]),
    ],
)
def test_message_has_the_known_details(error: LockError, words: list[str]) -> None:
    assert [word for word in words if word not in str(error)] == []


@every_error
def test_no_message_has_a_whole_identifier(error: LockError) -> None:
    assert IDENTIFIER not in f"{error} {error!r} {vars(error)}"
    assert IDENTIFIER[:16] not in f"{error} {error!r} {vars(error)}"


@pytest.mark.parametrize("identifier", ["host1", "worker-1", "a", "worker-12"])
def test_message_does_not_have_a_whole_short_identifier(identifier: str) -> None:
    message = shortened(identifier)

    assert message is not None
    assert identifier not in message


@pytest.mark.parametrize("missing", [None, ""])
def test_missing_holder_is_none(missing: str | None) -> None:
    assert shortened(missing) is None


@every_error
def test_repr_has_the_class_and_the_message(error: LockError) -> None:
    assert repr(error) == f"{type(error).__name__}({str(error)!r})"


@pytest.mark.parametrize(
    "error",
    [
        LockTimeoutError(HOSTILE, waited=1),
        LockNotOwnedError(HOSTILE),
        LockLostError(HOSTILE),
        LockTimeoutError("report", waited=1, holder=HOSTILE),
        LockNotOwnedError("report", holder=HOSTILE),
        LockLostError("report", holder=HOSTILE),
    ],
    ids=lambda error: f"{type(error).__name__}-{'holder' if error.holder else 'name'}",
)
def test_control_characters_are_escaped(error: LockError) -> None:
    assert str(error).isprintable()


@pytest.mark.parametrize("name", ["a" * 10**6, "\x00" * 10**6, "é" * 10**6])
def test_long_name_is_abbreviated(name: str) -> None:
    assert len(shown(name)) <= 80
    assert len(str(LockLostError(name))) < 300


@pytest.mark.parametrize("name", ["report", "a" * 70])
def test_short_name_is_shown_whole(name: str) -> None:
    assert shown(name) == repr(name)


def test_name_that_is_no_utf8_can_be_written_to_a_log() -> None:
    assert b"caf" in str(LockLostError("caf\udce9")).encode()


@pytest.mark.parametrize(
    ("why", "cure"),
    [
        (KEY_GONE, "deleted, evicted"),
        (f"ab12…{HOLDS}", "deleted, evicted"),
        (f"{UNRENEWED} (NoPermissionError: no)", "grant the missing permission or free memory"),
        (f"{UNANSWERED} for 5 s", "server and the network"),
        (f"{UNANSWERED} for 5 s, and ab12…{HOLDS}", "server and the network"),
        (NEVER_SENT, "do not block"),
        (f"{AT_MOST} 5 s is over", "max_hold longer"),
        (RAN_OUT, "make the work shorter or expire longer"),
    ],
)
def test_cure_fits_the_reason_of_a_loss(why: str, cure: str) -> None:
    cures = ["deleted", "grant the", "the network", "do not block"]
    cures += ["max_hold longer", "shorter or expire"]
    message = str(LockLostError("r", why=why)).replace(why, "")

    assert cure in message
    assert len([word for word in cures if word in message]) == 1


def test_lease_of_another_process_has_no_cure() -> None:
    sentence = str(LockLostError("r", why="it belongs to the parent process 7"))

    assert sentence.endswith("process 7; check what the protected code did since then")


@pytest.mark.parametrize(
    "error",
    [
        LockTimeoutError("report", waited=3, holder=IDENTIFIER, free_in=1.5),
        LockLostError("report", holder=IDENTIFIER),
        LockLostError("it's", why=KEY_GONE),
        LockNotOwnedError("report", why="this lease of it was released"),
        LockNotOwnedError("report"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_error_recreated_from_its_arguments_has_the_same_message(error: LockError) -> None:
    """Task queues send errors as a class and arguments."""
    again = type(error)(*error.args)

    assert (type(again), str(again), again.args) == (type(error), str(error), error.args)
