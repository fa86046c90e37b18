/* SPDX-License-Identifier: MIT */
/*
 * pipe.c: TCP connections that take turns.
 *
 * A cut cable is noticed at both ends. The sender looks for unacknowledged
 * bytes. The receiver's kernel sends keepalive probes while nothing arrives.
 * The other kernel answers, however slow its process is.
 */
#include "collective/pipe.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/crc32c.h"

/* Keepalive: seconds of silence before the first probe, seconds between
 * probes, and the number of probes. */
#define IDLE_S 1
#define ASK_S 1
#define ASK_TIMES 2 /* one may get lost */
#define SILENT_MS 1500
#define EXPECT_MOST ((uint64_t)256 << 10)

/* ---- beginning and end ---- */

void mooi_pipe_init(struct mooi_pipe *pipe, uint32_t count, bool checks)
{
    *pipe = (struct mooi_pipe){.count = count, .checks = checks};
    for (uint32_t i = 0; i < count; i++)
        pipe->stripes[i].fd = -1;
}

void mooi_pipe_join(struct mooi_pipe *pipe, uint32_t stripe, int fd)
{
    static const int on = 1, idle = IDLE_S, ask = ASK_S, times = ASK_TIMES;
    pipe->stripes[stripe] = (struct mooi_stripe){.fd = fd, .expected = 1};
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &ask, sizeof ask);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof times);
}

bool mooi_pipe_stands(const struct mooi_pipe *pipe)
{
    for (uint32_t i = 0; i < pipe->count; i++)
        if (pipe->stripes[i].fd < 0)
            return false;
    return true;
}

void mooi_pipe_close(struct mooi_pipe *pipe)
{
    for (uint32_t i = 0; i < pipe->count; i++) {
        if (pipe->stripes[i].fd >= 0)
            close(pipe->stripes[i].fd);
        pipe->stripes[i].fd = -1;
    }
}

/* ---- turns ---- */

static uint32_t turn_of(const struct mooi_pipe *pipe)
{
    return (uint32_t)(pipe->at / MOOI_STRIPE_BYTES % pipe->count);
}

/* The rest of the present stripe's turn, in bytes. */
static uint64_t turn_left(const struct mooi_pipe *pipe)
{
    return pipe->count == 1 ? UINT64_MAX
                            : MOOI_STRIPE_BYTES - pipe->at % MOOI_STRIPE_BYTES;
}

int mooi_pipe_turn(const struct mooi_pipe *pipe)
{
    return pipe->stripes[turn_of(pipe)].fd;
}

void mooi_pipe_restart(struct mooi_pipe *pipe)
{
    pipe->at = 0;
}

/* ---- bytes ---- */

/* The part of `parts` behind byte `skip`, at most `most` bytes: its parts in
 * `out`, its length in *bytes. */
static int cut_parts(const struct iovec *parts, int count, size_t skip,
                     uint64_t most, struct iovec *out, size_t *bytes)
{
    int kept = 0;
    *bytes = 0;
    for (int i = 0; i < count && *bytes < most; i++) {
        size_t length = parts[i].iov_len;
        size_t begin = skip < length ? skip : length;
        skip -= begin;
        length -= begin;
        if (length > most - *bytes)
            length = most - *bytes;
        if (!length)
            continue;
        out[kept++] = (struct iovec){
            (unsigned char *)parts[i].iov_base + begin, length};
        *bytes += length;
    }
    return kept;
}

static moo_err move(struct mooi_pipe *pipe, const struct iovec *parts,
                    int count, bool sends, size_t *moved)
{
    struct iovec piece[MOOI_PIPE_PARTS];
    size_t bytes, n;
    int pieces;
    *moved = 0;
    while ((pieces = cut_parts(parts, count, *moved, turn_left(pipe), piece,
                               &bytes))) {
        int fd = mooi_pipe_turn(pipe);
        moo_err err = sends ? mooi_socket_send(fd, piece, pieces, 0, &n)
                            : mooi_socket_receive(fd, piece, pieces, &n);
        *moved += n;
        pipe->at += n;
        if (err)
            return err == MOO_ETIMEOUT ? MOO_OK : err;
        if (n < bytes)
            return MOO_OK;
    }
    return MOO_OK;
}

moo_err mooi_pipe_send(struct mooi_pipe *pipe, const struct iovec *parts,
                       int count, size_t *moved)
{
    return move(pipe, parts, count, true, moved);
}

moo_err mooi_pipe_receive(struct mooi_pipe *pipe, const struct iovec *parts,
                          int count, size_t *moved)
{
    return move(pipe, parts, count, false, moved);
}

void mooi_pipe_sum(struct mooi_pipe *pipe, const struct iovec *parts,
                   size_t moved)
{
    if (!pipe->checks)
        return;
    for (; moved; parts++) {
        size_t part = moved < parts->iov_len ? moved : parts->iov_len;
        pipe->sum = mooi_crc32c(pipe->sum, parts->iov_base, part);
        moved -= part;
    }
}

/* ---- the state of the connections ---- */

void mooi_pipe_prepare(struct mooi_pipe *pipe)
{
    for (uint32_t i = 0; i < pipe->count; i++) {
        struct mooi_stripe *stripe = &pipe->stripes[i];
        if (!stripe->short_queue)
            stripe->short_queue = mooi_socket_keep_short(stripe->fd);
    }
}

void mooi_pipe_expect(struct mooi_pipe *pipe, uint64_t bytes)
{
    struct mooi_stripe *stripe = &pipe->stripes[turn_of(pipe)];
    uint64_t left = turn_left(pipe), most = EXPECT_MOST;
    most = left < most ? left : most;
    int expected = (int)(bytes < most ? bytes : most);
    if (expected != stripe->expected)
        setsockopt(stripe->fd, SOL_SOCKET, SO_RCVLOWAT, &expected,
                   sizeof expected);
    stripe->expected = expected;
}

bool mooi_pipe_silent(struct mooi_pipe *pipe)
{
    bool silent = false;
    for (uint32_t i = 0; i < pipe->count; i++)
        silent |= mooi_socket_is_silent(pipe->stripes[i].fd,
                                        &pipe->stripes[i].silence, SILENT_MS);
    return silent;
}
