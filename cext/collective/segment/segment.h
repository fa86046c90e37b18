/* SPDX-License-Identifier: MIT */
/*
 * segment.h: the shared segment of a group.
 *
 * A group lives in one shared segment, which every member maps. All zero
 * bytes are a valid, empty group, so nobody has to initialise it.
 *
 *   lock, epoch, views   who belongs to the group        membership.c
 *   decisions            how each operation ended        membership.c
 *   cells                how far each member has come    progress.c
 *   regions              the bytes on their way          shm.c, ring.c
 *
 * A process joins in group.c and takes a slot in entry.c, keeps its own copy
 * of the view in view.c, and queues and runs operations in work.c, each by
 * operation.c.
 *
 * Between the members of one host the bytes go through the segment; between
 * hosts they go over connections, see ring.h.
 *
 * Vocabulary. A *slot* is a member's index in the segment, for as long as it
 * lives. Its *rank* is its index in the view of one *epoch*. Every operation
 * has a *sequence number*, counted alike by all members and never reused,
 * and a *commit decision*, which is made exactly once for all of them:
 * committed (the missing bytes will arrive, because they are in shared memory
 * already) or aborted. Therefore nobody can succeed where another fails.
 *
 * Every call of a member takes sequence numbers until one has another decision
 * than DECISION_LEFT; that decision is how the call ends, be it a success, a
 * mismatch, a timeout or too few members. So it is for all of them, and
 * therefore no two members ever reduce one's call with another's next.
 *
 * A member sees a view when it has ended all that came before the view's
 * first operation, and neither earlier nor later. So what it sees of the group
 * between two calls, and decides by it, is the same for all members; but for a
 * group of too few members, in which no call succeeds. A newcomer begins with the
 * first view that has it, however many have followed when it looks.
 *
 * An aborted operation always ends its epoch, and the first operation of an
 * epoch begins with everybody's acknowledgement (`acked`). This is what makes
 * it safe to reuse buffers: a member that acknowledges reads no older bytes.
 */
#ifndef MOOI_SEGMENT_H
#define MOOI_SEGMENT_H

#include <stdatomic.h>
#include <stdbool.h>

#include "core/mac.h"
#include "mooactor.h"
#include "transport/ofi.h"
#include "transport/tcp/socket.h"

#define SEGMENT_MAGIC 0x6d6f6f2d67727031ull /* "moo-grp1" */
#define SEGMENT_VERSION 6u
#define DECISIONS 256 /* more than members: an abort removes one or was late */
#define VIEWS 64  /* a slow member finds the view of its call so far back */
#define MOOI_LINKS 6 /* of a leader: 1 << 6 == MOO_GROUP_MAX */
#define STEP_BITS 24
#define STEP_LAST ((1ull << STEP_BITS) - 1)
#define SMALL_BYTES ((size_t)256 << 10) /* one member's bytes, single step */
#define BULK_BYTES ((size_t)7 << 20)    /* one member's pipeline buffers */
#define REGION_BYTES (2 * SMALL_BYTES + BULK_BYTES + ((size_t)512 << 10))

enum mooi_reason {
    DECISION_COMMITTED,
    DECISION_DIED,
    DECISION_LEFT,
    DECISION_SHORT,
    DECISION_LATE,
    DECISION_CUT,  /* a connection broke, or could not be made; nobody died */
    DECISION_NO_WAY, /* two members have no transport in common */
    DECISION_FEW /* fewer than min_size members for too long */
};

/* The counters of a member. Each holds seq << STEP_BITS | step, or (ACKED,
 * POSTED) an epoch, so it only grows, and no operation has to reset it. RINGED
 * is used by a host's leader: its progress in the ring. */
enum mooi_counter { PUT, REDUCED, COPIED, ACKED, RINGED, POSTED, COUNTERS };

struct mooi_view {
    uint32_t epoch, size;
    uint64_t first_seq; /* every earlier sequence number has its decision */
    uint16_t slots[MOO_GROUP_MAX];
    int32_t pids[MOO_GROUP_MAX]; /* by rank; a slot may be another's by now */
    uint64_t ids[MOO_GROUP_MAX];
};

struct mooi_decision {
    _Atomic uint64_t word; /* seq << 24 | reason << 16 | rank */
    uint32_t epoch;        /* these are written before an abort's word */
    int32_t pid;
    uint32_t witness; /* the rank that decided; DECISION_FEW: how many there
                         were */
};

enum { MEMBER_FREE, MEMBER_TAKEN };

struct mooi_member {
    _Atomic uint32_t state;
    int32_t pid;
    uint32_t start; /* of the process, so that a reused pid is noticed */
    uint64_t id;      /* the runtime's process id */
    uint64_t join_no; /* 1, 2, …; rank order */
    uint32_t transports;           /* that it allows */
    bool checks;                   /* it wants checksums, see pipe.h */
    uint32_t stripes;              /* it wants so many, 1 or more */
    uint8_t host[MOOI_HOST_BYTES]; /* equal: shared memory, if both allow */
};

