/* SPDX-License-Identifier: MIT */
/*
 * ring.h: collective operations between hosts.
 *
 *   ring.c      the operations, as the rest of the group sees them
 *   rounds.c    how tensors are cut, and where the bytes of a round lie
 *   stream.c    reduce-scatter and all-gather, as one stream of bytes
 *   exchange.c  everybody's few bytes to everybody, in log2(hosts) steps
 *   fold.c      the arithmetic of one hop
 *   rendezvous.c  how the connections of one epoch are made,
 *   connect.c   each one of them
 *   links.c     and watched
 *   lines.c     what leaders tell each other beside the tensors' bytes
 *   pipe.c      bytes from one host's leader to another's, over TCP
 *   bulk.c      and through a fabric
 *
 * The ring allreduce, a reduce-scatter and then an all-gather, is that of
 * Patarasuk and Yuan, "Bandwidth Optimal All-reduce Algorithms for Clusters of
 * Workstations", Journal of Parallel and Distributed Computing 69(2), 2009. For
 * few bytes see exchange.c.
 *
 * Each host takes part through its leader. If it has other members, they put
 * their tensors into shared memory (buffers.h), reduce them there together,
 * each its share, and get the results from there; a host of one member works
 * straight on its tensors. The leaders are numbered like their hosts, and host
 * h sends to h + 1, h + 2, h + 4, …; the first of these connections make the
 * ring.
 *
 * Beside each of these connections there is a *line*, which carries frames
 * (frames.h): the host's call, before its first bytes; checksums; and the steps
 * of the barrier that commits the operation. Nothing global precedes the data:
 * a leader takes no byte of an operation from a neighbour whose call it has not
 * compared with its own, so bytes of a call that differs get no further than
 * one hop, and no tensor is written.
 */
#ifndef MOOI_RING_H
#define MOOI_RING_H

#include "collective/bulk.h"
#include "collective/group.h"
#include "collective/pipe.h"
#include "collective/protocol/commit.h"

/* ---- lines.c ---- */

#define MOOI_LINE_BYTES (2 * MOOI_SMALL_FRAME_BYTES)

/* Frames to the leader of host mine + (1 << i), and from that of
 * mine - (1 << i). Each has its length before it, in two bytes. */
struct mooi_line {
    struct mooi_pipe to, from;
    uint32_t out_bytes, in_bytes;
    uint8_t out[MOOI_LINE_BYTES], in[MOOI_LINE_BYTES];
    bool ahead;  /* the next frame is of a later operation: it waits */
    /* of the present operation: */
    bool called; /* the other's call has come, and is like ours */
    bool told, summed; /* our checksum is sent; theirs has come */
    uint32_t sum;
};

/* The lines stand, in a new epoch. */
void mooi_lines_open(moo_group *group);
/* Operation `work` begins: tell the others its call. */
void mooi_lines_begin(moo_group *group, moo_work *work);
void mooi_line_send(struct mooi_line *line, const struct mooi_frame *frame);
/* Send and take what there is, without blocking. MOO_EMISMATCH: the calls
 * differ, here or elsewhere. As mooi_links_wait. */
moo_err mooi_lines_pump(moo_group *group, moo_work *work);
/* Once the lines stand: let the neighbours in the ring know this leader's
 * registered memory, and get theirs. MOO_ETIMEOUT: not yet. Any other error: of
 * the connection with *rank. */
moo_err mooi_lines_describe(moo_group *group, uint32_t *rank);

/* ---- rendezvous.c, links.c ---- */

struct mooi_links {
    uint32_t epoch; /* of these connections; 0: none */
    uint32_t count; /* of each direction */
    struct mooi_line lines[MOOI_LINKS];
    /* The fabrics of the neighbours in the ring, once `known`. */
    bool described, next_known, before_known;
    struct mooi_fabric_post next, before;
    struct mooi_line back; /* what comes from the next host meanwhile */
    struct mooi_pipe to[MOOI_LINKS];   /* host mine + (1 << i) */
    struct mooi_pipe from[MOOI_LINKS]; /* host mine - (1 << i) */
    struct mooi_bulk *bulk_to, *bulk_from; /* of the first; NULL: by TCP */
    double looked; /* last check for silence */
    struct mooi_contact *contact; /* while connecting */
};

