"""Local clusters, Sentinel and addresses."""

import pathlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest
import redis
from support.local_servers import KINDS, binary_of, port_of, works
from support.waiting import until

from redis_lock_decorators.testing import LocalAddress, LocalCluster, LocalSentinel, LocalServer


@pytest.fixture(params=KINDS)
def binary(request: pytest.FixtureRequest) -> pathlib.Path:
    return binary_of(request.param)


@pytest.fixture(scope="module", params=KINDS)
def cluster(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    with LocalCluster(binary=binary_of(request.param)) as cluster:
        yield cluster


class TestLocalCluster:
    def test_client_reaches_every_node(self, cluster: LocalCluster) -> None:
        with cluster.client(decode_responses=True) as client:
            names = [f"key-{number}" for number in range(50)]
            for name in names:
                client.set(name, name)

            assert [client.get(name) for name in names] == names
            assert {client.get_node_from_key(name).port for name in names} == set(cluster.ports)

    def test_client_can_start_at_any_node(self, cluster: LocalCluster) -> None:
        for url, node in zip(cluster.urls, cluster.startup_nodes, strict=True):
            with redis.RedisCluster.from_url(url) as client:
                assert len(client.get_primaries()) == 3
                assert url == f"redis://{node['host']}:{node['port']}/0"

    def test_slots_are_shared_evenly(self, cluster: LocalCluster) -> None:
        shares = [
            sum(map(width, row.split()[8:]))
            for row in cluster.nodes[0].ask("CLUSTER", "NODES").splitlines()
            if row
        ]

        assert sorted(shares) == [5461, 5461, 5462]

    def test_number_of_nodes_can_be_chosen(self) -> None:
        with LocalCluster(nodes=1) as cluster, cluster.client() as client:
            assert client.set("key", "value")
            assert len(cluster.ports) == 1

    def test_killed_node_rejoins(self, cluster: LocalCluster) -> None:
        node = cluster.nodes[1]
        node.kill()
        node.restart()

        for each in cluster.nodes:
            each.wait_until_says("cluster_state:ok", "CLUSTER", "INFO")
        assert node.ask("PING") == "+PONG\r\n"

    def test_masters_have_replicas(self) -> None:
        with LocalCluster(nodes=1, replicas=2) as cluster:
            (master,) = cluster.masters
            replicas = cluster.replicas_of(master)

            assert (master, *replicas) == cluster.nodes
            for each in replicas:
                assert f"master_port:{master.port}\r" in each.ask("INFO")

    def test_masters_have_separate_replicas(self) -> None:
        with LocalCluster(replicas=1) as cluster:
            for master in cluster.masters:
                (replica,) = cluster.replicas_of(master)
                assert f"master_port:{master.port}\r" in replica.ask("INFO")

    def test_replica_replaces_a_killed_master(self) -> None:
        with LocalCluster(replicas=1) as cluster:
            master = cluster.masters[0]
            (replica,) = cluster.replicas_of(master)

            master.kill()

            replica.wait_until_says("role:master", "INFO")
            replica.wait_until_says("cluster_state:ok", "CLUSTER", "INFO")
            assert "role:master" in replica.ask("INFO")

    def test_legacy_cluster_client_works(self, cluster: LocalCluster) -> None:
        rediscluster = pytest.importorskip("rediscluster")

        client = rediscluster.RedisCluster(startup_nodes=cluster.startup_nodes)

        assert client.set("key", "value")
        assert client.get("key") == b"value"


class TestLocalSentinel:
    def test_master_fails_over_to_its_replica(self, binary: pathlib.Path) -> None:
        with (
            LocalSentinel(binary=binary) as watched,
            watched.client(decode_responses=True) as client,
        ):
            client.set("key", "value")
            assert client.wait(1, 5000) == 1
            watched.master.kill()

            until(lambda: works(client))

            assert client.get("key") == "value"
            assert client.info("server")["tcp_port"] == watched.replicas[0].port

    def test_numbers_of_replicas_and_sentinels_can_be_chosen(self) -> None:
        with LocalSentinel(replicas=2, sentinels=1) as watched, watched.client() as client:
            assert client.info("replication")["connected_slaves"] == 2
            assert len(watched.replicas) == 2
            assert watched.sentinels == [("127.0.0.1", watched.sentinel_nodes[0].port)]
            assert watched.service_name == "mymaster"

    def test_time_until_a_server_counts_as_down_can_be_chosen(self) -> None:
        with LocalSentinel(sentinels=1, down_after=60) as watched, watched.client() as client:
            watched.master.pause()
            time.sleep(1)
            watched.master.resume()

            assert client.info("server")["tcp_port"] == watched.master.port


class TestLocalAddress:
    @pytest.fixture
    def one(self) -> Iterator[LocalServer]:
        with LocalServer() as server:
            yield server

    @pytest.fixture
    def two(self) -> Iterator[LocalServer]:
        with LocalServer() as server:
            yield server

    def test_new_connections_reach_the_server_it_points_to(
        self, one: LocalServer, two: LocalServer
    ) -> None:
        with LocalAddress(one) as address, address.client() as old, address.client() as new:
            assert port_of(old) == one.port

            address.point_to(two)

            assert port_of(old) == one.port
            assert port_of(new) == two.port
            assert address.url == f"redis://{address.host}:{address.port}/0"

    def test_connections_that_are_cut_reach_the_new_server(
        self, one: LocalServer, two: LocalServer
    ) -> None:
        with LocalAddress(one) as address, address.client() as client:
            assert port_of(client) == one.port
            address.point_to(two)

            address.cut()

            until(lambda: works(client))
            assert port_of(client) == two.port

    def test_large_values_pass(self, one: LocalServer) -> None:
        with LocalAddress(one) as address, address.client() as client:
            client.set("key", b"x" * 5_000_000)

            assert client.get("key") == b"x" * 5_000_000

    def test_address_without_a_server_breaks_connections(self, one: LocalServer) -> None:
        with LocalAddress(one) as address, address.client() as client:
            one.kill()

            with pytest.raises(redis.ConnectionError):
                client.ping()

    def test_closed_address_leaves_neither_port_nor_thread(self, one: LocalServer) -> None:
        with LocalAddress(one) as address, address.client() as client:
            client.ping()

        until(lambda: not [one for one in threading.enumerate() if one.name.startswith("address")])
        with pytest.raises(OSError):
            socket.create_connection((address.host, address.port), 1)


def width(slots: str) -> int:
    first, _, last = slots.partition("-")
    return int(last or first) - int(first) + 1
