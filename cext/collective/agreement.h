/* SPDX-License-Identifier: MIT */
/*
 * agreement.h: what the members of a group agree on, and what they tell each
 * other beside the bytes of the tensors.
 *
 * Vocabulary. A *slot* is a member's number, below MOO_GROUP_MAX, for as long
 * as it lives. A *view* lists the members of one *epoch*; a member's *rank* is
 * its index in the view. Every operation has a *sequence number*, counted alike
 * by all members and never reused, and a *commit decision*, which is made
 * exactly once for all of them: committed (the missing bytes will arrive,
 * because they are in shared memory already, or at every host) or aborted.
 * Therefore no member can succeed where another fails.
 *
 * Every call of a member takes sequence numbers until one has another decision
 * than DECISION_LEFT; that decision is how the call ends, be it a success, a
 * mismatch, a timeout or too few members. So it is for all of them, and
 * therefore no two members ever reduce one's call with another's next.
 *
 * A member sees a view when it has ended all that came before the view's
 * first operation, and neither earlier nor later. So what it sees of the group
 * between two calls, and decides by it, is the same for all members; but for a
 * group of too few members, in which no call succeeds. A newcomer begins with
 * the first view that has it, however many have followed when it looks.
 *
 * An aborted operation always ends its epoch, and the first operation of an
 * epoch begins with everybody's acknowledgement (ACKED). This is what makes
 * it safe to reuse buffers: a member that acknowledges reads no older bytes.
 *
 * When does the membership change?
 *   - a member dies: the operation that waits for it is aborted, and the view
 *     without it is made together with that decision;
 *   - a member leaves: the same, but the operation begins anew by itself;
 *   - an operation is late, or a connection breaks: aborted, and the new
 *     view has the same members;
 *   - there are too few members for too long: aborted, likewise;
 *   - a barrier succeeds that rank 0 had marked: newcomers come in;
 *   - the group has fewer than min_size members, so that nothing can run:
 *     at once.
 *
 * What are the others told? After a leave: the new epoch, which all see after
 * the same call, and PeerLost if that call names a rank. After a death: an
 * error. Invariant: between two successful calls of a member, no other member
 * dies without an error. A view loses its dead by an abort that every member
 * is told, or while there are too few members, which is after such an abort
 * and before the next success. A barrier that admits newcomers, and a leave,
 * keep the dead: the next operation finds and reports them.
 *
 * The implementation is segment/: memory that all members map, so all of them
 * are on one machine. No file outside that folder knows how it is done. A
 * second implementation, from messages between machines, provides the functions
 * below, with another way in than mooi_segment_map and mooi_enter, and fills
 * `counters` of a group. It keeps all of the above, and
 *   - one place for each commit decision: a member sees one only when no other
 *     member can ever see another one;
 *   - the order of what a member tells: another that sees a value of its
 *     counter sees the call, the addresses and the checksums told before;
 *   - the order of an abort: a member that has read it finds the epoch that
 *     follows, with the same members as all others do;
 *   - the past: a member that is behind finds the decision on its operation and
 *     the view of its next one;
 *   - the bell: a member that sleeps on it misses nothing;
 *   - the death of a caller, at any point of a function: the others go on.
 * The bytes of the tensors are no part of this: members of one host pass them
 * through buffers.h, hosts through their connections (ring.h).
 *
 * Unless a comment says otherwise, one thread at a time calls these functions:
 * the group's runner (work.c). None of them blocks, except for a moment while
 * another member changes the membership.
 */
#ifndef MOOI_AGREEMENT_H
#define MOOI_AGREEMENT_H

#include <stdatomic.h>
#include <stdbool.h>

#include "core/mac.h"
#include "mooactor.h"
#include "transport/ofi.h"
#include "transport/tcp/socket.h"

struct mooi_segment;

/* ---- membership ---- */

struct mooi_view {
    uint32_t epoch, size;
    uint64_t first_seq; /* every earlier sequence number has its decision */
    uint16_t slots[MOO_GROUP_MAX];
    int32_t pids[MOO_GROUP_MAX]; /* by rank; a slot may be another's by now */
    uint64_t ids[MOO_GROUP_MAX];
};