/* Make the connections of the present epoch, within the slice, unless they
 * exist. Called by leaders only, in an operation that all members of their hosts
 * have begun. MOOI_PENDING: call again. MOO_EPEER: one cannot be made, and
 * `work` was aborted. */
moo_err mooi_links_make(moo_group *group, moo_work *work);

/* The connections of this epoch exist: tell the members of this host which
 * transport carries its large tensors. */
void mooi_carrier_tell(moo_group *group);

/* Give up unfinished connections. Harmless if there are none. */
void mooi_contact_end(struct mooi_links *links);
/* Give up those that others have made for a later epoch. */
void mooi_strangers_end(struct mooi_ring *ring);

/* The leader at the other end of to[i], or of from[i]. */
static inline uint32_t mooi_link_target(const moo_group *group, uint32_t i)
{
    const struct mooi_hosts *hosts = &group->hosts;
    return mooi_leader(hosts, (hosts->mine + (1u << i)) % hosts->count);
}

static inline uint32_t mooi_link_origin(const moo_group *group, uint32_t i)
{
    const struct mooi_hosts *hosts = &group->hosts;
    uint32_t before = hosts->mine + hosts->count - (1u << i) % hosts->count;
    return mooi_leader(hosts, before % hosts->count);
}

/* An operation begins to send and receive. */
void mooi_links_restart(struct mooi_links *links);

/* As mooi_pipe_send and mooi_pipe_receive, by the ring. `rest`: so many of the
 * wanted bytes arrive without any action of this host. */
moo_err mooi_links_send(struct mooi_links *links, const struct iovec *parts,
                        int count, size_t *moved);
moo_err mooi_links_receive(struct mooi_links *links,
                           const struct iovec *parts, int count,
                           uint64_t rest, size_t *moved);

/* Whether all sent bytes have left, as far as it is up to us. *err: not MOO_OK
 * if the connection is gone. */
bool mooi_links_flushed(struct mooi_links *links, moo_err *err);

/* For a leader whose bytes have all been sent and received: if anybody wants
 * checksums, wait for those of the others, and compare them with ours.
 * MOO_EPEER: one is not, and `work` was aborted. As mooi_links_wait. */
moo_err mooi_links_check(moo_group *group, moo_work *work);

/* Sleep until one of to[out] and from[in] is ready, an index of -1 meaning
 * neither is waited for, or until frames have come, which are taken; or for a
 * moment. `bulk`: they are the ring's, which may be a fabric. Check for
 * failures before. MOOI_PENDING: the slice is over, or a signal came.
 * MOO_EPEER: `work` was aborted. MOO_EMISMATCH: see mooi_lines_pump. */
moo_err mooi_links_wait(moo_group *group, moo_work *work, int out, int in,
                        bool bulk);

/* ---- stream.c ---- */

/*
 * Rounds follow each other in one stream of bytes, from each host to the next.
 * A round's buffer is cut into a chunk for each host. In each of its steps a
 * host sends one chunk and receives another, which is the one that it sends in
 * the next step: first reduced with its own (`reduce` steps), then as it is
 * (`gather` steps). The bytes that a step sends depend on those received
 * exactly one chunk earlier in the stream; so as long as a chunk takes longer
 * on its way than a hop's latency, nobody ever waits, also not between rounds.
 *
 * It cannot block for ever: the host that is the farthest behind with sending
 * has, or is being sent, all that it needs next; and the host that receives
 * from it holds back at most two chunks, which have been sent by then.
 */
struct mooi_cursor {
    uint64_t round, at; /* at: bytes of the step */
    uint32_t step;
};

struct mooi_plan {
    uint32_t hosts, self;
    uint32_t reduce, gather; /* steps of each kind */
    uint32_t shift;          /* in which chunk of a round comes first */
    bool chain;              /* one chunk, from host `first` to the last */
    uint32_t first;
    uint64_t rounds;
    size_t element, partial;      /* bytes of one, in either form */
    bool own_partial, left_partial; /* the inputs of hosts self and self - 1 */
    size_t slot_bytes;            /* the largest chunk, as partial results */
    uint32_t divisor;
    /* How many elements a chunk of a round has. */
    uint64_t (*count)(moo_group *, moo_work *, uint64_t round, uint32_t chunk);
    /* Where byte `at` of a chunk lies that this host puts in, or of a result;
     * *run, set to the bytes wanted, is reduced to those without a gap. */
    unsigned char *(*source)(moo_group *, moo_work *, uint64_t round,
                             uint32_t chunk, uint64_t at, uint64_t *run);
    unsigned char *(*sink)(moo_group *, moo_work *, uint64_t round,
                           uint32_t chunk, uint64_t at, uint64_t *run);
};

