/* SPDX-License-Identifier: MIT */
/*
 * agent.h: one host's part of a group, as its agent keeps it.
 *
 * The agent gives members their slots, halts its host's word when a member is
 * gone, complains or rests, or when the master says so, reports how far the
 * host has come, and lets the host go on when the next view comes. Between
 * HALT and VIEW nothing is decided here, so the master's decision stands.
 *
 * Pure: what it is told and the word go in, frames come out, by `emit` to the
 * master and by `show` to the members. One thread at a time; nothing blocks.
 */
#ifndef MOOI_GROUP_AGENT_H
#define MOOI_GROUP_AGENT_H

#include "collective/protocol/frames.h"
#include "collective/protocol/words.h"

struct mooi_agent_slot {
    uint32_t serial; /* 0: never used */
    bool taken;      /* its member is not gone */
    bool in_view;    /* of the present epoch */
};

struct mooi_agent {
    uint32_t host;
    uint32_t epoch; /* of the latest view; 0: none yet */
    uint32_t serials;
    bool halted; /* and reported, in this epoch */
    bool misses; /* a member of the view is gone, and that is not reported */
    struct mooi_words *words;
    struct mooi_agent_slot slots[MOOI_TEAM_MAX];
    void (*emit)(void *to, const struct mooi_frame *frame);
    /* A VIEW, before its abort can be seen; WAITING; REFUSED. */
    void (*show)(void *to, const struct mooi_frame *frame);
    void *to;
};

/* Zero all but what the caller sets: host, words, emit, show, to. */

/* A process wants to be a member, in a slot that is not taken: *member but host
 * and serial, which are set. */
void mooi_agent_join(struct mooi_agent *agent, struct mooi_member *member,
                     uint32_t min_size, uint32_t policy);
/* The member of that slot has left, or is dead; it runs nothing any more.
 * `begun`: the last operation that it had begun. */
void mooi_agent_gone(struct mooi_agent *agent, uint32_t slot, bool died,
                     uint64_t begun);
/* A member cannot go on with operation `seq`. */
void mooi_agent_complain(struct mooi_agent *agent, uint64_t seq,
                         const struct mooi_cause *complaint);
/* Halt and report, if members of the view are gone, or if members rest behind
 * the latest operation. Called when all that has happened is told, so that
 * members that die together are missed together. */
void mooi_agent_look(struct mooi_agent *agent);
/* A frame of the master. */
void mooi_agent_take(struct mooi_agent *agent, const struct mooi_frame *frame);

#endif
