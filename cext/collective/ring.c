/* SPDX-License-Identifier: MIT */
/*
 * ring.c: collective operations between hosts.
 *
 * Small tensors take one exchange: everybody's bytes go to every host, and
 * everybody reduces all of them, in rank order. Large ones go round by round
 * through the ring. On a shared host each round takes four steps, which
 * overlap with those of its neighbours:
 *
 *   put     every member copies its part into shared memory,
 *   reduce  every member reduces a share of what all of them put,
 *   ring    the leader takes the round through the ring,
 *   get     every member copies the result to its output.
 *
 * The ring runs in the leader's thread, which enables a round, goes on until
 * the round before has arrived, and returns for the next put. An operation is
 * committed when every leader has all of its bytes.
 */
#include <stdlib.h>
#include <string.h>

#include "collective/buffers.h"
#include "collective/progress.h"
#include "collective/ring.h"

#define SMALL_LIMIT ((uint64_t)64 << 10) /* of all ranks together */
#define GATHERED (SMALL_BYTES / 2)       /* their offset in the small buffer */

/* The progress of an operation, in work->stage. */
enum { ENTER, AGREE, CONNECT, PUT_STEP, REDUCE_STEP, RING_STEP, GET_STEP, END };

/* ---- waiting for some ---- */

static moo_err await_team(moo_group *group, moo_work *work,
                          enum mooi_counter which, uint64_t target)
{
    const struct mooi_hosts *hosts = &group->hosts;
    moo_err err = MOO_OK;
    for (uint32_t i = hosts->start[hosts->mine];
         !err && i < hosts->start[hosts->mine + 1]; i++)
        if (hosts->order[i] != group->rank)
            err = mooi_await_rank(group, work, hosts->order[i], which, target);
    return err;
}

static moo_err await_leader(moo_group *group, moo_work *work, uint64_t target)
{
    uint32_t leader = mooi_leader(&group->hosts, group->hosts.mine);
    return mooi_await_rank(group, work, leader, RINGED, target);
}

/* Every leader has all its bytes, so nobody depends on a connection any
 * more. */
static moo_err conclude(moo_group *group, moo_work *work)
{
    const struct mooi_hosts *hosts = &group->hosts;
    uint64_t target = mooi_base_of(work) + STEP_LAST;
    moo_err err = mooi_leads(group) ? mooi_links_check(group, work) : MOO_OK;
    if (!err && mooi_leads(group))
        mooi_publish(group, RINGED, target);
    for (uint32_t i = 0; !err && i < hosts->count; i++) {
        uint32_t host = (hosts->mine + i) % hosts->count;
        uint32_t leader = mooi_leader(hosts, host);
        if (leader != group->rank)
            err = mooi_leads(group)
                      ? mooi_links_await(group, work, leader, RINGED, target)
                      : mooi_await_rank(group, work, leader, RINGED, target);
    }
    return err ? err : mooi_conclude(group, work, true);
}

/* ---- before any byte moves ---- */

static moo_err agree(moo_group *group, moo_work *work)
{
    moo_err err = mooi_agree(group, work);
    if (err)
        return err;
    if (!group->ring && !(group->ring = calloc(1, sizeof *group->ring)))
        return mooi_lost(group, work, group->rank);
    if (group->hosts.transports & (MOO_TRANSPORT_TCP | MOO_TRANSPORT_OFI) &&
        mooi_possible(group, work)) {
        work->stage = CONNECT;
        return MOO_OK;
    }
    err = mooi_conclude(group, work, true);
    return err                          ? err
           : mooi_possible(group, work) ? MOO_EUNREACHABLE
                                        : MOO_EINVAL;
}

static moo_err connect_leader(moo_group *group, moo_work *work)
{
    return mooi_leads(group) ? mooi_links_make(group, work) : MOO_OK;
}

/* Publish the input, agree, connect: common to all. */
static moo_err enter(moo_group *group, moo_work *work)
{
    moo_err err = MOO_OK;
    if (work->stage == ENTER) {
        mooi_publish(group, PUT, mooi_base_of(work));
        work->stage = AGREE;
    }
    if (work->stage == AGREE)
        err = agree(group, work);
    if (!err && work->stage == CONNECT)
        err = connect_leader(group, work);
    return err;
}

/* ---- few bytes ---- */

/* Everybody's bytes, in the leader's region, by host and then rank. */
static unsigned char *gathered(moo_group *group, moo_work *work)
{
    uint32_t leader = mooi_leader(&group->hosts, group->hosts.mine);
    return mooi_small_buffer(group, work, leader) + GATHERED;
}

