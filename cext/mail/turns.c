/* SPDX-License-Identifier: MIT */
/*
 * turns.c: the threads that wait for letters.
 *
 * Threads that wait elect a leader, which polls and receives for all (Schmidt
 * et al.: Leader/Followers, 2000). The others sleep, each on a word of its
 * own, until their result is there or the lead is free. So a reply reaches the
 * waiting thread without a hand-over between threads. poll.c is how the leader
 * waits.
 *
 * A turn is one wait of one thread. Its owner's frame holds it as an object
 * whose destructor is `leave`, which Python calls at every exit of the frame.
 *
 *  1. If threads sleep, one leads, or one of those has been woken to lead:
 *     every way out of `wait` without the lead, and `leave`, ensures it
 *     (`pass_on`).
 *  2. The lead is kept from one call to the next, so that the leader handles
 *     what it received without a change of threads. But it binds nobody: a
 *     leader that does not return, because its thread runs a long signal
 *     handler or finalizer, is overtaken. A leader that only waits for the GIL
 *     is not: the overtaking thread has looked PATIENCE times, each time
 *     through Python, where the leader would have had its turn.
 */
#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/clock.h"
#include "mail/internal.h"

#define LOOK_NS 200000000u /* between two looks of a sleeper for the leader */
#define PATIENCE 6         /* it overtakes after so many vain looks */

/* -1, errno EINTR: a signal came. */
static int futex_wait(uint32_t *word, uint64_t ns)
{
    struct timespec limit = {(time_t)(ns / 1000000000u),
                             (long)(ns % 1000000000u)};

    return (int)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, 0, &limit, NULL,
                        0);
}

/* ---- the lock is held ---- */

static void join_sleepers(moo_inbox *inbox, struct mooi_turn *turn)
{
    turn->prev = inbox->last;
    turn->next = NULL;
    *(inbox->last ? &inbox->last->next : &inbox->first) = turn;
    inbox->last = turn;
    turn->sleeps = 1;
}

static void leave_sleepers(moo_inbox *inbox, struct mooi_turn *turn)
{
    if (!turn->sleeps)
        return;
    *(turn->prev ? &turn->prev->next : &inbox->first) = turn->next;
    *(turn->next ? &turn->next->prev : &inbox->last) = turn->prev;
    turn->sleeps = 0;
}

/* Whether this thread may lead: no other does, or it is overtaken. */
static int may_lead(moo_inbox *inbox, struct mooi_turn *turn)
{
    if (!inbox->leader)
        return 1;
    if (inbox->polling)
        return 0;
    return pthread_equal(inbox->leader_thread, pthread_self()) ||
           turn->looks >= PATIENCE;
}

/* A sleeper has looked: 1 if the leader was not here since the last time. */
static int missed(moo_inbox *inbox, struct mooi_turn *turn)
{
    int away = inbox->leader && !inbox->polling &&
               turn->led_at_ns == inbox->led_at_ns;

    turn->looks = away ? turn->looks + 1 : 0;
    turn->led_at_ns = inbox->led_at_ns;
    return away;
}

static void lead(moo_inbox *inbox, struct mooi_turn *turn, uint64_t now)
{
    inbox->leader = turn;
    inbox->leader_thread = pthread_self();
    inbox->led_at_ns = now;
}

static int wait_as_leader(moo_inbox *inbox, struct mooi_turn *turn,
                          uint64_t until, uint64_t now)
{
    int event = 0;

    if (!inbox->head)
        event = mooi_poll(inbox, until, now);
    if (inbox->closed)
        return MOO_SHUT;
    if (mooi_read_first(inbox, turn))
        return event == MOO_OTHER ? MOO_MAIL_AND_OTHER : MOO_MAIL;
    if (event == MOO_LOOK) /* a signal handler may take its time */
        inbox->leader = NULL;
    return event;
}

