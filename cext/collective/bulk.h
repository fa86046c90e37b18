/* SPDX-License-Identifier: MIT */
/*
 * bulk.h: the bytes of a pipe, through a fabric.
 *
 * The sender copies into a registered buffer and sends, over the connection of
 * the pipe, how far it has filled it. The receiver reads the bytes into a
 * registered buffer of its own, and sends how far it has read. So nobody may
 * write to another's memory, and the connection still shows deaths and cuts.
 * Each message is 8 bytes, little-endian: the count since the beginning.
 *
 * The *bounce buffers* are the registered memory of one member, for all
 * epochs. One thread at a time, as for a pipe.
 */
#ifndef MOOI_BULK_H
#define MOOI_BULK_H

#include <poll.h>

#include "collective/agreement.h"
#include "collective/pipe.h"
#include "transport/ofi.h"

/* The bounce buffers of a member, one in each direction. */
struct mooi_bounce {
    struct mooi_fabric *fabric;
    int event; /* an eventfd: a read has ended */
    unsigned char *out, *in; /* to be read by others; read from others */
    struct mooi_fabric_region *out_region, *in_region; /* in: may be NULL */
};

struct mooi_bulk;

/* Open a fabric, on the interface of `bind` if not NULL or empty, and describe
 * it in *post. MOO_EUNREACHABLE: there is none here, and why says the reason.
 * MOO_ENOMEM. */
moo_err mooi_bounce_open(const char *bind, struct mooi_bounce **out, char *why,
                         size_t room);
void mooi_bounce_close(struct mooi_bounce *bounce);
void mooi_bounce_describe(const struct mooi_bounce *bounce,
                          struct mooi_fabric_post *post);
/* Whether the owner of `posted` can be reached through them. */
bool mooi_bounce_reaches(const struct mooi_bounce *bounce,
                         const struct mooi_fabric_post *post);

/* Begin anew, to send, or to receive from the owner of `from`. The open pipe
 * of one stripe beside it stays the caller's, and carries nothing else
 * meanwhile. */
moo_err mooi_bulk_send_open(struct mooi_bounce *bounce, struct mooi_bulk **out);
moo_err mooi_bulk_receive_open(struct mooi_bounce *bounce,
                               const struct mooi_fabric_post *from,
                               struct mooi_bulk **out);
/* Waits less than a second, for reads under way. */
void mooi_bulk_close(struct mooi_bulk *bulk);

/* As mooi_pipe_send and mooi_pipe_receive. MOO_EPROTO: a count that cannot
 * be. MOO_EPEER, MOO_ETIMEOUT, MOO_ESYS: a read failed. */
moo_err mooi_bulk_send(struct mooi_bulk *bulk, struct mooi_pipe *pipe,
                       const struct iovec *parts, int count, size_t *moved);
moo_err mooi_bulk_receive(struct mooi_bulk *bulk, struct mooi_pipe *pipe,
                          const struct iovec *parts, int count, size_t *moved);

/* Whether the receiver has been told of all bytes. *err as above. */
bool mooi_bulk_flushed(struct mooi_bulk *bulk, struct mooi_pipe *pipe,
                       moo_err *err);

/* The entries to poll, at most 2, when one of these moved nothing. */
nfds_t mooi_bulk_watch(const struct mooi_bulk *bulk,
                       const struct mooi_pipe *pipe, struct pollfd *entries);

#endif
