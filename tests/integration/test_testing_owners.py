"""Local servers end with the process that started them."""

import os
import signal

import pytest
from support.local_servers import Owner, is_running
from support.waiting import until


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

            assert not owner.folder.exists()

    def test_interpreter_waits_at_exit_for_the_servers_end(self) -> None:
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

    def test_forked_child_cannot_control_the_servers(self) -> None:
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
