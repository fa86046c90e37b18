/* SPDX-License-Identifier: MIT */
/*
 * master.c: members, epochs, and the outcomes of what was under way.
 *
 * Every view takes a number: it aborts the first operation that is not
 * committed, whether or not anybody had begun it, and the first one of the new
 * epoch is the next. So all members count alike, however far each has come, and
 * the cause of the abort tells them whether their call fails or begins anew.
 */
#include "collective/protocol/master.h"

#include <string.h>

/* Hosts that are lost together may go on by themselves for the time that it
 * takes their agents to notice. If none is left, nobody knows how far they
 * get; they do not get that far. */
#ifndef BEYOND
#define BEYOND ((uint64_t)1 << 24)
#endif

/* ---- hosts ---- */

static struct mooi_place *place_of(struct mooi_master *master, uint32_t host)
{
    for (int i = 0; i < MOOI_HOSTS_MAX; i++)
        if (master->places[i].host == host)
            return &master->places[i];
    return NULL;
}

/* Whether a member of the host has one of the seats from `first` to `end`. */
static bool sits(const struct mooi_master *master, uint32_t host,
                 uint32_t first, uint32_t end)
{
    for (uint32_t i = first; i < end; i++)
        if (master->seats[i].member.host == host)
            return true;
    return false;
}

/* To the host of `rank`: newcomers are let in when rank 0 says so. */
static void tell_who_waits(struct mooi_master *master)
{
    struct mooi_frame frame = {.kind = MOOI_WAITING};
    frame.waiting.count = master->seated - master->size;
    if (master->size)
        master->emit(master->to, master->seats[0].member.host, &frame);
}

/* ---- the next view ---- */

/* The last operation that is committed. */
static uint64_t outcome(struct mooi_master *master)
{
    bool prepared = true, any = false;
    for (int i = 0; i < MOOI_HOSTS_MAX; i++) {
        const struct mooi_place *place = &master->places[i];
        if (!place->works)
            continue;
        any = true;
        prepared &= place->prepared;
    }
    if (!any)
        return master->committed + (master->size ? BEYOND : 0);
    return master->committed + prepared;
}

/* The first member of the view that is gone so; -1: none. */
static int first_gone(const struct mooi_master *master,
                      enum mooi_presence presence)
{
    for (uint32_t rank = 0; rank < master->size; rank++)
        if (master->seats[rank].presence == presence)
            return (int)rank;
    return -1;
}

static uint32_t survivors(const struct mooi_master *master)
{
    uint32_t count = 0;
    for (uint32_t rank = 0; rank < master->size; rank++)
        count += master->seats[rank].presence == MOOI_IS_HERE;
    return count;
}

static bool resting(const struct mooi_master *master)
{
    for (int i = 0; i < MOOI_HOSTS_MAX; i++)
        if (master->places[i].host && master->places[i].resting)
            return true;
    return false;
}

/* Whether a member that has left had begun operation `seq`. */
static bool left_midway(const struct mooi_master *master, uint64_t seq)
{
    for (uint32_t rank = 0; rank < master->size; rank++)
        if (master->seats[rank].presence == MOOI_HAS_LEFT &&
            master->seats[rank].begun >= seq)
            return true;
    return false;
}

/* Why operation `seq` is aborted. The silent causes come last: with any other
 * there may be a member that had all inputs, and has overwritten its own. */
static struct mooi_cause cause_of(const struct mooi_master *master,
                                  uint64_t seq)
{
    struct mooi_cause cause = master->complaint;
    int died = first_gone(master, MOOI_HAS_DIED);
    int left = first_gone(master, MOOI_HAS_LEFT);
    int rank = died >= 0 ? died : left;
    if (master->enough && rank >= 0) {
        bool few = survivors(master) < master->min_size;
        cause.why = died >= 0                          ? MOOI_WHY_DIED
                    : few || left_midway(master, seq)  ? MOOI_WHY_SHORT
                    : cause.why > MOOI_WHY_LEFT        ? cause.why
                                                       : MOOI_WHY_LEFT;
        if (cause.why <= MOOI_WHY_DIED)
            cause.rank = cause.witness = (uint32_t)rank;
    } else if (!master->enough && cause.why) {
        cause.why = MOOI_WHY_FEW;
        cause.witness = master->size;
    } else if (!cause.why && resting(master)) {
        cause.why = MOOI_WHY_REST;
    }
    if (cause.rank < master->size)
        cause.pid = master->seats[cause.rank].member.pid;
    return cause;
}

static uint32_t members_on(const struct mooi_master *master, uint32_t host)
{
    uint32_t count = 0;
    for (uint32_t rank = 0; rank < master->size; rank++)
        count += master->seats[rank].member.host == host;
    return count;
}