struct mooi_stream {
    struct mooi_plan plan;
    uint64_t enabled; /* rounds whose source and sink may be used */
    struct mooi_cursor out, in;
    size_t held; /* bytes in `bounce` that do not make an element yet */
    unsigned char *memory, *bounce, *slots;
    size_t room; /* of `memory` */
};

/* Begin with `plan`, nothing enabled. MOO_ENOMEM. */
moo_err mooi_stream_begin(moo_group *group, moo_work *work,
                          const struct mooi_plan *plan);
/* Go on until the first `rounds` rounds, all enabled, are done: received and
 * passed on. As mooi_links_wait. */
moo_err mooi_stream_drive(moo_group *group, moo_work *work, uint64_t rounds);

/* ---- exchange.c ---- */

/* Bytes of each host, one after the other in host order. */
struct mooi_exchange {
    unsigned char *data;
    uint32_t start[MOO_GROUP_HOSTS_MAX + 1]; /* by host; the last: the end */
    uint32_t step, sent, received;     /* how far it has come */
};

/* Complete everybody's `data`, of which this host's part is there. As
 * mooi_links_wait. */
moo_err mooi_bruck_all_gather(moo_group *group, moo_work *work,
                              struct mooi_exchange *exchange);

/* ---- rounds.c ---- */

/* How an operation is cut. Elements are bytes where nothing is reduced. */
struct mooi_cut {
    uint64_t elements; /* of all, or of each rank's row */
    uint64_t unit;     /* of a chunk, a row's piece, or a broadcast's round */
    uint64_t rounds;
    size_t element, partial;
};

/* The same on all ranks. */
void mooi_cut_find(moo_group *group, moo_work *work, struct mooi_cut *cut);
void mooi_plan_make(moo_group *group, moo_work *work, struct mooi_plan *plan);
/* The work of the members of a shared host on a round: put their own bytes
 * into shared memory, reduce a share of what all have put, take the results
 * out. */
void mooi_round_put(moo_group *group, moo_work *work, uint64_t round);
void mooi_round_reduce(moo_group *group, moo_work *work, uint64_t round);
void mooi_round_get(moo_group *group, moo_work *work, uint64_t round);
/* How many rounds may be in shared memory at once. */
#define MOOI_ROUND_STAGES 4u

/* ---- ring.c ---- */

struct mooi_ring {
    struct mooi_links links;
    struct mooi_commit commit; /* of this epoch */
    uint64_t begun; /* the operation that mooi_lines_begin has begun */
    struct mooi_proof *strangers; /* have connected; see rendezvous.h */
    struct mooi_bounce *bounce; /* NULL: no fabric */
    bool looked_for_fabric;
    struct mooi_stream stream;
    struct mooi_exchange exchange;
    struct mooi_cut cut;
};

static inline bool mooi_leads(const moo_group *group)
{
    return mooi_leader(&group->hosts, group->hosts.mine) == group->rank;
}

/* Whether this host's members work through shared memory. */
static inline bool mooi_shares(const moo_group *group)
{
    return mooi_team(&group->hosts, group->hosts.mine) > 1;
}

/* Close all connections: the epoch is over. Those at their other ends see it
 * and look for the decision. Harmless if there are none. */
void mooi_ring_hang_up(moo_group *group);
void mooi_ring_free(moo_group *group);
/* In a forked child, whose parent goes on: let go of the connections. */
void mooi_ring_disown(moo_group *group);

/* ---- fold.c ---- */

struct mooi_operand {
    const void *data;
    bool partial; /* else: elements of the tensors' type */
};

/* to[i] = op(a[i], b[i]), partial results or, divided by `divisor` if that is
 * more than 1 and rounded, final ones. `to` overlaps neither. */
void mooi_fold(const moo_work *work, void *to, bool partial,
               struct mooi_operand a, struct mooi_operand b, size_t elements,
               uint32_t divisor);

#endif
