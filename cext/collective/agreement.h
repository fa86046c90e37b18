/* SPDX-License-Identifier: MIT */
/*
 * agreement.h: what the members of a group agree on, and what they tell each
 * other beside the bytes of the tensors.
 *
 * Vocabulary. A *slot* is a member's number on its host for as long as it
 * lives. A *view* lists the members of one *epoch*; a member's *rank* is its
 * index in the view. Every operation has a *sequence number*, counted alike by
 * all members and never reused, and is committed or aborted, once for all of
 * them. Therefore no member can succeed where another fails.
 *
 * Members commit operations (words.h). Everything else is decided by the
 * group's master, and comes to members as a new view (master.h, agent.h): the
 * members of the next epoch, the one operation that was aborted for it, and the
 * cause. All aborts are made so, and each view aborts one.
 *
 * Every call of a member takes sequence numbers until one ends otherwise than
 * by an abort with a silent cause; that is how the call ends, be it a success,
 * a mismatch, a timeout or too few members. So it is for all of them, and
 * therefore no two members ever reduce one's call with another's next.
 *
 * A member sees a view when it has ended all that came before the view's first
 * operation, and neither earlier nor later. So what it sees of the group
 * between two calls, and decides by it, is the same for all members; but for a
 * group of too few members, in which no call succeeds. A newcomer begins with
 * the first view that has it and enough members, however many have followed.
 *
 * The first operation of an epoch begins with everybody's acknowledgement
 * (ACKED). This is what makes it safe to reuse buffers: a member that
 * acknowledges reads no older bytes.
 *
 * Newcomers enter where members *rest*: behind a barrier that rank 0 has marked
 * nobody begins another operation before the next view.
 *
 * A group that *finishes* takes an abort that lost a member for a silent one, as
 * long as min_size members are left: all make the operation anew, with their own
 * inputs and without that member. Inputs that it overwrites are copied before.
 *
 * In other groups the others are told. After a leave: the new epoch, which all
 * see after the same call, and PeerLost if that call names a rank. After a
 * death: an error. Invariant: between two successful calls of a member, no other
 * member dies without an error.
 *
 * Members of one host tell each other through segment/: memory that they and
 * their agent map. No file outside that folder knows how it is done. Hosts tell
 * each other by frames between their leaders (lines.c). The bytes of the
 * tensors are no part of this: members of one host pass them through buffers.h,
 * hosts through their connections (ring.h).
 *
 * Unless a comment says otherwise, one thread at a time calls these functions:
 * the group's runner (work.c). None of them blocks.
 */
#ifndef MOOI_AGREEMENT_H
#define MOOI_AGREEMENT_H

#include <stdatomic.h>
#include <stdbool.h>

#include "collective/protocol/frames.h"
#include "mooactor.h"

struct mooi_segment;

/* ---- membership ---- */

struct mooi_view {
    uint32_t epoch, size;
    uint64_t first_seq; /* every earlier operation is decided */
    uint8_t key[MOOI_SECRET_BYTES]; /* connections between members prove it */
    uint16_t slots[MOO_GROUP_MAX]; /* by rank, of this host's members */
    struct mooi_member members[MOO_GROUP_MAX]; /* a slot may be another's now */
};

/* Map the shared memory of a group. The mapping is the caller's. MOO_EINVAL: it
 * is too short. MOO_ESYS. Any thread. */
moo_err mooi_segment_map(int fd, struct mooi_segment **out);
void mooi_segment_unmap(struct mooi_segment *segment);

/* Ask for a slot in the group of that segment, which stays mapped until after
 * mooi_exit. MOO_ENOMEM: none is free. MOO_EINVAL: no group lives there.
 * MOO_EVERSION: one of another version of this code. After an error nothing has
 * changed. Before there is a runner. */
moo_err mooi_enter(moo_group *group, struct mooi_segment *segment);
/* MOO_EINVAL: the members have another min_size. MOO_EMISMATCH: another
 * policy. MOO_ENOMEM: they are too many. MOO_OK: not refused, so far. */
moo_err mooi_refusal(const moo_group *group);
/* Give the slot back. `midway`: in the middle of an operation. When there is
 * no runner any more. */
void mooi_exit(moo_group *group, bool midway);

