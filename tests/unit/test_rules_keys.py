"""Names and keys: equivalent names have the same key; slots are those of Redis Cluster."""

import binascii
import enum
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import redis_lock_decorators
from redis_lock_decorators._rules.keys import (
    KINDS,
    LONGEST_NAME,
    SLOTS,
    _in_slot,
    by_slot,
    checked_name,
    checked_names,
    companion,
    is_companion,
    key_of,
    slot_of,
    with_companions,
)
from redis_lock_decorators._rules.owner_info import KIND
from redis_lock_decorators._shared.redispy_args import key_of as redispy_key_of
from redis_lock_decorators.errors import LockNameError

PREFIX = "sys:lock:"
#: Any text that can be encoded as UTF-8.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
#: Keys full of braces.
BRACED = st.text("{}ab:", min_size=1, max_size=12).map(str.encode)
LONG = st.integers(min_value=LONGEST_NAME + 1, max_value=5000)


@pytest.mark.parametrize(
    "name",
    [
        *("report", "two words", "line\nbreak", "\t", "\x00", "{tag}", "}{", "a:b", " "),
        *("ключ", "锁", "🔒", "x" * LONGEST_NAME),
    ],
)
def test_key_is_the_prefix_and_the_name(name: str) -> None:
    assert key_of(PREFIX, checked_name(name)) == (PREFIX + name).encode()


def test_prefix_may_be_empty_or_hold_any_letters() -> None:
    assert key_of("", "a") == b"a"
    assert key_of("лок:", "a") == "лок:a".encode()


@pytest.mark.parametrize("name", [b"report", b"\xff\xfe", b"\x00", "ключ".encode(), b"caf\xe9"])
def test_name_in_bytes_gives_the_key_of_these_bytes(name: bytes) -> None:
    assert key_of(PREFIX, checked_name(name)) == PREFIX.encode() + name


class Report(str, enum.Enum):
    DAILY = "daily"


@pytest.mark.parametrize("name", [Report.DAILY, [Report.DAILY]])
def test_name_of_a_str_subclass_becomes_plain_text(name: Any) -> None:
    (checked,) = checked_names(name)

    assert type(checked) is str
    assert checked == "daily"


def test_equivalent_spellings_have_one_key() -> None:
    composed, decomposed = "caf\u00e9", "cafe\u0301"

    keys = {key_of(PREFIX, checked_name(name)) for name in (composed, decomposed)}

    assert keys == {PREFIX.encode() + composed.encode()}


def test_equivalent_spellings_in_bytes_have_the_key_of_the_text() -> None:
    assert checked_name("cafe\u0301".encode()) == checked_name("caf\u00e9")


def test_similar_letters_have_different_keys() -> None:
    assert checked_name("а") != checked_name("a")  # the first is Cyrillic
    assert checked_name("\ufb01") != checked_name("fi")


@pytest.mark.parametrize("name", ["\ud800", "a\udbffb", "\ud83d" + "x" * 600])
def test_lone_surrogate_is_refused_and_shown_escaped(name: str) -> None:
    with pytest.raises(LockNameError, match=r"UTF-8: .*\\u?d") as caught:
        key_of(PREFIX, checked_name(name))

    str(caught.value).encode()


@pytest.mark.parametrize("name", ["", b"", None, 5, 1.5, True, ["a"], object(), bytearray(b"a")])
def test_empty_or_non_text_name_is_refused(name: Any) -> None:
    with pytest.raises(LockNameError):
        checked_name(name)


@pytest.mark.parametrize("names", [None, 5, 1.5, [], (), set(), {"a": 1}, iter("ab"), object()])
def test_name_that_is_no_text_or_list_of_texts_is_refused(names: Any) -> None:
    with pytest.raises(LockNameError):
        checked_names(names)


@pytest.mark.parametrize("names", [["a", ""], ["a", None], [["a"]], ("a", 5), {b""}])
def test_list_with_a_wrong_name_is_refused(names: Any) -> None:
    with pytest.raises(LockNameError):
        checked_names(names)


# Several names


def test_one_name_is_a_list_of_one() -> None:
    assert checked_names("report") == checked_names(b"report") == ("report",)


def test_several_names_are_sorted_without_duplicates() -> None:
    expected = ("a", "b", "caf\u00e9")

    assert checked_names(["b", "cafe\u0301", "a", b"a", "caf\u00e9"]) == expected
    assert checked_names(("caf\u00e9", "a", "b")) == expected
    assert checked_names({"b", "a", "caf\u00e9"}) == expected


@given(names=st.lists(TEXTS, min_size=1), seed=st.randoms(use_true_random=False))
def test_order_of_several_names_does_not_depend_on_how_they_are_given(
    names: list[str], seed: Any
) -> None:
    shuffled = [*names, *names[:2]]
    seed.shuffle(shuffled)

    assert checked_names(shuffled) == checked_names(names)


def test_names_with_the_same_text_are_one_key() -> None:
    names = checked_names(["é", b"\xc3\xa9", "\udcc3\udca9"])

    keys = [key_of(PREFIX, name) for name in names]

    assert len(set(keys)) == len(keys)


