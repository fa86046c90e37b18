/* SPDX-License-Identifier: MIT */
#include "transport/tcp/socket.h"

#include <errno.h>
#include <linux/tcp.h> /* more of tcp_info than the C library's */
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/times.h"
#include "transport/tcp/socket_name.h"

#define BACKLOG 1024

/* ---- listening ---- */

static void close_keeping_errno(int fd)
{
    int reason = errno;

    close(fd);
    errno = reason;
}

/* SO_REUSEADDR lets it have a port whose last connections are not forgotten yet,
 * a minute after a process that had it; two listeners exclude each other all the
 * same, some of them not before listen(). A port of the system's choice needs no
 * such thing. */
static moo_err listen_on(const struct mooi_address *address, int only_v6,
                         int *listener)
{
    union mooi_socket_name name;
    socklen_t length = mooi_socket_name_of(address, &name);
    int reuse = address->port != 0;
    int fd = socket(address->family == 6 ? AF_INET6 : AF_INET,
                    SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return MOO_ESYS;
    if ((address->family == 6 &&
         setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only_v6, sizeof only_v6)) ||
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse) ||
        bind(fd, &name.any, length) || listen(fd, BACKLOG)) {
        close_keeping_errno(fd);
        return MOO_ESYS;
    }
    *listener = fd;
    return MOO_OK;
}

static moo_err listen_at(const struct mooi_address *address, int only_v6,
                         uint32_t first, uint32_t last, int *listener)
{
    struct mooi_address at = *address;

    for (uint32_t port = first; port <= last; port++) {
        at.port = (uint16_t)port;
        if (listen_on(&at, only_v6, listener) == MOO_OK)
            return MOO_OK;
        if (errno != EADDRINUSE && errno != EACCES)
            return MOO_ESYS;
    }
    return MOO_ESYS;
}

/* The first that the machine has. */
static moo_err listen_at_either(const char *one, const char *other,
                                uint32_t first, uint32_t last, int *listener)
{
    struct mooi_address address;
    moo_err err;

    mooi_address_parse(one, 0, &address);
    err = listen_at(&address, 0, first, last, listener);
    if (err == MOO_OK || (errno != EAFNOSUPPORT && errno != EADDRNOTAVAIL))
        return err;
    mooi_address_parse(other, 0, &address);
    return listen_at(&address, 0, first, last, listener);
}

moo_err mooi_socket_listen_within(const char *bind_to, uint32_t first,
                                  uint32_t last, int *listener)
{
    struct mooi_address address;

    if (!first)
        last = 0;
    if (last > UINT16_MAX || first > last)
        return MOO_EINVAL;
    if (!bind_to)
        return listen_at_either("127.0.0.1", "::1", first, last, listener);
    if (!strcmp(bind_to, "*"))
        return listen_at_either("::", "0.0.0.0", first, last, listener);
    if (mooi_address_parse(bind_to, 0, &address) != MOO_OK)
        return MOO_EINVAL;
    return listen_at(&address, 1, first, last, listener);
}

moo_err mooi_socket_listen(const char *bind_to, int *listener)
{
    return mooi_socket_listen_within(bind_to, 0, 0, listener);
}

/* ---- connecting ---- */

static void set(int fd, int level, int option, int value)
{
    setsockopt(fd, level, option, &value, sizeof value);
}

/* The longest pause, in milliseconds, before the kernel sends lost bytes again,
 * and between probes of a closed window; 1000 is the least it allows. Linux
 * 6.15 knows it; older kernels double the pause up to two minutes. */
#ifndef TCP_RTO_MAX_MS
#define TCP_RTO_MAX_MS 44
#endif
#define AGAIN_MS 1000

/* Small messages must not wait for more to come, and a lost one is sent again
 * at an even pace: with pauses that double, the cable is back for long before
 * it is. Sizes are best left to the kernel: it fits the buffers to the path by
 * itself. */
static void tune(int fd)
{
    set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set(fd, IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, 1);
    set(fd, IPPROTO_TCP, TCP_RTO_MAX_MS, AGAIN_MS);
}

/* The unanswered probes before the kernel ends the connection itself;
 * mooi_socket_is_silent ends it sooner. */
#define KEEP_ASKING 120

void mooi_socket_ask(int fd, int on)
{
    set(fd, IPPROTO_TCP, TCP_KEEPIDLE, 1);
    set(fd, IPPROTO_TCP, TCP_KEEPINTVL, 1);
    set(fd, IPPROTO_TCP, TCP_KEEPCNT, KEEP_ASKING);
    set(fd, SOL_SOCKET, SO_KEEPALIVE, on);
}

moo_err mooi_socket_accept(int listener, int *out)
{
    int fd;

    do
        fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    while (fd < 0 && (errno == EINTR || errno == ECONNABORTED));
    if (fd < 0)
        return errno == EAGAIN ? MOO_ETIMEOUT : MOO_ESYS;
    tune(fd);
    *out = fd;
    return MOO_OK;
}

/* An error of the other side, or of the way there. */
static moo_err classify(int reason)
{
    switch (reason) {
    case EPIPE:
    case ECONNRESET:
    case ECONNREFUSED:
    case ECONNABORTED:
    case ENOTCONN:
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case EHOSTDOWN:
    case ENETUNREACH:
    case ENETDOWN:
    case EADDRNOTAVAIL:
    case EAFNOSUPPORT: /* no IPv6 here */
        return MOO_EPEER;
    default:
        return MOO_ESYS;
    }
}

