"""Texts are sent as the bytes into which their client encodes them."""

from __future__ import annotations

import pytest
import redis

from redis_lock_decorators._io.client_methods import as_sent
from redis_lock_decorators._io.transport.encoding import packed, words_of
from redis_lock_decorators.lock import Lock

ENCODINGS = ("utf-8", "latin-1", "utf-16")


def sent(client, text):
    """The bytes that a connection of the client would write."""
    pool = client.connection_pool
    connection = pool.connection_class(**pool.connection_kwargs)
    return words_of(b"".join(connection.pack_command("GET", text)))[-1]


@pytest.mark.parametrize("words", [(b"GET",), (b"SET", b"a\r\nb", b""), (b"", "ü".encode())])
def test_packed_command_is_parsed_into_its_words(words):
    assert words_of(packed(words)) == list(words)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("text", ["plain", "ü"])
def test_text_is_encoded_as_by_the_client(encoding, text):
    client = redis.Redis(encoding=encoding)

    assert as_sent(client, text) == sent(client, text)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_drop_in_has_the_key_of_the_client(encoding):
    client = redis.Redis(encoding=encoding)

    lock = client.lock("ü", timeout=3, lock_class=Lock)

    assert lock._key == sent(client, "ü")
