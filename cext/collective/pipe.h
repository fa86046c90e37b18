/* SPDX-License-Identifier: MIT */
/*
 * pipe.h: an ordered, reliable stream of bytes between two members. One thread
 * at a time.
 *
 * A pipe consists of TCP connections, its stripes, to which the bytes are dealt
 * out in turn, MOOI_STRIPE_BYTES to each. Both ends know whose turn it is, so
 * nothing is added to the bytes. A pipe of one stripe is a connection and can
 * be used in both directions.
 */
#ifndef MOOI_PIPE_H
#define MOOI_PIPE_H

#include <stdbool.h>

#include "transport/tcp/socket.h"

#define MOOI_PIPE_PARTS 8 /* of an iovec, at most */
/* Small enough that a chunk keeps several stripes busy, and that a block for
 * another stripe fits into the buffers while this end waits for one. */
#define MOOI_STRIPE_BYTES ((uint64_t)128 << 10)

struct mooi_stripe {
    int fd; /* -1: none */
    bool short_queue;
    int expected; /* SO_RCVLOWAT of the stripe */
    struct mooi_silence silence;
};

struct mooi_pipe {
    struct mooi_stripe stripes[MOO_STRIPES_MAX];
    uint32_t count; /* of them */
    uint64_t at;    /* bytes moved since mooi_pipe_restart */
    bool checks;    /* keep `sum`, a CRC32C */
    uint32_t sum;   /* CRC32C of all tensor bytes moved so far */
};

/* Begin with `count` stripes, of which none is connected. */
void mooi_pipe_init(struct mooi_pipe *pipe, uint32_t count, bool checks);
/* Take over the connected socket of a stripe that has none. */
void mooi_pipe_join(struct mooi_pipe *pipe, uint32_t stripe, int fd);
/* Whether all its stripes are connected. */
bool mooi_pipe_stands(const struct mooi_pipe *pipe);
/* Close the connected ones. Harmless if none is. */
void mooi_pipe_close(struct mooi_pipe *pipe);

/* Send, or receive, *moved bytes without blocking. MOO_OK also if *moved is 0.
 * Any error: a connection is gone, and the pipe with it; *moved bytes went
 * before. */
moo_err mooi_pipe_send(struct mooi_pipe *pipe, const struct iovec *parts,
                       int count, size_t *moved);
moo_err mooi_pipe_receive(struct mooi_pipe *pipe, const struct iovec *parts,
                          int count, size_t *moved);

/* The socket whose turn it is: poll it when nothing moved. */
int mooi_pipe_turn(const struct mooi_pipe *pipe);

/* All that was sent has been received: begin again with the first stripe, so
 * that small messages stay on it. Both ends do so, at the same byte. */
void mooi_pipe_restart(struct mooi_pipe *pipe);

/* Add the first `moved` bytes of `parts`, which are tensors', to the sum. */
void mooi_pipe_sum(struct mooi_pipe *pipe, const struct iovec *parts,
                   size_t moved);

/* Many bytes are about to be sent. */
void mooi_pipe_prepare(struct mooi_pipe *pipe);

/* From now on it is ready to receive only with `bytes`, or with the rest of
 * the present turn if that is less. A poll then wakes less often. The bytes
 * must arrive without any action of this end. */
void mooi_pipe_expect(struct mooi_pipe *pipe, uint64_t bytes);

/* Whether the other end's machine has left bytes of some stripe unacknowledged
 * for too long. To be called a few times a second. If nothing was sent, the
 * socket's own error shows a loss. */
bool mooi_pipe_silent(struct mooi_pipe *pipe);

#endif
