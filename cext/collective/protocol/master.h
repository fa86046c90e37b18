/* SPDX-License-Identifier: MIT */
/*
 * master.h: the one place that decides on the members of a group.
 *
 * The master takes no part in operations. It acts when a member is gone, a host
 * is lost, a member complains or rests, or a newcomer finds too few members. A
 * host that can reach it, and for long not another host, is expelled.
 *
 *   FORMING, OPEN  --HALT to all hosts-->  HALTING  --VIEW to all-->  OPEN, or
 *   FORMING while there are fewer members than min_size
 *
 * It is the configuration master of vertical Paxos (Lamport, Malkhi and Zhou,
 * "Vertical Paxos and Primary-Backup Replication", PODC 2009).
 *
 * Theorem. If anybody, dead or alive, returned success for an operation, then
 * every host of its view had PREPARED it: a leader enters the barrier after
 * that, and a halt does not undo it. So all hosts that survive report it as
 * prepared or committed, and the master commits it. Conversely it commits only
 * what all of them can finish from local memory.
 *
 * Pure: what it is told goes in, frames for hosts come out by `emit`. Nothing
 * in it assumes that members belong to one session. One thread at a time;
 * nothing blocks.
 */
#ifndef MOOI_GROUP_MASTER_H
#define MOOI_GROUP_MASTER_H

#include "collective/protocol/frames.h"

enum mooi_presence { MOOI_IS_HERE, MOOI_HAS_LEFT, MOOI_HAS_DIED };

struct mooi_seat {
    struct mooi_member member;
    enum mooi_presence presence;
    uint64_t begun; /* of one that has left */
};

/* A host with members. */
struct mooi_place {
    uint32_t host; /* 0: none */
    bool works;    /* in this view, even if its members of it are gone */
    bool reported; /* in this epoch */
    bool prepared, resting;
};

/* A connection between two hosts that members have complained of. If that of the
 * same two has broken so often in that time, the one with fewer members is
 * expelled: its members are out of the group. */
#ifndef MOOI_CUTS_MOST
#define MOOI_CUTS_MOST 3u
#endif
#define MOOI_CUT_MEMORY_MS 60000u
#ifndef MOOI_CUTS_KEPT
#define MOOI_CUTS_KEPT 64u
#endif
struct mooi_broken {
    uint32_t host, other;
    uint64_t when_ms;
};

struct mooi_master {
    enum { MOOI_GROUP_FORMING, MOOI_GROUP_OPEN, MOOI_GROUP_HALTING } state;
    uint32_t epoch, min_size;
    uint32_t size;  /* of the view: the first seats, by rank */
    uint32_t seated; /* then come the newcomers */
    uint64_t first_seq;
    uint64_t committed; /* the last one known to be */
    bool enough; /* the view has min_size members */
    uint32_t policy; /* of all members; the master does not care */
    struct mooi_cause complaint; /* the first of this epoch */
    uint64_t now_ms; /* the caller's: since any moment */
    struct mooi_broken cuts[MOOI_CUTS_KEPT]; /* the latest ones */
    uint32_t cut;                         /* how many there have been */
    uint8_t key[MOOI_SECRET_BYTES]; /* of the group */
    struct mooi_seat seats[MOOI_MEMBERS_MAX];
    struct mooi_place places[MOOI_HOSTS_MAX];
    struct mooi_roll *roll; /* the caller's: room for a view that is sent */
    void (*emit)(void *to, uint32_t host, const struct mooi_frame *frame);
    void *to;
};

/* Zero all but what the caller sets: key, roll, emit, to; and now_ms, before
 * each call. */

/* A frame of a host, whose number is not 0. */
void mooi_master_take(struct mooi_master *master, uint32_t host,
                      const struct mooi_frame *frame);
/* The connection with a host is closed: all its processes count as dead. */
void mooi_master_lost(struct mooi_master *master, uint32_t host);

#endif