/* Take note of a cut between two hosts. Whether there are too many. */
static bool is_cut_again(struct mooi_master *master, uint32_t host,
                         uint32_t other)
{
    uint32_t recent = 1;
    for (uint32_t i = 0; i < MOOI_CUTS_KEPT; i++) {
        const struct mooi_broken *cut = &master->cuts[i];
        bool same = (cut->host == host && cut->other == other) ||
                    (cut->host == other && cut->other == host);
        recent += same && master->now_ms - cut->when_ms <= MOOI_CUT_MEMORY_MS;
    }
    master->cuts[master->cut++ % MOOI_CUTS_KEPT] =
        (struct mooi_broken){host, other, master->now_ms};
    return recent >= MOOI_CUTS_MOST;
}

/* A connection was cut: if too often, the host with fewer members goes, or of
 * two with as many the one with higher ranks. */
static void expel(struct mooi_master *master, struct mooi_cause *cause)
{
    struct mooi_seat *seats = master->seats;
    uint32_t rank = cause->rank, witness = cause->witness;
    if (rank >= master->size || witness >= master->size)
        return;
    uint32_t host = seats[rank].member.host;
    uint32_t other = seats[witness].member.host;
    if (host == other || !is_cut_again(master, host, other))
        return;
    uint32_t ours = members_on(master, host);
    uint32_t theirs = members_on(master, other);
    if (ours > theirs || (ours == theirs && rank < witness)) {
        cause->rank = witness;
        cause->witness = rank;
        host = other;
    }
    cause->why = MOOI_WHY_EXPELLED;
    cause->pid = seats[cause->rank].member.pid;
    for (uint32_t i = 0; i < master->size; i++)
        if (seats[i].member.host == host)
            seats[i].presence = MOOI_HAS_DIED;
}

/* Forget members that are gone, and newcomers too unless they are let in. */
static void reseat(struct mooi_master *master, bool admit)
{
    uint32_t kept = 0, size = 0;
    for (uint32_t i = 0; i < master->seated; i++) {
        if (master->seats[i].presence != MOOI_IS_HERE)
            continue;
        master->seats[kept++] = master->seats[i];
        if (i < master->size || admit)
            size = kept;
    }
    for (uint32_t i = kept; i < master->seated; i++)
        memset(&master->seats[i], 0, sizeof master->seats[i]);
    master->seated = kept;
    master->size = size;
    master->enough = size && size >= master->min_size;
}

/* To the hosts of the view, and to those that were in the last one. */
static void announce(struct mooi_master *master, struct mooi_cause cause,
                     bool rested)
{
    struct mooi_frame frame = {.kind = MOOI_VIEW, .view = master->roll};
    frame.view->epoch = master->epoch;
    frame.view->min_size = master->min_size;
    frame.view->size = master->size;
    frame.view->first_seq = master->first_seq;
    frame.view->rested = rested;
    frame.view->cause = cause;
    memcpy(frame.view->key, master->key, sizeof master->key);
    for (uint32_t rank = 0; rank < master->size; rank++)
        frame.view->members[rank] = master->seats[rank].member;
    for (int i = 0; i < MOOI_HOSTS_MAX; i++) {
        struct mooi_place *place = &master->places[i];
        uint32_t host = place->host;
        if (!host)
            continue;
        bool goes_on = sits(master, host, 0, master->size);
        if (goes_on || place->works)
            master->emit(master->to, host, &frame);
        if (!goes_on && !sits(master, host, master->size, master->seated))
            host = 0;
        *place = (struct mooi_place){.host = host, .works = goes_on};
    }
}

/* All hosts of the view that are not lost have halted. */
static void decide(struct mooi_master *master)
{
    uint64_t last = outcome(master);
    struct mooi_cause cause = cause_of(master, last + 1);
    bool rested = resting(master);
    if (cause.why == MOOI_WHY_CUT)
        expel(master, &cause);
    reseat(master, rested || survivors(master) < master->min_size);
    master->epoch++;
    master->committed = last + 1; /* decided, in any case */
    master->first_seq = last + 2;
    master->complaint = (struct mooi_cause){0};
    master->state = master->enough ? MOOI_GROUP_OPEN : MOOI_GROUP_FORMING;
    announce(master, cause, rested);
    if (master->seated > master->size)
        tell_who_waits(master);
}

static void decide_if_all_report(struct mooi_master *master)
{
    for (int i = 0; i < MOOI_HOSTS_MAX; i++)
        if (master->places[i].works && !master->places[i].reported)
            return;
    decide(master);
}