# Long names


def test_megabyte_of_name_gives_a_short_key_that_begins_alike() -> None:
    key = key_of(PREFIX, "invoice:" + "x" * 10**6)

    assert len(key) < 200
    assert key.startswith(b"sys:lock:invoice:xxx")


@given(length=LONG, letter=st.sampled_from(["x", "é", "🔒"]))
def test_long_name_always_gives_the_same_short_key(length: int, letter: str) -> None:
    key = key_of(PREFIX, letter * length)

    assert key == key_of(PREFIX, letter * length)
    assert len(key) < LONGEST_NAME
    key.decode()


@given(name=TEXTS, other=TEXTS, length=LONG)
def test_long_names_that_differ_at_their_end_give_different_keys(
    name: str, other: str, length: int
) -> None:
    name, other = checked_name(name), checked_name(other)
    begin = "x" * length

    keys = {key_of(PREFIX, begin + name), key_of(PREFIX, begin + other)}

    assert len(keys) == (1 if name == other else 2)


def test_long_names_in_other_than_utf8_are_digested_too() -> None:
    first, second = (key_of(PREFIX, checked_name(b"\xff" * 600 + end)) for end in (b"1", b"2"))

    assert first != second
    assert len(first) < 300


@given(name=TEXTS, other=TEXTS)
def test_short_names_that_differ_give_different_keys(name: str, other: str) -> None:
    name, other = checked_name(name), checked_name(other)

    same = key_of(PREFIX, name) == key_of(PREFIX, other)

    assert same == (name == other)


# Slots


def test_slot_is_counted_by_the_crc_of_the_cluster_specification() -> None:
    assert binascii.crc_hqx(b"123456789", 0) == 0x31C3
    assert slot_of(b"123456789") == 0x31C3


@pytest.mark.parametrize(
    ("key", "slot"),
    # The replies of a server to CLUSTER KEYSLOT.
    [(b"", 0), (b"a", 15495), (b"foo", 12182), (b"bar", 5061), (b"somekey", 11058)],
)
def test_slot_is_the_one_that_a_server_returns(key: bytes, slot: int) -> None:
    assert slot_of(key) == slot


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        *((b"{user1000}.following", b"user1000"), (b"{user1000}.followers", b"user1000")),
        *((b"x{y}", b"y"), (b"{a}{b}", b"a"), (b"foo{bar}{zap}", b"bar")),
        (b"foo{{bar}}zap", b"{bar"),
        *((b"foo{}{bar}", b"foo{}{bar}"), (b"{}", b"{}"), (b"{}{x}", b"{}{x}")),
        *((b"{", b"{"), (b"}", b"}"), (b"}{", b"}{"), (b"a{b", b"a{b"), (b"a}b{c}", b"c")),
    ],
)
def test_only_the_first_full_hash_tag_chooses_the_slot(key: bytes, hashed: bytes) -> None:
    assert slot_of(key) == binascii.crc_hqx(hashed, 0) % 16_384


@given(keys=st.lists(st.binary(max_size=20), unique=True))
def test_keys_are_grouped_by_slot_in_rising_order(keys: list[bytes]) -> None:
    groups = by_slot(keys)

    slots = [{slot_of(key) for key in group} for group in groups]
    assert all(len(slot) == 1 for slot in slots)
    assert [min(slot) for slot in slots] == sorted({slot_of(key) for key in keys})
    assert sorted(key for group in groups for key in group) == sorted(keys)


def test_keys_of_one_slot_keep_their_order() -> None:
    assert by_slot([b"{x}2", b"a", b"{x}1"]) == sorted(
        [(b"{x}2", b"{x}1"), (b"a",)], key=lambda group: slot_of(group[0])
    )


# Companion keys


ANY_KIND = st.sampled_from([*KINDS, b"a"])
#: Keys that end like companion keys, or nearly so, and any other keys.
ENDS = st.sampled_from([b"", b"~", b"~:", b"~:queue", b"{a}~:queue", b"{a}", b"}~:fence", b"~:Q"])
ODD = st.one_of(BRACED, st.binary(min_size=1, max_size=30), st.just(b"sys:lock:a"))


@st.composite
def odd_keys(draw: Any) -> bytes:
    """Generate keys of any bytes, companion keys and companions of these."""
    key = draw(ODD) + draw(ENDS)
    for _ in range(draw(st.integers(0, 2))):
        key = companion(key, draw(ANY_KIND)) + draw(ENDS)
    return key


def lock_of(found: bytes) -> bytes:
    """Return the lock key of a companion key."""
    begin, _, kind = found.rpartition(b"~:")
    assert kind.isalpha()
    if not begin.endswith(b"}"):
        assert begin[-5:-4] == b"~"
        return begin[:-5]
    start = begin.index(b"{")
    tag = begin[start + 1 : begin.index(b"}", start)]
    assert begin.endswith(b"{%b}" % tag)
    return begin[: -len(tag) - 2]


