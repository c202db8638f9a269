"""Every verb with every wrong input: a message and a documented exit code, no traceback."""

from __future__ import annotations

import gc
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from support.cli import Done, ran

from redis_lock_decorators.cli import main

SECRET = "opensesame"  # noqa: S105
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # redis-py does not close such sockets
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
VERBS = {
    "ls": ["ls"],
    "show": ["show", "x"],
    "break": ["break", "x", "--yes"],
    "doctor": ["doctor"],
    "doctor --acl": ["doctor", "--acl", "x"],
    "bench": ["bench"],
    "demo": ["demo"],
    "run": ["run", "x", "--", "true"],
}
#: ``run`` forks and installs handlers of signals, ``demo`` configures the locks of its process.
OWN_PROCESS = ("run", "demo")
#: What a URL says after the host, and the exit code: 69 is the server's own refusal.
ENDINGS = {
    "?foo=bar": 2,
    "?retry=3": 2,
    "?timeout=3": 2,
    "?single_connection_client=1": 2,
    "?ssl_cert_reqs=none": 2,
    "?socket_timeout=1e300": 2,
    "?socket_timeout=soon": 2,
    "?socket_timeout=-1": 2,
    "?max_connections=x": 2,
    "?protocol=9": 69,
    "/9999": 69,
}
#: One of each kind for the verbs that take a process.
CASES = [
    (v, e) for v in VERBS for e in ENDINGS if v not in OWN_PROCESS or e in ("?foo=bar", "/9999")
]
#: Functions that are named in REDIS_LOCK_CONNECTION.
FUNCTIONS = f"""
import os
import redis
def value(): raise ValueError({SECRET!r})
def system(): raise OSError(5, {SECRET!r})
def ends(): raise SystemExit(1)
def nothing(): return None
class Vault(Exception): pass
class Provider(redis.CredentialProvider):
    def get_credentials(self): raise Vault({SECRET!r})
def provided(): return redis.Redis.from_url(os.environ["REDIS_URL"], credential_provider=Provider())
"""
RAISED = {"value": "ValueError", "system": "OSError", "ends": "SystemExit", "nothing": "NoneType"}
NAMES = ["", "a~:queue"]


@pytest.fixture(scope="module", autouse=True)
def collected() -> Iterator[None]:
    """Collect what the library left open before another test is blamed for it."""
    yield
    gc.collect()


def checked(done: Done | Result) -> tuple[int, str]:
    """The exit code and the messages; fail at a traceback or a password."""
    if isinstance(done, Result):
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        done = Done(done.exit_code, done.stdout, done.stderr)
    assert "Traceback" not in done.err
    assert SECRET not in done.out + done.err
    return done.code, done.err


def tried(verb: str, *options: str, url: str | None = None, **variables: str) -> tuple[int, str]:
    if verb in OWN_PROCESS:
        return checked(ran(*options, *VERBS[verb], url=url, **variables))
    variables |= {} if url is None else {"REDIS_URL": url}
    return checked(CliRunner(env=variables).invoke(main, [*options, *VERBS[verb]]))


