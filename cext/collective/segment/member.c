/* SPDX-License-Identifier: MIT */
/*
 * member.c: a member's slot, the views and the outcomes that it finds in the
 * segment, and what it asks of the agent.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "collective/fault.h"
#include "collective/process.h"
#include "collective/segment/segment.h"

#ifdef MOOI_FAULTS
void (*mooi_fault)(const char *point);
#endif

static struct mooi_cell *own_cell(const moo_group *group)
{
    return &group->segment->cells[group->slot];
}

/* Have the agent look at the cells. */
static void ring_agent(const moo_group *group)
{
    const uint64_t one = 1;
    ssize_t written;
    do
        written = write(group->agent, &one, sizeof one);
    while (written < 0 && errno == EINTR);
}

/* ---- the slot ---- */

static moo_err check_segment(const struct mooi_segment *segment)
{
    if (atomic_load(&segment->magic) != SEGMENT_MAGIC)
        return MOO_EINVAL;
    return segment->version == SEGMENT_VERSION ? MOO_OK : MOO_EVERSION;
}

/* Nobody else writes to a cell that is claimed, nor does its owner if it dies
 * now: the agent finds its process. */
static bool claim(moo_group *group)
{
    for (uint32_t slot = 0; slot < MOOI_TEAM_MAX; slot++) {
        uint64_t free = mooi_slot_word(0, FREE);
        if (!atomic_compare_exchange_strong(
                &group->segment->cells[slot].state, &free,
                mooi_slot_word(group->pid, CLAIMED)))
            continue;
        group->slot = slot;
        return true;
    }
    return false;
}

moo_err mooi_enter(moo_group *group, struct mooi_segment *segment)
{
    moo_err err = check_segment(segment);
    if (err)
        return err;
    group->segment = segment;
    group->regions = (unsigned char *)segment + HEADER_BYTES;
    if (!claim(group))
        return MOO_ENOMEM;
    MOOI_FAULT("claimed");
    struct mooi_cell *cell = own_cell(group);
    cell->member = (struct mooi_member){
        .slot = group->slot, .pid = group->pid, .id = group->id,
        .transports = group->transports, .checks = group->checks,
        .stripes = group->stripes};
    if (group->listener >= 0)
        cell->member.addresses = (uint32_t)mooi_socket_addresses(
            group->listener, cell->member.address, MOOI_ADDRESSES_MAX);
    cell->start = group->start;
    cell->min_size = group->min_size;
    cell->policy = group->policy;
    atomic_store(&cell->waiting, 0);
    atomic_store(&cell->complaint, 0);
    atomic_store(&cell->obstacles, 0);
    atomic_store(&cell->state, mooi_slot_word(group->pid, KNOCKS));
    MOOI_FAULT("knocking");
    ring_agent(group);
    MOOI_FAULT("knocked");
    return MOO_OK;
}

moo_err mooi_refusal(const moo_group *group)
{
    const struct mooi_cell *cell = own_cell(group);
    if (mooi_slot_state(cell) != REFUSED)
        return MOO_OK;
    switch (atomic_load(&cell->refusal)) {
    case MOOI_OTHER_SIZE:
        return MOO_EINVAL;
    case MOOI_OTHER_POLICY:
        return (moo_err)MOO_EMISMATCH;
    default:
        return MOO_ENOMEM;
    }
}

void mooi_exit(moo_group *group, bool midway)
{
    struct mooi_cell *cell = own_cell(group);
    cell->begun = group->seq + midway;
    MOOI_FAULT("leaving");
    atomic_store(&cell->state, mooi_slot_word(group->pid, LEAVES));
    MOOI_FAULT("left");
    ring_agent(group);
}

/* ---- views ---- */

uint32_t mooi_epoch(const moo_group *group)
{
    return atomic_load(&group->segment->epoch);
}

static const struct mooi_roll *roll_at(const struct mooi_segment *segment,
                                       uint32_t epoch)
{
    return &segment->rolls[epoch % ROLLS];
}

