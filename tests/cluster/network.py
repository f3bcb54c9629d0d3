"""Hosts for a cluster of the tests, all on this machine, and the links between them.

Where the machine allows it each host is a network namespace: an address, a loopback device and a
host name of its own, on one of two switches joined by a cable, so that links can be cut in either
direction and the network in half. Elsewhere hosts are addresses of the loopback device.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PREFIX: Final = "tidegate"
RUN_NETNS: Final = Path("/run/netns")
NETWORKS: Final = 250
TRIED_S: Final = 30.0
SERVE: Final = """import socket
server = socket.create_server(("", 0))
print(server.getsockname()[1], flush=True)
server.settimeout(60)
server.accept()
"""
ASK: Final = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 10)"
TOOLS: Final = ("ip", "tc", "setpriv", "unshare")

DROP_ALL: Final = ("root", "bfifo", "limit", "1")
"""A queue without room for a packet: every kernel has it, where netem is a module."""


class Network(Protocol):
    """Hosts by name. named: each has a host name of its own."""

    kind: str
    named: bool

    def address(self, host: str) -> str:
        """Where others find the host."""
        ...

    def on(self, host: str, command: Iterable[str]) -> list[str]:
        """The command that runs a command on a host; it dies with the process that starts it."""
        ...

    def processes(self, host: str) -> list[psutil.Process]:
        """All that run there, whoever started them."""
        ...

    def close(self) -> None:
        """Ends every process on the hosts, and takes them away."""
        ...


class Namespaces:
    """A network namespace for each host.

    hosts: by name, on which of the switches, 0 or 1, they are. This machine is on the first.
    """

    kind = "network namespaces"
    named = True

    def __init__(self, hosts: Mapping[str, int]) -> None:
        self._hosts = list(hosts)
        self._id = self._free_id()
        try:
            for switch in (0, 1):
                _run("ip", "link", "add", self._switch(switch), "type", "bridge")
                _run("ip", "link", "set", self._switch(switch), "up")
            _run("ip", "addr", "add", f"10.213.{self._id}.254/24", "dev", self._switch(0))
            a, b = self._cable
            _run("ip", "link", "add", a, "type", "veth", "peer", "name", b)
            for switch, end in enumerate(self._cable):
                _run("ip", "link", "set", end, "master", self._switch(switch), "up")
            for host, switch in hosts.items():
                self._add(host, switch)
        except BaseException:
            self.close()
            raise

    @staticmethod
    def _free_id() -> int:
        taken = _run("ip", "-o", "link")
        first = os.getpid() % NETWORKS
        free = (each % NETWORKS for each in range(first, first + NETWORKS))
        return next(each for each in free if f" tg{each}s0:" not in taken)

    def _switch(self, switch: int) -> str:
        return f"tg{self._id}s{switch}"

    @property
    def _cable(self) -> tuple[str, str]:
        return f"tg{self._id}c0", f"tg{self._id}c1"

    def _space(self, host: str) -> str:
        return f"{PREFIX}-{os.getpid()}-{self._id}-{host}"

    def _outside(self, host: str) -> str:
        return f"tg{self._id}h{self._hosts.index(host)}"

    def _add(self, host: str, switch: int) -> None:
        space, outside = self._space(host), self._outside(host)
        _run("ip", "netns", "add", space)
        _run("ip", "link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", space)
        _run("ip", "link", "set", outside, "master", self._switch(switch), "up")
        _run("ip", "-n", space, "link", "set", "lo", "up")
        _run("ip", "-n", space, "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
        _run("ip", "-n", space, "link", "set", "eth0", "up")

    def address(self, host: str) -> str:
        return f"10.213.{self._id}.{self._hosts.index(host) + 1}"

    def on(self, host: str, command: Iterable[str]) -> list[str]:
        named = ["sh", "-c", 'hostname "$0" && exec "$@"', host]
        entered = ["ip", "netns", "exec", self._space(host), "unshare", "--uts"]
        return ["setpriv", "--pdeathsig", "KILL", *entered, *named, *command]

    def connects(self) -> bool:
        """True if a program starts on each host, and packets go from the first to the others."""
        first, *others = self._hosts
        with suppress(subprocess.CalledProcessError, subprocess.TimeoutExpired):
            for host in others:
                serves = ["python3", "-c", SERVE]
                with subprocess.Popen(self.on(host, serves), stdout=subprocess.PIPE) as server:
                    try:
                        assert server.stdout is not None
                        port = server.stdout.readline().decode().strip()
                        asks = ["python3", "-c", ASK, self.address(host), port]
                        subprocess.run(self.on(first, asks), check=True, timeout=TRIED_S)
                    finally:
                        server.kill()
            return True
        return False

    def processes(self, host: str) -> list[psutil.Process]:
        if not (RUN_NETNS / self._space(host)).exists():
            return []
        return list(_alive(map(int, _run("ip", "netns", "pids", self._space(host)).split())))

    def cut(self, host: str, *, towards: bool = True, away: bool = True) -> None:
        """Loses every packet towards a host, or from it, or both; nobody is told."""
        if towards:
            _run("tc", "qdisc", "replace", "dev", self._outside(host), *DROP_ALL)
        if away:
            _run("tc", "-n", self._space(host), "qdisc", "replace", "dev", "eth0", *DROP_ALL)

    def mend(self, host: str) -> None:
        """Ends what `cut` began."""
        with suppress(subprocess.CalledProcessError):  # one direction was not cut
            _run("tc", "qdisc", "del", "dev", self._outside(host), "root")
        with suppress(subprocess.CalledProcessError):
            _run("tc", "-n", self._space(host), "qdisc", "del", "dev", "eth0", "root")

    def cut_in_half(self) -> None:
        """Loses every packet between the two switches."""
        for end in self._cable:
            _run("tc", "qdisc", "replace", "dev", end, *DROP_ALL)

    def mend_halves(self) -> None:
        """Ends what `cut_in_half` began."""
        for end in self._cable:
            _run("tc", "qdisc", "del", "dev", end, "root")

    def close(self) -> None:
        for host in self._hosts:
            end(self.processes(host))
            _remove_space(self._space(host))
        links = _run("ip", "-o", "link")
        for link in (self._cable[0], self._switch(0), self._switch(1)):
            if f" {link}:" in links or f" {link}@" in links:
                _run("ip", "link", "del", link)


class Loopback:
    """Addresses of the loopback device, for machines that do not let us make namespaces."""

    kind = "addresses of the loopback device"
    named = False

    def __init__(self, hosts: Iterable[str]) -> None:
        self._hosts = list(hosts)
        self._sign = f"{PREFIX}-{os.getpid()}-{os.urandom(4).hex()}"

    def address(self, host: str) -> str:
        return f"127.0.1.{self._hosts.index(host) + 1}"

    def on(self, host: str, command: Iterable[str]) -> list[str]:
        sign = f"TIDEGATE_TEST_HOST={self._sign}-{host}"
        dies = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        return [*dies, "env", sign, *command]

    def processes(self, host: str) -> list[psutil.Process]:
        found: list[psutil.Process] = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get("TIDEGATE_TEST_HOST") == f"{self._sign}-{host}":
                    found.append(process)
        return found

    def close(self) -> None:
        for host in self._hosts:
            end(self.processes(host))


def network(hosts: Mapping[str, int]) -> Namespaces | Loopback:
    """Namespaces where this process may make them, else addresses of the loopback device."""
    if not all(map(shutil.which, TOOLS)):
        return Loopback(hosts)
    try:
        sweep()
        made = Namespaces(hosts)
    except (subprocess.CalledProcessError, PermissionError):
        return Loopback(hosts)
    if made.connects():
        return made
    made.close()
    return Loopback(hosts)


def sweep() -> None:
    """Takes away what processes have left that were killed: their namespaces and switches."""
    spaces = RUN_NETNS.glob(f"{PREFIX}-*-*") if RUN_NETNS.exists() else ()
    for space in [each.name for each in spaces]:
        _, owner, id, *_ = space.split("-")
        if psutil.pid_exists(int(owner)):
            continue
        end(_alive(map(int, _run("ip", "netns", "pids", space).split())))
        _remove_space(space)
        for link in (f"tg{id}c0", f"tg{id}s0", f"tg{id}s1"):
            with suppress(subprocess.CalledProcessError):
                _run("ip", "link", "del", link)


def end(processes: Iterable[psutil.Process]) -> None:
    """Kills processes, and waits until they are gone."""
    processes = list(processes)
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGKILL)
    _, alive = psutil.wait_procs(processes, timeout=30)
    assert not alive, f"processes that outlive SIGKILL: {alive}"


def _remove_space(space: str) -> None:
    if (RUN_NETNS / space).exists():
        _run("ip", "netns", "del", space)


def _alive(pids: Iterable[int]) -> Iterable[psutil.Process]:
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            yield psutil.Process(pid)


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
