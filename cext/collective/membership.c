/* SPDX-License-Identifier: MIT */
/*
 * membership.c: who belongs to a group, and how each operation ended.
 *
 * Everything here but mooi_commit and the reading of a fate happens under the
 * segment's lock. A process can be killed while it holds that lock. The next
 * one that wants it takes it over and repairs: a transition fills the view
 * that is not current and then switches to it with one store, so it happened
 * or it did not; and an abort that did not get as far as its transition is
 * found by its fate. Neither needs a log.
 *
 * When does the membership change?
 *   - a member dies: the operation that waits for it is aborted, and the
 *     same critical section makes the view without it;
 *   - a member leaves: the same, but the operation begins anew by itself;
 *   - an operation is late, or a connection breaks: aborted, and the new
 *     view has the same members;
 *   - a barrier succeeds that rank 0 had marked: newcomers come in;
 *   - the group has fewer than min_size members, so that nothing can run:
 *     at once.
 */
#include <sched.h>
#include <string.h>

#include "internal.h"
#include "transport/handshake.h"

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
    return &segment->views[atomic_load(&segment->epoch) & 1];
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

static void append_alive(struct mooi_segment *segment, struct mooi_view *view,
                         uint32_t slot)
{
    if (mooi_slot_alive(segment, slot))
        view->slots[view->size++] = (uint16_t)slot;
    else
        atomic_store(&segment->members[slot].state, MEMBER_FREE);
}

void mooi_transition(struct mooi_segment *segment, uint64_t first_seq,
                       bool admit)
{
    struct mooi_view *old = mooi_current_view(segment);
    uint32_t epoch = atomic_load(&segment->epoch) + 1, waiting = 0;
    struct mooi_view *view = &segment->views[epoch & 1];
    int slot = -1;

    view->epoch = epoch;
    view->first_seq = first_seq;
    view->size = 0;
    for (uint32_t rank = 0; rank < old->size; rank++)
        append_alive(segment, view, old->slots[rank]);
    admit = admit || view->size < segment->min_size;
    for (uint64_t after = 0; (slot = next_newcomer(segment, after)) >= 0;) {
        after = segment->members[slot].join_no;
        if (admit)
            append_alive(segment, view, (uint32_t)slot);
        else
            waiting++;
    }
    atomic_store(&segment->joining, waiting);
    atomic_store(&segment->epoch, epoch);
}

/* Lock held, taken from a dead process. */
static void repair(moo_group *group)
{
    struct mooi_segment *segment = group->segment;
    uint64_t last = 0;
    for (int i = 0; i < FATES; i++) {
        uint64_t word = atomic_load(&segment->fates[i].word);
        if (mooi_reason_of(word) != FATE_COMMITTED && word >> 24 > last)
            last = word >> 24;
    }
    if (last && last >= mooi_current_view(segment)->first_seq)
        mooi_transition(segment, last + 1, false);
}

/* ---- fates ---- */

bool mooi_fate(moo_group *group, uint64_t seq, uint64_t *word)
{
    *word = atomic_load(&group->segment->fates[seq % FATES].word);
    return *word >> 24 >= seq;
}

/* false: it had been decided already. */
static bool decide(struct mooi_segment *segment, uint64_t seq,
                   enum mooi_reason why, uint32_t rank)
{
    struct mooi_fate *fate = &segment->fates[seq % FATES];
    uint64_t word = atomic_load(&fate->word);
    uint64_t decided = seq << 24 | (uint64_t)why << 16 | rank;
    while (word >> 24 < seq)
        if (atomic_compare_exchange_weak(&fate->word, &word, decided))
            return true;
    return false;
}

bool mooi_commit(moo_group *group, uint64_t seq)
{
    uint64_t word;
    decide(group->segment, seq, FATE_COMMITTED, 0);
    mooi_fate(group, seq, &word);
    return mooi_reason_of(word) == FATE_COMMITTED;
}

/* Lock held. The view that `seq` runs in is the current one, because seq is
 * open: no epoch ends before all its operations are decided. */
static bool abort_locked(struct mooi_segment *segment, uint64_t seq,
                         enum mooi_reason why, uint32_t rank, uint32_t witness)
{
    struct mooi_fate *fate = &segment->fates[seq % FATES];
    struct mooi_view *view = mooi_current_view(segment);
    if (atomic_load(&fate->word) >> 24 >= seq)
        return false;
    fate->epoch = view->epoch;
    fate->pid = segment->members[view->slots[rank]].pid;
    fate->witness = witness;
    if (!decide(segment, seq, why, rank))
        return false;
    mooi_transition(segment, seq + 1, false);
    return true;
}