/* The rank of this member in a view, or -1. */
static int rank_in(const moo_group *group, const struct mooi_roll *roll)
{
    uint32_t serial = atomic_load(&own_cell(group)->serial);
    for (uint32_t rank = 0; rank < roll->size; rank++)
        if (roll->members[rank].host == group->segment->host &&
            roll->members[rank].slot == group->slot &&
            roll->members[rank].serial == serial)
            return (int)rank;
    return -1;
}

/* The latest view that satisfies it. The oldest place is not looked at: the
 * agent may be writing the next view there. */
#define FIND(GROUP, ROLL, CONDITION) \
    for (uint32_t epoch_ = mooi_epoch(GROUP), back_ = 0; \
         back_ + 1 < ROLLS && back_ < epoch_; back_++) { \
        const struct mooi_roll *ROLL = \
            roll_at((GROUP)->segment, epoch_ - back_); \
        if (CONDITION) \
            return ROLL; \
    } \
    return NULL

/* That in which operation `seq` runs, or would have run. */
static const struct mooi_roll *view_at(const moo_group *group, uint64_t seq)
{
    FIND(group, roll, roll->first_seq <= seq);
}

/* That which aborted it. NULL: none did. */
static const struct mooi_roll *abort_of(const moo_group *group, uint64_t seq)
{
    FIND(group, roll, roll->first_seq == seq + 1);
}

/* The first one that has this member, which is a newcomer, and enough members.
 * Not the latest: what happened since then happened to all members of that
 * view. If an operation was aborted because somebody left, the others run their
 * call again; a newcomer that began behind the abort would take that for a call
 * like any other. */
static const struct mooi_roll *first_view(const moo_group *group)
{
    uint32_t epoch = mooi_epoch(group);
    const struct mooi_roll *first = NULL, *last = roll_at(group->segment, epoch);
    for (uint32_t back = 0; back + 1 < ROLLS && back < epoch; back++) {
        const struct mooi_roll *roll = roll_at(group->segment, epoch - back);
        if (rank_in(group, roll) >= 0 && roll->size >= group->min_size)
            first = roll;
    }
    return first || !epoch ? first : last;
}

int mooi_next_view(moo_group *group)
{
    struct mooi_view *view = &group->view;
    const struct mooi_roll *next =
        group->formed ? view_at(group, group->seq + 1) : first_view(group);
    if (!next || next->epoch <= group->view.epoch)
        return -1;
    int own = rank_in(group, next);
    if (own < 0)
        return group->formed ? MOOI_OUT : -1;
    view->epoch = next->epoch;
    view->size = next->size;
    view->first_seq = next->first_seq;
    memcpy(view->key, next->key, sizeof view->key);
    memcpy(view->members, next->members, view->size * sizeof *view->members);
    for (uint32_t rank = 0; rank < view->size; rank++) {
        const struct mooi_member *member = &view->members[rank];
        bool here = member->host == group->segment->host;
        view->slots[rank] = (uint16_t)member->slot;
        group->counters[rank] =
            here ? group->segment->cells[member->slot].counter : NULL;
    }
    return own;
}

bool mooi_newcomers_wait(const moo_group *group)
{
    return atomic_load(&group->segment->newcomers) != 0;
}

void mooi_rest(moo_group *group)
{
    MOOI_FAULT("resting");
    ring_agent(group);
}

bool mooi_is_rested(const moo_group *group, uint64_t seq, enum mooi_why *why,
                    bool *rested)
{
    const struct mooi_roll *next = abort_of(group, seq + 1);
    *why = next ? next->cause.why : MOOI_WHY_NONE;
    *rested = next && next->rested;
    return next != NULL;
}

/* ---- outcomes ---- */

