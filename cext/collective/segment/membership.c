/* SPDX-License-Identifier: MIT */
/*
 * membership.c: the members of a group, and the decisions on operations.
 *
 * Everything here but mooi_commit and the reading of a decision happens under
 * the segment's lock. A process can be killed while it holds that lock. The
 * next process that wants it takes it over and repairs: a transition fills the
 * view that is not current and then switches to it with one store, so it
 * happened or it did not; and an abort without its transition is found by its
 * decision. Neither needs a log.
 *
 * When does the membership change?
 *   - a member dies: the operation that waits for it is aborted, and the
 *     same critical section makes the view without it;
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
 */
#include <sched.h>

#include "collective/group.h"
#include "collective/process.h"

void mooi_notify(struct mooi_cell *cell)
{
    atomic_fetch_add(&cell->bell, 1);
    mooi_futex_wake(&cell->bell);
}

void mooi_notify_all(struct mooi_segment *segment)
{
    for (uint32_t slot = 0; slot < MOO_GROUP_MAX; slot++)
        if (atomic_load(&segment->members[slot].state) == MEMBER_TAKEN)
            mooi_notify(&segment->cells[slot]);
}

static uint64_t owner_word(const moo_group *group)
{
    return (uint64_t)group->start << 32 | (uint32_t)group->pid;
}

static bool owner_dead(uint64_t word)
{
    return mooi_process_dead((int32_t)(uint32_t)word, (uint32_t)(word >> 32));
}

static void repair(moo_group *group);

void mooi_segment_lock(moo_group *group)
{
    struct mooi_segment *segment = group->segment;
    for (int tries = 0;; tries++) {
        uint64_t owner = 0;
        if (atomic_compare_exchange_strong(&segment->lock, &owner,
                                           owner_word(group)))
            return;
        if (tries < 64) {
            sched_yield();
            continue;
        }
        uint32_t bell = atomic_load(&segment->lock_bell);
        mooi_futex_wait(&segment->lock_bell, bell, 0.01);
        if (owner_dead(owner) &&
            atomic_compare_exchange_strong(&segment->lock, &owner,
                                           owner_word(group))) {
            repair(group);
            return;
        }
    }
}

void mooi_segment_unlock(moo_group *group)
{
    struct mooi_segment *segment = group->segment;
    atomic_store(&segment->lock, 0);
    atomic_fetch_add(&segment->lock_bell, 1);
    mooi_futex_wake(&segment->lock_bell);
}

struct mooi_view *mooi_current_view(struct mooi_segment *segment)
{
    return &segment->views[atomic_load(&segment->epoch) % VIEWS];
}

const struct mooi_view *mooi_view_at(struct mooi_segment *segment,
                                     uint64_t seq)
{
    uint32_t epoch = atomic_load(&segment->epoch);
    for (uint32_t back = 0; back < VIEWS && back <= epoch; back++) {
        struct mooi_view *view = &segment->views[(epoch - back) % VIEWS];
        if (view->first_seq <= seq)
            return view;
    }
    return NULL;
}

int mooi_rank_in(const struct mooi_view *view, uint32_t slot)
{
    for (uint32_t rank = 0; rank < view->size; rank++)
        if (view->slots[rank] == slot)
            return (int)rank;
    return -1;
}

bool mooi_slot_alive(struct mooi_segment *segment, uint32_t slot)
{
    struct mooi_member *member = &segment->members[slot];
    return atomic_load(&member->state) == MEMBER_TAKEN &&
           !mooi_process_dead(member->pid, member->start);
}

/* Lock held. The newcomer with the lowest join number above `after`. */
static int next_newcomer(struct mooi_segment *segment, uint64_t after)
{
    int next = -1;
    for (uint32_t slot = 0; slot < MOO_GROUP_MAX; slot++) {
        struct mooi_member *member = &segment->members[slot];
        if (atomic_load(&member->state) != MEMBER_TAKEN ||
            member->join_no <= after ||
            mooi_rank_in(mooi_current_view(segment), slot) >= 0)
            continue;
        if (next < 0 || member->join_no < segment->members[next].join_no)
            next = (int)slot;
    }
    return next;
}

/* Remove members that have left and, if `drop_dead`, the dead. */
static void append(struct mooi_segment *segment, struct mooi_view *view,
                   uint32_t slot, bool drop_dead)
{
    struct mooi_member *member = &segment->members[slot];
    if (drop_dead ? !mooi_slot_alive(segment, slot)
        : atomic_load(&member->state) != MEMBER_TAKEN) {
        atomic_store(&member->state, MEMBER_FREE);
        return;
    }
    view->pids[view->size] = member->pid;
    view->ids[view->size] = member->id;
    view->slots[view->size++] = (uint16_t)slot;
}

