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
#include "plane/plane.h"
#include "transport/network.h"

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

/* Open the fabric if one is allowed, listen, and publish the endpoint. A
 * fabric that cannot be opened is left out, and plane->serve_why says why. If
 * only shared memory remains there is no net. MOO_EUNREACHABLE: no transport
 * remains. Lock not held. If only the endpoint could not be written there
 * is a net all the same, and the plane must be closed. */
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
