/* SPDX-License-Identifier: MIT */
/*
 * poll.c: how the leader waits for letters.
 *
 * Before it sleeps, it sends what waits in outboxes, because the awaited result
 * may depend on it; then it spins (spin.c); then it polls.
 *
 * libzmq makes its descriptor readable when a message arrives at a socket
 * whose last receive found nothing; otherwise it need not. So before the leader
 * sleeps, a receive must find nothing; the last receive may have done so.
 */
#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include "core/clock.h"
#include "mail/internal.h"

/* Sleep until something is readable, and receive it. MOO_OTHER: one of the
 * other descriptors is. MOO_LOOK: a signal came. */
static int sleep_in_poll(moo_inbox *inbox, uint64_t until, uint64_t now)
{
    struct pollfd polled[4];
    uint64_t wake;
    int64_t left_ms = -1;
    int ready, other = 0;

    if (until != UINT64_MAX) {
        left_ms = now < until ? (int64_t)((until - now) / 1000000u) + 1 : 0;
        if (left_ms > 3600000)
            left_ms = 3600000;
    }
    for (int i = 0; i < inbox->count; i++)
        polled[i] = (struct pollfd){inbox->watched[i], POLLIN, 0};
    ready = poll(polled, (nfds_t)inbox->count, (int)left_ms);
    if (ready <= 0)
        return ready < 0 ? MOO_LOOK : 0;
    for (int i = 2; i < inbox->count; i++)
        other |= polled[i].revents;
    if (polled[1].revents && read(inbox->watched[1], &wake, sizeof wake) < 0)
        other |= 0; /* another has read it */
    if (polled[0].revents)
        mooi_receive(inbox);
    return other ? MOO_OTHER : 0;
}

int mooi_poll(moo_inbox *inbox, uint64_t until, uint64_t now)
{
    uint64_t began = now;
    int event = 0, found = 0;

    inbox->polling = 1; /* a completion from here on writes to `wake` */
    pthread_mutex_unlock(&inbox->lock);
    if (!inbox->drained || now >= until)
        found = mooi_receive(inbox);
    if (!found && now < until) {
        moo_inbox_flush(inbox);
        if (!mooi_spin(inbox, until, &now))
            event = sleep_in_poll(inbox, until, now);
    }
    pthread_mutex_lock(&inbox->lock);
    inbox->polling = 0;
    if (inbox->closed)
        pthread_cond_broadcast(&inbox->left);
    inbox->led_at_ns = mooi_now_ns();
    if (inbox->head)
        mooi_spin_note(inbox, inbox->led_at_ns - began);
    if (event == MOO_LOOK && inbox->head) /* otherwise Python must run the
                                           * handler */
        event = 0;
    return event;
}
