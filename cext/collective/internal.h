/* SPDX-License-Identifier: MIT */
/*
 * internal.h: what the files of cext/collective share.
 *
 * A group lives in one shared segment, which every member maps. All zero
 * bytes are a valid, empty group, so nobody has to initialise it.
 *
 *   lock, epoch, views   who belongs to the group        membership.c
 *   decisions            how each operation ended        membership.c
 *   cells                how far each member has come    progress.c
 *   regions              the bytes on their way          shm.c, ring.c
 *
 * A process joins in group.c and takes a slot in entry.c, keeps its own copy
 * of the view in view.c, and queues and runs operations in work.c, each by
 * operation.c.
 *
 * Between the members of one host the bytes go through the segment; between
 * hosts they go over connections, see ring.h.
 *
 * Vocabulary. A *slot* is a member's index in the segment, for as long as it
 * lives. Its *rank* is its index in the view of one *epoch*. Every operation
 * has a *sequence number*, counted alike by all members and never reused,
 * and a *commit decision*, which is made exactly once for all of them:
 * committed (whatever is still missing will arrive, because it is in shared
 * memory already) or aborted. Therefore nobody can succeed where another fails.
 *
 * Every call of a member takes sequence numbers until one has another decision
 * than DECISION_LEFT; that decision is how the call ends, be it a success, a
 * mismatch, a timeout or too few members. So it is for all of them, and
 * therefore no two members ever reduce one's call with another's next.
 *
 * A member sees a view when it has ended all that came before the view's
 * first operation, and neither earlier nor later. So what it sees of the group
 * between two calls, and decides by it, is the same for all members; but for a
 * group of too few members, in which no call succeeds.
 *
 * An aborted operation always ends its epoch, and the first operation of an
 * epoch begins with everybody's acknowledgement (`acked`). This is what makes
 * it safe to reuse buffers: whoever acknowledges reads no older bytes.
 */
#ifndef MOOI_COLLECTIVE_H
#define MOOI_COLLECTIVE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "core/clock.h"
#include "core/mac.h"
#include "mooactor.h"
#include "transport/ofi.h"
#include "transport/tcp/socket.h"

#define SEGMENT_MAGIC 0x6d6f6f2d67727031ull /* "moo-grp1" */
#define SEGMENT_VERSION 6u
#define DECISIONS 256 /* more than members: an abort removes one, or was late */
#define VIEWS 64  /* how far back who is slow finds the view of its next call */
#define MOOI_LINKS 6 /* of a leader: 1 << 6 == MOO_GROUP_MAX */
#define STEP_BITS 24
#define STEP_LAST ((1ull << STEP_BITS) - 1)
#define SMALL_BYTES ((size_t)256 << 10) /* one member's bytes, single step */
#define BULK_BYTES ((size_t)7 << 20)    /* one member's pipeline buffers */
#define REGION_BYTES (2 * SMALL_BYTES + BULK_BYTES + ((size_t)512 << 10))
#define MOOI_STAGES 4u
#define MOOI_CHUNK_LEAST ((uint64_t)16 << 10)
#define POLL_S 0.05 /* how often a sleeper looks for deaths */

/* The slice of time is over; never seen by the user. */
#define MOOI_PENDING ((moo_err)-100)

enum mooi_reason {
    DECISION_COMMITTED,
    DECISION_DIED,
    DECISION_LEFT,
    DECISION_SHORT,
    DECISION_LATE,
    DECISION_CUT,  /* a connection broke, or could not be made; nobody died */
    DECISION_NO_WAY, /* two members have no transport in common */
    DECISION_FEW /* fewer than min_size members, for too long */
};

/* The counters of a member. Each holds seq << STEP_BITS | step, or (ACKED,
 * POSTED) an epoch, so it only ever grows, and no operation has to reset it.
 * RINGED is the leader's of a host: how far the ring has come. */
enum mooi_counter { PUT, REDUCED, COPIED, ACKED, RINGED, POSTED, COUNTERS };

struct mooi_view {
    uint32_t epoch, size;
    uint64_t first_seq; /* every earlier sequence number has its decision */
    uint16_t slots[MOO_GROUP_MAX];
    int32_t pids[MOO_GROUP_MAX]; /* by rank; a slot may be another's by now */
    uint64_t ids[MOO_GROUP_MAX];
};

struct mooi_decision {
    _Atomic uint64_t word; /* seq << 24 | reason << 16 | rank */
    uint32_t epoch;        /* these are written before an abort's word */
    int32_t pid;
    uint32_t witness; /* the rank that decided; DECISION_FEW: how many there
                         were */
};