@pytest.fixture
def functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module with such functions."""
    tmp_path.joinpath("wrong_functions.py").write_text(FUNCTIONS)
    tmp_path.joinpath("wrong_module.py").write_text(f"raise RuntimeError({SECRET!r})")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("support.cli.environment", with_path(str(tmp_path)))
    yield "wrong_functions"
    sys.modules.pop("wrong_functions", None)


def with_path(folder: str) -> Any:
    """``support.cli.environment`` with another folder of modules."""
    from support.cli import environment

    def found(url: str | None, **more: str) -> dict[str, str]:
        variables = environment(url, **more)
        return {**variables, "PYTHONPATH": f"{variables['PYTHONPATH']}:{folder}"}

    return found


@pytest.mark.parametrize(("verb", "ending"), CASES)
def test_option_in_a_url_that_cannot_be_used(server: Any, verb: str, ending: str) -> None:
    url = f"redis://user:{SECRET}@{server.host}:{server.port}{ending}"
    if ENDINGS[ending] == 69:
        url = f"redis://{server.host}:{server.port}{ending}"
    code, errors = tried(verb, url=url)

    if verb == "doctor" and code == 1:  # a finding: the server cannot be used
        return
    assert code == ENDINGS[ending]
    assert errors


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("form", ["redis+cluster", "redis+sentinel"])
def test_option_in_a_url_of_several_servers(server: Any, verb: str, form: str) -> None:
    url = f"{form}://user:{SECRET}@{server.host}:{server.port}/service?foo=bar"

    code, errors = tried(verb, url=url)

    assert code in (2, 69)
    assert errors


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("function", RAISED)
def test_function_for_the_client_that_fails(functions: str, verb: str, function: str) -> None:
    code, errors = tried(verb, REDIS_LOCK_CONNECTION=f"{functions}:{function}")

    assert code == 2
    assert f"{functions}:{function}" in errors
    assert RAISED[function] in errors


@pytest.mark.parametrize("verb", VERBS)
def test_module_of_that_function_that_fails(functions: str, verb: str) -> None:
    code, errors = tried(verb, REDIS_LOCK_CONNECTION="wrong_module:connect")

    assert code == 2
    assert "RuntimeError" in errors


@pytest.mark.parametrize("verb", [verb for verb in VERBS if not verb.startswith("doctor")])
def test_provider_of_credentials_that_fails(server: Any, functions: str, verb: str) -> None:
    code, errors = tried(verb, url=server.url, REDIS_LOCK_CONNECTION=f"{functions}:provided")

    assert code == 69
    assert "Vault" in errors


@pytest.mark.parametrize("verb", ["show", "break", "run"])
@pytest.mark.parametrize("name", NAMES)
def test_name_that_no_lock_has(
    server: Any, verb: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _, *rest = VERBS[verb]
    monkeypatch.setitem(VERBS, verb, [first, name, *rest])

    code, errors = tried(verb, url=server.url)

    assert code == 2
    assert "name" in errors


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("prefix", ["\udcff", "a\ud800"])
def test_prefix_that_is_no_text(server: Any, verb: str, prefix: str) -> None:
    if verb in OWN_PROCESS and not prefix.startswith("\udcff"):
        pytest.skip("a process cannot get such an argument")
    code, _ = tried(verb, "--prefix", prefix, url=server.url)

    assert code in (0, 2)


@pytest.mark.parametrize("verb", ["show", "break"])
def test_key_of_other_data(server: Any, direct: Any, verb: str) -> None:
    direct.lpush("sys:lock:x", "item")
    code, errors = tried(verb, url=server.url)
    direct.delete("sys:lock:x")

    assert code == 2
    assert "other data" in errors


@pytest.mark.parametrize("verb", VERBS)
def test_server_that_ends_the_connection(verb: str) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        code, errors = tried(verb, url=f"redis://127.0.0.1:{unused.getsockname()[1]}")

    assert code == 69
    assert "Connection refused" in errors


@pytest.mark.parametrize("seconds", ["nan", "inf", "1e99", "0", "-1"])
@pytest.mark.parametrize(
    "arguments", [["ls", "--watch", "--interval"], ["doctor", "--expire"]], ids=str
)
def test_durations_out_of_range(server: Any, arguments: list[str], seconds: str) -> None:
    done = CliRunner().invoke(main, ["--url", server.url, *arguments, seconds])

    assert done.exit_code == 2
    assert seconds.removesuffix("99") in (done.output + done.stderr)


@pytest.mark.parametrize("user", ["", "bad user"])
def test_user_that_no_server_has(server: Any, user: str) -> None:
    done = CliRunner().invoke(main, ["--url", server.url, "doctor", "--acl", user])

    assert done.exit_code == 2
    assert "a user's name has no spaces" in done.output


def test_name_that_the_encoding_of_the_system_lacks(server: Any) -> None:
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = ran("run", "\xe9", "--", "true", url=server.url, **ascii_only)

    assert done.code == 126
    assert "multibyte" in done.err