bool mooi_decided(const moo_group *group, uint64_t seq, bool *aborted)
{
    enum mooi_state state = mooi_state_of(&group->segment->words.word, seq);
    *aborted = state == MOOI_ABORTED ||
               (state == MOOI_PAST && abort_of(group, seq));
    return state == MOOI_PAST || mooi_is_decided(state);
}

moo_err mooi_commit(moo_group *group, uint64_t seq, bool rests)
{
    struct mooi_words *words = &group->segment->words;
    bool aborted;
    if (mooi_state_of(&words->word, seq) == MOOI_OPEN) {
        MOOI_FAULT("committing");
        if (rests)
            atomic_store(&words->result, mooi_result_of(seq, 0, true));
        mooi_word_take(&words->word, seq, MOOI_COMMITTED);
        MOOI_FAULT("committed");
    }
    if (!mooi_decided(group, seq, &aborted))
        return MOOI_PENDING;
    return aborted ? MOO_EPEER : MOO_OK;
}

void mooi_complain(moo_group *group, uint64_t seq, enum mooi_why why,
                   uint32_t rank)
{
    struct mooi_cause cause = {
        .why = why, .rank = rank, .witness = group->rank};
    _Atomic uint64_t *complaint = &own_cell(group)->complaint;
    if (atomic_load(complaint) >> 24 == seq)
        return;
    atomic_store(complaint, mooi_complaint_word(seq, &cause));
    ring_agent(group);
}

static bool is_in(const struct mooi_view *view, const struct mooi_member *one)
{
    for (uint32_t rank = 0; rank < view->size; rank++)
        if (view->members[rank].host == one->host &&
            view->members[rank].serial == one->serial)
            return true;
    return false;
}

bool mooi_goes_on(const moo_group *group, uint64_t seq)
{
    const struct mooi_roll *next = abort_of(group, seq);
    if (!next || next->size < group->min_size || rank_in(group, next) < 0)
        return false;
    for (uint32_t rank = 0; rank < next->size; rank++)
        if (!next->rested && !is_in(&group->view, &next->members[rank]))
            return false;
    return true;
}

struct mooi_cause mooi_cause_of(const moo_group *group, uint64_t seq,
                                uint32_t *epoch)
{
    const struct mooi_roll *next = abort_of(group, seq);
    *epoch = next ? next->epoch - 1 : 0;
    return next ? next->cause : (struct mooi_cause){0};
}

/* ---- barriers ---- */

/* Newcomers may read while this is written; they look again. */
static void write_obstacle(struct mooi_cell *cell, const moo_outcome *outcome)
{
    uint64_t words[(sizeof *outcome + 7) / 8] = {0};
    memcpy(words, outcome, sizeof *outcome);
    atomic_fetch_add(&cell->obstacles, 1);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        atomic_store(&cell->obstacle[i], words[i]);
    atomic_fetch_add(&cell->obstacles, 1);
}

void mooi_note_barrier(moo_group *group, const moo_outcome *outcome)
{
    struct mooi_cell *cell = own_cell(group);
    if (outcome->status != MOO_OK || atomic_load(&cell->obstacles))
        write_obstacle(cell, outcome);
}

static bool read_obstacle(const struct mooi_cell *cell, moo_outcome *out)
{
    uint64_t words[(sizeof *out + 7) / 8];
    uint32_t before = atomic_load(&cell->obstacles);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        words[i] = atomic_load(&cell->obstacle[i]);
    memcpy(out, words, sizeof *out);
    return before && !(before & 1) && before == atomic_load(&cell->obstacles);
}

void mooi_obstacle(moo_group *group, moo_outcome *out)
{
    uint32_t epoch = mooi_epoch(group);
    const struct mooi_roll *roll = roll_at(group->segment, epoch);
    for (uint32_t rank = 0; epoch && rank < roll->size; rank++)
        if (roll->members[rank].host == group->segment->host &&
            read_obstacle(&group->segment->cells[roll->members[rank].slot],
                          out) &&
            out->status != MOO_OK)
            return;
    *out = (moo_outcome){.status = MOO_OK};
}
