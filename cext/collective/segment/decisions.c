/* SPDX-License-Identifier: MIT */
/*
 * decisions.c: the commit decisions of operations, each made once by
 * compare-and-swap. An abort makes the next epoch under the same lock.
 */
#include "collective/segment/segment.h"

static struct mooi_decision_record *record_of(struct mooi_segment *segment,
                                              uint64_t seq)
{
    return &segment->decisions[seq % DECISIONS];
}

static enum mooi_reason reason_of(uint64_t word)
{
    return (enum mooi_reason)((word >> 16) & 0xff);
}

bool mooi_decided(const moo_group *group, uint64_t seq, enum mooi_reason *why)
{
    uint64_t word = atomic_load(&record_of(group->segment, seq)->word);
    *why = reason_of(word);
    return word >> 24 >= seq;
}

/* false: it had been decided already. */
static bool decide(struct mooi_segment *segment, uint64_t seq,
                   enum mooi_reason why, uint32_t rank)
{
    struct mooi_decision_record *decision = record_of(segment, seq);
    uint64_t word = atomic_load(&decision->word);
    uint64_t decided = seq << 24 | (uint64_t)why << 16 | rank;
    while (word >> 24 < seq)
        if (atomic_compare_exchange_weak(&decision->word, &word, decided))
            return true;
    return false;
}

bool mooi_commit(moo_group *group, uint64_t seq)
{
    enum mooi_reason why;
    decide(group->segment, seq, DECISION_COMMITTED, 0);
    mooi_decided(group, seq, &why);
    return why == DECISION_COMMITTED;
}

/* Lock held: `seq` was aborted. All are told why, except after a leave. */
static void transition_after(struct mooi_segment *segment, uint64_t seq,
                             enum mooi_reason why)
{
    mooi_transition(segment, seq + 1, false, why != DECISION_LEFT);
}

bool mooi_abort_locked(struct mooi_segment *segment, uint64_t seq,
                       enum mooi_reason why, uint32_t rank, uint32_t witness)
{
    struct mooi_decision_record *decision = record_of(segment, seq);
    struct mooi_view *view = mooi_current_view(segment);
    if (atomic_load(&decision->word) >> 24 >= seq)
        return false;
    decision->epoch = view->epoch;
    decision->pid = segment->slots[view->slots[rank]].member.pid;
    decision->witness = witness;
    if (!decide(segment, seq, why, rank))
        return false;
    transition_after(segment, seq, why);
    return true;
}

void mooi_abort(moo_group *group, uint64_t seq, enum mooi_reason why,
                uint32_t rank)
{
    mooi_segment_lock(group);
    mooi_abort_locked(group->segment, seq, why, rank, group->rank);
    mooi_segment_unlock(group);
    mooi_notify_all(group->segment);
}

void mooi_give_up(moo_group *group, uint64_t seq)
{
    struct mooi_segment *segment = group->segment;
    mooi_segment_lock(group);
    struct mooi_view *view = mooi_current_view(segment);
    int rank = mooi_rank_in(view, group->slot);
    if (rank >= 0 && view->size < segment->min_size)
        mooi_abort_locked(segment, seq, DECISION_FEW, (uint32_t)rank,
                          view->size);
    mooi_segment_unlock(group);
    mooi_notify_all(segment);
}

void mooi_repair(struct mooi_segment *segment)
{
    enum mooi_reason why = DECISION_COMMITTED;
    uint64_t last = 0;
    for (int i = 0; i < DECISIONS; i++) {
        uint64_t word = atomic_load(&segment->decisions[i].word);
        if (reason_of(word) == DECISION_COMMITTED || word >> 24 <= last)
            continue;
        last = word >> 24;
        why = reason_of(word);
    }
    if (last && last >= mooi_current_view(segment)->first_seq)
        transition_after(segment, last, why);
}

void mooi_read_abort(moo_group *group, uint64_t seq,
                     struct mooi_decision *out)
{
    struct mooi_decision_record *decision = record_of(group->segment, seq);
    mooi_segment_lock(group); /* under which the abort made its epoch */
    mooi_segment_unlock(group);
    uint64_t word = atomic_load(&decision->word);
    *out = (struct mooi_decision){
        .why = reason_of(word), .rank = word & 0xffff,
        .epoch = decision->epoch, .pid = decision->pid,
        .witness = decision->witness};
}
