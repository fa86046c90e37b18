/* SPDX-License-Identifier: MIT */
/*
 * rounds.c: how the tensors of an operation are cut into rounds and chunks.
 *
 * A round's buffer, as the ring sees it, holds
 *   allreduce         a run of the tensors, cut into one chunk per host;
 *   reduce_scatter,   a piece of every rank's row, by host, then rank: the
 *   all_gather        chunk of a host is the pieces of its members;
 *   broadcast         a run of the tensors, as one chunk.
 *
 * On a host of one member this buffer does not exist: its bytes are those of
 * the tensors themselves. On others it is in buffers.h, MOOI_ROUND_STAGES of
 * them: each member's input in its own region; their partial results, and the
 * results from the ring, in the leader's.
 */
#include <string.h>

#include "collective/buffers.h"
#include "collective/ring.h"

#define CHUNK_BYTES ((uint64_t)512 << 10)
#define ROUND_BYTES ((uint64_t)384 << 10) /* if hosts are shared */
#define STAGE_BYTES (4 * ROUND_BYTES)

_Static_assert(MOOI_ROUND_STAGES * STAGE_BYTES <= BULK_BYTES,
               "the rounds must fit");

static const struct mooi_cut *cut_of(const moo_group *group)
{
    return &group->ring->cut;
}

/* ---- the sizes of things, in elements ---- */

static bool by_rows(const moo_work *work)
{
    return work->kind == MOO_GROUP_ALL_GATHER ||
           work->kind == MOO_GROUP_REDUCE_SCATTER;
}

static bool reduces(const moo_work *work)
{
    return work->kind == MOO_GROUP_ALLREDUCE ||
           work->kind == MOO_GROUP_REDUCE_SCATTER;
}

void mooi_cut_find(moo_group *group, moo_work *work, struct mooi_cut *cut)
{
    const struct mooi_hosts *hosts = &group->hosts;
    bool half = mooi_is_half((moo_dtype)work->signature.dtype);
    uint64_t parts = work->kind == MOO_GROUP_BROADCAST   ? 1
                     : work->kind == MOO_GROUP_ALLREDUCE ? hosts->count
                                                         : group->view.size;
    uint64_t most = CHUNK_BYTES, bytes = work->spans.bytes, each;
    if (group->view.size > hosts->count) /* some share a host */
        most = mooi_lesser(most, ROUND_BYTES / parts) & ~(uint64_t)63;
    if (work->kind == MOO_GROUP_REDUCE_SCATTER)
        bytes = work->signature.output_bytes;
    cut->element = reduces(work) ? work->element : 1;
    cut->partial = reduces(work) && half ? sizeof(float) : cut->element;
    cut->elements = bytes / cut->element;
    cut->unit = most / cut->element;
    each = cut->unit * (work->kind == MOO_GROUP_ALLREDUCE ? parts : 1);
    cut->rounds = (cut->elements + each - 1) / each;
}

/* Of an allreduce's round: its start, its length, and its chunks. */
struct run {
    uint64_t begin, length, each;
};

static struct run run_of(const moo_group *group, uint64_t round)
{
    const struct mooi_cut *cut = cut_of(group);
    uint64_t hosts = group->hosts.count, full = cut->unit * hosts;
    struct run run = {.begin = round * full};
    uint64_t line = 64 / cut->element;
    run.length = mooi_lesser(full, cut->elements - run.begin);
    run.each = ((run.length + hosts - 1) / hosts + line - 1) / line * line;
    return run;
}

/* The length of a round's piece, of each rank's row or of a broadcast. */
static uint64_t piece_of(const moo_group *group, uint64_t round)
{
    const struct mooi_cut *cut = cut_of(group);
    return mooi_lesser(cut->unit, cut->elements - round * cut->unit);
}

static uint64_t count_of(moo_group *group, moo_work *work, uint64_t round,
                         uint32_t chunk)
{
    if (work->kind == MOO_GROUP_ALLREDUCE) {
        struct run run = run_of(group, round);
        uint64_t from = mooi_lesser(chunk * run.each, run.length);
        return mooi_lesser(run.each, run.length - from);
    }
    if (by_rows(work))
        return piece_of(group, round) * mooi_team(&group->hosts, chunk);
    return piece_of(group, round);
}

/* The start of a chunk in the round's buffer. */
static uint64_t start_of(moo_group *group, moo_work *work, uint64_t round,
                         uint32_t chunk)
{
    if (work->kind == MOO_GROUP_ALLREDUCE) {
        struct run run = run_of(group, round);
        return mooi_lesser(chunk * run.each, run.length);
    }
    return by_rows(work)
               ? piece_of(group, round) * group->hosts.start[chunk]
               : 0;
}

/* The whole buffer. */
static uint64_t total_of(moo_group *group, moo_work *work, uint64_t round)
{
    if (work->kind == MOO_GROUP_ALLREDUCE)
        return run_of(group, round).length;
    return piece_of(group, round) * (by_rows(work) ? group->view.size : 1);
}

