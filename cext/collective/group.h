/* SPDX-License-Identifier: MIT */
/* group.h: a member's own part of a group, and its operations. */
#ifndef MOOI_GROUP_H
#define MOOI_GROUP_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "collective/agreement.h"
#include "collective/hosts.h"
#include "collective/reduce.h"
#include "collective/spans.h"

#define MOOI_STAGES 4u
#define MOOI_CHUNK_LEAST ((uint64_t)16 << 10)
#define POLL_S 0.05 /* between looks for a decision, of who waits for bytes */

/* The slice of time is over; no user sees it. */
#define MOOI_PENDING ((moo_err)-100)

/* The members of one epoch, for the operations that succeed in it. */
struct mooi_roster {
    _Atomic uint32_t holds; /* the group's while it is the latest; its works' */
    uint32_t epoch, size;
    moo_member members[];
};

struct moo_work {
    moo_work *next;
    moo_group *group; /* or only a hold of its memory */
    moo_group_kind kind;
    struct mooi_spans spans;
    unsigned char *output; /* of the kinds whose output differs in length */
    mooi_reducer *reduce, *partial;
    size_t element;
    struct mooi_signature signature; /* part: of the call, from 0 */
    /* where the operation stands; touched by the group's runner only */
    uint64_t seq; /* 0: not begun */
    bool entered; /* the algorithm has been called */
    bool told; /* somebody left: all must agree to end as in `lost` */
    bool differs; /* the calls do, as a leader knows */
    bool rests, resting; /* behind it; it waits for the view that follows */
    moo_outcome lost;
    int stage;    /* of the iteration */
    uint64_t iteration, rounds, chunk;
    double deadline;
    /* under the group's mutex */
    bool done, orphan;
    moo_outcome outcome;
    struct mooi_roster *roster; /* that took part, if it has succeeded */
};

struct moo_group {
    struct mooi_segment *segment; /* of use to segment/ only */
    bool mapped; /* by moo_group_join; unmap it in the end */
    int agent;   /* the agent's bell */
    unsigned char *regions; /* by slot, see buffers.h */
    const struct mooi_collective *algorithms;
    uint32_t slot, min_size, spins, yields, chunk;
    int32_t pid;
    uint32_t start;
    uint64_t id;
    double timeout;
    uint32_t transports, stripes;
    bool checks, finishes;
    uint32_t policy; /* that all members must have, a byte */
    char bind[MOOI_ADDRESS_TEXT]; /* a numeric address, or empty */
    int listener; /* for the leaders of other hosts; -1: none may connect */
    /* the runner's: one thread at a time, see work.c */
    struct mooi_view view;
    _Atomic uint64_t *counters[MOO_GROUP_MAX]; /* by rank; mooi_counter_of */
    struct mooi_hosts hosts;
    struct mooi_ring *ring; /* NULL until members are on several hosts */
    uint32_t rank, acked; /* acked: the epoch that all have acknowledged */
    uint64_t seq; /* of the last operation that ended */
    bool formed;  /* has been in a view of enough members */
    double slice_end, waited;
    struct mooi_roster *roster; /* of the last operation that succeeded */
    /* guarded by mutex */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    moo_work *head, *tail;
    uint32_t holds; /* the user's, and one per work */
    bool running, threaded;
    _Atomic bool closing; /* written under the mutex; ends every slice */
    pthread_t thread;
    moo_group_info info;
};

/*
 * The algorithms of one medium: shared memory, or a ring between hosts.
 * work.c is the only caller, from one thread at a time. Each function moves
 * `work` on until it is done, and keeps its place in `work->stage` and
 * `work->iteration`:
 *
 *   MOO_OK        done; the results are in the output spans.
 *   MOOI_PENDING  the slice of time is over; call again.
 *   any error     the decision on the operation, the same on every rank.
 *
 * Before the first call every rank has posted the signature of `work`, and
 * no function may succeed before it has seen that all agree.
 */
struct mooi_collective {
    const char *scheme;
    moo_err (*run[MOO_GROUP_KINDS])(moo_group *group, moo_work *work);
};

extern const struct mooi_collective mooi_shm_collective;
extern const struct mooi_collective mooi_ring_collective;

/* ---- what both media use ---- */

static inline uint64_t mooi_lesser(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t mooi_align(uint64_t bytes)
{
    return (bytes + 63) & ~(uint64_t)63;
}

/* A member's counters when it begins `work`. */
static inline uint64_t mooi_base_of(const moo_work *work)
{
    return work->seq << STEP_BITS;
}

/* A counter of a rank of this host, and all that it had told before it published that. */
static inline uint64_t mooi_counter_of(const moo_group *group, uint32_t rank,
                                       enum mooi_counter which)
{
    return atomic_load_explicit(&group->counters[rank][which],
                                memory_order_acquire);
}

/* ---- links.c ---- */

/* The transport of large tensors from this member's host, a MOO_TRANSPORT_…
 * bit; 0: it is not connected in this epoch. Mutex held. */
uint32_t mooi_carrier(const moo_group *group);

/* ---- shm.c ---- */

/* Whether the agreed operation is possible in a group of this size. */
bool mooi_possible(moo_group *group, moo_work *work);
/* Show the others of the host this member's whole input, SMALL_BYTES at
 * most. */
void mooi_put_small(moo_group *group, moo_work *work);

/* ---- group.c ---- */

/* moo_group_join with a segment that the caller keeps mapped. */
moo_err mooi_join_at(struct mooi_segment *segment, int bell,
                     uint64_t process_id, uint32_t min_size, double timeout_s,
                     const moo_group_options *options, moo_group **group);

/* ---- segment/agent.c ---- */

/* moo_group_agent_open with a segment that the caller keeps mapped. */
moo_err mooi_agent_open_at(struct mooi_segment *segment, uint32_t host,
                           const char *name, moo_group_agent **agent);

/* ---- work.c; the group's mutex held ---- */

/* Lets go of the mutex, and of the group if this was its last hold. */
void mooi_group_rele(moo_group *group);
/* Wait until the group's own thread has ended and no thread is inside an
 * operation. */
void mooi_group_stop(moo_group *group);
/* All queued work ends as MOO_ECLOSED. */
void mooi_group_fail_queued(moo_group *group);

/* ---- operation.c ---- */

/* NULL does nothing. Any thread, also without the mutex. */
void mooi_roster_rele(struct mooi_roster *roster);
/* Move `work`, the first in the queue, on until it is done (MOO_OK, with
 * work->outcome set) or the slice is over (MOOI_PENDING). */
moo_err mooi_operation_run(moo_group *group, moo_work *work);

#endif
