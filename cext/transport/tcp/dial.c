/* SPDX-License-Identifier: MIT */
#include "transport/tcp/dial.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/fd.h"
#include "core/times.h"


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
        dial->fd[i] = dial->older[i] = -1;
        dial->result[i] = MOO_ETIMEOUT;
    }
    return MOO_OK;
}

static void hang_up(const struct mooi_dial *dial, int *fd)
{
    if (*fd < 0)
        return;
    epoll_ctl(dial->poll, EPOLL_CTL_DEL, *fd, NULL); /* a fork may have it */
    close(*fd);
    *fd = -1;
}

static void hang_up_both(struct mooi_dial *dial, size_t which)
{
    hang_up(dial, &dial->fd[which]);
    hang_up(dial, &dial->older[which]);
}

static int is_under_way(const struct mooi_dial *dial, size_t which)
{
    return dial->fd[which] >= 0 || dial->older[which] >= 0;
}

static void fail(struct mooi_dial *dial, size_t which, moo_err why)
{
    dial->result[which] = why;
    dial->reason[which] = errno;
    hang_up_both(dial, which);
    dial->next_ns = 0; /* the next one at once */
}

/* It has no attempt under way, but may get another. */
static int may_come_back(const struct mooi_dial *dial, size_t which)
{
    int reason = dial->reason[which];

    return dial->patient && dial->result[which] == MOO_EPEER &&
           (reason == ENETUNREACH || reason == EHOSTUNREACH ||
            reason == ENETDOWN);
}

/* It was handed out, and whoever accepted there was late. */
static int was_late(const struct mooi_dial *dial, size_t which)
{
    return dial->patient && which < dial->next &&
           dial->result[which] == MOO_ETIMEOUT && !is_under_way(dial, which);
}

/* After all others have had their turn. */
static int may_try_the_late(const struct mooi_dial *dial, uint64_t now)
{
    return dial->next == dial->count && now >= dial->next_ns;
}

static int is_tried_again(const struct mooi_dial *dial, size_t which)
{
    return is_under_way(dial, which) || may_come_back(dial, which);
}

/* For the first time, or once more. */
static void try_address(struct mooi_dial *dial, size_t which, uint64_t now)
{
    struct epoll_event event = {.events = EPOLLOUT, .data.u64 = which};
    int *fd = &dial->fd[which];
    moo_err err;

    hang_up(dial, &dial->older[which]);
    dial->older[which] = *fd;
    *fd = -1;
    dial->again_ns[which] = now + MOOI_DIAL_AGAIN_MS * MOOI_MS;
    err = mooi_socket_connect(&dial->address[which], fd);
    if (err == MOO_OK &&
        epoll_ctl(dial->poll, EPOLL_CTL_ADD, *fd, &event)) {
        err = MOO_ESYS;
        hang_up(dial, fd);
    }
    if (err == MOO_OK)
        dial->result[which] = MOO_ETIMEOUT;
    else if (!is_under_way(dial, which))
        fail(dial, which, err);
}

/* MOO_OK: it is connected, and *fd the caller's. MOO_ETIMEOUT: not yet. */
static moo_err look_at(struct mooi_dial *dial, size_t which, int *attempt,
                       int *fd)
{
    moo_err err = *attempt < 0 ? MOO_ETIMEOUT : mooi_socket_connected(*attempt);

    if (err == MOO_OK) {
        *fd = *attempt;
        *attempt = -1;
        epoll_ctl(dial->poll, EPOLL_CTL_DEL, *fd, NULL);
        hang_up_both(dial, which);
    } else if (err != MOO_ETIMEOUT) {
        int reason = errno;
        hang_up(dial, attempt);
        errno = reason;
        if (reason == ECONNREFUSED || !is_under_way(dial, which))
            fail(dial, which, err);
    }
    return err;
}