/* 0: nothing yet. */
static int wait_asleep(moo_inbox *inbox, struct mooi_turn *turn, uint64_t until,
                       uint64_t now)
{
    uint64_t most = until - now < LOOK_NS ? until - now : LOOK_NS;
    int slept;

    join_sleepers(inbox, turn);
    pthread_mutex_unlock(&inbox->lock);
    slept = futex_wait(&turn->word, most) && errno == EINTR ? -1 : 0;
    pthread_mutex_lock(&inbox->lock);
    leave_sleepers(inbox, turn);
    if (most == LOOK_NS && mooi_now_ns() - now >= LOOK_NS &&
        missed(inbox, turn))
        return MOO_LOOK;
    return slept < 0 ? MOO_LOOK : 0;
}

/* ---- it is not ---- */

int moo_turn_wait(moo_inbox *inbox, moo_turn *public, int64_t timeout_us,
                  int woken)
{
    struct mooi_turn *turn = (struct mooi_turn *)public;
    uint64_t now = mooi_now_ns(), until = UINT64_MAX;
    int event = 0, late = MOO_LATE;

    turn->leads = 0;
    if (!mooi_inbox_is_ours(inbox))
        return MOO_SHUT;
    if ((timeout_us < 0 || timeout_us > MOO_SIGNAL_US) &&
        pthread_equal(inbox->signalled, pthread_self())) {
        timeout_us = MOO_SIGNAL_US;
        late = MOO_LOOK;
    }
    if (timeout_us >= 0)
        until = now + (uint64_t)timeout_us * 1000u;
    pthread_mutex_lock(&inbox->lock);
    turn->inbox = inbox;
    mooi_stop_reading(inbox, turn);
    while (!event) {
        int look = __atomic_exchange_n(&turn->word, 0, __ATOMIC_SEQ_CST);
        if (inbox->closed) {
            event = MOO_SHUT;
        } else if (may_lead(inbox, turn)) {
            look |= inbox->wakes != turn->seen;
            lead(inbox, turn, now);
            event = look ? MOO_LOOK : wait_as_leader(inbox, turn, until, now);
        } else if (look) {
            event = MOO_LOOK;
        } else if (!woken) {
            event = MOO_LED;
        } else if (now < until) {
            event = wait_asleep(inbox, turn, until, now);
        }
        if (!event && (now = mooi_now_ns()) >= until && !turn->word)
            event = late;
    }
    turn->seen = inbox->wakes;
    turn->leads = inbox->leader == turn;
    mooi_pass_on(inbox);
    pthread_mutex_unlock(&inbox->lock);
    return event;
}

int moo_turn_handled(moo_turn *public)
{
    struct mooi_turn *turn = (struct mooi_turn *)public;
    moo_inbox *inbox = turn->inbox;
    int more;

    if (!mooi_inbox_is_ours(inbox))
        return 0;
    pthread_mutex_lock(&inbox->lock);
    turn->seen += turn->seen == inbox->wakes; /* this thread looks anyway */
    inbox->wakes++;
    mooi_wake_poller(inbox);
    mooi_pop(inbox, turn->serial);
    mooi_stop_reading(inbox, turn);
    more = mooi_read_first(inbox, turn);
    if (inbox->leader == turn)
        inbox->led_at_ns = mooi_now_ns();
    pthread_mutex_unlock(&inbox->lock);
    return more;
}

void moo_turn_leave(moo_turn *public)
{
    struct mooi_turn *turn = (struct mooi_turn *)public;
    moo_inbox *inbox = turn->inbox;

    if (!inbox || !mooi_inbox_is_ours(inbox))
        return;
    pthread_mutex_lock(&inbox->lock);
    turn->inbox = NULL;
    mooi_stop_reading(inbox, turn);
    if (inbox->leader == turn)
        inbox->leader = NULL;
    mooi_pass_on(inbox);
    pthread_mutex_unlock(&inbox->lock);
}