void mooi_abort(moo_group *group, uint64_t seq, enum mooi_reason why,
                uint32_t rank)
{
    mooi_segment_lock(group);
    abort_locked(group->segment, seq, why, rank, group->rank);
    mooi_segment_unlock(group);
    mooi_ring_all(group->segment);
}

void mooi_admit(moo_group *group, uint64_t seq)
{
    mooi_segment_lock(group);
    if (mooi_current_view(group->segment)->first_seq <= seq)
        mooi_transition(group->segment, seq + 1, true);
    mooi_segment_unlock(group);
    mooi_ring_all(group->segment);
}

void mooi_settle(moo_group *group)
{
    mooi_segment_lock(group);
    mooi_segment_unlock(group);
}

/* ---- coming and going ---- */

/* Lock held. */
static moo_err check_segment(moo_group *group)
{
    struct mooi_segment *segment = group->segment;
    if (!segment->magic) {
        if (mooi_random(segment->key, sizeof segment->key))
            return MOO_ESYS;
        segment->version = SEGMENT_VERSION;
        segment->magic = SEGMENT_MAGIC;
    }
    if (segment->magic != SEGMENT_MAGIC)
        return MOO_EINVAL;
    if (segment->version != SEGMENT_VERSION)
        return MOO_EVERSION;
    if (segment->min_size == group->min_size)
        return MOO_OK;
    for (uint32_t slot = 0; slot < MOO_GROUP_MAX; slot++)
        if (mooi_slot_alive(segment, slot))
            return MOO_EINVAL;
    segment->min_size = group->min_size; /* nobody is here: a new group */
    return MOO_OK;
}

/* Lock held. A slot that nobody holds, or whose newcomer has died. */
static int find_slot(struct mooi_segment *segment)
{
    struct mooi_view *view = mooi_current_view(segment);
    for (int slot = 0; slot < MOO_GROUP_MAX; slot++)
        if (mooi_rank_in(view, (uint32_t)slot) < 0 &&
            !mooi_slot_alive(segment, (uint32_t)slot))
            return slot;
    return -1;
}

/* Lock held. */
static moo_err take_slot(moo_group *group)
{
    struct mooi_segment *segment = group->segment;
    struct mooi_view *view = mooi_current_view(segment);
    int slot = find_slot(segment);
    if (slot < 0)
        return MOO_ENOMEM;
    struct mooi_member *member = &segment->members[slot];
    atomic_store(&member->state, MEMBER_FREE);
    member->pid = group->pid;
    member->start = group->start;
    member->id = group->id;
    member->join_no = ++segment->joins;
    member->transports = group->transports;
    member->checks = group->checks;
    member->stripes = group->stripes;
    memcpy(member->host, group->host, sizeof member->host);
    atomic_store(&segment->cells[slot].waiting, 0);
    atomic_store(&member->state, MEMBER_TAKEN);
    group->slot = (uint32_t)slot;
    if (view->size < segment->min_size)
        mooi_transition(segment, view->first_seq ? view->first_seq : 1, true);
    else
        atomic_fetch_add(&segment->joining, 1);
    return MOO_OK;
}

moo_err mooi_enter(moo_group *group)
{
    mooi_segment_lock(group);
    moo_err err = check_segment(group);
    if (!err)
        err = take_slot(group);
    mooi_segment_unlock(group);
    mooi_ring_all(group->segment);
    return err;
}

/* Lock held. Others may still be inside the operation that this member is
 * in the middle of, and may even be able to finish it. */
static void exit_running(moo_group *group, uint32_t rank, bool midway)
{
    struct mooi_segment *segment = group->segment;
    struct mooi_view *view = mooi_current_view(segment);
    uint64_t seq = group->seq + 1;
    bool enough = view->size - 1 >= segment->min_size;
    if (seq < view->first_seq) {
        seq = view->first_seq;
        midway = false;
    }
    enum mooi_reason why = enough && !midway ? FATE_LEFT : FATE_SHORT;
    if (!abort_locked(segment, seq, why, rank, rank))
        abort_locked(segment, seq + 1, enough ? FATE_LEFT : FATE_SHORT, rank,
                     rank);
}

void mooi_exit(moo_group *group, bool midway)
{
    struct mooi_segment *segment = group->segment;
    mooi_segment_lock(group);
    struct mooi_view *view = mooi_current_view(segment);
    int rank = mooi_rank_in(view, group->slot);
    atomic_store(&segment->members[group->slot].state, MEMBER_FREE);
    if (rank < 0)
        atomic_fetch_sub(&segment->joining, 1);
    else if (view->size < segment->min_size)
        mooi_transition(segment, view->first_seq, true);
    else
        exit_running(group, (uint32_t)rank, midway);
    mooi_segment_unlock(group);
    mooi_ring_all(segment);
}
