/* SPDX-License-Identifier: MIT */
/* internal.h: shared by the files of this folder. */
#ifndef MOOI_MAIL_INTERNAL_H
#define MOOI_MAIL_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "mail/zmq.h"
#include "mooactor.h"

struct mooi_letter;
struct mooi_turn;

/* The history of spinning; the leader's alone. See spin.c. */
struct mooi_spin {
    uint64_t ns;            /* how long to spin */
    uint64_t not_before_ns; /* others want the core until then */
    uint64_t pause_ns;
};

/* See inbox.c for the invariants. */
struct moo_inbox {
    void *socket;
    unsigned forks; /* of this process when the inbox was opened */
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
    struct mooi_turn *first, *last; /* the sleeping turns, the longest first */
    struct mooi_letter *head, *tail; /* received, and not handled */
    struct mooi_letter *popped;      /* handled, but perhaps still being
                                      * read */
    uint64_t serial;                 /* of the letter received last */
    _Atomic uint64_t taken;          /* of the one that was handled last */
    uint32_t readers;                /* turns that may read a letter */
    int loops_fd;                    /* wakes event loops; or -1 */
    int loops;                       /* the number of event loops */

    uint64_t wakes;                  /* the number of completions so far */

    atomic_uint holds;               /* the maker's, and one of each outbox */
    pthread_mutex_t sending;         /* see outbox.c */
    moo_outbox *unsent;
};

/* Whether this process, and not a parent of it, opened the inbox. See "forks"
 * in inbox.c. */
int mooi_inbox_is_ours(const moo_inbox *inbox);

/* Look for a letter in `inbox` until `until_ns`, yielding the core; see
 * spin.c. *now_ns: in, the present time; out, that at the return. 1: there is
 * one. Leader only, lock not held. */
int mooi_spin(moo_inbox *inbox, uint64_t until_ns, uint64_t *now_ns);

/* Learn from a wait that ended with a letter: spinning is for short ones. */
void mooi_spin_note(moo_inbox *inbox, uint64_t waited_ns);

/* Receive all letters that are there, without waiting. Whether there were any.
 * Leader only, lock not held. */
int mooi_receive(moo_inbox *inbox);

#endif
