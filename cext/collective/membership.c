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
#include <unistd.h>

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

static void lock(moo_group *group)
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

static void unlock(moo_group *group)
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

static int rank_in(const struct mooi_view *view, uint32_t slot)
{
    for (uint32_t rank = 0; rank < view->size; rank++)
        if (view->slots[rank] == slot)
            return (int)rank;
    return -1;
}

/* Lock held. */
static bool slot_alive(struct mooi_segment *segment, uint32_t slot)
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
            rank_in(mooi_current_view(segment), slot) >= 0)
            continue;
        if (next < 0 || member->join_no < segment->members[next].join_no)
            next = (int)slot;
    }
    return next;
}

static void append_alive(struct mooi_segment *segment, struct mooi_view *view,
                         uint32_t slot)
{
    if (slot_alive(segment, slot))
        view->slots[view->size++] = (uint16_t)slot;
    else
        atomic_store(&segment->members[slot].state, MEMBER_FREE);
}

/* Lock held. The next epoch: who is left, in the old order, then newcomers
 * if they are to be let in or nothing can run without them. */
static void transition(struct mooi_segment *segment, uint64_t first_seq,
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
        transition(segment, last + 1, false);
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
    transition(segment, seq + 1, false);
    return true;
}

void mooi_abort(moo_group *group, uint64_t seq, enum mooi_reason why,
                uint32_t rank)
{
    lock(group);
    abort_locked(group->segment, seq, why, rank, group->rank);
    unlock(group);
    mooi_ring_all(group->segment);
}

void mooi_admit(moo_group *group, uint64_t seq)
{
    lock(group);
    if (mooi_current_view(group->segment)->first_seq <= seq)
        transition(group->segment, seq + 1, true);
    unlock(group);
    mooi_ring_all(group->segment);
}

void mooi_settle(moo_group *group)
{
    lock(group);
    unlock(group);
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
        if (slot_alive(segment, slot))
            return MOO_EINVAL;
    segment->min_size = group->min_size; /* nobody is here: a new group */
    return MOO_OK;
}

/* Lock held. A slot that nobody holds, or whose newcomer has died. */
static int find_slot(struct mooi_segment *segment)
{
    struct mooi_view *view = mooi_current_view(segment);
    for (int slot = 0; slot < MOO_GROUP_MAX; slot++)
        if (rank_in(view, (uint32_t)slot) < 0 &&
            !slot_alive(segment, (uint32_t)slot))
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
    memcpy(member->host, group->host, sizeof member->host);
    atomic_store(&segment->cells[slot].waiting, 0);
    atomic_store(&member->state, MEMBER_TAKEN);
    group->slot = (uint32_t)slot;
    if (view->size < segment->min_size)
        transition(segment, view->first_seq ? view->first_seq : 1, true);
    else
        atomic_fetch_add(&segment->joining, 1);
    return MOO_OK;
}

moo_err mooi_enter(moo_group *group)
{
    lock(group);
    moo_err err = check_segment(group);
    if (!err)
        err = take_slot(group);
    unlock(group);
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
    lock(group);
    struct mooi_view *view = mooi_current_view(segment);
    int rank = rank_in(view, group->slot);
    atomic_store(&segment->members[group->slot].state, MEMBER_FREE);
    if (rank < 0)
        atomic_fetch_sub(&segment->joining, 1);
    else if (view->size < segment->min_size)
        transition(segment, view->first_seq, true);
    else
        exit_running(group, (uint32_t)rank, midway);
    unlock(group);
    mooi_ring_all(segment);
}

/* ---- the group's own copy of the view ---- */

static void watch_close(struct mooi_watch *watch)
{
    if (watch->join_no && watch->pidfd >= 0)
        close(watch->pidfd);
    watch->join_no = 0;
}

static void watch_members(moo_group *group,
                          const struct mooi_member members[MOO_GROUP_MAX])
{
    for (uint32_t slot = 0; slot < MOO_GROUP_MAX; slot++) {
        struct mooi_watch *watch = &group->watch[slot];
        const struct mooi_member *member = &members[slot];
        bool wanted = slot != group->slot && rank_in(&group->view, slot) >= 0;
        if (!wanted || watch->join_no != member->join_no)
            watch_close(watch);
        if (!wanted || watch->join_no)
            continue;
        watch->pidfd = mooi_watch_open(member->pid, member->start);
        watch->join_no = member->join_no;
    }
}

