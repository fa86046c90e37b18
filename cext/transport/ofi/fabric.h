/* SPDX-License-Identifier: MIT */
/*
 * fabric.h: reading another process's memory through libfabric.
 *
 * A fabric has two endpoints. The *serving* one has the name by which others
 * reach the memory registered here for them; only registered memory can be
 * read through it, and only with its key. The *reading* one is used for reads
 * from others, and its name is never told: if an operation cannot be ended in
 * any other way, that endpoint is closed. From then on nothing writes to our
 * memory, and all other reads go on with a new one.
 *
 * libfabric is loaded when the first fabric is opened. It is looked for as
 * libfabric.so.1, or at MOOACTOR_LIBFABRIC. The layers above use these
 * functions by the table in transport/ofi.h.
 *
 * Threads: a fabric has one thread. It makes the progress that both readers and
 * the read need, and calls back; it sleeps when there is nothing to do. All
 * functions but close may be called from any thread, callbacks included, and
 * none waits for the network, unless it says so.
 */
#ifndef MOOI_FABRIC_H
#define MOOI_FABRIC_H

#include <stddef.h>
#include <stdint.h>

#include "mooactor.h"

#define MOOI_FABRIC_PROVIDER_BYTES 64 /* with its terminating zero */
#define MOOI_FABRIC_NAME_BYTES 256
#define MOOI_FABRIC_WHY_BYTES 256

struct mooi_fabric;
struct mooi_fabric_peer;
struct mooi_fabric_region;

struct mooi_fabric_options {
    /* By libfabric's name, as "verbs;ofi_rxm". NULL: the one that
     * MOOACTOR_FABRIC names, otherwise the best with hardware. Software
     * stand-ins, as "tcp;ofi_rxm", are used only by name. */
    const char *provider;
    /* Numeric address of the interface to use. "*": any. NULL: any; for a
     * provider without hardware the loopback. */
    const char *bind;
    /* MOO_DEVICES_…: open it for memory of devices as well (FI_HMEM). The
     * fabric is the same either way, so that hosts with and without devices
     * meet. */
    int devices;
    /* The TCP or UDP ports of a provider over sockets, which listens on two of
     * them: one for each endpoint. 0: the system chooses. Others have no such
     * ports. */
    uint32_t first_port, last_port;
    /* Set by tests: accept a provider that does not check keys. */
    int keyless;
};

/* Open the fabric and start its thread. On any error nothing is left behind
 * and why[0, room) says the reason and the remedy.
 * MOO_EUNREACHABLE: libfabric or such a provider is missing here. */
moo_err mooi_fabric_open(const struct mooi_fabric_options *options,
                         struct mooi_fabric **out, char *why, size_t room);

/* End all reads with MOO_ECLOSED, and free the thread, the endpoints, and the
 * remaining peers and regions, which must not be used any more. Waits for the
 * thread, which waits for callbacks only. Not to be called from a callback. */
void mooi_fabric_close(struct mooi_fabric *fabric);

/* The provider's name, valid as long as the fabric. */
const char *mooi_fabric_provider(const struct mooi_fabric *fabric);

/* The name of the serving endpoint. Returns its length, at most
 * MOOI_FABRIC_NAME_BYTES. */
size_t mooi_fabric_name(const struct mooi_fabric *fabric,
                        uint8_t out[MOOI_FABRIC_NAME_BYTES]);

/* See moo_fabric_probe. */
moo_err mooi_fabric_probe(char *text, size_t room);

/* ---- memory ---- */

#define MOOI_FABRIC_INTO 1 /* may be read into */
#define MOOI_FABRIC_FROM 2 /* others may read it with its key */

/* Make [base, base + bytes) known to the device. That may touch and pin all of
 * it, which takes time in proportion. As long as it is registered the pages
 * must not be replaced (as by hole punching). `kind` is MOO_MEMORY_…, and
 * `device` its number, 0 for memory of the host. MOO_ENOMEM: no memory, or
 * more than may be locked. MOO_EUNREACHABLE: it is of a device, and the fabric
 * was not opened for that. MOO_ESYS: the provider refused; errno is
 * libfabric's, see mooi_fabric_strerror. */