void mooi_transition(struct mooi_segment *segment, uint64_t first_seq,
                     bool admit, bool drop_dead)
{
    struct mooi_view *old = mooi_current_view(segment);
    uint32_t epoch = atomic_load(&segment->epoch) + 1, waiting = 0;
    struct mooi_view *view = &segment->views[epoch % VIEWS];
    int slot = -1;

    view->epoch = epoch;
    view->first_seq = first_seq;
    view->size = 0;
    for (uint32_t rank = 0; rank < old->size; rank++)
        append(segment, view, old->slots[rank], drop_dead);
    admit = admit || view->size < segment->min_size;
    for (uint64_t after = 0; (slot = next_newcomer(segment, after)) >= 0;) {
        after = segment->members[slot].join_no;
        if (admit)
            append(segment, view, (uint32_t)slot, true);
        else
            waiting++;
    }
    if (admit)
        atomic_store(&segment->blocked, 0); /* no newcomer waits any more */
    atomic_store(&segment->joining, waiting);
    atomic_store(&segment->epoch, epoch);
}

/* Lock held: `seq` was aborted. All are told why, except after a leave. */
static void transition_after(struct mooi_segment *segment, uint64_t seq,
                             enum mooi_reason why)
{
    mooi_transition(segment, seq + 1, false, why != DECISION_LEFT);
}

/* Lock held, taken from a dead process. */
static void repair(moo_group *group)
{
    struct mooi_segment *segment = group->segment;
    enum mooi_reason why = DECISION_COMMITTED;
    uint64_t last = 0;
    for (int i = 0; i < DECISIONS; i++) {
        uint64_t word = atomic_load(&segment->decisions[i].word);
        if (mooi_reason_of(word) == DECISION_COMMITTED || word >> 24 <= last)
            continue;
        last = word >> 24;
        why = mooi_reason_of(word);
    }
    if (last && last >= mooi_current_view(segment)->first_seq)
        transition_after(segment, last, why);
}

/* ---- decisions ---- */

bool mooi_decided(moo_group *group, uint64_t seq, uint64_t *word)
{
    *word = atomic_load(&group->segment->decisions[seq % DECISIONS].word);
    return *word >> 24 >= seq;
}

/* false: it had been decided already. */
static bool decide(struct mooi_segment *segment, uint64_t seq,
                   enum mooi_reason why, uint32_t rank)
{
    struct mooi_decision *decision = &segment->decisions[seq % DECISIONS];
    uint64_t word = atomic_load(&decision->word);
    uint64_t decided = seq << 24 | (uint64_t)why << 16 | rank;
    while (word >> 24 < seq)
        if (atomic_compare_exchange_weak(&decision->word, &word, decided))
            return true;
    return false;
}

bool mooi_commit(moo_group *group, uint64_t seq)
{
    uint64_t word;
    decide(group->segment, seq, DECISION_COMMITTED, 0);
    mooi_decided(group, seq, &word);
    return mooi_reason_of(word) == DECISION_COMMITTED;
}

bool mooi_abort_locked(struct mooi_segment *segment, uint64_t seq,
                       enum mooi_reason why, uint32_t rank, uint32_t witness)
{
    struct mooi_decision *decision = &segment->decisions[seq % DECISIONS];
    struct mooi_view *view = mooi_current_view(segment);
    if (atomic_load(&decision->word) >> 24 >= seq)
        return false;
    decision->epoch = view->epoch;
    decision->pid = segment->members[view->slots[rank]].pid;
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

void mooi_admit(moo_group *group, uint64_t seq)
{
    mooi_segment_lock(group);
    if (mooi_current_view(group->segment)->first_seq <= seq)
        mooi_transition(group->segment, seq + 1, true, false);
    mooi_segment_unlock(group);
    mooi_notify_all(group->segment);
}

/* All members end a barrier alike, and none begins the next before all have
 * ended this one, so their writes here are in order. */
void mooi_note_barrier(moo_group *group, const moo_outcome *outcome)
{
    struct mooi_segment *segment = group->segment;
    bool failed = outcome->status != MOO_OK;
    if (!failed && !atomic_load(&segment->blocked))
        return;
    mooi_segment_lock(group);
    segment->obstacle = *outcome;
    atomic_store(&segment->blocked, failed);
    mooi_segment_unlock(group);
}

void mooi_settle(moo_group *group)
{
    mooi_segment_lock(group);
    mooi_segment_unlock(group);
}
