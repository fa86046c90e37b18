# SPDX-License-Identifier: MIT
"""The few functions of NVIDIA's driver that let processes share a GPU's memory.

torch's own allocator hands out parts of larger allocations, or of expandable segments,
which cannot be opened by another process; so memory that others open is allocated here.
Devices are numbered as torch numbers them, and all work is done in the primary context,
which is torch's.

The driver is loaded when `driver` is first called, which must not happen before torch
has initialised CUDA in this process.
"""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

HANDLE_BYTES = 64

_DECLARATIONS = """
typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct { char reserved[64]; } CUipcMemHandle;
typedef struct { char bytes[16]; } CUuuid;

CUresult cuGetErrorName(CUresult error, const char **name);
CUresult cuInit(unsigned int flags);
CUresult cuDeviceGet(CUdevice *device, int ordinal);
CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device);
CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device);
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device);
CUresult cuCtxPushCurrent_v2(CUcontext context);
CUresult cuCtxPopCurrent_v2(CUcontext *context);
CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes);
CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address);
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *address, CUipcMemHandle handle,
                               unsigned int flags);
CUresult cuIpcCloseMemHandle(CUdeviceptr address);
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                              CUstream stream);
CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes);
CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes);
CUresult cuEventCreate(CUevent *event, unsigned int flags);
CUresult cuEventRecord(CUevent event, CUstream stream);
CUresult cuEventSynchronize(CUevent event);
CUresult cuEventDestroy_v2(CUevent event);
"""

_FUNCTIONS = re.findall(r"\bcu\w+(?=\()", _DECLARATIONS)
_BLOCKING_SYNC = 1  # a thread that waits for the event sleeps
_DISABLE_TIMING = 2
_LAZY_ENABLE_PEER_ACCESS = 1  # the one flag that opening takes, and must be given
_OUT_OF_MEMORY = 2


class CudaError(RuntimeError):
    """The driver refused something; the message has its own name for the reason."""


class Driver:
    """The driver, for all devices of this process.

    Threads: any, at any time. No method waits for a device unless it says so.
    Errors: every method raises `CudaError`, and has then done nothing.
    """

    def __init__(self) -> None:
        """Raises OSError: there is no driver. AttributeError: it is too old."""
        from cffi import FFI

        self._ffi: Any = FFI()
        self._ffi.cdef(_DECLARATIONS)
        self._lib: Any = self._ffi.dlopen("libcuda.so.1")
        for name in _FUNCTIONS:
            getattr(self._lib, name)  # an old driver lacks some
        self._contexts: dict[int, Any] = {}
        self._lock = threading.Lock()
        self._call("cuInit", 0)

    def uuid(self, device: int) -> bytes:
        """The unique number of this device, or part of one: 16 bytes."""
        out = self._ffi.new("CUuuid *")
        self._call("cuDeviceGetUuid_v2", out, self._handle_of(device))
        return bytes(self._ffi.buffer(out))

    def memory(self, device: int) -> int:
        """The bytes of memory that the device has."""
        out = self._ffi.new("size_t *")
        self._call("cuDeviceTotalMem_v2", out, self._handle_of(device))
        return int(out[0])

    def allocate(self, device: int, nbytes: int) -> int | None:
        """Memory that other processes can open, for as long as this process lives;
        its address, or None if the device has no room.

        It is never freed: freeing memory that others have open is undefined.
        """
        out = self._ffi.new("CUdeviceptr *")
        with self.within(device):
            err = self._lib.cuMemAlloc_v2(out, nbytes)
        if err == _OUT_OF_MEMORY:
            return None
        self._check(err, "cuMemAlloc")
        return int(out[0])

    def handle(self, device: int, address: int) -> bytes:
        """The handle by which others open the memory: `HANDLE_BYTES` bytes."""
        out = self._ffi.new("CUipcMemHandle *")
        with self.within(device):
            self._call("cuIpcGetMemHandle", out, address)
        return bytes(self._ffi.buffer(out))

    def open(self, device: int, handle: bytes) -> int:
        """The address here of another process's memory, until `close`."""
        inner = self._ffi.new("CUipcMemHandle *")
        self._ffi.memmove(inner, handle, HANDLE_BYTES)
        out = self._ffi.new("CUdeviceptr *")
        with self.within(device):
            self._call("cuIpcOpenMemHandle_v2", out, inner[0], _LAZY_ENABLE_PEER_ACCESS)
        return int(out[0])

    def close(self, device: int, address: int) -> None:
        """The reverse of `open`. Nothing may use the memory any more."""
        with self.within(device):
            self._call("cuIpcCloseMemHandle", address)

    def copy(self, device: int, to: int, source: int, nbytes: int, stream: int) -> None:
        """Queue a copy within the device on a stream (its `cuda_stream`)."""
        queue = self._ffi.cast("CUstream", stream)
        with self.within(device):
            self._call("cuMemcpyDtoDAsync_v2", to, source, nbytes, queue)

    def write(self, device: int, address: int, data: bytes) -> None:
        """Copy a few bytes to the device, and wait for that."""
        with self.within(device):
            self._call("cuMemcpyHtoD_v2", address, data, len(data))

    def read(self, device: int, address: int, nbytes: int) -> bytes:
        """Copy a few bytes from the device, and wait for that."""
        out = self._ffi.new("char[]", nbytes)
        with self.within(device):
            self._call("cuMemcpyDtoH_v2", out, address, nbytes)
        return bytes(self._ffi.buffer(out))

    def record(self, device: int, stream: int) -> Any:
        """A mark behind all queued work of the stream; give it to `wait`."""
        event = self._ffi.new("CUevent *")
        queue = self._ffi.cast("CUstream", stream)
        with self.within(device):
            self._call("cuEventCreate", event, _BLOCKING_SYNC | _DISABLE_TIMING)
            err = self._lib.cuEventRecord(event[0], queue)
            if err:
                self._lib.cuEventDestroy_v2(event[0])
            self._check(err, "cuEventRecord")
        return event[0]

    def wait(self, device: int, mark: Any) -> None:
        """Sleep until the device has come to a mark of `record`; ends the mark."""
        with self.within(device):
            try:
                self._call("cuEventSynchronize", mark)
            finally:
                self._lib.cuEventDestroy_v2(mark)

    @contextmanager
    def within(self, device: int) -> Iterator[None]:
        """Within it, the calling thread works in the device's primary context."""
        self._call("cuCtxPushCurrent_v2", self._primary(device))
        try:
            yield
        finally:
            self._lib.cuCtxPopCurrent_v2(self._ffi.new("CUcontext *"))

    def _primary(self, device: int) -> Any:
        with self._lock:
            context = self._contexts.get(device)
            if context is None:
                out = self._ffi.new("CUcontext *")
                self._call("cuDevicePrimaryCtxRetain", out, self._handle_of(device))
                context = self._contexts[device] = out[0]
        return context

    def _handle_of(self, device: int) -> int:
        out = self._ffi.new("CUdevice *")
        self._call("cuDeviceGet", out, device)
        return int(out[0])

    def _call(self, name: str, *args: Any) -> None:
        self._check(getattr(self._lib, name)(*args), name)

    def _check(self, err: int, name: str) -> None:
        if not err:
            return
        text = self._ffi.new("const char **")
        unknown = self._lib.cuGetErrorName(err, text) or not text[0]
        reason = f"error {err}" if unknown else self._ffi.string(text[0]).decode()
        raise CudaError(f"{name}: {reason}")


@functools.cache
def driver() -> Driver | None:
    """This process's driver; None if there is none (AMD's, say)."""
    try:
        return Driver()
    except (OSError, AttributeError, CudaError):
        return None