/* ---- a host of one member: straight from and into the tensors ---- */

/* Byte `at` of a chunk by rows: the rank of the row, and the byte in it. */
static uint64_t in_row(moo_group *group, uint64_t round, uint32_t chunk,
                       uint64_t at, uint64_t *run, uint32_t *rank)
{
    const struct mooi_cut *cut = cut_of(group);
    uint64_t piece = piece_of(group, round) * cut->element;
    uint32_t place = group->hosts.start[chunk] + (uint32_t)(at / piece);
    *rank = group->hosts.order[place];
    *run = mooi_lesser(*run, piece - at % piece);
    return round * cut->unit * cut->element + at % piece;
}

/* The place of byte `at` of a round's chunk: in the tensor, or in the row of
 * *rank, which is 0 if there are no rows. */
static uint64_t in_tensor(moo_group *group, moo_work *work, uint64_t round,
                          uint32_t chunk, uint64_t at, uint64_t *run,
                          uint32_t *rank)
{
    const struct mooi_cut *cut = cut_of(group);
    *rank = 0;
    if (work->kind == MOO_GROUP_ALLREDUCE)
        return at + (run_of(group, round).begin +
                     start_of(group, work, round, chunk)) * cut->element;
    if (work->kind == MOO_GROUP_BROADCAST)
        return at + round * cut->unit;
    return in_row(group, round, chunk, at, run, rank);
}

static unsigned char *tensor_source(moo_group *group, moo_work *work,
                                    uint64_t round, uint32_t chunk,
                                    uint64_t at, uint64_t *run)
{
    uint32_t rank;
    at = in_tensor(group, work, round, chunk, at, run, &rank);
    if (work->kind == MOO_GROUP_REDUCE_SCATTER)
        at += rank * work->signature.output_bytes;
    return mooi_spans_at(&work->spans, false, at, run);
}

static unsigned char *tensor_sink(moo_group *group, moo_work *work,
                                  uint64_t round, uint32_t chunk, uint64_t at,
                                  uint64_t *run)
{
    uint32_t rank;
    at = in_tensor(group, work, round, chunk, at, run, &rank);
    if (work->kind == MOO_GROUP_REDUCE_SCATTER)
        return work->output + at;
    if (work->kind == MOO_GROUP_ALL_GATHER)
        return work->output + rank * work->spans.bytes + at;
    return mooi_spans_at(&work->spans, true, at, run);
}

/* ---- a shared host: the round's buffer is in shared memory ---- */

static unsigned char *stage_of(moo_group *group, uint32_t rank, uint64_t round)
{
    return mooi_bulk_buffer(group, rank) +
           round % MOOI_ROUND_STAGES * STAGE_BYTES;
}

/* The input of `rank`. */
static unsigned char *put_buffer(moo_group *group, uint32_t rank,
                                 uint64_t round)
{
    return stage_of(group, rank, round);
}

/* The leader's region: partial results, then results. */
static unsigned char *partial_buffer(moo_group *group, uint64_t round)
{
    uint32_t leader = mooi_leader(&group->hosts, group->hosts.mine);
    return stage_of(group, leader, round) + ROUND_BYTES;
}

static unsigned char *result_buffer(moo_group *group, uint64_t round)
{
    return partial_buffer(group, round) + 2 * ROUND_BYTES;
}

static unsigned char *shared_source(moo_group *group, moo_work *work,
                                    uint64_t round, uint32_t chunk,
                                    uint64_t at, uint64_t *run)
{
    uint32_t rank = work->signature.root;
    if (reduces(work))
        return partial_buffer(group, round) +
               start_of(group, work, round, chunk) * cut_of(group)->partial +
               at;
    if (work->kind == MOO_GROUP_ALL_GATHER)
        at = in_row(group, round, chunk, at, run, &rank) -
             round * cut_of(group)->unit;
    return put_buffer(group, rank, round) + at;
}

static unsigned char *shared_sink(moo_group *group, moo_work *work,
                                  uint64_t round, uint32_t chunk, uint64_t at,
                                  uint64_t *run)
{
    (void)run;
    return result_buffer(group, round) +
           start_of(group, work, round, chunk) * cut_of(group)->element + at;
}

/* ---- the plan ---- */

