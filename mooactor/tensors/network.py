# SPDX-License-Identifier: MIT
"""`Network`: how a process may reach others, by `moo.init(transport=…)` and the
environment.

The driver decides for all processes of its session. An actor with variables of its own
(``moo.on(…, env=…)``) uses their values, as a host of its own would.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from mooactor.tensors.extension import ffi, lib, missing, why_missing
from mooactor.tensors.interfaces import listen_address

#: In the order in which they are chosen if several are possible.
NAMES = ("shm", "ofi", "tcp")
#: TCP connections for each pair and direction, and threads that move bulk over them.
MOST_STRIPES = 0 if missing is not None else lib.MOO_STRIPES_MAX
MOST_THREADS = 0 if missing is not None else lib.MOO_THREADS_MAX

_BITS: dict[str, int] = (
    {}
    if missing is not None
    else {name: getattr(lib, f"MOO_TRANSPORT_{name.upper()}") for name in NAMES}
)
VARIABLE = "MOOACTOR_TRANSPORT"
BIND = "MOOACTOR_BIND"
STRIPES = "MOOACTOR_STRIPES"
THREADS = "MOOACTOR_TCP_THREADS"
CHECKSUM = "MOOACTOR_CHECKSUM"
GPU_DIRECT = "MOOACTOR_GPUDIRECT"
#: TCP ports that each process of a session listens on: for calls, and for tensors.
PORTS_EACH = 2


class Network(msgspec.Struct, frozen=True, omit_defaults=True):
    """One choice for a process."""

    transports: tuple[str, ...] | None = None
    """Those allowed of "shm", "ofi" and "tcp"; the best that both sides allow is
    chosen. None: shared memory alone, which needs no listener."""
    bind: str | None = None
    """Numeric address to listen on for other hosts, "*" for all; None: only processes
    of this machine can connect."""
    stripes: int | None = None
    """TCP connections for each pair of processes; None: one."""
    threads: int | None = None
    """Threads that move bulk over TCP; None: as many as suit the processors."""
    checksum: bool = False
    """Send a CRC32C with each piece over TCP."""
    gpu_direct: bool | None = None
    """Open the fabric for memory of GPUs; None: if there is a GPU and the provider
    offers it."""
    provider: str | None = None
    """Of libfabric; None: the best there is."""
    ports: tuple[int, int] | None = None
    """The first and the last of the TCP ports to listen on; None: the system
    chooses."""

    def __post_init__(self) -> None:
        """Raises ValueError: there is no such transport, or GPUDirect is demanded, but
        none can have it."""
        if self.transports is not None:
            _names(self.transports, "transport")
        if self.gpu_direct and "ofi" not in (self.transports or ()):
            raise ValueError(
                f"{GPU_DIRECT}=1 needs RDMA: allow it with {VARIABLE}=shm,ofi,tcp or "
                f"moo.init(transport=…); the allowed transports are {self}"
            )

    def __str__(self) -> str:
        """As `VARIABLE` has it."""
        return ",".join(self.transports) if self.transports else "auto"

    @property
    def leaves_the_host(self) -> bool:
        """Whether processes of other hosts can be reached."""
        return self.transports not in (None, ("shm",))

    def between_hosts(self, bind: str, ports: tuple[int, int] | None) -> Network:
        """The same for a session of several hosts: whatever reaches them is allowed,
        unless this says what is; `bind` and `ports` are for what it leaves open.

        Raises:
          ValueError: only shared memory is allowed, which leads to no other host.
        """
        if self.transports == ("shm",):
            raise ValueError(
                f"{VARIABLE}=shm, or transport='shm', allows shared memory alone, "
                "which leads to no other host: allow tcp, too, such as shm,tcp, or "
                "say nothing, in a session of several hosts"
            )
        every = ("shm", "ofi", "tcp") if _has_rdma() else ("shm", "tcp")
        return replace(
            self,
            transports=self.transports or every,
            bind=self.bind or bind,
            ports=self.ports or ports,
        )

    def with_environment(self, variables: Mapping[str, str]) -> Network:
        """The same with the variables' values; an empty one means the default.

        Raises:
          ValueError: one makes no sense.
        """
        return replace(self, **_said(variables))


def choose(transport: str | Iterable[str] | None) -> Network:
    """The choice given to `moo.init`, or the environment's if that is None.

    Raises:
      TypeError: it is neither names nor None.
      ValueError: there is no such transport, or a variable makes no sense.
    """
    said = _said(os.environ)
    if transport is not None:
        said["transports"] = _names(transport, "transport")
    return Network(**said)


def _said(variables: Mapping[str, str]) -> dict[str, Any]:
    """The fields of `Network` that variables speak of."""
    readers: dict[str, tuple[str, Callable[[str], Any]]] = {
        VARIABLE: ("transports", lambda text: _names(text or "auto", VARIABLE)),
        BIND: ("bind", lambda text: listen_address(text, BIND) if text else None),
        STRIPES: ("stripes", lambda text: _number(text, STRIPES, MOST_STRIPES)),
        THREADS: ("threads", lambda text: _number(text, THREADS, MOST_THREADS)),
        CHECKSUM: ("checksum", _switch),
        GPU_DIRECT: ("gpu_direct", _choice),
    }
    found = readers.keys() & variables.keys()
    return {readers[name][0]: readers[name][1](variables[name]) for name in found}


def _names(said: str | Iterable[str], where: str) -> tuple[str, ...] | None:
    if not isinstance(said, Iterable):
        raise TypeError(f"{where}={said!r} must be a name or a list of names")
    names = said.replace(",", " ").split() if isinstance(said, str) else list(said)
    if names == ["auto"]:
        return None
    wrong = [name for name in names if name not in NAMES]
    if wrong or not names:
        what = f"{wrong[0]!r} is not a transport" if wrong else "no transport is named"
        raise ValueError(
            f'{where}={said!r}: {what}; use "auto", or some of {", ".join(NAMES)}'
        )
    return tuple(name for name in NAMES if name in names)


def _number(text: str, where: str, most: int) -> int | None:
    if not text:
        return None
    if not text.isdecimal() or not 1 <= int(text) <= most:
        raise ValueError(
            f"{where}={text!r}: give a whole number from 1 to {most}, or unset it for "
            "the default"
        )
    return int(text)


def _choice(text: str) -> bool | None:
    if text not in ("", "0", "1"):
        raise ValueError(
            f"{GPU_DIRECT}={text!r}: give 1 to require it, 0 to forbid it, or unset "
            "it to use it if it is offered"
        )
    return None if not text else text == "1"


def _switch(text: str) -> bool:
    if text not in ("", "0", "1"):
        raise ValueError(f"{CHECKSUM}={text!r}: give 1 for checksums, 0 for none")
    return text == "1"


_RDMA = "/sys/class/infiniband"  # the devices; there is none without its drivers


def _has_rdma() -> bool:
    """Whether a fabric is worth asking for: without any, that takes a tenth of a
    second of each process's start."""
    try:
        return bool(os.environ.get("MOOACTOR_FABRIC") or os.listdir(_RDMA))
    except OSError:
        return False