moo_err mooi_socket_connect(const struct mooi_address *address, int *out)
{
    union mooi_socket_name name;
    socklen_t length = mooi_socket_name_of(address, &name);
    int fd = socket(name.any.sa_family,
                    SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return classify(errno);
    if (connect(fd, &name.any, length) && errno != EINPROGRESS) {
        close_keeping_errno(fd);
        return classify(errno);
    }
    *out = fd;
    return MOO_OK;
}

moo_err mooi_socket_connected(int fd)
{
    union mooi_socket_name name;
    socklen_t length = sizeof(int);
    int reason = 0;

    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &reason, &length))
        return MOO_ESYS;
    if (reason) {
        errno = reason;
        return classify(reason);
    }
    length = sizeof name;
    if (getpeername(fd, &name.any, &length))
        return errno == ENOTCONN ? MOO_ETIMEOUT : MOO_ESYS;
    tune(fd);
    return MOO_OK;
}

/* Up to this round-trip time, so many bytes keep a fast path busy. */
#define SHORT_US 150
#define SHORT_BYTES (192 << 10)

/* Bytes in a long queue leave the processor's caches before they are sent:
 * with the kernel's own choice of several MiB, a transfer between two
 * processes that share a cache is two to three times slower. On a long path
 * the same bound would keep the path empty. */
int mooi_socket_keep_short(int fd)
{
    struct tcp_info info = {0};
    socklen_t length = sizeof info;
    int bytes = SHORT_BYTES;

    return !getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) &&
           info.tcpi_min_rtt && info.tcpi_min_rtt <= SHORT_US &&
           !setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
}

/* ---- bytes ---- */

static moo_err settle(ssize_t result, size_t *moved)
{
    *moved = result > 0 ? (size_t)result : 0;
    if (result > 0)
        return MOO_OK;
    if (result == 0)
        return MOO_EPEER; /* hung up */
    if (errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM)
        return MOO_ETIMEOUT;
    return classify(errno);
}

moo_err mooi_socket_send(int fd, const struct iovec *parts, int count,
                         int more, size_t *moved)
{
    struct msghdr header = {.msg_iov = (struct iovec *)parts,
                            .msg_iovlen = (size_t)count};
    ssize_t sent;

    do
        sent = sendmsg(fd, &header,
                       MSG_DONTWAIT | MSG_NOSIGNAL | (more ? MSG_MORE : 0));
    while (sent < 0 && errno == EINTR);
    return settle(sent, moved);
}

moo_err mooi_socket_receive(int fd, const struct iovec *parts, int count,
                            size_t *moved)
{
    struct msghdr header = {.msg_iov = (struct iovec *)parts,
                            .msg_iovlen = (size_t)count};
    ssize_t got;

    do
        got = recvmsg(fd, &header, MSG_DONTWAIT);
    while (got < 0 && errno == EINTR);
    return settle(got, moved);
}

moo_err mooi_socket_skip(int fd, size_t length, size_t *moved)
{
    uint8_t scratch[16384];
    struct iovec part = {scratch, length};

    if (part.iov_len > sizeof scratch)
        part.iov_len = sizeof scratch;
    return mooi_socket_receive(fd, &part, 1, moved);
}

void mooi_socket_abandon(int fd)
{
    struct linger at_once = {.l_onoff = 1, .l_linger = 0};

    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

/* ---- silence ---- */

/* The least patience, in round-trip times. */
#define TRIPS 6

/* Whether its window has room, which older kernels do not tell. */
static int is_open(const struct tcp_info *info, socklen_t length)
{
    return length >= offsetof(struct tcp_info, tcpi_snd_wnd) +
                         sizeof info->tcpi_snd_wnd &&
           info->tcpi_snd_wnd >= info->tcpi_snd_mss;
}

/* Whether something waits for the other kernel: bytes under way; a keepalive
 * or window probe; or bytes that cannot leave although its window is open,
 * because our way to it is gone. */
static int waits(const struct tcp_info *info, socklen_t length)
{
    return info->tcpi_unacked || info->tcpi_probes ||
           (info->tcpi_notsent_bytes && is_open(info, length));
}

static uint64_t patience(const struct tcp_info *info, uint64_t least_ms)
{
    uint64_t trip_us = info->tcpi_rtt + 4 * (uint64_t)info->tcpi_rttvar;
    uint64_t ms = TRIPS * trip_us / 1000;

    /* probes are sent once a second: some may get lost */
    if (!info->tcpi_unacked && !info->tcpi_notsent_bytes)
        least_ms += MOOI_PROBES_MS;
    if (ms < least_ms)
        return least_ms;
    return ms < MOOI_SILENT_MOST_MS ? ms : MOOI_SILENT_MOST_MS;
}

/* If the acknowledged count is that of the last look, and something was
 * waiting then and is now, it is the same. An acknowledgement without new
 * bytes counts as a sign of life, too. */
int mooi_socket_is_silent(int fd, struct mooi_silence *silence,
                          uint64_t patience_ms)
{
    struct tcp_info info = {0};
    socklen_t length = sizeof info;
    uint64_t now = mooi_now_ns();
    uint64_t passed_ms = (now - silence->looked_ns) / 1000000u;
    int waited = silence->waits;

    silence->looked_ns = now;
    silence->waits = !getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) &&
                     waits(&info, length);
    silence->stuck = info.tcpi_notsent_bytes && !is_open(&info, length);
    if (!waited || !silence->waits || info.tcpi_bytes_acked != silence->acked)
        silence->ms = 0;
    else
        silence->ms += passed_ms < MOOI_LOOK_MS ? passed_ms : MOOI_LOOK_MS;
    silence->acked = info.tcpi_bytes_acked;
    if (silence->ms > info.tcpi_last_ack_recv)
        silence->ms = info.tcpi_last_ack_recv;
    return silence->waits && silence->ms >= patience(&info, patience_ms);
}
