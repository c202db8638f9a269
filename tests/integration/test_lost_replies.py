"""Each request of a held lock takes effect even if the request or its reply is lost once."""

from __future__ import annotations

import collections
import contextlib
import time

import pytest
from redis.exceptions import ResponseError
from support.fronts import LEGACY, do, wrap
from support.leftovers import BLOCKING, TIDY_FRONTS, none_left, until
from support.proxy import FaultProxy

from redis_lock_decorators import _lua
from redis_lock_decorators.testing import LocalCluster

FRONTS = TIDY_FRONTS
VERBS = ("acquire", "release", "extend", "renew")

pytestmark = pytest.mark.parametrize("fate", ["drop_reply", "drop_request"])


@pytest.fixture(scope="module")
def cluster():
    """A cluster that announces the addresses of proxies as those of its nodes, and the proxies."""
    if LEGACY:
        pytest.skip("redis-py 3.5 has no cluster client")
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(LocalCluster())
        proxies = [stack.enter_context(FaultProxy(node.host, node.port)) for node in cluster.nodes]
        for node, proxy in zip(cluster.nodes, proxies, strict=True):
            node.ask("CONFIG", "SET", "cluster-announce-port", proxy.port)
            for verb in VERBS:
                node.client().script_load(_lua.script(verb).text)
        known = {proxy.port for proxy in proxies}
        for node in cluster.nodes:
            node.wait_until(lambda node=node: _known_by(node) == known, "announces other addresses")
        yield cluster, proxies


def _known_by(node):
    with contextlib.closing(node.client()) as client:
        slots = client.execute_command("CLUSTER SLOTS")
    found = slots.values() if isinstance(slots, dict) else slots
    return {int(one["primary"][1]) if isinstance(one, dict) else int(one[2][1]) for one in found}


class Connected:
    """A client of a server or cluster behind proxies, and a direct client for checks."""

    def __init__(self, client, direct, proxies):
        self.client = client
        self.direct = direct
        self.proxies = proxies
        self._lost = collections.deque()
        for proxy in proxies:
            proxy.clear()

    async def lose(self, fate, verb):
        """Lose the next request of a verb, or its reply, at any node."""
        # A cluster client that does not know the slots asks any node and is redirected.
        await do(getattr(self.client, "initialize", self.client.ping)())
        self._lost.append(verb)
        for proxy in self.proxies:
            getattr(proxy, fate)(self._is_next)

    def end(self):
        """End the faults."""
        self._lost.clear()
        self.direct.close()

    def _is_next(self, command):
        if self._lost and is_of(self._lost[0], command):
            self._lost.clear()
            return True
        return False

    def sent(self, verb):
        """The number of requests of a verb that were sent."""
        sent = [command for proxy in self.proxies for command in proxy.commands]
        return sum(is_of(verb, command) for command in sent)


def is_of(verb, command):
    """Whether a command runs the script of a verb."""
    return command[0].startswith(b"EVAL") and command[1] in _lua.script(verb)


@pytest.fixture(params=["direct", "wrapped", "cluster"])
def connected(request, front):
    """Bypassing the client's ``execute_command``, through it, or to the nodes of a cluster."""
    if request.param == "cluster":
        yield from _to_cluster(front, *request.getfixturevalue("cluster"))
    else:
        yield from _to_server(front, request.getfixturevalue("server"), request.param)


def _to_server(front, server, kind):
    if LEGACY and kind == "wrapped":
        pytest.skip("redis-py 3.5 does not resend on its own")
    direct = server.client()
    with none_left(server.client()), FaultProxy(server.host, server.port) as proxy:
        for verb in VERBS:
            direct.script_load(_lua.script(verb).text)
        client = front.client(proxy)
        if kind == "wrapped":
            wrap(client)
        connected = Connected(client, direct, [proxy])
        yield connected
        connected.end()


def _to_cluster(front, cluster, proxies):
    real = {proxy.port: node.port for proxy, node in zip(proxies, cluster.nodes, strict=True)}
    with contextlib.ExitStack() as stack:
        for node in cluster.nodes:
            stack.enter_context(none_left(node.client()))
        direct = cluster.client(address_remap=lambda at: (at[0], real.get(at[1], at[1])))
        connected = Connected(front.cluster(proxies[0]), direct, proxies)
        yield connected
        connected.end()
        if front is BLOCKING:  # an asyncio client is closed with its event loop
            connected.client.close()


async def test_lost_message_does_not_delay_an_acquire(front, connected, name, fate):
    lock = front.package.RedisLock(name, client=connected.client, expire=3)
    await connected.lose(fate, "acquire")
    started = time.monotonic()

    lease = await do(lock.acquire())

    assert time.monotonic() - started < 2.5  # it does not wait for its own lease to end
    assert connected.sent("acquire") >= 2
    assert connected.direct.get(lease.key).decode() == lease.identifier
    await do(lease.release())


async def test_lost_message_of_a_release_is_no_loss(front, connected, name, fate):
    lock = front.package.RedisLock(name, client=connected.client, expire=3)

    async with front.held(lock) as lease:
        await connected.lose(fate, "release")

    assert connected.sent("release") >= 2
    assert not lease.lost
    assert not connected.direct.exists(lease.key)


async def test_repeated_release_does_not_affect_the_next_holder(front, connected, name, fate):
    lock = front.package.RedisLock(name, client=connected.client, expire=3)
    lease = await do(lock.acquire())
    await connected.lose(fate, "release")

    await do(lease.release())
    following = await do(lock.acquire())
    await do(lease.release())

    assert await do(following.owned())
    await do(following.release())


async def test_repeated_extend_extends_once(front, connected, name, fate):
    lock = front.package.RedisLock(name, client=connected.client, expire=3)

    async with front.held(lock) as lease:
        await connected.lose(fate, "extend")
        assert await do(lease.extend(20)) is True

        assert connected.sent("extend") >= 2
        assert 15_000 < connected.direct.pttl(lease.key) <= 20_000
        assert 15 < lease.remaining() < 20


async def test_lost_message_of_a_renewal_keeps_the_lease(front, connected, name, fate):
    losses = []
    lock = front.package.RedisLock(
        name, client=connected.client, expire=1.5, on_lost=lambda *report: losses.append(report)
    )
    await connected.lose(fate, "renew")

    async with front.held(lock) as lease:
        first = lease.deadline
        await until(front, lambda: time.monotonic() > first + 0.2)

        assert connected.sent("renew") >= 2
        assert 0 < connected.direct.pttl(lease.key) <= 1_500
        assert await do(lease.owned())

    assert not losses


@pytest.mark.parametrize("times", [1, 2])
async def test_lost_message_of_a_native_release_is_no_loss(
    front, server, proxy, direct, name, fate, times
):
    if LEGACY or not _has_native_release(direct):
        pytest.skip("the server has no DELIFEQ")
    lock = front.package.RedisLock(name, client=front.client(proxy), release_method="native")

    async with front.held(lock) as lease:
        getattr(proxy, fate)(lambda command: command[0] == b"DELIFEQ", times)

    assert not lease.lost
    assert not direct.exists(lease.key)
    sent = [command[0] for command in proxy.commands]
    assert sent.count(b"DELIFEQ") >= times + 1


def _has_native_release(direct):
    try:
        direct.execute_command("DELIFEQ", "no such key", "x")
    except ResponseError:
        return False
    return True
