"""The servers of the tests, and the two fronts with which each behaviour is tested."""

from __future__ import annotations

import gc
import inspect
import itertools
import os
import warnings
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
from support import topologies
from support.fronts import FRONTS
from support.installed import warns_of_forks
from support.leftovers import none_left
from support.pairwise import mark_others
from support.proxy import FaultProxy
from support.workers import Rival

_numbers = itertools.count(1)
#: Folders of few but long tests: a worker that got such a file last would keep all waiting.
LONG = ("chaos", "model", "topologies", "runtimes", "examples", "docs", "integration", "cli")
# Time limits would fail on a busy machine.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--servers",
        default="embedded",
        help="servers to test on: embedded (default), fake, testcontainers, or a redis:// URL",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "topology" in metafunc.fixturenames:
        names = topologies.names(metafunc.config.getoption("--servers"))
        metafunc.parametrize("topology", names, indirect=True, scope="session")
    if "front" in metafunc.fixturenames:
        fronts = getattr(metafunc.module, "FRONTS", FRONTS)
        metafunc.parametrize("front", fronts, ids=[front.name for front in fronts])


@pytest.hookimpl(tryfirst=True)  # before those that are marked as slow are removed
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Function]) -> None:
    """Run files of long tests first, and skip what a double cannot do, if the tests run on one."""
    mark_others(items, LONG)
    items.sort(key=lambda item: item.path.parent.name not in LONG)
    if config.getoption("--servers") == "fake":
        from support.fake_topology import why_unsupported

        for item in items:
            if why := why_unsupported(item):
                item.add_marker(pytest.mark.skip(reason=why))


def pytest_collection_finish() -> None:
    """Exclude the tests themselves from collections of garbage, which many tests ask for."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an ``async def`` test through its front."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    pyfuncitem.funcargs["front"].run(pyfuncitem.obj(**arguments))
    return True


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests recorded, including those that ran in another process."""
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            for kind, value in report.user_properties:
                if kind == "found":
                    terminalreporter.write_line(str(value))


@pytest.fixture(autouse=True, scope="module")
def left_by_others() -> None:
    """Collect the garbage of other files' tests before those of this file begin."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(autouse=True)
def left_open(request: pytest.FixtureRequest) -> Iterator[None]:
    """Collect what a test leaves open on purpose while its warnings are ignored.

    Otherwise a later test would collect it and fail because of these warnings.
    """
    yield
    marks = request.node.iter_markers("filterwarnings")
    ignored = " ".join([text for mark in marks for text in mark.args])
    if "ResourceWarning" in ignored or "Unraisable" in ignored:
        gc.collect()


@pytest.fixture(autouse=True)
def no_warning_of_forks() -> Iterator[None]:
    """Fail the test that imports eventlet, instead of a later one that forks."""
    before = warns_of_forks()
    yield
    assert warns_of_forks() == before, "use support.installed.skip_without"


@pytest.fixture(scope="session")
def topology(request: pytest.FixtureRequest) -> Iterator[topologies.Topology]:
    """A running server, cluster or Sentinel set and the kind of client that the test uses."""
    with topologies.started(request.param, request.config.getoption("--servers")) as found:
        yield found


@pytest.fixture
def client(topology: topologies.Topology) -> Any:
    """A client of the topology."""
    return topology.client()


@pytest.fixture
def conn(front: Any, topology: topologies.Topology) -> Any:
    """A client of the front's kind, for the locks; ``client`` is for checks."""
    return front.connection(topology)


@pytest.fixture
def name() -> str:
    """A lock name that no other test uses."""
    return f"test:{os.getpid()}:{next(_numbers)}"


@pytest.fixture(scope="session")
def server() -> Iterator[Any]:
    """One embedded server, for tests of faults that need no other topology."""
    from redis_lock_decorators.testing import LocalServer

    with LocalServer() as server:
        yield server


@pytest.fixture
def nodes(cluster: Any) -> Iterator[Any]:
    """Clients of the nodes of a file's own ``cluster``."""
    from support.cluster_nodes import Nodes

    nodes = Nodes(cluster)
    yield nodes
    nodes.close()


@pytest.fixture
def proxy(server: Any) -> Iterator[FaultProxy]:
    """A proxy in front of that server, which injects the faults that a test chooses."""
    with FaultProxy(server.host, server.port) as proxy:
        yield proxy


@pytest.fixture
def direct(server: Any) -> Any:
    """A client of that server that bypasses the proxy, for checks."""
    return server.client()


@pytest.fixture
def frail() -> Iterator[Any]:
    """A separate server, which the test may stop or damage."""
    from redis_lock_decorators.testing import LocalServer

    with LocalServer() as server:
        yield server


@pytest.fixture
def rival() -> Iterator[Rival]:
    """Another process, which waits for the lock that the test holds."""
    rival = Rival()
    yield rival
    rival.end()


@pytest.fixture
def tidy(server: Any, direct: Any) -> Iterator[None]:
    """Fail if the test leaves a thread, a connection or a lock."""
    direct.ping()  # its connection exists from the start
    with none_left(server.client()):
        yield


@pytest.fixture
def tidy_queue(server: Any, direct: Any) -> Iterator[None]:
    """Fail if the test leaves a thread, a connection, any key or a channel."""
    direct.ping()  # its connection exists from the start
    with none_left(server.client(), "*"):
        yield
    assert direct.pubsub_channels() == []
