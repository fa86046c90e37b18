/* SPDX-License-Identifier: MIT */
/*
 * dial.h: connect to a process at one of several addresses.
 *
 * Attempts are staggered as in RFC 8305 ("Happy Eyeballs"): they begin in the
 * order of the addresses, every MOOI_DIAL_STAGGER_MS or as soon as one has
 * failed, while the earlier ones go on. The first connection is handed out. If
 * another process answered there, the dial goes on with the other addresses.
 *
 * An address that has not answered is tried again every MOOI_DIAL_AGAIN_MS: the
 * kernel repeats itself after one and after three seconds only, which is late
 * when a cable is mended in between. The attempt before goes on beside the new
 * one, for answers that take longer.
 * The deadline is the caller's. No function blocks; one thread.
 */
#ifndef MOOI_DIAL_H
#define MOOI_DIAL_H

#include <stddef.h>

#include "transport/tcp/socket.h"

#define MOOI_DIAL_MAX 16
#define MOOI_DIAL_STAGGER_MS 250
#define MOOI_DIAL_AGAIN_MS 500

struct mooi_dial {
    int poll; /* wait until this is readable, or mooi_dial_wait_ms is over */
    /* Set after the beginning: go on with an address while its network is
     * unreachable, as it is while the cable of this machine is out, and with
     * one that was late, see mooi_dial_blame. */
    int patient;
    size_t count, next;
    uint64_t next_ns;
    struct mooi_address address[MOOI_DIAL_MAX];
    int fd[MOOI_DIAL_MAX];    /* the latest attempt; -1: not under way */
    int older[MOOI_DIAL_MAX]; /* the one before it */
    uint64_t again_ns[MOOI_DIAL_MAX];
    int result[MOOI_DIAL_MAX]; /* moo_err, MOO_ETIMEOUT: no answer yet */
    int reason[MOOI_DIAL_MAX]; /* errno */
};

/* Start. At most MOOI_DIAL_MAX of the addresses are tried. MOO_ESYS: see errno,
 * nothing to end. MOO_EINVAL: none given. */
moo_err mooi_dial_begin(struct mooi_dial *dial,
                        const struct mooi_address *addresses, size_t count);

/* Go on. MOO_OK: *fd is connected, to address[*which], and the caller's.
 * MOO_ETIMEOUT: nothing yet. MOO_EPEER: nobody is left who could answer. */
moo_err mooi_dial_step(struct mooi_dial *dial, int *fd, size_t *which);

/* When the latest attempt at that address began. Its kernel may have answered
 * long before mooi_dial_step says so: we may have been stopped. */
uint64_t mooi_dial_began_ns(const struct mooi_dial *dial, size_t which);

/* Whether an address beside `which` may still answer. */
int mooi_dial_has_others(const struct mooi_dial *dial, size_t which);

/* The time until it must go on, unless `poll` is readable before; -1: for
 * ever. */
int mooi_dial_wait_ms(const struct mooi_dial *dial);

/* Whether nobody listened at that address when it was tried. */
int mooi_dial_refused(const struct mooi_dial *dial,
                      const struct mooi_address *address);

/* Whether the machine at an address refused or hung up: it is not silent. */
int mooi_dial_answered(const struct mooi_dial *dial);

/* Note the error of an address that was handed out, for the reason.
 * MOO_ETIMEOUT: whoever accepted there was late. It may be a process that is
 * stopped, so a patient dial tries it again, after the others. */
void mooi_dial_blame(struct mooi_dial *dial, size_t which, moo_err why);

/* One sentence on the attempts and their errors, always terminated. */
void mooi_dial_reason(const struct mooi_dial *dial, char *text, size_t room);

/* Close all attempts. Safe to call twice. */
void mooi_dial_end(struct mooi_dial *dial);

#endif
