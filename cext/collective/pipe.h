/* SPDX-License-Identifier: MIT */
/*
 * pipe.h: bytes in one direction between two members, in order, all of them,
 * until the end. One thread at a time.
 */
#ifndef MOOI_PIPE_H
#define MOOI_PIPE_H

#include <stdbool.h>

#include "transport/socket.h"

#define MOOI_PIPE_PARTS 8 /* of an iovec, at most */

struct mooi_pipe {
    int fd; /* -1: none */
    bool short_queue;
    int expected; /* bytes that make it ready to receive */
    bool checks;  /* keep `sum`, a CRC32C */
    uint32_t sum; /* of all tensor bytes that it has moved so far */
    struct mooi_silence silence;
};

/* Take over a connected socket. */
void mooi_pipe_open(struct mooi_pipe *pipe, int fd, bool checks);
void mooi_pipe_close(struct mooi_pipe *pipe);

/* Send, or receive, what goes at once; *moved bytes. MOO_OK also if that is
 * none. Any error: the connection is gone. */
moo_err mooi_pipe_send(struct mooi_pipe *pipe, const struct iovec *parts,
                       int count, size_t *moved);
moo_err mooi_pipe_receive(struct mooi_pipe *pipe, const struct iovec *parts,
                          int count, size_t *moved);

/* The first `moved` bytes of `parts` were tensors': count them in the sum. */
void mooi_pipe_sum(struct mooi_pipe *pipe, const struct iovec *parts,
                   size_t moved);

/* Many bytes are about to be sent. */
void mooi_pipe_prepare(struct mooi_pipe *pipe);

/* From now on it counts as ready to receive only with `bytes`, which must be
 * on their way whatever this end does; a poll then wakes less often. */
void mooi_pipe_expect(struct mooi_pipe *pipe, uint64_t bytes);

/* Whether the other end's machine has not acknowledged for too long what was
 * sent. To be looked at a few times a second; where nothing was sent, an error
 * of its own tells. */
bool mooi_pipe_silent(struct mooi_pipe *pipe);

#endif