void mooi_plan_make(moo_group *group, moo_work *work, struct mooi_plan *plan)
{
    const struct mooi_hosts *hosts = &group->hosts;
    const struct mooi_cut *cut = cut_of(group);
    uint32_t others = hosts->count - 1, self = hosts->mine;
    uint32_t left = (self + others) % hosts->count, widest = 1;
    bool broadcasts = work->kind == MOO_GROUP_BROADCAST;
    for (uint32_t host = 0; by_rows(work) && host < hosts->count; host++)
        if (mooi_team(hosts, host) > widest)
            widest = mooi_team(hosts, host);
    *plan = (struct mooi_plan){
        .hosts = hosts->count, .self = self,
        .reduce = reduces(work) ? others : 0,
        .gather = broadcasts                              ? 1
                  : work->kind == MOO_GROUP_REDUCE_SCATTER ? 0
                                                           : others,
        .shift = work->kind == MOO_GROUP_REDUCE_SCATTER,
        .chain = broadcasts,
        .first = broadcasts ? hosts->of[work->signature.root] : 0,
        .rounds = cut->rounds, .element = cut->element,
        .partial = cut->partial, .own_partial = mooi_team(hosts, self) > 1,
        .left_partial = mooi_team(hosts, left) > 1,
        .slot_bytes = mooi_align(cut->unit * widest * cut->partial),
        .divisor = work->signature.op == MOO_OP_MEAN ? group->view.size : 1,
        .count = count_of,
        .source = mooi_shares(group) ? shared_source : tensor_source,
        .sink = mooi_shares(group) ? shared_sink : tensor_sink};
}

/* ---- what the members of a shared host do ---- */

void mooi_round_put(moo_group *group, moo_work *work, uint64_t round)
{
    const struct mooi_cut *cut = cut_of(group);
    const struct mooi_spans *spans = &work->spans;
    unsigned char *to = put_buffer(group, group->rank, round);
    uint64_t from = round * cut->unit * cut->element;
    uint64_t piece = piece_of(group, round) * cut->element;
    if (work->kind == MOO_GROUP_ALLREDUCE) {
        struct run run = run_of(group, round);
        mooi_spans_read(spans, run.begin * cut->element, to,
                        run.length * cut->element);
    } else if (work->kind != MOO_GROUP_REDUCE_SCATTER) {
        if (work->kind == MOO_GROUP_ALL_GATHER ||
            group->rank == work->signature.root)
            mooi_spans_read(spans, from, to, piece);
    } else {
        for (uint32_t i = 0; i < group->view.size; i++)
            mooi_spans_read(spans, from + group->hosts.order[i] *
                                              work->signature.output_bytes,
                            to + i * piece, piece);
    }
}

void mooi_round_reduce(moo_group *group, moo_work *work, uint64_t round)
{
    const struct mooi_hosts *hosts = &group->hosts;
    const struct mooi_cut *cut = cut_of(group);
    uint32_t team = mooi_team(hosts, hosts->mine);
    const uint16_t *members = &hosts->order[hosts->start[hosts->mine]];
    const void *sources[MOO_GROUP_TEAM_MAX];
    uint64_t line = 64 / cut->element, begin = 0;
    uint64_t total = total_of(group, work, round);
    uint64_t each = ((total + team - 1) / team + line - 1) / line * line;
    if (!reduces(work))
        return;
    for (uint32_t i = 0; i < team; i++)
        if (members[i] == group->rank)
            begin = mooi_lesser(i * each, total);
    for (uint32_t i = 0; i < team; i++)
        sources[i] = put_buffer(group, members[i], round) +
                     begin * cut->element;
    work->partial(partial_buffer(group, round) + begin * cut->partial, sources,
                  team, mooi_lesser(each, total - begin));
}

static void get_rows(moo_group *group, moo_work *work, uint64_t round)
{
    const struct mooi_hosts *hosts = &group->hosts;
    uint64_t unit = cut_of(group)->unit, piece = piece_of(group, round);
    for (uint32_t i = 0; i < group->view.size; i++) {
        uint32_t rank = hosts->order[i];
        memcpy(work->output + rank * work->spans.bytes + round * unit,
               hosts->of[rank] == hosts->mine
                   ? put_buffer(group, rank, round)
                   : result_buffer(group, round) + i * piece,
               piece);
    }
}

void mooi_round_get(moo_group *group, moo_work *work, uint64_t round)
{
    const struct mooi_hosts *hosts = &group->hosts;
    const struct mooi_cut *cut = cut_of(group);
    uint32_t root = work->signature.root, place = 0;
    uint64_t piece = piece_of(group, round) * cut->element;
    const unsigned char *from = result_buffer(group, round);
    switch (work->kind) {
    case MOO_GROUP_ALLREDUCE: {
        struct run run = run_of(group, round);
        mooi_spans_write(&work->spans, run.begin * cut->element, from,
                         run.length * cut->element);
        return;
    }
    case MOO_GROUP_REDUCE_SCATTER:
        while (hosts->order[place] != group->rank)
            place++;
        memcpy(work->output + round * cut->unit * cut->element,
               from + place * piece, piece);
        return;
    case MOO_GROUP_ALL_GATHER:
        get_rows(group, work, round);
        return;
    default:
        if (hosts->of[root] == hosts->mine)
            from = put_buffer(group, root, round);
        if (group->rank != root)
            mooi_spans_write(&work->spans, round * cut->unit, from, piece);
    }
}
