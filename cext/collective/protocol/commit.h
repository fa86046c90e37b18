/* SPDX-License-Identifier: MIT */
/*
 * commit.h: the barrier in which the leaders of a view's hosts commit an
 * operation.
 *
 * It is the dissemination barrier of Hensgen, Finkel and Manber, "Two
 * Algorithms for Barrier Synchronization", International Journal of Parallel
 * Programming 17(1), 1988: in step i host h tells host h + 2^i, and waits for
 * host h - 2^i. After ⌈log2 hosts⌉ one-way latencies everybody knows that all
 * hosts have prepared the operation, and whether members rest behind it.
 *
 * A status other than 0 says that the members' calls differ. The host that
 * finds it has not got all bytes, and no other host gets them all: so whoever
 * prepares the operation, prepares it with such a status.
 *
 * Pure: frames go in and come out by `emit`. One thread at a time; nothing
 * blocks.
 */
#ifndef MOOI_COMMIT_H
#define MOOI_COMMIT_H

#include "collective/protocol/frames.h"
#include "collective/protocol/words.h"

#define MOOI_COMMIT_STEPS 6 /* 1 << 6 == MOOI_HOSTS_MAX */

struct mooi_commit {
    uint32_t hosts, mine; /* mine: this host's place among the hosts */
    uint64_t seq;         /* of the operation that comes next */
    bool entered;
    uint32_t step; /* the first one that has not come, once entered */
    uint32_t status;
    bool rest;
    /* Arrivals: the steps, a bit each; those that say `rest`; and the
     * worst status. Nothing comes for the next operation before this one is
     * committed here: no host can prepare it without bytes of this one. */
    uint32_t got, rests;
    uint32_t warning; /* if not 0, do not wait for bytes: enter with it */
    struct mooi_words *words;
    void (*emit)(void *to, uint32_t host, const struct mooi_frame *frame);
    void *to;
};

/* The barriers of a view that begins with `first_seq`. */
void mooi_commit_open(struct mooi_commit *commit, uint32_t hosts,
                      uint32_t mine, uint64_t first_seq);

/* All bytes that members of this host need for operation commit->seq are in
 * local memory: prepare it, and enter. `status`: what is wrong with it here, 0
 * if nothing. Returns its state: MOOI_PREPARED, MOOI_COMMITTED once all hosts
 * have entered, or another one if it was halted. May be called again. */
enum mooi_state mooi_commit_enter(struct mooi_commit *commit, uint32_t status,
                                  bool rest);
/* A frame of another leader. Returns as mooi_commit_enter does; MOOI_OPEN: this
 * host has not entered. After MOOI_COMMITTED, words->result is complete, and
 * commit->seq is the next. */
enum mooi_state mooi_commit_take(struct mooi_commit *commit,
                                 const struct mooi_frame *frame);

#endif
