/* SPDX-License-Identifier: MIT */
/*
 * segment.h: agreement (agreement.h) by shared memory. Only the files of this
 * folder include this header.
 *
 * A group lives in one shared segment, which every member maps. All zero
 * bytes are a valid, empty group, so nobody has to initialise it.
 *
 *   lock, epoch, views   who belongs to the group        membership.c, entry.c
 *   decisions            how each operation ended        decisions.c
 *   cells                what each member tells          cells.c
 *   regions              the bytes on their way          buffers.h
 *
 * Everything but the cells, mooi_commit and the reading of a decision happens
 * under the lock. A process can be killed while it holds that lock. The next
 * process that wants it takes it over and repairs: a transition fills the view
 * that is not current and then switches to it with one store, so it happened or
 * it did not; and an abort without its transition is found by its decision.
 * Neither needs a log.
 */
#ifndef MOOI_SEGMENT_H
#define MOOI_SEGMENT_H

#include "collective/agreement.h"
#include "collective/group.h"

#define SEGMENT_MAGIC 0x6d6f6f2d67727031ull /* "moo-grp1" */
#define SEGMENT_VERSION 7u
#define DECISIONS 256 /* more than members: an abort removes one or was late */
#define VIEWS 64  /* a slow member finds the view of its call so far back */

struct mooi_decision_record {
    _Atomic uint64_t word; /* seq << 24 | reason << 16 | rank */
    uint32_t epoch;        /* these are written before an abort's word */
    int32_t pid;
    uint32_t witness;
};

enum { MEMBER_FREE, MEMBER_TAKEN };

struct mooi_slot {
    _Atomic uint32_t state;
    struct mooi_member member;
};

struct mooi_cell {
    _Alignas(128) _Atomic uint64_t counter[COUNTERS]; /* owner writes */
    _Alignas(64) _Atomic uint64_t want;    /* counter value slept for */
    _Atomic uint32_t waiting;              /* (slot + 1) << 8 | counter; 0 */
    _Atomic uint32_t bell;                 /* futex */
    _Alignas(64) struct mooi_signature signature[2]; /* by seq parity */
    struct mooi_post post;      /* of the epoch that counter POSTED names */
    _Atomic uint64_t carrier;   /* epoch << CARRIER_BITS | transport */
    _Atomic uint32_t sums[MOOI_LINKS];
};

struct mooi_segment {
    uint64_t magic;
    uint32_t version, min_size;
    _Atomic uint64_t lock; /* 0, or start << 32 | pid of the owner */
    _Atomic uint32_t lock_bell;
    _Atomic uint32_t epoch; /* views[epoch % VIEWS] is current */
    _Atomic uint32_t joining; /* members outside the current view */
    _Atomic uint32_t blocked; /* the last barrier failed: see `obstacle` */
    uint8_t key[MOOI_KEY_BYTES]; /* connections between members prove it */
    uint64_t joins;
    moo_outcome obstacle; /* under the lock */
    struct mooi_view views[VIEWS];
    struct mooi_decision_record decisions[DECISIONS];
    struct mooi_slot slots[MOO_GROUP_MAX];
    struct mooi_cell cells[MOO_GROUP_MAX];
};

/* The regions follow. */
#define HEADER_BYTES \
    ((sizeof(struct mooi_segment) + 4095) & ~(size_t)4095)

/* ---- cells.c ---- */

/* Ring all bells: the membership or a decision has changed. */
void mooi_notify_all(struct mooi_segment *segment);

/* ---- membership.c ---- */

/* The lock of the segment; taken over, and the segment repaired, if its holder
 * was killed. Short: nobody blocks while holding it. */
void mooi_segment_lock(moo_group *group);
void mooi_segment_unlock(moo_group *group);
/* All others here: segment locked. */
struct mooi_view *mooi_current_view(struct mooi_segment *segment);
/* Whether the process that took the slot lives. */
bool mooi_slot_alive(struct mooi_segment *segment, uint32_t slot);
/* The next epoch: the remaining members in the old order, then newcomers if
 * they are to be admitted or nothing can run without them. `drop_dead`: without
 * the dead; agreement.h says when members learn of it. */
void mooi_transition(struct mooi_segment *segment, uint64_t first_seq,
                     bool admit, bool drop_dead);

/* ---- decisions.c; segment locked ---- */

/* false: `seq` was decided before. The view that it runs in is the current one
 * if it is open, as no epoch ends before all its operations are decided. */
bool mooi_abort_locked(struct mooi_segment *segment, uint64_t seq,
                       enum mooi_reason why, uint32_t rank, uint32_t witness);
/* The lock was taken from a dead process: finish an abort without its
 * transition. */
void mooi_repair(struct mooi_segment *segment);

#endif
