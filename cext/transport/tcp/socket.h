/* SPDX-License-Identifier: MIT */
/*
 * socket.h: TCP sockets by number. No names are looked up, nothing blocks, all
 * sockets are close-on-exec, and none ever raises SIGPIPE.
 */
#ifndef MOOI_SOCKET_H
#define MOOI_SOCKET_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "mooactor.h"

#define MOOI_HOST_BYTES 16 /* a host's identity */

/* Where somebody listens. */
struct mooi_address {
    uint8_t family; /* 4 or 6 */
    uint16_t port;
    uint8_t ip[16]; /* in network order; IPv4: the first four, then zeros */
};

/* "10.0.0.1:80" or "[::1]:80". */
#define MOOI_ADDRESS_TEXT 56
void mooi_address_print(const struct mooi_address *address,
                        char text[MOOI_ADDRESS_TEXT]);

/* A numeric address without port. MOO_EINVAL: it is none. */
moo_err mooi_address_parse(const char *text, uint16_t port,
                           struct mooi_address *out);

/* Listen on a port that the system chooses. `bind`: a numeric address; "*",
 * which is all addresses of both families (of IPv4 alone where the machine has
 * no IPv6); or NULL, which is this machine only. MOO_EINVAL: no numeric
 * address. MOO_ESYS: see errno. */
moo_err mooi_socket_listen(const char *bind, int *listener);

/* By which addresses others may reach `listener`, best first: those of
 * interfaces that are up, IPv4 before IPv6; those of this machine only (lo)
 * where it was bound to them or has no others. Link-local ones are left out,
 * for they mean nothing elsewhere. Returns how many were written. */
size_t mooi_socket_addresses(int listener, struct mooi_address *out,
                             size_t room);

/* Take the next waiting connection, tuned. MOO_ETIMEOUT: there is none.
 * MOO_ESYS: see errno; EMFILE and ENFILE will come again at once. */
moo_err mooi_socket_accept(int listener, int *fd);

/* Begin to connect; *fd becomes writable when it is decided, and then
 * mooi_socket_connected tells. MOO_EPEER: refused or unreachable at once;
 * errno says how, as with MOO_ESYS. */
moo_err mooi_socket_connect(const struct mooi_address *address, int *fd);

/* MOO_OK: connected, and tuned. MOO_ETIMEOUT: not yet. MOO_EPEER, MOO_ESYS: it
 * failed, see errno. */
moo_err mooi_socket_connected(int fd);

/* Bulk is about to be sent: if the path is short, keep the queue of what is
 * sent short, too; otherwise the kernel sizes it. Returns whether it was done;
 * if not, a later try may know the path better. */
int mooi_socket_keep_short(int fd);

/* Send or receive what goes at once. MOO_OK: *moved bytes, more than 0.
 * MOO_ETIMEOUT: none now. MOO_EPEER: the other side hung up, or was silent for
 * too long. MOO_ESYS: see errno. At most 8 parts; their lengths' sum is not
 * 0. `more`: something follows at once. */
moo_err mooi_socket_send(int fd, const struct iovec *parts, int count,
                         int more, size_t *moved);
moo_err mooi_socket_receive(int fd, const struct iovec *parts, int count,
                            size_t *moved);

/* Throw away up to `length` received bytes. As mooi_socket_receive. */
moo_err mooi_socket_skip(int fd, size_t length, size_t *moved);

/* What close is about to do takes effect at once: the other side is told by a
 * reset, and what it did not get is not sent again. */
void mooi_socket_abandon(int fd);

/* While nothing is under way, let the kernel ask every second whether the other
 * kernel is there. That needs no room in the other process's buffer, and so no
 * process that reads. */
void mooi_socket_ask(int fd, int on);

/*
 * Is the other end's kernel still there? What was sent must be acknowledged,
 * and questions must be answered, whether it is there and whether its window is
 * still closed, however busy or stopped the process behind it is.
 *
 * How long it takes is measured here, and does not depend on when the kernel
 * sends again, which after some slow round trips it does in seconds only. To
 * be looked at a few times a second while something was sent. A look that comes
 * late counts no more than MOOI_LOOK_MS: who was stopped has not listened.
 * Start with all zeros.
 */
#define MOOI_LOOK_MS 500
/* However long round trips take, nobody is waited for longer than this. */
#define MOOI_SILENT_MOST_MS 3000

struct mooi_silence {
    int waits;       /* something was not acknowledged at the last look */
    int stuck;       /* then the other process had no room for what is to be sent:
                        the kernel asks less and less often if it has */
    uint64_t acked;  /* bytes, so far, at that time */
    uint64_t looked_ns;
    uint64_t ms; /* for so long the same has not been acknowledged */
};

/* Look. Returns whether nothing was heard for `patience_ms`, or for longer
 * where round trips take long. */
int mooi_socket_is_silent(int fd, struct mooi_silence *silence,
                          uint64_t patience_ms);

#endif
