"""The plugin in projects of its users: each test here runs a separate pytest."""

from __future__ import annotations

import psutil
import pytest

pytest_plugins = ["pytester"]

# As strict as a user may be; pytest-asyncio warns of its own default.
STRICT = ("-W", "error", "--strict-markers", "--strict-config")
ASYNCIO = ("-o", "asyncio_default_fixture_loop_scope=function")


def test_a_project_that_does_not_use_it_imports_nothing_but_pytest(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_it(request):
            assert request.config.pluginmanager.has_plugin("haclient")
            heavy = {"proton", "cproton", "pyspark", "click", "rich", "asyncio.subprocess", "broker_stub"}
            assert not heavy & set(sys.modules)
            assert {name for name in sys.modules if name.startswith("haclient")} == {
                "haclient", "haclient.pytest_plugin"
            }
        """
    )
    # Other plugins of this environment import asyncio, and more.
    others = ("asyncio", "anyio", "xdist", "hypothesispytest", "timeout")
    off = [argument for name in others for argument in ("-p", f"no:{name}")]
    pytester.runpytest_subprocess(*STRICT, *off).assert_outcomes(passed=1)


def test_it_can_be_switched_off(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(haclient_pair): pass")
    result = pytester.runpytest_subprocess(*STRICT, *ASYNCIO, "-p", "no:haclient")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*fixture 'haclient_pair' not found"])


def test_the_fixtures_are_listed_with_what_they_are(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess("--fixtures")
    for name in (
        "haclient_pair",
        "haclient_pair_factory [[]session scope]",
        "haclient_module_pair [[]module scope]",
        "haclient_broker",
    ):
        result.stdout.fnmatch_lines([f"{name} -- *", "    *"])


@pytest.mark.slow
def test_two_processes_share_the_tests_and_each_has_its_own_brokers(pytester: pytest.Pytester) -> None:
    tests = """
        import os
        import haclient

        def test_first(haclient_session_broker, haclient_pair):
            for place in (haclient_session_broker, haclient_pair):
                with haclient.connect(place.url) as connection:
                    connection.create_sender("q").send(haclient.Message(body=os.getpid()), timeout=60)

        def test_second(haclient_session_broker):
            haclient_session_broker.restore()
            with haclient.connect(haclient_session_broker.url) as connection:
                connection.create_sender("q").send(haclient.Message(body=os.getpid()), timeout=60)
                receiver = connection.create_receiver("q")
                assert receiver.receive(timeout=60).message.body == os.getpid()
        """
    pytester.makepyfile(test_one=tests, test_two=tests)
    result = pytester.runpytest_subprocess(*STRICT, *ASYNCIO, "-n", "2", "--dist", "loadfile")
    result.assert_outcomes(passed=4)


@pytest.mark.slow
def test_scopes_are_what_the_names_say(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        urls = {"function": set(), "module": set(), "session": set()}

        @pytest.mark.parametrize("time", [1, 2])
        def test_it(time, haclient_broker, haclient_module_broker, haclient_session_broker):
            urls["function"].add(haclient_broker.url)
            urls["module"].add(haclient_module_broker.url)
            urls["session"].add(haclient_session_broker.url)
            assert [len(each) for each in urls.values()] == [time, 1, 1]
        """
    )
    pytester.runpytest_subprocess(*STRICT, *ASYNCIO).assert_outcomes(passed=2)


@pytest.mark.slow
def test_a_process_that_dies_leaves_no_member_behind(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import os
        import pathlib
        import psutil

        def test_it(haclient_pair):
            pids = [str(child.pid) for child in psutil.Process().children()]
            pathlib.Path("pids").write_text(" ".join(pids))
            haclient_pair.pause()
            os._exit(3)
        """
    )
    result = pytester.runpytest_subprocess(*STRICT, *ASYNCIO)
    assert result.ret == 3
    pids = [int(pid) for pid in (pytester.path / "pids").read_text().split()]
    assert len(pids) == 2
    _, alive = psutil.wait_procs([psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)], 30)
    # Where no init reaps orphans, the ended one stays as a zombie.
    assert [process for process in alive if process.status() != psutil.STATUS_ZOMBIE] == []
