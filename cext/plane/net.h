/* SPDX-License-Identifier: MIT */
/*
 * net.h: processes on other hosts.
 *
 * A plane that may use networks has one `net` (net.c): the TCP engine, which
 * makes contact and gives leases back, perhaps a fabric, and the endpoint with
 * our addresses. As owner it chooses a transport for each peer and connects to
 * it (route.c), and serves its leases (net_leases.c). As importer it has one
 * *source* for each process that called, with the fetches from there
 * (source.c).
 *
 * The plane's lock is held in all functions, unless one says otherwise.
 * Engines are called under that lock, and call back without locks of their
 * own, so the order is: the plane's lock, then an engine's.
 */
#ifndef MOOI_NET_H
#define MOOI_NET_H

#include "plane/endpoint.h"
#include "plane/fetch.h"
#include "plane/releases.h"
#include "transport/network.h"

#define MOOI_WHY_BYTES 640

/* Memory that is not ours, registered with the fabric: see device.c. */
struct mooi_device {
    struct mooi_device *next;
    uintptr_t start;
    size_t bytes;
    struct mooi_fabric_region *region;
};

struct mooi_net {
    struct mooi_networks networks;
    struct mooi_device *devices;
    uint32_t transports; /* allowed, and available here */
    struct mooi_endpoint endpoint;
    pthread_cond_t decided; /* a call was answered, or failed */
    uint32_t busy; /* threads that use an engine without the lock */
    struct mooi_source *sources;
    uint64_t fetched_tcp, fetched_ofi; /* bytes, so far */
};

/* The state of a peer in a process with a net: as owner, but for two
 * fields. */
struct mooi_reach {
    struct mooi_endpoint endpoint;
    uint8_t has_endpoint, introduced;
    uint8_t was_linked;         /* a link to it stood once, … */
    struct mooi_address linked_at; /* … here, the last time */
    uint8_t called;             /* a link from it stood once */
    uint64_t unheard_ns;        /* when that was found silent; 0: it was not, or
                                   it has called again */
    uint8_t fabric_failed;      /* do without it */
    struct mooi_outgoing out;
    uint64_t sought_ns;         /* its endpoint is missing since then */
    uint64_t tried_ns;          /* when it was called last */
    uint64_t paused_ns;         /* until then `err` is given at once */
    uint8_t guessed;            /* … because others there are silent */
    uint64_t lost_ns;           /* when its last link was lost, and it was
                                   called again; 0: never */
    uint64_t losses_ns;         /* when the count of such losses began */
    uint32_t losses;            /* … which it is */
    uint32_t released;          /* leases that it gave back over this link */
    uint64_t out_ns;            /* when its machine stopped answering a
                                   link; 0: it answers */
    uint32_t ended;             /* calls that have ended, so far */
    moo_err err;                /* of the last attempt */
    char why[MOOI_WHY_BYTES];   /* of the choice, or of the failure */
};

/* A process that called us, or should call us. */
struct mooi_source {
    uint64_t id;
    struct mooi_source *next;
    struct mooi_incoming in;
    struct moo_fetch *waiting, *flying;
    struct mooi_releases releases;
    uint64_t lost_ns; /* when its last link was lost; 0: there was none */
    uint64_t given_up_ns; /* when a fetch had waited for it in vain, or 0 */
    uint32_t pins;
};

/* ---- route.c: as owner ---- */

/* Make sure that `peer` is being reached, choosing the transport if none is
 * chosen. Does not block. MOO_OK also while it is being called, and while
 * nothing is known of it yet. Planes without a net only: see mooi_shm. */
moo_err mooi_route_offer(moo_plane *plane, struct mooi_peer *peer);

/* The same, and wait for the answer to a call under way; the lock is let go
 * meanwhile. */
moo_err mooi_route_await(moo_plane *plane, struct mooi_peer *peer);

/* Whether process `id` has, or had, a socket in our directory: it is of this
 * host. */
int mooi_route_has_socket(moo_plane *plane, uint64_t id);

/* ---- route_call.c: as owner ---- */

/* Connect to a peer of known endpoint, by a common transport. */
moo_err mooi_route_call(moo_plane *plane, struct mooi_peer *peer);

/* Note the reason of the present state, for the user. */
__attribute__((format(printf, 2, 3)))
void mooi_route_say(struct mooi_reach *reach, const char *format, ...);

/* The peer is not reached: its leases end, and for a while all calls get this
 * reason. Returns `err`. */
moo_err mooi_route_fail(moo_plane *plane, struct mooi_peer *peer, moo_err err);

/* The peer's link is up, has a message, or is down. */
void mooi_route_up(moo_plane *plane, struct mooi_peer *peer);
void mooi_route_control(moo_plane *plane, struct mooi_peer *peer,
                        const uint8_t *control, size_t length);