enum { MEMBER_FREE, MEMBER_TAKEN };

struct mooi_member {
    _Atomic uint32_t state;
    int32_t pid;
    uint32_t start; /* of the process, so that a reused pid is noticed */
    uint64_t id;      /* the runtime's process id */
    uint64_t join_no; /* 1, 2, …; rank order */
    uint32_t transports;           /* that it allows */
    bool checks;                   /* it wants checksums, see pipe.h */
    uint32_t stripes;              /* it wants so many, 1 or more */
    uint8_t host[MOOI_HOST_BYTES]; /* equal: shared memory, if both allow */
};

/* Where a leader listens in one epoch, which its counter POSTED names. */
#define MOOI_POST_ADDRESSES 8
struct mooi_post {
    uint32_t count;
    struct mooi_address addresses[MOOI_POST_ADDRESSES];
    /* its registered memory, see bulk.h */
    char provider[MOOI_FABRIC_PROVIDER_BYTES];
    uint32_t name_bytes; /* 0: none */
    uint8_t name[MOOI_FABRIC_NAME_BYTES];
    uint64_t key, base;
};

/* What a member says it is about to do; all must say the same. */
struct mooi_signature {
    uint32_t kind, dtype, op, root, spans, part, parts;
    uint64_t bytes, output_bytes, layout;
    uint32_t admit, chunk; /* rank 0 decides these two for all */
};

struct mooi_cell {
    _Alignas(128) _Atomic uint64_t counter[COUNTERS]; /* owner writes */
    _Alignas(64) _Atomic uint64_t want;    /* counter value slept for */
    _Atomic uint32_t waiting;              /* (slot + 1) << 8 | counter; 0 */
    _Atomic uint32_t bell;                 /* futex */
    _Alignas(64) struct mooi_signature signature[2]; /* by seq parity */
    struct mooi_post post;
    _Atomic uint64_t carrier; /* a leader's, once connected: see links.c */
    _Atomic uint32_t sums[MOOI_LINKS]; /* a leader's: of what it has sent */
};

struct mooi_segment {
    uint64_t magic;
    uint32_t version, min_size;
    _Atomic uint64_t lock; /* 0, or start << 32 | pid of the owner */
    _Atomic uint32_t lock_bell;
    _Atomic uint32_t epoch; /* views[epoch % VIEWS] is current */
    _Atomic uint32_t joining; /* members outside the current view */
    _Atomic uint32_t blocked; /* the last barrier failed: see `obstacle` */
    uint8_t key[MOOI_KEY_BYTES]; /* what connections between members prove */
    uint64_t joins;
    moo_outcome obstacle; /* under the lock */
    struct mooi_view views[VIEWS];
    struct mooi_decision decisions[DECISIONS];
    struct mooi_member members[MOO_GROUP_MAX];
    struct mooi_cell cells[MOO_GROUP_MAX];
};

#define HEADER_BYTES \
    ((sizeof(struct mooi_segment) + 4095) & ~(size_t)4095)

/* The tensors of one operation as one virtual run of bytes. in[i] and out[i]
 * have the same length, ends[i] is where they end; in[i] may equal out[i]. */
struct mooi_spans {
    uint32_t count;
    uint64_t bytes;
    uint64_t *ends;
    const unsigned char **in;
    unsigned char **out;
};

/* dst[i] = op(src[0][i], src[1][i], …), from the left. `dst` overlaps no
 * source. For MOO_OP_MEAN the sum is divided by `count_sources`. */
typedef void mooi_reducer(void *dst, const void *const *src,
                          uint32_t count_sources, size_t elements);

struct moo_work {
    moo_work *next;
    moo_group *group; /* a hold of its memory, if no more */
    moo_group_kind kind;
    struct mooi_spans spans;
    unsigned char *output; /* of the kinds whose output differs in length */
    mooi_reducer *reduce, *partial;
    size_t element;
    struct mooi_signature signature; /* part: of the call, from 0 */
    /* where the operation stands; touched by the group's runner only */
    uint64_t seq; /* 0: not begun */
    bool entered; /* the algorithm has been called */
    bool told; /* somebody left: all are to agree, and end as `lost` says */
    moo_outcome lost;
    int stage;    /* of the iteration */
    uint64_t iteration, segments, chunk;
    double deadline;
    /* under the group's mutex */
    bool done, orphan;
    moo_outcome outcome;
};

