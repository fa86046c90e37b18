/* SPDX-License-Identifier: MIT */
/*
 * fake_cuda.c: as much of NVIDIA's driver as mooactor calls, without a GPU.
 *
 * Device memory is a memfd, a handle names it by process and descriptor, and
 * what is queued is done at once. So real processes can share it and be killed,
 * and the calls that mooactor makes are checked: most need a current context.
 * It shows nothing about a real driver.
 *
 *   FAKE_CUDA_UUID    what the device is called; 16 bytes count
 *   FAKE_CUDA_MEMORY  how much it has
 *   FAKE_CUDA_REFUSE  nothing can be opened here
 *   FAKE_CUDA_GATE    a named pipe: waiting for an event is waiting for a
 *                     writer to come and go
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    INVALID_CONTEXT = 201,
    MAP_FAILED_HERE = 205
};

#define MOST 256

struct handle {
    int32_t pid, fd;
    uint64_t bytes;
    char unused[48];
};

struct area {
    char *start;
    size_t bytes;
    int fd; /* -1: another process's */
};

static struct area area[MOST];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static __thread int contexts;
static char the_context, an_event;

int cuGetErrorName(int error, const char **name)
{
    *name = error == MAP_FAILED_HERE   ? "CUDA_ERROR_MAP_FAILED"
            : error == INVALID_CONTEXT ? "CUDA_ERROR_INVALID_CONTEXT"
            : error == INVALID_VALUE   ? "CUDA_ERROR_INVALID_VALUE"
                                       : NULL;
    return *name ? SUCCESS : INVALID_VALUE;
}

int cuInit(unsigned flags)
{
    return flags ? INVALID_VALUE : SUCCESS;
}

int cuDeviceGet(int *device, int ordinal)
{
    *device = 7; /* not the ordinal, which a caller might confuse with it */
    return ordinal ? 101 : SUCCESS;
}

int cuDeviceGetUuid_v2(char *uuid, int device)
{
    const char *text = getenv("FAKE_CUDA_UUID");

    memset(uuid, 0, 16);
    strncpy(uuid, text ? text : "the fake device", 16);
    return device == 7 ? SUCCESS : INVALID_VALUE;
}

int cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    const char *text = getenv("FAKE_CUDA_MEMORY");

    *bytes = text ? strtoull(text, NULL, 10) : (size_t)1 << 30;
    return device == 7 ? SUCCESS : INVALID_VALUE;
}

int cuDevicePrimaryCtxRetain(void **context, int device)
{
    *context = &the_context;
    return device == 7 ? SUCCESS : INVALID_VALUE;
}

int cuCtxPushCurrent_v2(void *context)
{
    contexts++;
    return context == &the_context ? SUCCESS : INVALID_CONTEXT;
}

int cuCtxPopCurrent_v2(void **context)
{
    *context = &the_context;
    return contexts-- > 0 ? SUCCESS : INVALID_CONTEXT;
}

static char *map(int fd, size_t bytes, int owned)
{
    char *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (start == MAP_FAILED)
        return NULL;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MOST; i++)
        if (!area[i].start) {
            area[i] = (struct area){start, bytes, owned ? fd : -1};
            break;
        }
    pthread_mutex_unlock(&lock);
    return start;
}

static struct area *find(uint64_t address, size_t bytes)
{
    for (int i = 0; i < MOST; i++) {
        uint64_t start = (uintptr_t)area[i].start;
        if (start && address >= start &&
            address + bytes <= start + area[i].bytes)
            return &area[i];
    }
    return NULL;
}

int cuMemAlloc_v2(uint64_t *address, size_t bytes)
{
    size_t room;
    int fd;

    if (!contexts)
        return INVALID_CONTEXT;
    cuDeviceTotalMem_v2(&room, 7);
    if (bytes > room)
        return OUT_OF_MEMORY;
    fd = memfd_create("fake-gpu", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0)
        return OUT_OF_MEMORY;
    *address = (uintptr_t)map(fd, bytes, 1);
    return *address ? SUCCESS : OUT_OF_MEMORY;
}

int cuIpcGetMemHandle(struct handle *handle, uint64_t address)
{
    struct area *found = find(address, 1);

    if (!contexts)
        return INVALID_CONTEXT;
    if (!found || (uintptr_t)found->start != address || found->fd < 0)
        return INVALID_VALUE;
    memset(handle, 0, sizeof *handle);
    handle->pid = getpid();
    handle->fd = found->fd;
    handle->bytes = found->bytes;
    return SUCCESS;
}

int cuIpcOpenMemHandle_v2(uint64_t *address, struct handle handle,
                          unsigned flags)
{
    char path[64];
    int fd;

    if (!contexts || handle.pid == getpid())
        return INVALID_CONTEXT;
    if (getenv("FAKE_CUDA_REFUSE"))
        return MAP_FAILED_HERE;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", handle.pid, handle.fd);
    fd = flags == 1 ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0)
        return INVALID_VALUE;
    *address = (uintptr_t)map(fd, handle.bytes, 0);
    close(fd);
    return *address ? SUCCESS : MAP_FAILED_HERE;
}

int cuIpcCloseMemHandle(uint64_t address)
{
    struct area *found = find(address, 1);

    if (!contexts)
        return INVALID_CONTEXT;
    if (!found || found->fd >= 0)
        return INVALID_VALUE;
    munmap(found->start, found->bytes);
    found->start = NULL;
    return SUCCESS;
}

int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void *stream)
{
    (void)stream;
    if (!contexts)
        return INVALID_CONTEXT;
    if (!find(to, bytes) || !find(from, bytes))
        return INVALID_VALUE;
    memcpy((void *)(uintptr_t)to, (void *)(uintptr_t)from, bytes);
    return SUCCESS;
}

int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes)
{
    if (!contexts || !find(to, bytes))
        return contexts ? INVALID_VALUE : INVALID_CONTEXT;
    memcpy((void *)(uintptr_t)to, from, bytes);
    return SUCCESS;
}

int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes)
{
    if (!contexts || !find(from, bytes))
        return contexts ? INVALID_VALUE : INVALID_CONTEXT;
    memcpy(to, (void *)(uintptr_t)from, bytes);
    return SUCCESS;
}

int cuEventCreate(void **event, unsigned flags)
{
    *event = &an_event;
    return contexts && flags == 3 ? SUCCESS : INVALID_CONTEXT;
}

int cuEventRecord(void *event, void *stream)
{
    (void)stream;
    return contexts && event == &an_event ? SUCCESS : INVALID_CONTEXT;
}

int cuEventSynchronize(void *event)
{
    const char *gate = getenv("FAKE_CUDA_GATE");
    int fd = gate ? open(gate, O_RDONLY) : -1;
    char byte;

    if (fd >= 0) {
        while (read(fd, &byte, 1) > 0)
            ;
        close(fd);
    }
    return event == &an_event ? SUCCESS : INVALID_VALUE;
}

int cuEventDestroy_v2(void *event)
{
    return event == &an_event ? SUCCESS : INVALID_VALUE;
}
