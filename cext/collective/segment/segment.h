/* SPDX-License-Identifier: MIT */
/*
 * segment.h: agreement (agreement.h) by shared memory. Only the files of this
 * folder include this header.
 *
 * A group has one shared segment on each host, which every member there maps,
 * and their agent. The agent makes it.
 *
 *   words                 how operations ended           words.h
 *   epoch, rolls          who belongs to the group       written by the agent
 *   cells                 what each member tells         cells.c
 *   regions               the bytes on their way         buffers.h
 *
 * There is no lock. Rolls and the agent's words are written by the agent, each
 * cell by its member, except where a comment says otherwise.
 */
#ifndef MOOI_SEGMENT_H
#define MOOI_SEGMENT_H

#include "collective/agreement.h"
#include "collective/group.h"
#include "collective/protocol/words.h"

#define SEGMENT_MAGIC 0x6d6f6f2d67727031ull /* "moo-grp1" */
#define SEGMENT_VERSION 11u
#define ROLLS 64 /* a slow member finds the view of its call so far back */

/* A slot: FREE until a process claims it (CLAIMED), and fills the cell's
 * `member` (KNOCKS); then the agent takes it in (TAKEN), or refuses it. The
 * member gives it up (LEAVES), and the agent frees it. */
enum mooi_slot_state { FREE, CLAIMED, KNOCKS, TAKEN, REFUSED, LEAVES };

struct mooi_cell {
    _Alignas(128) _Atomic uint64_t counter[COUNTERS]; /* owner writes */
    _Alignas(64) _Atomic uint64_t want;    /* counter value slept for */
    _Atomic uint32_t waiting;              /* (slot + 1) << 8 | counter; 0 */
    _Atomic uint32_t bell;                 /* futex; any member rings it */
    _Alignas(64) struct mooi_signature signature[2]; /* by seq parity */
    char difference[MOOI_TEXT_BYTES]; /* of calls, found by a leader */
    uint32_t different;               /* the rank that it names */
    _Atomic uint64_t carrier;   /* epoch << CARRIER_BITS | transport */
    /* for the agent */
    _Atomic uint64_t state;  /* pid << 8 | state: so the claim names its owner */
    _Atomic uint32_t serial; /* by the agent; 0: not yet */
    _Atomic uint32_t refusal; /* by the agent */
    struct mooi_member member; /* since KNOCKS */
    uint32_t start;            /* of its process, since KNOCKS */
    uint32_t min_size;         /* since KNOCKS */
    uint32_t policy;           /* since KNOCKS */
    uint64_t begun;            /* the last operation, since LEAVES */
    _Atomic uint64_t complaint; /* see mooi_complaint_word; 0: none */
    /* for newcomers: the outcome of this member's last barrier, if it failed */
    _Atomic uint32_t obstacles; /* odd: being written */
    _Atomic uint64_t obstacle[(sizeof(moo_outcome) + 7) / 8];
};

struct mooi_segment {
    _Atomic uint64_t magic; /* the agent writes it when all else is ready */
    uint32_t version;
    int32_t bell; /* the agent's eventfd, by its number in the agent */
    uint32_t host; /* its number in the group */
    _Alignas(64) struct mooi_words words;
    _Alignas(64) _Atomic uint32_t epoch; /* rolls[epoch % ROLLS] is the latest */
    _Atomic uint32_t newcomers;          /* that wait for members to rest */
    struct mooi_roll rolls[ROLLS];
    struct mooi_cell cells[MOOI_TEAM_MAX];
};

/* The regions follow. */
#define HEADER_BYTES \
    ((sizeof(struct mooi_segment) + 4095) & ~(size_t)4095)

static inline uint64_t mooi_slot_word(int32_t pid, enum mooi_slot_state state)
{
    return (uint64_t)(uint32_t)pid << 8 | state;
}

static inline enum mooi_slot_state mooi_slot_state(const struct mooi_cell *cell)
{
    return (enum mooi_slot_state)(atomic_load(&cell->state) & 0xff);
}

/* A complaint about an operation, in one word. */
_Static_assert(MOOI_MEMBERS_MAX <= 1024, "a rank must fit into ten bits");
static inline uint64_t mooi_complaint_word(uint64_t seq,
                                           const struct mooi_cause *cause)
{
    return seq << 24 | (uint64_t)cause->why << 20 | cause->rank << 10 |
           cause->witness;
}

static inline struct mooi_cause mooi_complaint_in(uint64_t word)
{
    return (struct mooi_cause){.why = (enum mooi_why)(word >> 20 & 15),
                               .rank = word >> 10 & 1023,
                               .witness = word & 1023};
}

/* ---- cells.c ---- */

/* Ring all bells: the membership or a decision has changed. */
void mooi_notify_all(struct mooi_segment *segment);

#endif
