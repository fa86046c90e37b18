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

/* Listen on one of the ports [first, last], or, if `first` is 0, on one that the
 * system chooses. `bind`: a numeric address; "*",
 * which is all addresses of both families (of IPv4 alone where the machine has
 * no IPv6); or NULL, which is this machine only. MOO_EINVAL: no numeric
 * address. MOO_ESYS: see errno; EADDRINUSE: all of them are taken. */
moo_err mooi_socket_listen_within(const char *bind, uint32_t first,
                                  uint32_t last, int *listener);

/* The same, on a port that the system chooses. */
moo_err mooi_socket_listen(const char *bind, int *listener);

/* The addresses at which others may reach `listener`, best first: those of
 * interfaces that are up, IPv4 before IPv6. Those of lo are given only if it
 * was bound to them or has no others. Link-local ones are left out, because
 * they mean nothing elsewhere. Returns the number written. */
size_t mooi_socket_addresses(int listener, struct mooi_address *out,
                             size_t room);

/* Accept the next waiting connection, tuned. MOO_ETIMEOUT: there is none.
 * MOO_ESYS: see errno; EMFILE and ENFILE will recur at once. */
moo_err mooi_socket_accept(int listener, int *fd);

/* Begin to connect; *fd becomes writable at the end, and then
 * mooi_socket_connected gives the result. MOO_EPEER: refused or unreachable at
 * once. MOO_EPEER, MOO_ESYS: see errno. */
moo_err mooi_socket_connect(const struct mooi_address *address, int *fd);

/* MOO_OK: connected, and tuned. MOO_ETIMEOUT: not yet. MOO_EPEER, MOO_ESYS: it
 * failed, see errno. */
moo_err mooi_socket_connected(int fd);

/* Prepare for bulk: if the path is short, shorten the send queue, too;
 * otherwise the kernel sizes it. Returns whether it did so; if not, a later
 * call may know the path better. */
int mooi_socket_keep_short(int fd);

/* Send or receive without blocking. MOO_OK: *moved bytes, more than 0.
 * MOO_ETIMEOUT: none now. MOO_EPEER: the other side hung up, or was silent for
 * too long. MOO_ESYS: see errno. At most 8 parts; their lengths' sum is not
 * 0. `more`: something follows at once. */
moo_err mooi_socket_send(int fd, const struct iovec *parts, int count,
                         int more, size_t *moved);
moo_err mooi_socket_receive(int fd, const struct iovec *parts, int count,
                            size_t *moved);

/* Discard up to `length` received bytes. As mooi_socket_receive. */
moo_err mooi_socket_skip(int fd, size_t length, size_t *moved);

/* Make the coming close abortive: the other side gets a reset, and
 * unacknowledged bytes are not sent again. */
void mooi_socket_abandon(int fd);

/* Have the kernel send keepalive probes every second while the connection is
 * idle. They need no room in the other process's buffer, and so no process
 * that reads. */
void mooi_socket_ask(int fd, int on);

/*
 * Is the other end's kernel still there? It must acknowledge sent bytes and
 * answer keepalive and window probes, even if the process behind it is busy or
 * stopped.
 *
 * The silence is measured here, because the kernel's retransmissions may be
 * seconds apart after some slow round trips. To be called a few times a second
 * while something was sent. A late call counts no more than MOOI_LOOK_MS: this
 * process may have been stopped. Start with all zeros.
 */
struct mooi_silence {
    int waits;       /* unacknowledged bytes at the last look */
    int stuck;       /* the other's window was closed then: the kernel probes it
                        less and less often */
    uint64_t acked;  /* bytes acknowledged by then */
    uint64_t looked_ns;
    uint64_t ms; /* time without progress */
};

/* Look. Returns whether it was silent for `patience_ms`, or for longer if
 * round trips take long. */
int mooi_socket_is_silent(int fd, struct mooi_silence *silence,
                          uint64_t patience_ms);

#endif