/* MOO_OK: one is connected. */
static moo_err look(struct mooi_dial *dial, int *fd, size_t *which)
{
    struct epoll_event event;

    while (epoll_wait(dial->poll, &event, 1, 0) == 1) {
        size_t i = (size_t)event.data.u64;
        moo_err early = look_at(dial, i, &dial->older[i], fd), late;
        *which = i;
        if (early == MOO_OK)
            return MOO_OK;
        late = look_at(dial, i, &dial->fd[i], fd);
        if (late == MOO_OK)
            return MOO_OK;
        if (early == MOO_ETIMEOUT && late == MOO_ETIMEOUT)
            return MOO_ETIMEOUT;
    }
    return MOO_ETIMEOUT;
}

uint64_t mooi_dial_began_ns(const struct mooi_dial *dial, size_t which)
{
    return dial->again_ns[which] - MOOI_DIAL_AGAIN_MS * MOOI_MS;
}

int mooi_dial_has_others(const struct mooi_dial *dial, size_t which)
{
    for (size_t i = 0; i < dial->count; i++)
        if (i != which && (is_under_way(dial, i) || was_late(dial, i)))
            return 1;
    return dial->next < dial->count;
}

moo_err mooi_dial_step(struct mooi_dial *dial, int *fd, size_t *which)
{
    uint64_t now = mooi_now_ns();

    if (look(dial, fd, which) == MOO_OK)
        return MOO_OK;
    for (size_t i = 0; i < dial->next; i++)
        if (is_tried_again(dial, i) && now >= dial->again_ns[i])
            try_address(dial, i, now);
    while (dial->next < dial->count && now >= dial->next_ns) {
        dial->next_ns = now + MOOI_DIAL_STAGGER_MS * MOOI_MS;
        try_address(dial, dial->next++, now);
    }
    for (size_t i = 0; i < dial->next && may_try_the_late(dial, now); i++)
        if (was_late(dial, i))
            try_address(dial, i, now);
    for (size_t i = 0; i < dial->next; i++)
        if (is_tried_again(dial, i) || was_late(dial, i))
            return MOO_ETIMEOUT;
    return dial->next < dial->count ? MOO_ETIMEOUT : MOO_EPEER;
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
        if (same(&dial->address[i], address) &&
            dial->result[i] == MOO_EPEER && dial->reason[i] == ECONNREFUSED)
            return 1;
    return 0;
}

/* A listener that is closed resets those who wait to be accepted. */
int mooi_dial_answered(const struct mooi_dial *dial)
{
    for (size_t i = 0; i < dial->count; i++)
        if (dial->result[i] == MOO_EPEER &&
            (dial->reason[i] == ECONNREFUSED ||
             dial->reason[i] == ECONNRESET || dial->reason[i] == EPIPE))
            return 1;
    return 0;
}

int mooi_dial_wait_ms(const struct mooi_dial *dial)
{
    uint64_t now = mooi_now_ns(), due = UINT64_MAX;

    if (dial->next < dial->count)
        due = dial->next_ns;
    for (size_t i = 0; i < dial->next; i++) {
        if (is_tried_again(dial, i) && dial->again_ns[i] < due)
            due = dial->again_ns[i];
        if (was_late(dial, i) && dial->next_ns < due)
            due = dial->next_ns;
    }
    if (due == UINT64_MAX)
        return -1;
    return due > now ? (int)((due - now) / MOOI_MS) + 1 : 0;
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
        return i >= dial->next          ? "was not tried yet"
               : is_under_way(dial, i) ? "did not answer"
                                       : "accepted, and did not answer in time";
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

/* No attempt is taken from the poll set: a forked child that ends its copy
 * would take it from its parent's. */
void mooi_dial_end(struct mooi_dial *dial)
{
    for (size_t i = 0; i < dial->count; i++) {
        mooi_close_fd(&dial->fd[i]);
        mooi_close_fd(&dial->older[i]);
    }
    mooi_close_fd(&dial->poll);
}
