/* SPDX-License-Identifier: MIT */
/* internal.h: what the files of this folder share. */
#ifndef MOOI_MAIL_INTERNAL_H
#define MOOI_MAIL_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "mail/zmq.h"
#include "mooactor.h"

struct mooi_letter;
struct mooi_turn;

/* What is known of spinning; the leader's alone. See spin.c. */
struct mooi_spin {
    uint64_t ns;            /* how long to spin */
    uint64_t not_before_ns; /* others want the core until then */
    uint64_t pause_ns;
};

/* See inbox.c for the invariants. */
struct moo_inbox {
    void *socket;
    unsigned forks; /* that led to this process when the inbox was opened */
    pthread_t signalled; /* or 0; see moo_inbox_open */
    int watched[4]; /* the socket's descriptor, the wake-up, two of others */
    int count;

    pthread_mutex_t lock;
    pthread_cond_t left;     /* the leader has left `poll` */
    int closed;
    int polling;             /* the leader is in `poll`, or about to be */
    _Atomic(struct mooi_turn *) leader; /* changed under the lock */
    pthread_t leader_thread; /* of `leader`; it may have several turns */
    int drained;             /* the last receive found nothing; the leader's */
    uint64_t led_at_ns;      /* when the leader last came by */
    struct mooi_spin spin;
    struct mooi_turn *first, *last; /* those who sleep, the longest first */
    struct mooi_letter *head, *tail; /* received, and not handled */
    struct mooi_letter *popped;      /* handled, but perhaps being read */
    uint64_t serial;                 /* of the letter received last */
    _Atomic uint64_t taken;          /* of the one that was handled last */
    uint32_t readers;                /* turns that may read a letter */
    int loops_fd;                    /* where event loops are told; or -1 */
    int loops;                       /* how many there are */

    uint64_t wakes;                  /* something was completed so often */

    atomic_uint holds;               /* the maker's, and one of each outbox */
    pthread_mutex_t sending;         /* see outbox.c */
    moo_outbox *unsent;
};

/* Whether this process opened the inbox, and was not forked from the one that
 * did. See "forks" in inbox.c. */
int mooi_inbox_is_ours(const moo_inbox *inbox);

/* Look for a letter in `inbox` until `until_ns`, yielding the core; see spin.c.
 * *now_ns: the time before, and then after. 1: there is one. Leader only, lock
 * not held. */
int mooi_spin(moo_inbox *inbox, uint64_t until_ns, uint64_t *now_ns);

/* Learn from a wait that ended with a letter: spinning is for short ones. */
void mooi_spin_note(moo_inbox *inbox, uint64_t waited_ns);

/* Receive all that is there, without waiting. Whether there was something.
 * Leader only, lock not held. */
int mooi_receive(moo_inbox *inbox);

#endif
