/* SPDX-License-Identifier: MIT */
/* internal.h: shared by the files of this folder. */
#ifndef MOOI_MAIL_INTERNAL_H
#define MOOI_MAIL_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "mail/zmq.h"
#include "mooactor.h"

struct mooi_letter; /* see letters.c */

/* The contents of a moo_turn. */
struct mooi_turn {
    const char *data;
    uint64_t bytes, serial, leads;
    moo_inbox *inbox;
    struct mooi_turn *next, *prev;
    uint64_t seen; /* of `wakes` */
    uint32_t word; /* 0: asleep, or not woken since */
    uint8_t sleeps, reads, looks;
    uint64_t led_at_ns; /* the leader's, at the last look */
};
_Static_assert(sizeof(struct mooi_turn) <= sizeof(moo_turn), "moo_turn");

/* The history of spinning; the leader's alone. See spin.c. */
struct mooi_spin {
    uint64_t ns;            /* how long to spin */
    uint64_t not_before_ns; /* others want the core until then */
    uint64_t pause_ns;
    int contended;          /* the last spin met a long yield */
};

/* See inbox.c; letters.c and turns.c have the invariants. */
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
    struct mooi_letter *popped;      /* handled or dropped, but perhaps still
                                      * being read */
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

/* ---- spin.c ---- */

/* Look for a letter in `inbox` until `until_ns`, yielding the core. *now_ns:
 * in, the present time; out, that at the return. 1: there is one. Leader only,
 * lock not held. */
int mooi_spin(moo_inbox *inbox, uint64_t until_ns, uint64_t *now_ns);

/* Learn from a wait that ended with a letter: spinning is for short ones. */
void mooi_spin_note(moo_inbox *inbox, uint64_t waited_ns);

/* ---- letters.c ---- */

/* Receive all letters that are there, without waiting. Whether there were any.
 * Leader only, lock not held. */
int mooi_receive(moo_inbox *inbox);

/* A letter with a copy of data[0, bytes), or NULL: no memory. It belongs to the
 * caller until mooi_append. */
struct mooi_letter *mooi_letter_of(const char *data, size_t bytes);

/* Free a letter, NULL for none, and those after it. */
void mooi_free_letters(struct mooi_letter *letter);

/* ---- letters.c; lock held ---- */

/* At the end of the list, which owns it from here on. */
void mooi_append(moo_inbox *inbox, struct mooi_letter *letter);

/* 1: the turn has the first letter to read, until mooi_stop_reading. */
int mooi_read_first(moo_inbox *inbox, struct mooi_turn *turn);

/* This turn does not look at its letter any more, if it had one. */
void mooi_stop_reading(moo_inbox *inbox, struct mooi_turn *turn);

/* The first letter was handled, if it is the one with this number. */
void mooi_pop(moo_inbox *inbox, uint64_t serial);

/* Drop all letters that were not handled. */
void mooi_drop_letters(moo_inbox *inbox);

/* ---- inbox.c; lock held ---- */

/* End the wait of mooi_poll, if the leader is in it. */
void mooi_wake_poller(moo_inbox *inbox);

/* If no thread leads, wake one that sleeps, and the event loops if there are
 * letters. */
void mooi_pass_on(moo_inbox *inbox);

/* Wake all turns that sleep: the inbox is closed. */
void mooi_wake_sleepers(moo_inbox *inbox);

/* ---- poll.c; lock held ---- */

/* Wait for letters until `until`, and receive them; the lock is let go
 * meanwhile. MOO_OTHER: one of the other descriptors is readable. MOO_LOOK: a
 * signal came, and no letter, so Python must run the handler. Leader only. */
int mooi_poll(moo_inbox *inbox, uint64_t until, uint64_t now);

#endif