_FABRIC_TEXT_BYTES = 8192


def probe_fabric() -> tuple[bool, list[str]]:
    """Whether data can travel by a fabric, and lines that name it or say why not.

    The first line names the library, the second the fabric that is chosen. It loads
    libfabric, and asks all its providers.
    """
    if missing is not None:
        return False, [why_missing()]
    text = ffi.new("char[]", _FABRIC_TEXT_BYTES)
    err = lib.moo_fabric_probe(text, _FABRIC_TEXT_BYTES)
    return not err, ffi.string(text).decode(errors="replace").splitlines()


# -- for C -----------------------------------------------------------------


def mask_of(names: Iterable[str]) -> int:
    """Their bits, for C.

    Raises:
      ValueError: one is unknown, or there are none.
    """
    mask = 0
    for name in names:
        if name not in _BITS:
            raise ValueError(
                f"{name!r} is not a transport: use some of {', '.join(NAMES)}"
            )
        mask |= _BITS[name]
    if not mask:
        raise ValueError(f"no transport is allowed: give some of {', '.join(NAMES)}")
    return mask


def name_of(bit: int) -> str | None:
    """The transport of one bit; None for 0."""
    return next((name for name, known in _BITS.items() if known == bit), None)


_DRIVER = "/dev/nvidiactl"  # exists where NVIDIA's driver is loaded


def serve(plane: object, network: Network) -> int:
    """`moo_plane_serve` with these choices; returns its `moo_err`.

    Raises:
      ValueError: there is no such transport.
    """
    options = ffi.new("moo_serve_options *")
    kept = (_text(network.bind), _text(network.provider))
    options.bind, options.provider = kept
    options.transports = mask_of(network.transports or ())
    options.stripes = network.stripes or 0
    options.threads = network.threads or 0
    options.checksum = network.checksum
    options.devices = _devices(network.gpu_direct)
    if network.ports is not None:
        options.first_port, options.last_port = network.ports
    err: int = lib.moo_plane_serve(plane, options)
    return err


def group_options(network: Network, finishes: bool, backend: int) -> tuple[Any, object]:
    """`moo_group_options`, and what must live as long."""
    options = ffi.new("moo_group_options *")
    kept = options.bind = _text(network.bind)
    options.transports = mask_of(network.transports or ("shm",))
    options.checksum = network.checksum
    options.stripes = network.stripes or 0
    options.finishes, options.backend = finishes, backend
    if network.ports is not None:
        options.first_port, options.last_port = network.ports
    return options, kept


def _text(text: str | None) -> Any:
    return ffi.NULL if text is None else ffi.new("char[]", text.encode())


def _devices(gpu_direct: bool | None) -> int:
    # Without a GPU the fabric is not asked, which takes a tenth of a second.
    if gpu_direct is False or (gpu_direct is None and not os.path.exists(_DRIVER)):
        return int(lib.MOO_DEVICES_NO)
    required = gpu_direct is True
    return int(lib.MOO_DEVICES_REQUIRED if required else lib.MOO_DEVICES_IF_OFFERED)


def ports_taken(bind: str, ports: tuple[int, int]) -> str:
    """The message where none of these is free; they are the first and the last."""
    first, last = ports
    return (
        f"all {last - first + 1} ports {first}-{last} of {bind} are taken: give a "
        f"larger range with --ports, or MOOACTOR_PORTS for a program, {PORTS_EACH} "
        f"ports for each actor, {PORTS_EACH + 1} for each program and one for each "
        "broker and host agent"
    )
