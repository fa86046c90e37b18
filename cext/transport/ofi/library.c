/* SPDX-License-Identifier: MIT */
/*
 * library.c: libfabric, loaded at run time, so the package does not depend on
 * it.
 *
 * Symbols are looked up by the version whose structures we know. Later ones
 * only append fields, which we do not use, so this works with any later
 * library as well as with any later headers; the newest symbols would not.
 */
#include "transport/ofi/internal.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIBRARY "libfabric.so.1"

static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;
static struct mooi_libfabric library;
static int loaded;

static int find(void *handle, const char *name, const char *version, void *out)
{
    void *symbol = dlvsym(handle, name, version);

    memcpy(out, &symbol, sizeof symbol);
    return symbol != NULL;
}

static int find_all(void *handle)
{
    return find(handle, "fi_getinfo", "FABRIC_1.3", &library.getinfo) &&
           find(handle, "fi_freeinfo", "FABRIC_1.3", &library.freeinfo) &&
           find(handle, "fi_dupinfo", "FABRIC_1.3", &library.dupinfo) &&
           find(handle, "fi_fabric", "FABRIC_1.1", &library.fabric) &&
           find(handle, "fi_strerror", "FABRIC_1.0", &library.strerror) &&
           find(handle, "fi_version", "FABRIC_1.0", &library.version);
}

static void remember_path(const char *fallback)
{
    Dl_info where;
    void *address;

    memcpy(&address, &library.version, sizeof address);
    snprintf(library.path, sizeof library.path, "%s",
             dladdr(address, &where) && where.dli_fname ? where.dli_fname
                                                        : fallback);
}

/* Settings that libfabric takes only from the environment, before it is
 * loaded. The user's own values have precedence. */
static void set_parameters(void)
{
    /* Providers size their queues by it, and small devices have less than the
     * default of 256. Our operations under way are bounded elsewhere. */
    setenv("FI_UNIVERSE_SIZE", "16", 0);
    /* Otherwise memory stays readable after it was given back, and libfabric
     * patches library functions to notice that. */
    setenv("FI_MR_CACHE_MONITOR", "disabled", 0);
    /* Buffers for messages, which we do not send: 60 MB less for an endpoint,
     * which then opens in 2 ms instead of 30. */
    setenv("FI_OFI_RXM_BUFFER_SIZE", "1024", 0);
    /* The psm providers would write a file at a crash, in the user's folder. */
    setenv("IPATH_NO_BACKTRACE", "1", 0);
    setenv("HFI_NO_BACKTRACE", "1", 0);
}

static moo_err load(char *why, size_t room)
{
    const char *named = getenv("MOOACTOR_LIBFABRIC");
    const char *path = named && *named ? named : LIBRARY;
    void *handle;

    set_parameters();
    handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        snprintf(why, room, "cannot load libfabric: %s; install libfabric1 "
                            "(Debian) or libfabric (others), or name it in "
                            "MOOACTOR_LIBFABRIC", dlerror());
        return MOO_EUNREACHABLE;
    }
    if (!find_all(handle)) {
        snprintf(why, room, "%s is no libfabric of 1.9 or later", path);
        dlclose(handle);
        return MOO_EUNREACHABLE;
    }
    remember_path(path);
    return MOO_OK;
}

moo_err mooi_libfabric(const struct mooi_libfabric **out, char *why,
                       size_t room)
{
    moo_err err = MOO_OK;

    pthread_mutex_lock(&loading);
    if (!loaded)
        err = load(why, room);
    if (err == MOO_OK) {
        loaded = 1;
        *out = &library;
    }
    pthread_mutex_unlock(&loading);
    return err;
}
