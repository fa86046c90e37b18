/* SPDX-License-Identifier: MIT */
/*
 * tcp.h: the engine that moves bytes between two processes over TCP.
 *
 * It knows leases by name only. Its user (plane/net.c) knows their memory and
 * their holders. A *link* joins two processes in one direction: the owner of
 * memory connected, the importer accepted. It consists of one *express*
 * connection, for small fetches, releases and control messages, which are
 * never queued behind bulk, and of `stripes` connections for bulk. If one of
 * them breaks, the link is down as a whole.
 *
 * The importer pulls. A fetch is requested in chunks, each over any stripe
 * with room. At most MOOI_TCP_CREDIT bytes of a link are requested at any
 * time. The owner sends the bytes of a chunk straight from its memory, and the
 * importer receives them straight into its own. Fetches of one link take
 * turns, chunk by chunk.
 *
 * Threads: an engine has one thread of its own, and perhaps others that move
 * bulk. They send, receive and call back, and hold no lock while they call
 * back. All functions but close may be called from any thread, callbacks
 * included; none blocks, unless it says so.
 *
 * Nothing is encrypted. Both ends prove the session key before anything else.
 */
#ifndef MOOI_TCP_H
#define MOOI_TCP_H

#include <stddef.h>
#include <stdint.h>

#include "core/mac.h"
#include "mooactor.h"
#include "transport/tcp/socket.h"

#define MOOI_TCP_CREDIT ((uint64_t)8 << 20)
#define MOOI_TCP_CONTROL_BYTES 512
/* A fetch of at most so many bytes goes by the express connection. */
#define MOOI_TCP_SMALL ((uint64_t)64 << 10)

struct mooi_tcp;
struct mooi_tcp_link;

struct mooi_lease_name {
    uint32_t slab, lease, generation;
};

/* The engine's callbacks. They come on its own thread, but `source`, `sourced`
 * and `fetched` come from several at once if there are several. No engine lock
 * is held, so a callback may call any function of the engine but close. None
 * may block for long: everybody waits behind it. */
struct mooi_tcp_events {
    void *context;

    /* A link is up. `incoming`: the peer connected, and we are the importer.
     * An older incoming link of the same peer went down before. */
    void (*up)(void *context, struct mooi_tcp_link *link, uint64_t peer,
               int incoming);

    /* A link, or an attempt at one, ended. Comes exactly once for each link
     * that connect returned or `up` named, after all its fetches have ended
     * and all its sources were given back. `link` is valid until this returns,
     * or for as long as it is held. mooi_tcp_reason has the details.
     * MOO_EPEER: hung up, refused, silent for too long, or dropped.
     * MOO_ETIMEOUT: connecting took too long. MOO_EAUTH, MOO_EVERSION,
     * MOO_EPROTO, MOO_ESYS: as in mooactor.h. MOO_ENOMEM: none here, or 4 MiB
     * of small messages that nobody reads. MOO_ECLOSED: by close. */
    void (*down)(void *context, struct mooi_tcp_link *link, uint64_t peer,
                 moo_err why);

    /* Owner: the address of bytes [offset, offset + length) of a lease of
     * `peer`. After MOO_OK they stay there, unchanged, until `sourced` is
     * called with the same name, once for each MOO_OK. `length` may be 0. Any
     * error goes to the importer and fails that one fetch there. */
    moo_err (*source)(void *context, uint64_t peer,
                      const struct mooi_lease_name *name, uint64_t offset,
                      uint64_t length, const void **data);
    void (*sourced)(void *context, uint64_t peer,
                    const struct mooi_lease_name *name);

    /* Owner: the importer gave a lease back. May come while a source of it is
     * still out, if the importer cancelled. Names are the peer's claim: check
     * that the lease is its own. */
    void (*released)(void *context, uint64_t peer,
                     const struct mooi_lease_name *name);

    /* Both: a control message of the peer; those of one link arrive in
     * order. */
    void (*control)(void *context, struct mooi_tcp_link *link, uint64_t peer,
                    const uint8_t *bytes, size_t length);

    /* Importer: a fetch ended. Comes exactly once for each fetch that returned
     * MOO_OK and was not cancelled in time. Nothing touches its memory any
     * more. Any error but a link's is the owner's, from `source`. */
    void (*fetched)(void *context, void *cookie, moo_err result);
};

struct mooi_tcp_options {
    uint64_t id;                  /* of this process */
    uint8_t key[MOOI_KEY_BYTES];  /* of the session */
    uint8_t host[MOOI_HOST_BYTES]; /* this host's identity, told to peers */
    const char *bind;             /* as of mooi_socket_listen_within */
    uint32_t first_port, last_port; /* the same */
    uint32_t stripes;             /* bulk connections of links that we make;
                                     0: the default */
    uint32_t threads;             /* that move bulk; 1: the own one does it,
                                     beside all else; 0: the default, one for
                                     every 8 processors, 1 to 4 */
    int checksum;                 /* request CRC32C for fetches from here */
};

/* Listen and start the threads. `events` is copied. On any error nothing is
 * left behind; MOO_ESYS leaves the reason in errno. */
moo_err mooi_tcp_open(const struct mooi_tcp_options *options,
                      const struct mooi_tcp_events *events,
                      struct mooi_tcp **out);