void mooi_unwatch(moo_group *group)
{
    for (uint32_t slot = 0; slot < MOO_GROUP_MAX; slot++)
        watch_close(&group->watch[slot]);
}

moo_err mooi_adopt(moo_group *group)
{
    struct mooi_segment *segment = group->segment;
    struct mooi_member members[MOO_GROUP_MAX];
    if (atomic_load(&segment->epoch) == group->view.epoch)
        return MOO_OK;
    lock(group);
    struct mooi_view view = *mooi_current_view(segment);
    for (uint32_t slot = 0; slot < MOO_GROUP_MAX; slot++)
        members[slot] = segment->members[slot];
    unlock(group);
    int rank = rank_in(&view, group->slot);
    if (rank < 0)
        return MOOI_PENDING;

    if (!group->view.epoch) /* a newcomer: all before is not its business */
        group->seq = view.first_seq - 1;
    pthread_mutex_lock(&group->mutex);
    group->view = view;
    group->rank = (uint32_t)rank;
    mooi_hosts_find(&group->hosts, &view, group->rank, members);
    group->algorithms = group->hosts.count > 1 ? &mooi_ring_collective
                                               : &mooi_shm_collective;
    group->info.rank = group->rank;
    group->info.size = view.size;
    group->info.epoch = view.epoch;
    for (uint32_t i = 0; i < view.size; i++) {
        group->pids[i] = members[view.slots[i]].pid;
        group->ids[i] = members[view.slots[i]].id;
    }
    pthread_mutex_unlock(&group->mutex);
    watch_members(group, members);
    mooi_tune(group);
    return MOO_OK;
}

int mooi_find_dead(moo_group *group)
{
    for (uint32_t rank = 0; rank < group->view.size; rank++) {
        struct mooi_watch *watch = &group->watch[group->view.slots[rank]];
        if (rank == group->rank || watch->pidfd == -2)
            continue;
        if (watch->pidfd < 0 || mooi_watch_dead(watch->pidfd))
            return (int)rank;
    }
    return -1;
}

/* Nothing runs: let the dead go and newcomers in. Or nobody of the current
 * view lives any more: the newcomers are the group from now on. */
static void reform_idle(moo_group *group)
{
    struct mooi_segment *segment = group->segment;
    lock(group);
    struct mooi_view *view = mooi_current_view(segment);
    uint64_t first = view->first_seq;
    uint32_t alive = 0;
    for (uint32_t rank = 0; rank < view->size; rank++)
        alive += slot_alive(segment, view->slots[rank]);
    for (uint32_t i = 0; alive == 0 && i < MOO_GROUP_MAX; i++) {
        uint64_t seq = atomic_load(&segment->cells[i].counter[PUT]);
        first = (seq >> STEP_BITS) + 2 > first ? (seq >> STEP_BITS) + 2 : first;
    }
    bool change = view->size < segment->min_size && alive < view->size;
    if (change || alive == 0)
        transition(segment, first, true);
    unlock(group);
    if (change || alive == 0)
        mooi_ring_all(segment);
}

moo_err mooi_wait_formed(moo_group *group, uint64_t seq)
{
    struct mooi_cell *cell = &group->segment->cells[group->slot];
    uint64_t word;
    for (;;) {
        uint32_t bell = atomic_load(&cell->bell);
        moo_err err = mooi_adopt(group);
        if (seq && mooi_fate(group, seq, &word)) /* before the size: a view */
            return MOO_EPEER; /* too small may be what followed from it */
        if (!err && group->view.size >= group->min_size)
            return MOO_OK;
        double left = group->slice_end - mooi_now();
        if (left <= 0 || group->closing ||
            !mooi_futex_wait(&cell->bell, bell, left < POLL_S ? left : POLL_S))
            return MOOI_PENDING;
        reform_idle(group);
    }
}