@pytest.mark.parametrize(
    ("key", "companion_key"),
    [
        (b"sys:lock:a", b"sys:lock:a{sys:lock:a}~:fence"),
        (b"sys:lock:order{7}", b"sys:lock:order{7}{7}~:fence"),
        (b"{bill}:lock:a", b"{bill}:lock:a{bill}~:fence"),
        (b"a{{b}}", b"a{{b}}{{b}~:fence"),
    ],
)
def test_companion_names_what_chooses_the_slot_of_its_lock(
    key: bytes, companion_key: bytes
) -> None:
    assert companion(key, b"fence") == companion_key


def test_every_companion_that_the_package_uses_is_listed() -> None:
    package = Path(redis_lock_decorators.__file__).parent
    texts = [path.read_text("utf-8") for path in package.rglob("*.py")]
    used = {kind for text in texts for kind in re.findall(r'companion\(.+, b"(\w+)"\)', text)}

    # "absent" is the kind of a key that is never stored.
    assert {kind.decode() for kind in KINDS} == used - {"absent"} | {KIND.decode()}
    assert companion(b"a", KIND) in with_companions(b"a")


@pytest.mark.parametrize("key", [b"a}b", b"a{b", b"{", b"}", b"{}", b"}{", b"{}{a}", b"a{}b{c}"])
def test_companion_of_a_key_without_a_tag_has_letters_for_its_slot(key: bytes) -> None:
    found = companion(key, b"fence")

    assert re.fullmatch(re.escape(key) + rb"~[A-Za-z0-9]{4}~:fence", found)


@pytest.mark.parametrize("begin", [b"a{b", b"}", b"{}ab"])
@pytest.mark.parametrize("kind", KINDS)
def test_there_are_letters_for_every_slot(begin: bytes, kind: bytes) -> None:
    for slot in range(SLOTS):
        assert slot_of(_in_slot(slot, begin, b"~:" + kind)) == slot


@pytest.mark.parametrize(
    "key",
    [
        *(b"a", b"{a}", b"x{a}y", b"{", b"}", b"{}", b"}{", b"{}{a}", b"a{}b{c}", b"a}b{c}"),
        *(b"a{b", b"a{{b}}", b"{{}", b"\xff}", b"\x00", b"a\r\n}"),
    ],
)
def test_companion_is_in_the_slot_of_its_key(key: bytes) -> None:
    assert slot_of(companion(key, b"fence")) == slot_of(key)


@given(key=odd_keys(), kind=ANY_KIND)
def test_companion_is_in_the_slot_of_its_key_whatever_its_braces(key: bytes, kind: bytes) -> None:
    assert slot_of(companion(key, kind)) == slot_of(key)


@given(key=odd_keys(), kind=ANY_KIND)
def test_companion_begins_with_the_key_and_so_with_its_prefix(key: bytes, kind: bytes) -> None:
    assert companion(key, kind).startswith(key)


@given(key=odd_keys(), kind=ANY_KIND)
def test_companion_shows_its_lock_and_kind_so_it_is_unique(key: bytes, kind: bytes) -> None:
    found = companion(key, kind)

    assert lock_of(found) == key
    assert found.endswith(b"~:" + kind)


@given(keys=st.tuples(odd_keys(), odd_keys()), kinds=st.tuples(ANY_KIND, ANY_KIND))
def test_companions_of_two_locks_or_kinds_differ(
    keys: tuple[bytes, bytes], kinds: tuple[bytes, bytes]
) -> None:
    first, second = (companion(key, kind) for key, kind in zip(keys, kinds, strict=True))

    assert (first == second) == (keys[0] == keys[1] and kinds[0] == kinds[1])


@given(key=odd_keys(), kind=ANY_KIND, cut=st.integers(0, 60))
def test_lock_cannot_have_the_name_of_a_companion(key: bytes, kind: bytes, cut: int) -> None:
    found = companion(key, kind)
    assume(len(found) <= LONGEST_NAME)
    assume(found[:cut].isascii() and cut < len(found))
    prefix, name = found[:cut].decode(), found[cut:].decode(errors="surrogateescape")

    with pytest.raises(LockNameError, match="the data of locks"):
        key_of(prefix, name)
    with pytest.raises(LockNameError, match="the data of locks"):
        redispy_key_of(None, found)


@given(key=odd_keys())
def test_every_other_key_can_be_a_lock_key(key: bytes) -> None:
    assume(not is_companion(key))

    assert redispy_key_of(None, key) == key


@pytest.mark.parametrize("name", ["queue", "a:queue", "a~queue", "a~:", "~:Queue", "a~:q1", "~:é"])
def test_names_that_only_resemble_a_companion_are_names(name: str) -> None:
    assert key_of(PREFIX, name) == (PREFIX + name).encode()


def test_same_key_has_the_same_companions_whatever_the_prefix() -> None:
    keys = {key_of(PREFIX, "a"), key_of("", "sys:lock:a"), redispy_key_of(None, "sys:lock:a")}

    assert len(keys) == 1