/* The addresses of this engine, best first, for the endpoint. Returns the
 * number written to out[0, room). */
size_t mooi_tcp_addresses(struct mooi_tcp *engine, struct mooi_address *out,
                          size_t room);

/* Owner: begin to connect to `peer`, which listens at one of these addresses.
 * All are tried, one a little after the other, and the first that
 * authenticates as `peer` is taken. `up` or `down` follows, within
 * MOOI_CONNECT_MS. Several links to one peer may exist; its importer keeps
 * the newest. MOO_EINVAL: no address. MOO_ENOMEM. */
moo_err mooi_tcp_connect(struct mooi_tcp *engine, uint64_t peer,
                         const struct mooi_address *addresses, size_t count,
                         struct mooi_tcp_link **out);

/* Owner, before `up` or `down`: give up after `ms` milliseconds if no kernel
 * has answered by then, not even to refuse. An accepted connection keeps its
 * full time for the handshake. */
void mooi_tcp_hasten(struct mooi_tcp_link *link, int ms);

/* Importer: receive bytes [offset, offset + length) of a lease into `into`,
 * which the engine writes to until `fetched` or until cancel has returned.
 * `cookie` is not looked at, but must be unique among those under way. After a
 * failure the contents of `into` are undefined. On any error nothing was
 * begun. MOO_EPEER: the link is not up. MOO_EINVAL: we own this link, not
 * they. */
moo_err mooi_tcp_fetch(struct mooi_tcp_link *link,
                       const struct mooi_lease_name *name, uint64_t offset,
                       uint64_t length, void *into, void *cookie);

/* End a fetch. Waits for a system call under way that does not block, never
 * for the network or a callback. When it returns nothing touches `into`.
 * MOO_OK: `fetched` will not be called for it. MOO_ESTALE: it has ended before;
 * `fetched` was called, or is about to be. */
moo_err mooi_tcp_cancel(struct mooi_tcp_link *link, void *cookie);

/* Importer: give a lease back. MOO_EPEER: the link is not up, so all its
 * leases are gone anyway. */
moo_err mooi_tcp_release(struct mooi_tcp_link *link,
                         const struct mooi_lease_name *name);

/* Send a control message of at most MOOI_TCP_CONTROL_BYTES; it is copied. Order
 * is kept among these and the releases of one link. MOO_EPEER: the link
 * is not up. */
moo_err mooi_tcp_control(struct mooi_tcp_link *link, const uint8_t *bytes,
                         size_t length);

/* End the links of `peer`, in both directions: they go down with `why`, soon.
 * New ones from it are not refused. NULL: the engine is closed, and they have
 * ended. */
void mooi_tcp_drop(struct mooi_tcp *engine, uint64_t peer, moo_err why);

/* Whether it is up; it may go down at any time. */
int mooi_tcp_stands(struct mooi_tcp_link *link);

/* Keep a link's memory beyond its `down`, for late calls: they fail with
 * MOO_EPEER. Must be given back before close. */
void mooi_tcp_hold(struct mooi_tcp_link *link);
void mooi_tcp_rele(struct mooi_tcp_link *link);

/* Owner, within `up`: the address at which the peer was found. */
void mooi_tcp_address(const struct mooi_tcp_link *link,
                      struct mooi_address *out);

/* Owner, within `down`: whether nobody listened at that address when the link
 * was attempted. */
int mooi_tcp_nobody_at(const struct mooi_tcp_link *link,
                       const struct mooi_address *address);

/* Within `down`: whether the other machine's kernel was silent. Otherwise a
 * process there hung up or refused. */
int mooi_tcp_is_unanswered(const struct mooi_tcp_link *link);

/* How the link went down or failed to come up, one sentence; empty before
 * that. Copied to text[0, room), always terminated. */
void mooi_tcp_reason(struct mooi_tcp_link *link, char *text, size_t room);

struct mooi_tcp_statistics {
    uint64_t links;    /* that stand now */
    uint64_t fetches;  /* under way */
    uint64_t asked;    /* bytes requested and not received yet */
    uint64_t served;   /* so far: bytes of data sent */
    uint64_t received; /* so far: bytes of data */
    uint64_t refused;  /* so far: connections that failed to authenticate */
};

void mooi_tcp_statistics(struct mooi_tcp *engine,
                         struct mooi_tcp_statistics *out);

/* End all links (with callbacks) and the threads. Waits for the threads, which
 * wait for callbacks only. Not to be called from a callback. */
void mooi_tcp_stop(struct mooi_tcp *engine);

/* Free an engine that was stopped, when nobody can find it any more. */
void mooi_tcp_free(struct mooi_tcp *engine);

/* Both. */
void mooi_tcp_close(struct mooi_tcp *engine);

/* Around a fork: hold the engine still before it; let it go on in the parent.
 * In the child `disown`, instead of after_fork, closes all descriptors; after
 * that nothing may be called with the engine any more, and it is not freed. */
void mooi_tcp_before_fork(struct mooi_tcp *engine);
void mooi_tcp_after_fork(struct mooi_tcp *engine);
void mooi_tcp_disown(struct mooi_tcp *engine);

#endif
