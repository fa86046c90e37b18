# SPDX-License-Identifier: MIT
"""The host's agent: the process that starts, watches and ends others on one host.

One process, one thread, one event loop over plain descriptors: lifelines, output pipes,
the zygotes' lines, and, in a cluster, the node by which it talks to the broker and to
other agents. It holds no user object, imports nothing of the user's and unpickles
nothing, so neither actors nor modules can hold it up.

`moo.init` starts one that belongs to its driver: it has the `home` of that session, and
ends with it. `mooactor host` is one without a driver: sessions of others are `guest`s
there, as many as there are. Both are this program; see `main` and `daemon`.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
import time
import traceback

from mooactor.control.lifeline import Lifeline
from mooactor.host import leftovers
from mooactor.host.eventloop import EventLoop
from mooactor.host.home import Home
from mooactor.host.output import Logs
from mooactor.host.placement import Sites
from mooactor.host.resources import Resources
from mooactor.host.site import Reaper, Site, Zygote, fork_zygote
from mooactor.process import files, signals
from mooactor.process.environment import host_name
from mooactor.process.protocol import Configure
from mooactor.process.system import (
    adopt_orphans,
    children,
    is_child,
    kill_group,
    name_process,
)


class Agent:
    """The agent of a driver, with the home of its session."""

    def __init__(
        self, driver: Lifeline, loop: EventLoop, zygote: Zygote, driver_process: int
    ) -> None:
        """`driver_process`: its pidfd."""
        self._driver = driver
        self._loop = loop
        self.logs = Logs(loop, driver)
        self._reaper = Reaper(loop)
        here = Site(host_name(), loop, self._reaper, self.logs)
        here.adopt_zygote(zygote)
        self._sites = Sites(here, Resources.of_this_host(binds=False))
        self.home = Home(driver, driver_process, loop, self._sites, self.logs)
        self.home.on_configured = self._configured
        here.family = self.home
        loop.report_on_sigusr1("the agent", self.home.report, self._write)

    def _write(self, text: str) -> None:
        sys.stderr.write(text)

    def _configured(self, config: Configure) -> None:
        """The driver has said what session this is."""
        if config.cluster is None:
            return
        from mooactor.host.cluster import Cluster  # only here: it loads ZeroMQ

        Cluster(self.home, self._loop, config)

    def run(self) -> None:
        """Serve until the driver is gone or ends the session."""
        home = self.home
        while not home.over:
            self._loop.serve(home.due())
            home.after_round()

    def close(self) -> None:
        """Leave nothing: neither the zygote nor processes that actors have left
        behind."""
        self._sites.close()
        if self._loop.is_open(self._driver):
            self.logs.after_round()
            self._driver.drain(5.0)
        self._driver.close()
        kill_children()
        if self.home.config is not None:
            shutil.rmtree(self.home.config.directory, ignore_errors=True)
        self.logs.close()  # last: it may take a while


def kill_children(patience_s: float = 1.0) -> None:
    """Kill all children of this process, and those that become its own thereby."""
    end = time.monotonic() + patience_s
    while (left := list(filter(is_child, children()))) and time.monotonic() < end:
        for pid in left:
            kill_group(pid)
            os.waitpid(pid, 0)


def main(fd: int, driver_process: int) -> None:
    """The agent's process: serve the driver at the other end of `fd`, while the process
    of the pidfd lives. Does not return."""
    code = 1
    files.open_standard_streams()  # first: no descriptor of ours may take such a number
    signals.outlive_the_job()
    name_process("moo-agent")
    adopt_orphans()
    loop = EventLoop()
    zygote = fork_zygote()  # first: it imports while the agent gets ready
    leftovers.start(os.environ[leftovers.VARIABLE])
    # A terminal may be set to stop background processes that write to it.
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    agent = Agent(Lifeline(socket.socket(fileno=fd)), loop, zygote, driver_process)
    sys.stderr = agent.logs.stderr()
    try:
        agent.run()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        agent.close()
        os._exit(code)  # the driver waits, and there is nothing left to tidy up