static void halt(struct mooi_master *master)
{
    struct mooi_frame frame = {.kind = MOOI_HALT};
    frame.halt.epoch = master->epoch;
    if (master->state != MOOI_GROUP_HALTING)
        for (int i = 0; i < MOOI_HOSTS_MAX; i++)
            if (master->places[i].works && !master->places[i].reported)
                master->emit(master->to, master->places[i].host, &frame);
    master->state = MOOI_GROUP_HALTING;
    decide_if_all_report(master);
}

/* ---- what comes ---- */

static void refuse(struct mooi_master *master, uint32_t host, uint32_t serial,
                   enum mooi_refusal why)
{
    struct mooi_frame frame = {.kind = MOOI_REFUSED};
    frame.refused.serial = serial;
    frame.refused.why = why;
    master->emit(master->to, host, &frame);
}

static void join(struct mooi_master *master, uint32_t host,
                 const struct mooi_frame *frame)
{
    const struct mooi_member *member = &frame->join.member;
    struct mooi_place *place = place_of(master, host);
    if (!place)
        place = place_of(master, 0);
    if (!place || master->seated == MOOI_MEMBERS_MAX) {
        refuse(master, host, member->serial, MOOI_FULL);
        return;
    }
    if (master->seated && master->min_size != frame->join.min_size) {
        refuse(master, host, member->serial, MOOI_OTHER_SIZE);
        return;
    }
    if (master->seated && master->policy != frame->join.policy) {
        refuse(master, host, member->serial, MOOI_OTHER_POLICY);
        return;
    }
    place->host = host;
    master->min_size = frame->join.min_size;
    master->policy = frame->join.policy;
    struct mooi_seat *seat = &master->seats[master->seated++];
    *seat = (struct mooi_seat){.member = *member};
    seat->member.host = host;
    if (master->state == MOOI_GROUP_FORMING)
        halt(master);
    else if (master->state == MOOI_GROUP_OPEN)
        tell_who_waits(master);
}

/* A seat of a newcomer is free at once. */
static void vacate(struct mooi_master *master, uint32_t i)
{
    if (i < master->size)
        return;
    memmove(&master->seats[i], &master->seats[i + 1],
            (master->seated - i - 1) * sizeof *master->seats);
    memset(&master->seats[--master->seated], 0, sizeof *master->seats);
    if (master->state == MOOI_GROUP_OPEN)
        tell_who_waits(master);
}

static void gone(struct mooi_master *master, uint32_t host,
                 const struct mooi_frame *frame)
{
    for (uint32_t i = 0; i < master->seated; i++) {
        struct mooi_seat *seat = &master->seats[i];
        if (seat->member.host != host ||
            seat->member.serial != frame->gone.serial ||
            seat->presence != MOOI_IS_HERE)
            continue;
        seat->presence = frame->gone.died ? MOOI_HAS_DIED : MOOI_HAS_LEFT;
        seat->begun = frame->gone.begun;
        if (i < master->size)
            halt(master);
        else
            vacate(master, i);
        return;
    }
}

static void take_report(struct mooi_master *master, uint32_t host,
                        const struct mooi_frame *frame)
{
    struct mooi_place *place = place_of(master, host);
    if (!place || !place->works || place->reported ||
        frame->report.epoch != master->epoch)
        return;
    place->reported = true;
    place->resting = frame->report.resting;
    place->prepared = frame->report.prepared;
    if (frame->report.committed > master->committed) {
        /* The operation that other hosts have prepared is committed. */
        for (int i = 0; i < MOOI_HOSTS_MAX; i++)
            if (&master->places[i] != place)
                master->places[i].prepared = master->places[i].resting = false;
        master->committed = frame->report.committed;
    } else if (frame->report.committed < master->committed) {
        place->prepared = place->resting = false;
    }
    if (!master->complaint.why)
        master->complaint = frame->report.complaint;
    halt(master);
}

void mooi_master_take(struct mooi_master *master, uint32_t host,
                      const struct mooi_frame *frame)
{
    if (frame->kind == MOOI_JOIN)
        join(master, host, frame);
    else if (frame->kind == MOOI_GONE)
        gone(master, host, frame);
    else if (frame->kind == MOOI_REPORT)
        take_report(master, host, frame);
}

void mooi_master_lost(struct mooi_master *master, uint32_t host)
{
    struct mooi_place *place = place_of(master, host);
    if (!place)
        return;
    bool worked = place->works;
    *place = (struct mooi_place){0};
    for (uint32_t i = master->seated; i-- > 0;) {
        if (master->seats[i].member.host != host)
            continue;
        if (master->seats[i].presence == MOOI_IS_HERE)
            master->seats[i].presence = MOOI_HAS_DIED;
        vacate(master, i);
    }
    if (worked)
        halt(master);
}
