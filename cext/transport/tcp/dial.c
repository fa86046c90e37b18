/* SPDX-License-Identifier: MIT */
#include "transport/tcp/dial.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "core/clock.h"

#define STAGGER_NS ((uint64_t)MOOI_DIAL_STAGGER_MS * 1000000u)

moo_err mooi_dial_begin(struct mooi_dial *dial,
                        const struct mooi_address *addresses, size_t count)
{
    if (!count)
        return MOO_EINVAL;
    memset(dial, 0, sizeof *dial);
    dial->poll = epoll_create1(EPOLL_CLOEXEC);
    if (dial->poll < 0)
        return MOO_ESYS;
    dial->count = count < MOOI_DIAL_MAX ? count : MOOI_DIAL_MAX;
    memcpy(dial->address, addresses, dial->count * sizeof *addresses);
    for (size_t i = 0; i < MOOI_DIAL_MAX; i++) {
        dial->fd[i] = -1;
        dial->result[i] = MOO_ETIMEOUT;
    }
    return MOO_OK;
}

static void fail(struct mooi_dial *dial, size_t which, moo_err why)
{
    dial->result[which] = why;
    dial->reason[which] = errno;
    if (dial->fd[which] >= 0)
        close(dial->fd[which]);
    dial->fd[which] = -1;
    dial->next_ns = 0; /* the next one at once */
}

static void try_next(struct mooi_dial *dial, uint64_t now)
{
    size_t which = dial->next++;
    struct epoll_event event = {.events = EPOLLOUT, .data.u64 = which};
    moo_err err = mooi_socket_connect(&dial->address[which], &dial->fd[which]);

    dial->next_ns = now + STAGGER_NS;
    if (err == MOO_OK &&
        epoll_ctl(dial->poll, EPOLL_CTL_ADD, dial->fd[which], &event))
        err = MOO_ESYS;
    if (err != MOO_OK)
        fail(dial, which, err);
}

/* MOO_OK: one is connected. */
static moo_err look(struct mooi_dial *dial, int *fd, size_t *which)
{
    struct epoll_event event;

    while (epoll_wait(dial->poll, &event, 1, 0) == 1) {
        size_t i = (size_t)event.data.u64;
        moo_err err = mooi_socket_connected(dial->fd[i]);
        if (err == MOO_ETIMEOUT)
            return err;
        if (err != MOO_OK) {
            fail(dial, i, err);
            continue;
        }
        epoll_ctl(dial->poll, EPOLL_CTL_DEL, dial->fd[i], NULL);
        *fd = dial->fd[i];
        *which = i;
        dial->fd[i] = -1;
        return MOO_OK;
    }
    return MOO_ETIMEOUT;
}

int mooi_dial_has_more(const struct mooi_dial *dial)
{
    for (size_t i = 0; i < dial->count; i++)
        if (dial->fd[i] >= 0)
            return 1;
    return dial->next < dial->count;
}

moo_err mooi_dial_step(struct mooi_dial *dial, int *fd, size_t *which)
{
    uint64_t now = mooi_now_ns();

    if (look(dial, fd, which) == MOO_OK)
        return MOO_OK;
    while (dial->next < dial->count && now >= dial->next_ns)
        try_next(dial, now);
    return mooi_dial_has_more(dial) ? MOO_ETIMEOUT : MOO_EPEER;
}

static int same(const struct mooi_address *a, const struct mooi_address *b)
{
    return a->family == b->family && a->port == b->port &&
           !memcmp(a->ip, b->ip, sizeof a->ip);
}

int mooi_dial_refused(const struct mooi_dial *dial,
                      const struct mooi_address *address)
{
    for (size_t i = 0; i < dial->count; i++)
        if ((!address || same(&dial->address[i], address)) &&
            dial->result[i] == MOO_EPEER && dial->reason[i] == ECONNREFUSED)
            return 1;
    return 0;
}

int mooi_dial_wait_ms(const struct mooi_dial *dial)
{
    uint64_t now = mooi_now_ns();

    if (dial->next >= dial->count)
        return -1;
    if (now >= dial->next_ns)
        return 0;
    return (int)((dial->next_ns - now) / 1000000u) + 1;
}

void mooi_dial_blame(struct mooi_dial *dial, size_t which, moo_err why)
{
    dial->result[which] = why;
    dial->reason[which] = why == MOO_ESYS ? errno : 0;
    dial->next_ns = 0;
}

static const char *how(const struct mooi_dial *dial, size_t i)
{
    switch (dial->result[i]) {
    case MOO_ETIMEOUT:
        return i < dial->next ? "did not answer" : "was not tried yet";
    case MOO_ESYS:
        return strerror(dial->reason[i]);
    case MOO_EPEER:
        return dial->reason[i] == ECONNREFUSED   ? "refused the connection"
               : dial->reason[i] == EHOSTUNREACH ? "is an unreachable host"
               : dial->reason[i] == ENETUNREACH ? "is in an unreachable network"
               : dial->reason[i] == EAFNOSUPPORT ? "is of an unsupported family"
                                                 : "hung up";
    default:
        return moo_strerror(dial->result[i]);
    }
}

void mooi_dial_reason(const struct mooi_dial *dial, char *text, size_t room)
{
    size_t used = 0;

    if (room)
        text[0] = 0;
    for (size_t i = 0; i < dial->count && used < room; i++) {
        char address[MOOI_ADDRESS_TEXT];
        int length;
        mooi_address_print(&dial->address[i], address);
        length = snprintf(text + used, room - used, "%s%s: %s",
                          i ? "; " : "", address, how(dial, i));
        used += length > 0 ? (size_t)length : 0;
    }
}

void mooi_dial_end(struct mooi_dial *dial)
{
    for (size_t i = 0; i < dial->count; i++) {
        if (dial->fd[i] >= 0)
            close(dial->fd[i]);
        dial->fd[i] = -1;
    }
    if (dial->poll >= 0)
        close(dial->poll);
    dial->poll = -1;
}