void mooi_route_down(moo_plane *plane, struct mooi_peer *peer, moo_err why);

/* The reach of a peer, made if it does not exist. NULL: no memory. */
struct mooi_reach *mooi_reach_get(struct mooi_peer *peer);

/* ---- net_leases.c: the engine's events for owners; lock not held ---- */

moo_err mooi_net_source(void *plane, uint64_t peer,
                        const struct mooi_lease_name *name, uint64_t offset,
                        uint64_t length, const void **data);
void mooi_net_sourced(void *plane, uint64_t peer,
                      const struct mooi_lease_name *name);
void mooi_net_released(void *plane, uint64_t peer,
                       const struct mooi_lease_name *name);

/* ---- source_fetch.c: as importer ---- */

/* Start a fetch that has its memory, or let it wait up to `timeout_ms` for its
 * owner's call. On any error it was not begun. */
moo_err mooi_source_begin(struct moo_fetch *fetch, int timeout_ms);

/* End a fetch that is not done; the lock is let go meanwhile. */
void mooi_source_cancel(struct moo_fetch *fetch);

/* A fetch's pull, which had begun, has ended. If the link was lost under it,
 * the fetch waits for the next one. */
void mooi_source_ended(struct mooi_pull *pull, moo_err result);

/* Start all waiting fetches, now that the transport is known. The source is
 * pinned. */
void mooi_source_start(struct mooi_source *source);

/* Let all waiting fetches wait for the next call of the owner, whose machine is
 * `silent`, or which hung up. */
void mooi_source_await(struct mooi_source *source, int silent);

/* A fetch in a list of its source has failed. */
void mooi_source_fail(struct moo_fetch *fetch, moo_err why);

/* The same for one whose owner did not call in time. If it calls later, it gets
 * its lease back. */
void mooi_source_give_up(struct moo_fetch *fetch, moo_err why);

/* ---- import.c ---- */

/* Mark the descriptor of an owner on another host that took us to be on its
 * own. Lock held. */
void mooi_import_resolve(moo_plane *plane, struct mooi_descriptor *d);

/* ---- source.c: as importer ---- */

struct mooi_source *mooi_source_find(const moo_plane *plane, uint64_t id);

/* The same, made if it does not exist. NULL: no memory. */
struct mooi_source *mooi_source_get(moo_plane *plane, uint64_t id);

/* Free it if it is of no use any more. */
void mooi_source_tidy(moo_plane *plane, struct mooi_source *source);

/* Give a lease back to its owner, now or with its next link. */
void mooi_source_release(moo_plane *plane, struct mooi_source *source,
                         const struct mooi_lease_name *name);

/* Whether its link may have been lost under a pull that ended with that. */
int mooi_source_is_lost(const moo_plane *plane,
                        const struct mooi_source *source,
                        const struct mooi_pull *pull, moo_err result);

/* A link from that process is up, has a message, or is down. */
void mooi_source_up(moo_plane *plane, struct mooi_tcp_link *link, uint64_t id);
void mooi_source_control(moo_plane *plane, struct mooi_tcp_link *link,
                         uint64_t id, const uint8_t *control, size_t length);
void mooi_source_down(moo_plane *plane, struct mooi_tcp_link *link,
                      uint64_t id, moo_err why);

/* It died: nothing more will come of it. */
void mooi_source_lost(moo_plane *plane, uint64_t id);

/* End fetches that waited too long: for their owner's call with
 * MOO_EUNREACHABLE, for its next call or for a message after it with MOO_EPEER.
 * Returns the nanoseconds until the next is due, or UINT64_MAX. */
uint64_t mooi_source_expire(moo_plane *plane);

/* The engine is closed, the plane closes: end waiting fetches, free all. */
void mooi_source_fini(moo_plane *plane);

/* ---- device.c ---- */

/* Forget all registered memory; its regions end with the fabric. */
void mooi_devices_fini(struct mooi_net *net);

/* ---- net.c ---- */

/* Open the fabric if one is allowed, listen, and publish the endpoint. A
 * fabric that cannot be opened is left out, and plane->serve_why says why. If
 * only shared memory remains there is no net. MOO_EUNREACHABLE: no transport
 * remains. Lock not held. If only the endpoint could not be written, the plane
 * is closed. */
moo_err mooi_net_open(moo_plane *plane, const moo_serve_options *options);

/* Around a fork, with the lock held: see mooi_tcp_before_fork. */
void mooi_net_before_fork(moo_plane *plane);
void mooi_net_after_fork(moo_plane *plane);
void mooi_net_disown(moo_plane *plane);

/* All links go, all fetches end; the plane is marked as closed. Lock not
 * held. */
void mooi_net_close(moo_plane *plane);

/* Free the memory, all that is left. Lock not held. */
void mooi_net_fini(moo_plane *plane);

#endif
