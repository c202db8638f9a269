"""Texts of clients' errors contain no passwords where the package shows them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from support.exceptions import exception_of

from redis_lock_decorators._flow.renewal.outages import Outages
from redis_lock_decorators._io import error_replies
from redis_lock_decorators._rules.redaction import described, safe_text
from redis_lock_decorators.cli.program import explained
from redis_lock_decorators.errors import ConfigurationError

PACKAGE = Path(described.__code__.co_filename).parents[1]
PASSWORD = "s3cr3t,x=1"  # noqa: S105
POOL = "<redis.client.Redis(<redis.connection.ConnectionPool(<redis.connection.Connection({})>)>)>"
#: The text of redis-py 6 and 7 if Sentinel knows no master.
NO_MASTER = "No master found for 'main' : " + ", ".join(
    f"{POOL.format(f'db=0,password={PASSWORD},host=127.0.0.1,port={port}')} - "
    f"ConnectionError('Error 111 connecting to 127.0.0.1:{port}. Connection refused.')"
    for port in (1, 2)
)


@pytest.mark.parametrize(
    "text",
    [
        NO_MASTER,
        POOL.format(f"password={PASSWORD},protocol=2"),
        f"<redis.connection.Connection(host=one,password={PASSWORD},db=0)>",
        f"<redis.connection.SSLConnection(ssl_password={PASSWORD},db=0)> is closed",
        f"no such host in redis://user:{PASSWORD}@one:6379/0",
        f"rediss://:{PASSWORD}@one@two/0 does not answer",
        f"redis://one/0?sentinel_password={PASSWORD}&db=1",
        f"{{'host': 'one', 'password': '{PASSWORD}'}}",
        f'Vault: Password: "{PASSWORD}"',
        f"b'x' password=b'{PASSWORD}'",
        "password='\\'s3cr3t,x=1', db=0",
        "password=a's3cr3t,db=0",
        "Login(password=a)s3cr3t,db=0) failed",
    ],
)
def test_password_is_hidden(text: str) -> None:
    assert "s3cr3t" not in safe_text(ValueError(text))
    assert "x=1" not in safe_text(ValueError(text))
    assert "…" in safe_text(ValueError(text))


def test_rest_of_a_text_remains() -> None:
    text = safe_text(ValueError(NO_MASTER))

    assert text.startswith("No master found for 'main' : <redis.client.Redis(")
    assert text.count("Error 111 connecting to 127.0.0.1:") == 2


@pytest.mark.parametrize(
    "text",
    [
        "Error 111 connecting to localhost:6379. Connection refused.",
        "WRONGPASS invalid username-password pair or user is disabled.",
        "Connection (127.0.0.1) closed by server",
        "redis://one:6379/0 is unknown",
        "no reply came in time",
    ],
)
def test_other_texts_are_unchanged(text: str) -> None:
    assert described(ValueError(text)) == f"ValueError: {text}"


class Port:
    """A port to no server."""

    client = None
    lacks = staticmethod(error_replies.lacks)


class Tracked:
    """A renewed lease."""

    port = Port()
    outage = None

    def __init__(self) -> None:
        self.claim = SimpleNamespace(lock_name="lock", unrenewed=None)


def test_reason_of_a_loss_contains_no_password(caplog: pytest.LogCaptureFixture) -> None:
    lease: Any = Tracked()
    error = exception_of("MasterNotFoundError", ConnectionError, module="redis.sentinel")
    error.args = (NO_MASTER,)

    Outages().record_failure(lease, error, sent=0.0, now=9.0)

    assert "MasterNotFoundError" in lease.claim.unrenewed.why(10.0)
    assert "s3cr3t" not in lease.claim.unrenewed.why(10.0)
    assert "MasterNotFoundError" in caplog.text
    assert "s3cr3t" not in caplog.text


@pytest.mark.parametrize("kind", [redis.ConnectionError, OSError, ConfigurationError])
def test_command_line_prints_no_password(kind: type[Exception]) -> None:
    printed, _ = explained(kind(NO_MASTER))

    assert "No master found" in printed
    assert "s3cr3t" not in printed


#: Names of caught errors.
ERRORS = {"error", "failure", "again", "exc", "refusal"}
#: Modules in which a text is made of other errors than a client's, or a new client error of one:
#: that is hidden where it is shown.
OTHERS = {
    *(
        "_dispatch.py",
        "_io/client_errors.py",
        "_io/client_sources.py",
        "_io/environment.py",
        "events.py",
    ),
    *{str(path.relative_to(PACKAGE)) for path in (PACKAGE / "_io" / "transport").glob("*.py")},
}
#: Folders whose texts are hidden where they are printed, or that see no client.
FOLDERS = {"_rules", "testing"}
MODULES = [
    path
    for path in sorted(PACKAGE.rglob("*.py"))
    if path.relative_to(PACKAGE).parts[0] not in FOLDERS
]


def copies(tree: ast.AST, logs_only: bool) -> Iterator[ast.Name]:
    """The names of errors whose text becomes a part of another text, or of a log record."""
    for node in ast.walk(tree):
        parts: list[ast.expr] = []
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("log."):
            whole = ast.unparse(node.args[0]) == "'%s'"  # the package's own error
            parts = [] if whole else list(unpacked(node.args[1:]))
        elif not logs_only and isinstance(node, ast.FormattedValue):
            parts = [node.value]
        elif not logs_only and isinstance(node, ast.keyword):
            parts = list(node.value.args) if is_str(node.value) else []  # type: ignore[attr-defined]
        yield from (one for one in parts if isinstance(one, ast.Name) and one.id in ERRORS)


def is_str(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) in ("str", "repr")


def unpacked(arguments: list[ast.expr]) -> Iterator[ast.expr]:
    for argument in arguments:
        is_tuple = isinstance(argument, ast.Starred) and isinstance(argument.value, ast.Tuple)
        yield from argument.value.elts if is_tuple else [argument]  # type: ignore[attr-defined]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_text_of_an_error_is_copied_as_it_is(path: Path) -> None:
    found = copies(ast.parse(path.read_text()), str(path.relative_to(PACKAGE)) in OTHERS)

    assert [f"line {name.lineno}: use described() or safe_text()" for name in found] == []


@pytest.mark.parametrize(
    "line",
    [
        'log.info("failed: %s", error)',
        'log.info("failed: %s: %s", *(name, error))',
        'reason = f"{name}: {failure}"',
        "refusal = Refusal(None, why=str(error))",
    ],
)
def test_copy_of_a_text_is_found(line: str) -> None:
    assert list(copies(ast.parse(line), logs_only=False))