/* The address of a leader in one epoch, which its counter POSTED names. */
#define MOOI_POST_ADDRESSES 8
struct mooi_post {
    uint32_t count;
    struct mooi_address addresses[MOOI_POST_ADDRESSES];
    /* its registered memory, see bulk.h */
    char provider[MOOI_FABRIC_PROVIDER_BYTES];
    uint32_t name_bytes; /* 0: none */
    uint8_t name[MOOI_FABRIC_NAME_BYTES];
    uint64_t key, base;
};

/* A member's call; all members' must be equal. */
struct mooi_signature {
    uint32_t kind, dtype, op, root, spans, part, parts;
    uint64_t bytes, output_bytes, layout;
    uint32_t admit, chunk; /* rank 0 decides these two for all */
};

struct mooi_cell {
    _Alignas(128) _Atomic uint64_t counter[COUNTERS]; /* owner writes */
    _Alignas(64) _Atomic uint64_t want;    /* counter value slept for */
    _Atomic uint32_t waiting;              /* (slot + 1) << 8 | counter; 0 */
    _Atomic uint32_t bell;                 /* futex */
    _Alignas(64) struct mooi_signature signature[2]; /* by seq parity */
    struct mooi_post post;
    _Atomic uint64_t carrier; /* a leader's, once connected: see links.c */
    _Atomic uint32_t sums[MOOI_LINKS]; /* a leader's: of what it has sent */
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
    struct mooi_decision decisions[DECISIONS];
    struct mooi_member members[MOO_GROUP_MAX];
    struct mooi_cell cells[MOO_GROUP_MAX];
};

#define HEADER_BYTES \
    ((sizeof(struct mooi_segment) + 4095) & ~(size_t)4095)

/* ---- membership.c ---- */

/* Wake all that sleep for progress, in all cells or in one: the membership or
 * a decision has changed. */
void mooi_notify_all(struct mooi_segment *segment);
void mooi_notify(struct mooi_cell *cell);
/* The lock of the segment; taken over, and the segment repaired, if its holder
 * was killed. Short: nobody blocks while holding it. */
void mooi_segment_lock(moo_group *group);
void mooi_segment_unlock(moo_group *group);
struct mooi_view *mooi_current_view(struct mooi_segment *segment);
/* The rank of a slot, or -1. */
int mooi_rank_in(const struct mooi_view *view, uint32_t slot);
/* Segment locked. Whether the process that took the slot lives. */
bool mooi_slot_alive(struct mooi_segment *segment, uint32_t slot);
/* Segment locked. The view in which operation `seq` runs, or would have run.
 * NULL: more than VIEWS views have followed it. */
const struct mooi_view *mooi_view_at(struct mooi_segment *segment,
                                     uint64_t seq);
/* Segment locked. The next epoch: the remaining members in the old order, then
 * newcomers if they are to be admitted or nothing can run without them.
 * `drop_dead`: without the dead; membership.c says when members learn of
 * it. */
void mooi_transition(struct mooi_segment *segment, uint64_t first_seq,
                     bool admit, bool drop_dead);
/* A barrier ended so. Newcomers enter at barriers: if none succeeds, this
 * outcome is the reason that moo_group_obstacle tells them. */
void mooi_note_barrier(moo_group *group, const moo_outcome *outcome);
/* After a barrier that lets newcomers in. */
void mooi_admit(moo_group *group, uint64_t seq);
/* Segment locked. false: `seq` was decided before. The view that it runs in is
 * the current one if it is open, as no epoch ends before all its operations
 * are decided. */
bool mooi_abort_locked(struct mooi_segment *segment, uint64_t seq,
                       enum mooi_reason why, uint32_t rank, uint32_t witness);
/* Decide that operation `seq` is aborted, if that is open. */
void mooi_abort(moo_group *group, uint64_t seq, enum mooi_reason why,
                uint32_t rank);
/* `seq`, which has not begun here, is late: abort it if there are too few
 * members. Otherwise it need not wait for more members. */
void mooi_give_up(moo_group *group, uint64_t seq);
/* An abort can be seen before the epoch that follows from it; after this
 * call that epoch can be seen, too. */
void mooi_settle(moo_group *group);
/* false: it was aborted before. */
bool mooi_commit(moo_group *group, uint64_t seq);
/* The decision on `seq` in *word. false: still open. */
bool mooi_decided(moo_group *group, uint64_t seq, uint64_t *word);
static inline enum mooi_reason mooi_reason_of(uint64_t word)
{
    return (enum mooi_reason)((word >> 16) & 0xff);
}

#endif
