/* SPDX-License-Identifier: MIT */
/*
 * pipe.c: a pipe is a TCP connection.
 *
 * A cut cable is noticed at both ends. Who sends looks for bytes that nobody
 * acknowledges; who receives lets the kernel ask, when nothing comes, whether
 * the other kernel is there. The process there may be as slow as it likes.
 */
#include "pipe.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/crc32c.h"

/* In seconds: nothing came, ask; ask so often; give up after so many. */
#define IDLE_S 1
#define ASK_S 1
#define ASK_TIMES 2 /* one may get lost */
#define SILENT_MS 1500
#define EXPECT_MOST (256 << 10)

void mooi_pipe_open(struct mooi_pipe *pipe, int fd, bool checks)
{
    static const int on = 1, idle = IDLE_S, ask = ASK_S, times = ASK_TIMES;
    *pipe = (struct mooi_pipe){
        .fd = fd, .expected = 1, .checks = checks};
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &ask, sizeof ask);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof times);
}

void mooi_pipe_close(struct mooi_pipe *pipe)
{
    if (pipe->fd >= 0)
        close(pipe->fd);
    pipe->fd = -1;
}

moo_err mooi_pipe_send(struct mooi_pipe *pipe, const struct iovec *parts,
                       int count, size_t *moved)
{
    moo_err err = mooi_socket_send(pipe->fd, parts, count, 0, moved);
    return err == MOO_ETIMEOUT ? MOO_OK : err;
}

moo_err mooi_pipe_receive(struct mooi_pipe *pipe, const struct iovec *parts,
                          int count, size_t *moved)
{
    moo_err err = mooi_socket_receive(pipe->fd, parts, count, moved);
    return err == MOO_ETIMEOUT ? MOO_OK : err;
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

void mooi_pipe_prepare(struct mooi_pipe *pipe)
{
    if (!pipe->short_queue)
        pipe->short_queue = mooi_socket_keep_short(pipe->fd);
}

void mooi_pipe_expect(struct mooi_pipe *pipe, uint64_t bytes)
{
    int expected = bytes < EXPECT_MOST ? (int)bytes : EXPECT_MOST;
    if (expected != pipe->expected)
        setsockopt(pipe->fd, SOL_SOCKET, SO_RCVLOWAT, &expected,
                   sizeof expected);
    pipe->expected = expected;
}

bool mooi_pipe_silent(struct mooi_pipe *pipe)
{
    return mooi_socket_is_silent(pipe->fd, &pipe->silence, SILENT_MS);
}
