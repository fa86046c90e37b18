/* SPDX-License-Identifier: MIT */
/*
 * progress.c: the waits for members' counters.
 *
 * A thread that waits for a counter looks a few times, yields its core a few
 * times, and then sleeps on its member's bell, which it has armed for it.
 *
 * The agent looks for deaths, and rings all bells when something is decided. A
 * member that is merely stopped, or slow, is waited for.
 */
#include <sched.h>

#include "collective/group.h"
#include "collective/process.h"
#include "collective/progress.h"
#include "collective/protocol/words.h"
#include "core/clock.h"

#define LOST_S 0.5 /* for a death to be seen after the hang-up */
#define LEADER_S 1.0 /* for it to complain before others complain of it */

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

/* How `work` was decided. MOOI_PENDING: it is not. */
static moo_err decision(const moo_group *group, const moo_work *work)
{
    bool aborted;
    if (!mooi_decided(group, work->seq, &aborted))
        return MOOI_PENDING;
    if (aborted)
        return MOO_EPEER;
    uint64_t result = mooi_result(group);
    return group->hosts.count > 1 && mooi_result_is_for(result, work->seq) &&
                   mooi_result_status(result)
               ? (moo_err)MOO_EMISMATCH
               : MOO_OK;
}

/* A leader knows better than the members of its host who is late. */
static double grace(const moo_group *group, uint32_t rank)
{
    const struct mooi_hosts *hosts = &group->hosts;
    return hosts->count > 1 && rank == mooi_leader(hosts, hosts->mine) &&
                   rank != group->rank
               ? LEADER_S
               : 0;
}

moo_err mooi_inspect(moo_group *group, moo_work *work, uint32_t rank,
                     double now)
{
    if (now >= work->deadline + grace(group, rank))
        mooi_complain(group, work->seq, MOOI_WHY_LATE, rank);
    moo_err err = decision(group, work);
    return err == MOOI_PENDING ? MOO_OK : err;
}

/* Sleep until `work` is decided, or `when`. MOOI_PENDING: it is not. */
static moo_err await_outcome(moo_group *group, moo_work *work, double when)
{
    for (;;) {
        uint32_t bell = mooi_bell(group);
        moo_err err = decision(group, work);
        if (err != MOOI_PENDING)
            return err;
        double left = when - mooi_now();
        if (left <= 0 || group->closing)
            return MOOI_PENDING;
        mooi_bell_wait(group, bell, left);
    }
}

moo_err mooi_give_up(moo_group *group, moo_work *work, enum mooi_why why,
                     uint32_t rank)
{
    mooi_complain(group, work->seq, why, rank);
    return await_outcome(group, work, mooi_now() + LOST_S);
}

moo_err mooi_lost(moo_group *group, moo_work *work, uint32_t rank)
{
    /* A process hangs up a moment before its agent knows that it is dead, and a
     * member hangs up after it has seen an abort. So look for these first. */
    moo_err err = rank == group->rank
                      ? MOOI_PENDING
                      : await_outcome(group, work, mooi_now() + LOST_S);
    return err == MOOI_PENDING ? mooi_give_up(group, work, MOOI_WHY_CUT, rank)
                               : err;
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
        if (!err && now < work->deadline && work->deadline - now < left)
            left = work->deadline - now;
        if (!err && (left <= 0 || group->closing ||
                     !mooi_bell_wait(group, bell, left)))
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
    const struct mooi_hosts *hosts = &group->hosts;
    const uint16_t *team = &hosts->order[hosts->start[hosts->mine]];
    uint32_t size = mooi_team(hosts, hosts->mine), own = 0;
    moo_err err = MOO_OK;
    while (team[own] != group->rank)
        own++;
    for (uint32_t i = 1; !err && i < size; i++)
        err = mooi_await_rank(group, work, team[(own + i) % size], which,
                              target);
    return err;
}