/* The latest epoch, of which this member need not be. Any thread. */
uint32_t mooi_epoch(const moo_group *group);
/* Let group->view be that of operation group->seq + 1, or that with which a
 * newcomer begins, and group->counters those of its members here. Returns this
 * member's rank in it. -1: there is none after group->view, and nothing has changed;
 * MOOI_OUT: nor is this member in that one: it was expelled. The group's mutex
 * held. */
#define MOOI_OUT -2
int mooi_next_view(moo_group *group);
/* Whether newcomers wait for members to rest. */
bool mooi_newcomers_wait(const moo_group *group);
/* `seq` is committed, and members rest behind it: have the agent know. */
void mooi_rest(moo_group *group);
/* Whether the view behind `seq`, which is committed, is there. *why: of the
 * abort of seq + 1; *rested: whether members rested behind `seq`. */
bool mooi_is_rested(const moo_group *group, uint64_t seq, enum mooi_why *why,
                    bool *rested);
/* A barrier ended so. If none succeeds, this outcome is the reason that
 * moo_group_obstacle tells the newcomers. */
void mooi_note_barrier(moo_group *group, const moo_outcome *outcome);
/* How the last barrier failed; status MOO_OK: it did not. Any thread. */
void mooi_obstacle(moo_group *group, moo_outcome *out);

/* ---- the outcomes of operations ---- */

/* In a view of one host: commit operation `seq`; `rests`: as all members do.
 * MOOI_PENDING: it is halted, until the master has decided. MOO_EPEER: it is
 * aborted. */
moo_err mooi_commit(moo_group *group, uint64_t seq, bool rests);
/* The master decides: tell the agent that operation `seq` cannot go on for the
 * sake of `rank`. Once for each. */
void mooi_complain(moo_group *group, uint64_t seq, enum mooi_why why,
                   uint32_t rank);
/* Whether `seq` is decided; *aborted: how. */
bool mooi_decided(const moo_group *group, uint64_t seq, bool *aborted);
/* Whether the members that are left can make operation `seq`, which was aborted,
 * by themselves: they are enough, and no newcomer is among them who would take
 * it for his first one. (Behind a rest, nobody has begun it.) */
bool mooi_goes_on(const moo_group *group, uint64_t seq);
/* The cause of an abort, and its epoch. */
struct mooi_cause mooi_cause_of(const moo_group *group, uint64_t seq,
                                uint32_t *epoch);

/* ---- progress ---- */

/* The counters of a member of this host. Each holds seq << STEP_BITS | step, or
 * (ACKED) an epoch, so it only grows, and no operation has to reset it. RINGED
 * is used by a host's leader: its progress in the ring. Read them by
 * mooi_counter_of, in group.h: they are polled. */
enum mooi_counter { PUT, REDUCED, COPIED, ACKED, RINGED, COUNTERS };
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

/* Tell the others this member's call, before PUT shows that it has begun. It
 * stays until the next operation but one. */
void mooi_post_call(moo_group *group, uint64_t seq,
                    const struct mooi_signature *signature);
/* That of a rank of this host, whose PUT shows it. */
const struct mooi_signature *mooi_call_of(const moo_group *group, uint32_t rank,
                                          uint64_t seq);

/* ---- the leaders of hosts ---- */

#define MOOI_LINKS 6 /* of a leader: 1 << 6 == MOO_GROUP_HOSTS_MAX */

/* The words of this host, for the leader's barrier. */
struct mooi_words *mooi_words_of(const moo_group *group);
/* How operation `seq`, which is committed, ended in a view of several hosts: as
 * mooi_result_of has it. */
uint64_t mooi_result(const moo_group *group);
/* The leader knows how calls differ: `rank` made another one; a sentence.
 * Before it prepares the operation. */
void mooi_tell_difference(moo_group *group, uint32_t rank, const char *text);
const char *mooi_difference(const moo_group *group, uint32_t *rank);
/* The connections of this leader stand in the present epoch, and large tensors
 * go by that transport, a MOO_TRANSPORT_… bit. */
void mooi_post_carrier(moo_group *group, uint32_t transport);
/* The value that a leader of this host has told so; 0: none in the present
 * epoch. Any thread, with the group's mutex held. */
uint32_t mooi_carrier_of(const moo_group *group, uint32_t rank);

#endif