/* Leader: begin with the team's input, or in a broadcast with the root's. */
static void start_exchange(moo_group *group, moo_work *work, uint32_t each)
{
    const struct mooi_hosts *hosts = &group->hosts;
    struct mooi_exchange *exchange = &group->ring->exchange;
    uint32_t root = work->signature.root;
    exchange->data = gathered(group, work);
    exchange->step = exchange->sent = exchange->received = 0;
    mooi_links_restart(&group->ring->links);
    if (work->kind == MOO_GROUP_BROADCAST) {
        for (uint32_t host = 0; host <= hosts->count; host++)
            exchange->start[host] = host > hosts->of[root] ? each : 0;
        if (hosts->of[root] == hosts->mine)
            memcpy(exchange->data, mooi_small_buffer(group, work, root), each);
        return;
    }
    for (uint32_t host = 0; host <= hosts->count; host++)
        exchange->start[host] = hosts->start[host] * each;
    for (uint32_t i = hosts->start[hosts->mine];
         i < hosts->start[hosts->mine + 1]; i++)
        memcpy(exchange->data + i * each,
               mooi_small_buffer(group, work, hosts->order[i]), each);
}

static moo_err run_exchange(moo_group *group, moo_work *work)
{
    struct mooi_exchange *exchange = &group->ring->exchange;
    if (work->kind != MOO_GROUP_BROADCAST)
        return mooi_bruck_all_gather(group, work, exchange);
    return mooi_binomial_broadcast(group, work, exchange,
                                   group->hosts.of[work->signature.root]);
}

/* `each` bytes of every member, or of a broadcast's root, to all members. */
static moo_err gather_small(moo_group *group, moo_work *work, uint32_t each)
{
    moo_err err;
    if (work->stage == ENTER) {
        mooi_put_small(group, work);
        work->stage = AGREE;
    }
    if ((err = enter(group, work)))
        return err;
    if (mooi_leads(group)) {
        if (work->stage == CONNECT) {
            if ((err = await_team(group, work, PUT, mooi_base_of(work) + 1)))
                return err;
            start_exchange(group, work, each);
            work->stage = RING_STEP;
        }
        if (work->stage == RING_STEP &&
            (err = run_exchange(group, work)))
            return err;
    }
    work->stage = END;
    return conclude(group, work);
}

static bool is_small(const moo_group *group, const moo_work *work)
{
    return work->spans.bytes * group->view.size <= SMALL_LIMIT;
}

static void reduce_gathered(moo_group *group, moo_work *work)
{
    const struct mooi_spans *spans = &work->spans;
    const unsigned char *data = gathered(group, work);
    const void *sources[MOO_GROUP_MAX];
    uint64_t begin = 0;
    for (uint32_t i = 0; i < spans->count; begin = spans->ends[i++]) {
        for (uint32_t place = 0; place < group->view.size; place++)
            sources[group->hosts.order[place]] =
                data + place * spans->bytes + begin;
        work->reduce(spans->out[i], sources, group->view.size,
                     (spans->ends[i] - begin) / work->element);
    }
}

static moo_err barrier(moo_group *group, moo_work *work)
{
    return gather_small(group, work, 1);
}

/* ---- many bytes ---- */

static moo_err begin_rounds(moo_group *group, moo_work *work)
{
    struct mooi_plan plan;
    mooi_cut_find(group, work, &group->ring->cut);
    work->rounds = group->ring->cut.rounds;
    work->iteration = 0;
    work->stage = mooi_shares(group) ? PUT_STEP : RING_STEP;
    if (!mooi_leads(group))
        return MOO_OK;
    mooi_plan_make(group, work, &plan);
    if (mooi_stream_begin(group, work, &plan))
        return mooi_lost(group, work, group->rank);
    return MOO_OK;
}

/* A host of one member: all rounds at once. */
static moo_err run_alone(moo_group *group, moo_work *work)
{
    struct mooi_stream *stream = &group->ring->stream;
    if (work->stage != RING_STEP)
        return MOO_OK;
    stream->enabled = work->rounds;
    moo_err err = mooi_stream_drive(group, work, work->rounds);
    if (!err && work->kind == MOO_GROUP_ALL_GATHER)
        mooi_spans_read(&work->spans, 0,
                        work->output + group->rank * work->spans.bytes,
                        work->spans.bytes);
    return err;
}

/* The four steps, each of the round that has reached it. */
static moo_err put_step(moo_group *group, moo_work *work, uint64_t round)
{
    uint64_t base = mooi_base_of(work), stages = MOOI_ROUND_STAGES;
    moo_err err = MOO_OK;
    if (round >= stages)
        err = await_team(group, work, COPIED, base + round - stages + 1);
    else if (work->seq != group->view.first_seq)
        err = await_team(group, work, COPIED, base - 1);
    if (err)
        return err;
    mooi_round_put(group, work, round);
    mooi_publish(group, PUT, base + round + 1);
    return MOO_OK;
}

