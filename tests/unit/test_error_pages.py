"""A message names the place of its error in the documentation, if the package has a site."""

from __future__ import annotations

import importlib.metadata
import json
import pickle
from collections.abc import Iterator
from email.message import Message
from pathlib import Path

import pytest

from redis_lock_decorators import (
    ConfigurationError,
    LockError,
    LockLostError,
    LockNameError,
    LockTimeoutError,
    RedisLock,
    errors,
    redis_lock,
)
from redis_lock_decorators.errors import _anchor, _page

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "errors.rst"
SENTENCE = "lock 'report' was not free when tried once: held by another client; "


@pytest.fixture
def distribution(monkeypatch: pytest.MonkeyPatch) -> Iterator[Message]:
    """The metadata of an installed package that names no site."""
    message = Message()
    message["Project-URL"] = "Source, https://source.example/locks"
    monkeypatch.setattr(errors, "metadata", lambda name: message)
    _page.cache_clear()
    yield message
    _page.cache_clear()


@pytest.fixture
def site(distribution: Message) -> str:
    distribution["Project-URL"] = "Documentation, https://locks.example/en/"
    return "https://locks.example/en/reference/errors.html"


def busy() -> LockTimeoutError:
    return LockTimeoutError("report", waited=0)


def test_message_names_the_place_of_its_error(site: str) -> None:
    assert str(busy()).startswith(SENTENCE)
    assert str(busy()).endswith(f"; see {site}#lock-timeout")
    assert str(LockLostError("report")).endswith(f"; see {site}#lock-lost")


def test_without_a_site_the_message_names_none(distribution: Message) -> None:
    assert str(busy()).startswith(SENTENCE)
    assert "see" not in str(busy())


def test_package_that_is_not_installed_has_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Message:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(errors, "metadata", missing)
    _page.cache_clear()

    assert "see" not in str(busy())
    _page.cache_clear()


def test_place_is_no_part_of_what_is_stored(site: str) -> None:
    error = busy()

    assert site not in repr(error)
    assert site not in json.dumps(error.args)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)  # noqa: S301


def test_error_that_is_recreated_from_its_message_names_the_place_once(site: str) -> None:
    for stored in (busy().args[0], str(busy())):
        assert str(LockTimeoutError(stored)) == str(busy())


def test_message_within_a_message_names_the_place_once_at_its_end(site: str) -> None:
    with pytest.raises(LockNameError) as decorated:
        redis_lock("order:{missing}")(lambda order_id: None)
    with pytest.raises(ConfigurationError) as lock:
        RedisLock("report", expire=-1)

    for error in (str(decorated.value), str(lock.value)):
        assert error.count(site) == error.count("; see ") == 1
        assert f"; see {site}#" in error[-len(site) - 30 :]


def test_empty_message_remains_empty(site: str) -> None:
    assert str(LockError()) == ""


def test_subclass_of_a_program_has_the_place_of_our_class(site: str) -> None:
    class NoSuchShop(ConfigurationError):
        pass

    assert str(NoSuchShop("no such shop")).endswith("#configuration")


def test_metadata_are_read_when_a_message_is_shown(distribution: Message) -> None:
    error = busy()
    assert _page.cache_info().misses == 0

    str(error)
    str(busy())

    assert _page.cache_info().misses == 1


def test_page_has_the_place_of_every_error() -> None:
    kinds = [LockError]
    for kind in kinds:
        kinds += [one for one in kind.__subclasses__() if one.__module__ == kind.__module__]
    text = PAGE.read_text("utf-8")

    assert len(kinds) == 7
    assert [kind for kind in kinds if f"\n.. _{_anchor(kind)}:\n" not in text] == []