struct mooi_watch {
    uint64_t join_no; /* whom pidfd watches; 0: nobody */
    int pidfd;        /* -1: already dead when we looked */
};

/* Which members share a host: a function of the view, so the same everywhere.
 * Hosts are numbered by their lowest rank, which is their *leader*; the
 * members of a host are a *team*. */
struct mooi_hosts {
    uint32_t count, mine;
    uint32_t transports;              /* that all members allow */
    bool apart; /* some have other names: it is not one machine by force */
    bool checks; /* some want checksums, so all make them */
    uint32_t stripes; /* of the ring: the most that any wants */
    uint8_t of[MOO_GROUP_MAX];        /* by rank */
    uint8_t order[MOO_GROUP_MAX];     /* ranks, by host, then rank */
    uint8_t start[MOO_GROUP_MAX + 1]; /* by host: its first place in order */
};

struct moo_group {
    struct mooi_segment *segment;
    bool mapped; /* by moo_group_join, to be unmapped in the end */
    const struct mooi_collective *algorithms;
    uint32_t slot, min_size, spins, yields, chunk;
    int32_t pid;
    uint32_t start;
    uint64_t id;
    double timeout;
    uint32_t transports, stripes;
    bool checks;
    uint8_t host[MOOI_HOST_BYTES];
    char bind[MOOI_ADDRESS_TEXT]; /* a numeric address, or empty */
    /* the runner's: one thread at a time, see work.c */
    struct mooi_view view;
    struct mooi_hosts hosts;
    struct mooi_ring *ring; /* NULL until members are on several hosts */
    uint32_t rank, acked; /* acked: the epoch that all have acknowledged */
    uint64_t seq; /* of the last operation that ended */
    bool formed;  /* has been in a view of enough members */
    double slice_end, looked, waited; /* looked: for deaths, last time */
    struct mooi_watch watch[MOO_GROUP_MAX];
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
 *   any error     as was decided on the operation, the same on every rank.
 *
 * Before the first call every rank has posted the signature of `work`, and
 * none of the functions may succeed before it has seen all of them agree.
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

/* What a member's counters say when it begins `work`. */
static inline uint64_t mooi_base_of(const moo_work *work)
{
    return work->seq << STEP_BITS;
}

/* The bytes of a member, BULK_BYTES of them. */
static inline unsigned char *mooi_bulk_buffer(moo_group *group, uint32_t rank)
{
    return (unsigned char *)group->segment + HEADER_BYTES +
           (size_t)group->view.slots[rank] * REGION_BYTES + 2 * SMALL_BYTES;
}

/* SMALL_BYTES of a member, which the next operation but one uses again. */
static inline unsigned char *mooi_small_buffer(moo_group *group,
                                               const moo_work *work,
                                               uint32_t rank)
{
    return mooi_bulk_buffer(group, rank) - 2 * SMALL_BYTES +
           (work->seq & 1) * SMALL_BYTES;
}

/* ---- links.c ---- */

/* What this member's host sends large tensors by, a MOO_TRANSPORT_… bit; 0: it
 * is not connected in this epoch. Mutex held. */
uint32_t mooi_carrier(const moo_group *group);

/* ---- shm.c ---- */

/* Whether what all agree on can be done in a group of this size. */
bool mooi_possible(moo_group *group, moo_work *work);
/* Show the others of the host all that this member brings, SMALL_BYTES at
 * most. */
void mooi_put_small(moo_group *group, moo_work *work);

/* ---- group.c ---- */

/* moo_group_join with a segment that the caller has mapped, and keeps so. */
moo_err mooi_join_at(struct mooi_segment *segment, uint64_t process_id,
                     uint32_t min_size, double timeout_s,
                     const moo_group_options *options, moo_group **group);
/* ---- work.c; the group's mutex held ---- */

/* Lets go of the mutex, and of the group if this was its last hold. */
void mooi_group_rele(moo_group *group);
/* Return when no thread is inside an operation, nor will be: the group's own
 * has ended. */
void mooi_group_stop(moo_group *group);
/* All that is queued ends as MOO_ECLOSED. */
void mooi_group_fail_queued(moo_group *group);

/* ---- process.c: futexes, and processes ---- */

/* Sleep while *word == value, at most `seconds`. false: a signal came. */
bool mooi_futex_wait(_Atomic uint32_t *word, uint32_t value, double seconds);
void mooi_futex_wake(_Atomic uint32_t *word);
/* Wake whoever sleeps for progress, in all cells or in one: the membership or a
 * decision has changed. */
void mooi_notify_all(struct mooi_segment *segment);
void mooi_notify(struct mooi_cell *cell);
/* When process `pid` was started, in clock ticks since boot; 0: no such. */
uint32_t mooi_start_time(int32_t pid);
/* A pidfd for that very process. -1: it is dead. -2: errno says why not. */
int mooi_watch_open(int32_t pid, uint32_t start);
bool mooi_process_dead(int32_t pid, uint32_t start);
bool mooi_watch_dead(int pidfd);
/* Wait at most `timeout_ms` for its death, and say whether it came. */
bool mooi_watch_wait(int pidfd, int timeout_ms);

/* ---- membership.c ---- */

/* The lock of the segment; taken over, and the segment repaired, if its holder
 * was killed. Short: nobody blocks while holding it. */
void mooi_segment_lock(moo_group *group);
void mooi_segment_unlock(moo_group *group);
struct mooi_view *mooi_current_view(struct mooi_segment *segment);
/* The rank of a slot, or -1. */
int mooi_rank_in(const struct mooi_view *view, uint32_t slot);
/* Segment locked. Whether the process that took the slot lives. */
bool mooi_slot_alive(struct mooi_segment *segment, uint32_t slot);
/* Segment locked. The view in which operation `seq` runs, or would have run.
 * NULL: more than VIEWS views have followed it. */
const struct mooi_view *mooi_view_at(struct mooi_segment *segment,
                                     uint64_t seq);
/* Segment locked. The next epoch: who is left, in the old order, then newcomers
 * if they are to be let in or nothing can run without them. `drop_dead`:
 * without the dead; for when members are told, see membership.c. */
void mooi_transition(struct mooi_segment *segment, uint64_t first_seq,
                     bool admit, bool drop_dead);
/* A barrier ended so. Newcomers enter at barriers: if none succeeds, this is
 * what keeps them out, and moo_group_obstacle tells them. */
void mooi_note_barrier(moo_group *group, const moo_outcome *outcome);
/* After a barrier that lets newcomers in. */
void mooi_admit(moo_group *group, uint64_t seq);
/* Segment locked. false: `seq` was decided before. The view that it runs in is
 * the current one if it is open, as no epoch ends before all its operations
 * are decided. */
bool mooi_abort_locked(struct mooi_segment *segment, uint64_t seq,
                       enum mooi_reason why, uint32_t rank, uint32_t witness);
/* Decide that operation `seq` is aborted, if that is open. */
void mooi_abort(moo_group *group, uint64_t seq, enum mooi_reason why,
                uint32_t rank);
/* `seq`, which has not begun here, is late: abort it if there are too few
 * members, which else it need not wait for any more. */
void mooi_give_up(moo_group *group, uint64_t seq);
/* An abort can be seen before the epoch that follows from it; after this
 * call that epoch can be seen, too. */
void mooi_settle(moo_group *group);
/* false: it was aborted before. */
bool mooi_commit(moo_group *group, uint64_t seq);
/* The decision on `seq` in *word. false: still open. */
bool mooi_decided(moo_group *group, uint64_t seq, uint64_t *word);
static inline enum mooi_reason mooi_reason_of(uint64_t word)
{
    return (enum mooi_reason)((word >> 16) & 0xff);
}

/* ---- entry.c ---- */

/* Take a slot. Fails without a trace. */
moo_err mooi_enter(moo_group *group);
/* Give the slot back. `midway`: in the middle of an operation. */
void mooi_exit(moo_group *group, bool midway);

/* ---- view.c ---- */

/* Take over the view of the next operation, if it is another than the group's.
 * MOOI_PENDING: this member is in none. */
moo_err mooi_adopt(moo_group *group);
/* Wait, within the slice, until this member is in a view of enough members.
 * MOO_EPEER: operation `seq`, if not 0, was aborted before it began here; as it
 * is at `deadline`, if there are too few members then. */
moo_err mooi_wait_formed(moo_group *group, uint64_t seq, double deadline);
/* ---- watch.c ---- */

/* Watch all others of the view from now on, and nobody else. `members` by slot,
 * as of the view. */
void mooi_watch_members(moo_group *group,
                        const struct mooi_member members[MOO_GROUP_MAX]);
/* The rank of a member whose process is dead, or -1. */
int mooi_find_dead(moo_group *group);
/* Let go of what mooi_watch_members opened. */
void mooi_unwatch(moo_group *group);

/* ---- hosts.c ---- */

/* The identity of the host that `name` stands for. */
void mooi_host_name(const char *name, uint8_t out[MOOI_HOST_BYTES]);
/* `members` by slot, as of `view`. */
void mooi_hosts_find(struct mooi_hosts *hosts, const struct mooi_view *view,
                     uint32_t rank, const struct mooi_member *members);
static inline uint32_t mooi_leader(const struct mooi_hosts *hosts,
                                   uint32_t host)
{
    return hosts->order[hosts->start[host]];
}
static inline uint32_t mooi_team(const struct mooi_hosts *hosts, uint32_t host)
{
    return (uint32_t)(hosts->start[host + 1] - hosts->start[host]);
}

/* ---- operation.c ---- */

/* Move `work`, the first in the queue, on until it is done (MOO_OK, with
 * work->outcome set) or the slice is over (MOOI_PENDING). */
moo_err mooi_operation_run(moo_group *group, moo_work *work);
/* ---- agree.c ---- */

/* Wait until all ranks have begun `work`, and see that they mean the same.
 * MOO_EMISMATCH: they do not, and the outcome's text says so. */
moo_err mooi_agree(moo_group *group, moo_work *work);
/* Decide that `work` succeeds, once all that it needs is in shared memory.
 * MOO_EPEER: it was aborted before. */
moo_err mooi_conclude(moo_group *group, moo_work *work);

/* ---- progress.c ---- */

/* Store the counter and wake whoever sleeps for it. */
void mooi_publish(moo_group *group, enum mooi_counter which, uint64_t value);
uint64_t mooi_counter_of(moo_group *group, uint32_t rank,
                         enum mooi_counter which);
/* Wait until the counters of all other ranks have reached `target`.
 * MOOI_PENDING: the slice is over. MOO_EPEER: work was aborted. */
moo_err mooi_await(moo_group *group, moo_work *work, enum mooi_counter which,
                   uint64_t target);
moo_err mooi_await_rank(moo_group *group, moo_work *work, uint32_t rank,
                        enum mooi_counter which, uint64_t target);
/* Look for deaths, now and then; for the deadline, blaming `rank`; and for the
 * decision on `work`. MOO_EPEER: it was aborted. */
moo_err mooi_inspect(moo_group *group, moo_work *work, uint32_t rank,
                     double now);
/* The connection with `rank` failed. Abort `work` for whatever is behind it,
 * which may take half a second to find out. With this member's own rank: it
 * cannot go on by itself. Always MOO_EPEER. */
moo_err mooi_lost(moo_group *group, moo_work *work, uint32_t rank);
/* How patiently to spin and how large the buffers should be, given the
 * members and the cores. */
void mooi_tune(moo_group *group);

/* ---- reduce.c ---- */

/* NULL: there is no such reduction (a mean of integers). */
mooi_reducer *mooi_reducer_for(moo_dtype dtype, moo_reduction op);
/* The same, but to partial results, which are floats for half precision, and
 * of a mean the sum. */
mooi_reducer *mooi_partial_reducer(moo_dtype dtype, moo_reduction op);
/* Half precision to float and back, rounded once. No overlap. */
void mooi_widen(moo_dtype dtype, float *to, const void *from, size_t elements);
void mooi_narrow(moo_dtype dtype, void *to, const float *from,
                 size_t elements);
/* x[i] /= count, of floats or doubles. */
void mooi_divide(moo_dtype dtype, void *x, uint32_t count, size_t elements);
static inline bool mooi_is_half(moo_dtype dtype)
{
    return dtype == MOO_DT_F16 || dtype == MOO_DT_BF16;
}
size_t mooi_dtype_bytes(moo_dtype dtype);
const char *mooi_dtype_name(moo_dtype dtype);
const char *mooi_reduction_name(moo_reduction op);

/* ---- spans.c ---- */

/* Copies the arrays, not the bytes that they point to. */
moo_err mooi_spans_init(struct mooi_spans *spans, const moo_request *request);
void mooi_spans_fini(struct mooi_spans *spans);
void mooi_spans_read(const struct mooi_spans *spans, uint64_t offset,
                     void *to, size_t bytes);
void mooi_spans_write(const struct mooi_spans *spans, uint64_t offset,
                      const void *from, size_t bytes);
/* Where byte `offset` of the inputs, or outputs, lies. *run: how many bytes
 * are asked for; reduced to how many follow there without a gap. */
unsigned char *mooi_spans_at(const struct mooi_spans *spans, bool output,
                             uint64_t offset, uint64_t *run);
/* The span that holds byte `offset`, which lies inside. */
uint32_t mooi_spans_find(const struct mooi_spans *spans, uint64_t offset);

#endif
