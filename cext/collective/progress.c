/* SPDX-License-Identifier: MIT */
/*
 * progress.c: the waits for members' counters.
 *
 * A thread that waits for a counter looks a few times, yields its core a few
 * times, and then sleeps on its member's bell, which it has armed for it.
 *
 * A sleeper wakes twenty times a second by itself to look for deaths, so a
 * killed member is noticed without its help and without its bell. A member
 * that is merely stopped, or slow, is waited for.
 */
#include <sched.h>

#include "collective/group.h"
#include "collective/process.h"
#include "collective/progress.h"
#include "collective/view.h"
#include "core/clock.h"

#define LOST_S 0.5 /* for a death to be seen after the hang-up */

/* Tell the core that this is a spin. */
static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#else
    atomic_signal_fence(memory_order_seq_cst);
#endif
}

/* One member's buffers, and those of the members that share its core, must fit
 * into a second-level cache, with as much again of private memory. */
#define CACHED_BYTES ((uint32_t)512 << 10)

void mooi_tune(moo_group *group)
{
    cpu_set_t set;
    uint32_t size = group->view.size;
    uint32_t cores = sched_getaffinity(0, sizeof set, &set)
                         ? 1
                         : (uint32_t)CPU_COUNT(&set);
    uint32_t sharing = (size + cores - 1) / cores;
    uint32_t chunk = CACHED_BYTES / MOOI_STAGES / size / sharing & ~63u;
    group->chunk = chunk < MOOI_CHUNK_LEAST ? MOOI_CHUNK_LEAST : chunk;
    group->spins = sharing == 1 ? 200 : 0;
    group->yields = sharing == 1 ? 200 : 2;
}

moo_err mooi_inspect(moo_group *group, moo_work *work, uint32_t rank,
                     double now)
{
    enum mooi_reason why;
    if (now - group->looked >= POLL_S) {
        int dead = mooi_find_dead(group);
        group->looked = now;
        if (dead >= 0)
            mooi_abort(group, work->seq, DECISION_DIED, (uint32_t)dead);
    }
    if (now >= work->deadline)
        mooi_abort(group, work->seq, DECISION_LATE, rank);
    if (mooi_decided(group, work->seq, &why) &&
        why != DECISION_COMMITTED)
        return MOO_EPEER;
    return MOO_OK;
}

moo_err mooi_lost(moo_group *group, moo_work *work, uint32_t rank)
{
    const struct mooi_watch *watch = &group->watch[group->view.slots[rank]];
    enum mooi_reason why;
    double end = mooi_now() + (rank == group->rank ? 0 : LOST_S);
    /* A process hangs up a moment before it is dead, and a member hangs up
     * after it has aborted. So look for an abort or a death first. */
    while (mooi_now() < end) {
        if (mooi_decided(group, work->seq, &why))
            return MOO_EPEER;
        if (watch->pidfd == -1 || mooi_watch_wait(watch->pidfd, 10)) {
            mooi_abort(group, work->seq, DECISION_DIED, rank);
            return MOO_EPEER;
        }
    }
    mooi_abort(group, work->seq, DECISION_CUT, rank);
    return MOO_EPEER;
}

static moo_err sleep_for(moo_group *group, moo_work *work, uint32_t rank,
                         enum mooi_counter which, uint64_t target)
{
    moo_err err = MOO_OK;
    mooi_bell_arm(group, rank, which, target);
    while (!err) {
        uint32_t bell = mooi_bell(group);
        if (atomic_load(&group->counters[rank][which]) >= target)
            break;
        double now = mooi_now(), left = group->slice_end - now;
        err = mooi_inspect(group, work, rank, now);
        if (!err && (left <= 0 || group->closing ||
                     !mooi_bell_wait(group, bell,
                                     left < POLL_S ? left : POLL_S)))
            err = MOOI_PENDING;
    }
    mooi_bell_disarm(group);
    return err;
}

moo_err mooi_await_rank(moo_group *group, moo_work *work, uint32_t rank,
                        enum mooi_counter which, uint64_t target)
{
    for (uint32_t i = 0; i <= group->spins; i++, relax())
        if (mooi_counter_of(group, rank, which) >= target)
            return MOO_OK;
    for (uint32_t i = 0; i < group->yields; i++) {
        sched_yield();
        if (mooi_counter_of(group, rank, which) >= target)
            return MOO_OK;
    }
    double began = mooi_now();
    moo_err err = sleep_for(group, work, rank, which, target);
    group->waited += mooi_now() - began;
    return err;
}

moo_err mooi_await(moo_group *group, moo_work *work, enum mooi_counter which,
                   uint64_t target)
{
    moo_err err = MOO_OK;
    for (uint32_t i = 1; !err && i < group->view.size; i++) {
        uint32_t rank = (group->rank + i) % group->view.size;
        err = mooi_await_rank(group, work, rank, which, target);
    }
    return err;
}