static moo_err reduce_step(moo_group *group, moo_work *work, uint64_t round)
{
    uint64_t done = mooi_base_of(work) + round + 1;
    moo_err err = await_team(group, work, PUT, done);
    if (err)
        return err;
    mooi_round_reduce(group, work, round);
    mooi_publish(group, REDUCED, done);
    return MOO_OK;
}

/* Leader. Wait for the last round, or for the one before any other. */
static moo_err ring_step(moo_group *group, moo_work *work, uint64_t round)
{
    struct mooi_stream *stream = &group->ring->stream;
    uint64_t base = mooi_base_of(work);
    uint64_t done = round + 1 == work->rounds ? round + 1 : round;
    moo_err err = await_team(group, work, REDUCED, base + round + 1);
    if (err)
        return err;
    stream->enabled = round + 1;
    err = mooi_stream_drive(group, work, done);
    if (!err)
        mooi_publish(group, RINGED, base + done);
    return err;
}

static moo_err get_step(moo_group *group, moo_work *work, uint64_t round)
{
    uint64_t done = mooi_base_of(work) + round + 1;
    moo_err err = mooi_leads(group) ? MOO_OK : await_leader(group, work, done);
    if (err)
        return err;
    mooi_round_get(group, work, round);
    mooi_publish(group, COPIED, done);
    return MOO_OK;
}

/* One step of the present iteration, if it has reached that round. */
static moo_err one_step(moo_group *group, moo_work *work, int stage)
{
    uint64_t round = work->iteration - (uint64_t)(stage - PUT_STEP);
    if (work->stage != stage)
        return MOO_OK;
    moo_err err = MOO_OK;
    if (round < work->rounds) { /* or beyond, or below zero */
        if (stage == PUT_STEP)
            err = put_step(group, work, round);
        else if (stage == REDUCE_STEP)
            err = reduce_step(group, work, round);
        else if (stage == GET_STEP)
            err = get_step(group, work, round);
        else if (mooi_leads(group))
            err = ring_step(group, work, round);
    }
    if (!err)
        work->stage++;
    return err;
}

static moo_err run_together(moo_group *group, moo_work *work)
{
    moo_err err;
    for (; work->iteration < work->rounds + 3; work->iteration++) {
        for (int stage = PUT_STEP; stage <= GET_STEP; stage++)
            if ((err = one_step(group, work, stage)))
                return err;
        work->stage = PUT_STEP;
    }
    return MOO_OK;
}

static moo_err run_rounds(moo_group *group, moo_work *work)
{
    moo_err err = MOO_OK;
    if (work->stage <= CONNECT && (err = enter(group, work)))
        return err;
    if (work->stage == CONNECT)
        err = begin_rounds(group, work);
    if (!err && work->stage != END)
        err = mooi_shares(group) ? run_together(group, work)
                                 : run_alone(group, work);
    if (err)
        return err;
    work->stage = END;
    return conclude(group, work);
}

static moo_err allreduce(moo_group *group, moo_work *work)
{
    if (!is_small(group, work))
        return run_rounds(group, work);
    moo_err err = gather_small(group, work, (uint32_t)work->spans.bytes);
    if (!err)
        reduce_gathered(group, work);
    return err;
}

static moo_err broadcast(moo_group *group, moo_work *work)
{
    uint64_t bytes = work->spans.bytes;
    if (!is_small(group, work))
        return run_rounds(group, work);
    moo_err err = gather_small(group, work, (uint32_t)bytes);
    if (!err && group->rank != work->signature.root)
        mooi_spans_write(&work->spans, 0, gathered(group, work), bytes);
    return err;
}

static moo_err all_gather(moo_group *group, moo_work *work)
{
    uint64_t each = work->spans.bytes;
    if (!is_small(group, work))
        return run_rounds(group, work);
    moo_err err = gather_small(group, work, (uint32_t)each);
    for (uint32_t i = 0; !err && i < group->view.size; i++)
        memcpy(work->output + group->hosts.order[i] * each,
               gathered(group, work) + i * each, each);
    return err;
}

void mooi_ring_free(moo_group *group)
{
    if (!group->ring)
        return;
    mooi_ring_hang_up(group);
    if (group->ring->bounce)
        mooi_bounce_close(group->ring->bounce);
    free(group->ring->stream.memory);
    free(group->ring);
    group->ring = NULL;
}

const struct mooi_collective mooi_ring_collective = {
    .scheme = "ring",
    .run = {[MOO_GROUP_BARRIER] = barrier,
            [MOO_GROUP_ALLREDUCE] = allreduce,
            [MOO_GROUP_BROADCAST] = broadcast,
            [MOO_GROUP_ALL_GATHER] = all_gather,
            [MOO_GROUP_REDUCE_SCATTER] = run_rounds},
};