moo_err mooi_fabric_register(struct mooi_fabric *fabric, void *base,
                             size_t bytes, int access, int kind, int device,
                             struct mooi_fabric_region **out);

/* 1 if it was opened for memory of devices. */
int mooi_fabric_takes_devices(const struct mooi_fabric *fabric);

/* libfabric's words for an errno of its own. */
const char *mooi_fabric_strerror(const struct mooi_fabric *fabric, int err);

/* No read into it may be under way; reads by others from it fail from now
 * on. */
void mooi_fabric_unregister(struct mooi_fabric_region *region);

/* For readers: the key, and the remote address of its first byte. */
uint64_t mooi_fabric_key(const struct mooi_fabric_region *region);
uint64_t mooi_fabric_base(const struct mooi_fabric_region *region);

/* 1 if the target of a read must be registered, 0 if it need not. */
int mooi_fabric_wants_regions(const struct mooi_fabric *fabric);

/* 1 if registering pins pages. */
int mooi_fabric_pins(const struct mooi_fabric *fabric);

/* ---- reading ---- */

/* The process whose serving endpoint has this name. It is not contacted before
 * the first read. The caller's until mooi_fabric_forget. */
moo_err mooi_fabric_connect(struct mooi_fabric *fabric, const uint8_t *name,
                            size_t bytes, struct mooi_fabric_peer **out);

/* The caller has no more use for it, or knows that it is dead: its reads end
 * with MOO_EPEER within a second, by their callbacks. */
void mooi_fabric_forget(struct mooi_fabric_peer *peer);

/* Called exactly once for each read that began and was not cancelled, on the
 * fabric's thread without its locks. Must not block for long. Nothing touches
 * the read's memory any more. */
typedef void mooi_fabric_done(void *cookie, moo_err result);

struct mooi_fabric_want {
    uint64_t from, key;                     /* remote address and key */
    void *into;
    size_t bytes;
    const struct mooi_fabric_region *region; /* that contains `into`; NULL if
                                                that is not wanted */
    uint32_t patience_ms; /* fail if no byte came for so long; not 0 */
    uint32_t contact_ms;  /* the same for the first contact, which takes long
                             where one of its messages is lost; 0: as above */
    mooi_fabric_done *done;
    void *cookie; /* unique among those under way */
};

/* Begin to read. Several reads take turns, piece by piece, and a bounded number
 * of bytes is under way. After a failure the contents of `into` are undefined.
 * Results: MOO_OK; MOO_EPEER: hung up, or never reached; MOO_ETIMEOUT:
 * silence; MOO_EPROTO: the other side refused, by its key or its bounds;
 * MOO_ECLOSED; MOO_ESYS: all else, see errno. On an error from this function
 * nothing was begun. */
moo_err mooi_fabric_read(struct mooi_fabric_peer *peer,
                         const struct mooi_fabric_want *want);

/* End a read. Waits until nothing can write to its memory any more, which
 * takes less than a second even if the other side is silent. Not to be called
 * from `done`. MOO_OK: `done` will not be called. MOO_ESTALE: it has ended
 * before; `done` was called, or is about to be. */
moo_err mooi_fabric_cancel(struct mooi_fabric *fabric, const void *cookie);

/* The error of the last failed read from a peer, in libfabric's words; empty
 * if none failed. Copied to text[0, room), always terminated. */
void mooi_fabric_reason(struct mooi_fabric_peer *peer, char *text, size_t room);

struct mooi_fabric_statistics {
    uint64_t reads;    /* under way */
    uint64_t asked;    /* bytes requested and not received yet */
    uint64_t received; /* bytes, so far */
    uint64_t cuts;     /* so far: connections or endpoints that we closed, as
                          their reads did not end by themselves */
};

void mooi_fabric_statistics(struct mooi_fabric *fabric,
                            struct mooi_fabric_statistics *out);

#endif