/* What a member tells of itself when it takes its slot. */
struct mooi_member {
    int32_t pid;
    uint32_t start; /* of the process, so that a reused pid is noticed */
    uint64_t id;      /* the runtime's process id */
    uint64_t join_no; /* 1, 2, …; rank order */
    uint32_t transports;           /* that it allows */
    bool checks;                   /* it wants checksums, see pipe.h */
    uint32_t stripes;              /* it wants so many, 1 or more */
    uint8_t host[MOOI_HOST_BYTES]; /* equal: shared memory, if both allow */
};

/* The rank of a slot, or -1. */
static inline int mooi_rank_in(const struct mooi_view *view, uint32_t slot)
{
    for (uint32_t rank = 0; rank < view->size; rank++)
        if (view->slots[rank] == slot)
            return (int)rank;
    return -1;
}

/* Map the shared memory of a group, all zero or in use by other members. The
 * mapping is the caller's. MOO_EINVAL: it is too short. MOO_ESYS. Any
 * thread. */
moo_err mooi_segment_map(int fd, struct mooi_segment **out);
void mooi_segment_unmap(struct mooi_segment *segment);

/* Take a slot, in the group of that segment, which stays mapped until after
 * mooi_exit. MOO_ENOMEM: none is free. MOO_EINVAL: another min_size than that
 * of the members, or no group. MOO_EVERSION: theirs is another version of this
 * code. MOO_ESYS. After an error nothing has changed. Before there is a
 * runner. */
moo_err mooi_enter(moo_group *group, struct mooi_segment *segment);
/* Give the slot back. `midway`: in the middle of an operation. When there is
 * no runner any more. */
void mooi_exit(moo_group *group, bool midway);

/* The latest epoch, of which this member need not be. Any thread. */
uint32_t mooi_epoch(const moo_group *group);
/* The view of operation group->seq + 1, or that with which a newcomer begins,
 * and its members, by rank. Returns this member's rank in it, and lets
 * group->counters be those of its members. -1: there is none after
 * group->view that has this member, and nothing has changed. */
int mooi_next_view(moo_group *group, struct mooi_view *view,
                   struct mooi_member members[MOO_GROUP_MAX]);
/* Nothing runs, as there are too few members: if some of them are dead, make
 * the view without them and with the newcomers. If all are, the newcomers are
 * the group from now on. */
void mooi_reform(moo_group *group);
/* Whether newcomers wait for a barrier. */
bool mooi_newcomers_wait(const moo_group *group);
/* `seq`, a barrier that lets them in, has succeeded. */
void mooi_admit(moo_group *group, uint64_t seq);
/* A barrier ended so. If none succeeds, this outcome is the reason that
 * moo_group_obstacle tells the newcomers. */
void mooi_note_barrier(moo_group *group, const moo_outcome *outcome);
/* How the last barrier failed; status MOO_OK: it did not. Any thread. */
void mooi_obstacle(moo_group *group, moo_outcome *out);

/* ---- commit decisions ---- */

enum mooi_reason {
    DECISION_COMMITTED,
    DECISION_DIED,
    DECISION_LEFT,  /* before it began; the operation begins anew */
    DECISION_SHORT, /* it left in the middle, or too few remain */
    DECISION_LATE,  /* the deadline passed, waiting for that rank */
    DECISION_CUT,  /* a connection broke, or could not be made; nobody died */
    DECISION_NO_WAY, /* two members have no transport in common */
    DECISION_FEW /* fewer than min_size members for too long */
};

struct mooi_decision {
    enum mooi_reason why;
    uint32_t rank, epoch; /* the member that is the reason, in that epoch */
    int32_t pid;          /* its process */
    uint32_t witness; /* the rank that decided; DECISION_FEW: how many there
                         were */
};

/* Decide that operation `seq` succeeds. false: it was aborted before. */
bool mooi_commit(moo_group *group, uint64_t seq);
/* Decide that it is aborted for the sake of `rank`, if that is open. */
void mooi_abort(moo_group *group, uint64_t seq, enum mooi_reason why,
                uint32_t rank);
/* `seq`, which has not begun here, is late: abort it if there are too few
 * members. Otherwise it need not wait for more members. */
void mooi_give_up(moo_group *group, uint64_t seq);
/* false: still open. */
bool mooi_decided(const moo_group *group, uint64_t seq, enum mooi_reason *why);
/* How an aborted operation was decided. An abort can be seen before the epoch
 * that follows from it; after this call that epoch can be seen, too. */
void mooi_read_abort(moo_group *group, uint64_t seq,
                     struct mooi_decision *out);

/* ---- progress ---- */

/* The counters of a member. Each holds seq << STEP_BITS | step, or (ACKED,
 * POSTED) an epoch, so it only grows, and no operation has to reset it. RINGED
 * is used by a host's leader: its progress in the ring. Read them by
 * mooi_counter_of, in group.h: they are polled. */
enum mooi_counter { PUT, REDUCED, COPIED, ACKED, RINGED, POSTED, COUNTERS };
#define STEP_BITS 24
#define STEP_LAST ((1ull << STEP_BITS) - 1)

/* Store this member's counter, and ring the bells of those who sleep for it. */
void mooi_publish(moo_group *group, enum mooi_counter which, uint64_t value);

/* Each member has a *bell* that it can sleep on. It rings if another member
 * publishes the value for which it is armed, and whenever the membership or a
 * decision changes. To sleep: read the bell, look for all that would make the
 * sleep vain, and sleep until the bell has another value. */
uint32_t mooi_bell(const moo_group *group);
/* false: a signal came. Wakes after `seconds` at the latest. */
bool mooi_bell_wait(moo_group *group, uint32_t bell, double seconds);
/* Arm the bell for rank's counter, for `target` or more, before reading it. */
void mooi_bell_arm(moo_group *group, uint32_t rank, enum mooi_counter which,
                   uint64_t target);
void mooi_bell_disarm(moo_group *group);
/* Wake this member's own runner. Any thread. */
void mooi_bell_ring(moo_group *group);

/* ---- calls ---- */

/* A member's call; all members' must be equal. */
struct mooi_signature {
    uint32_t kind, dtype, op, root, spans, part, parts;
    uint64_t bytes, output_bytes, layout;
    uint32_t admit, chunk; /* rank 0 decides these two for all */
};

/* Tell the others this member's call, before PUT shows that it has begun. It
 * stays until the next operation but one. */
void mooi_post_call(moo_group *group, uint64_t seq,
                    const struct mooi_signature *signature);
/* That of a rank whose PUT shows it. */
const struct mooi_signature *mooi_call_of(const moo_group *group, uint32_t rank,
                                          uint64_t seq);

/* ---- the leaders of hosts ---- */

#define MOOI_LINKS 6 /* of a leader: 1 << 6 == MOO_GROUP_MAX */
#define MOOI_POST_ADDRESSES 8

/* Where a leader can be reached in one epoch. */
struct mooi_post {
    uint32_t count;
    struct mooi_address addresses[MOOI_POST_ADDRESSES];
    /* its registered memory, see bulk.h */
    char provider[MOOI_FABRIC_PROVIDER_BYTES];
    uint32_t name_bytes; /* 0: none */
    uint8_t name[MOOI_FABRIC_NAME_BYTES];
    uint64_t key, base;
};

/* Connections between members prove this key, of MOOI_KEY_BYTES. */
const uint8_t *mooi_group_key(const moo_group *group);
/* Tell the others where this leader is in the present epoch, and publish
 * POSTED. */
void mooi_post_addresses(moo_group *group, const struct mooi_post *post);
/* That of a rank whose POSTED shows it; it may be garbage, so check `count`. */
const struct mooi_post *mooi_post_of(const moo_group *group, uint32_t rank);
/* The connections of this leader stand in the present epoch, and large tensors
 * go by that transport, a MOO_TRANSPORT_… bit. */
void mooi_post_carrier(moo_group *group, uint32_t transport);
/* What a leader has told so; 0: nothing in the present epoch. Any thread, with
 * the group's mutex held. */
uint32_t mooi_carrier_of(const moo_group *group, uint32_t rank);
/* The checksum of all that this leader has sent to its i-th link, to be told
 * before RINGED. */
void mooi_post_sum(moo_group *group, uint32_t i, uint32_t sum);
uint32_t mooi_sum_of(const moo_group *group, uint32_t rank, uint32_t i);

#endif
