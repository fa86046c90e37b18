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
 * committed (lines.c) when every host has all of its bytes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collective/buffers.h"
#include "collective/progress.h"
#include "collective/ring.h"

#define SMALL_LIMIT ((uint64_t)64 << 10) /* of all ranks together */
#define GATHERED (SMALL_BYTES / 2)       /* their offset in the small buffer */

/* The progress of an operation, in work->stage. */
enum {
    ENTER, AGREE, CONNECT, EXCHANGE, PUT_STEP, REDUCE_STEP, RING_STEP,
    GET_STEP, END
};

static moo_err await_leader(moo_group *group, moo_work *work, uint64_t target)
{
    uint32_t leader = mooi_leader(&group->hosts, group->hosts.mine);
    moo_err err = mooi_await_rank(group, work, leader, RINGED, target);
    /* It also says so of an operation that was found to differ. */
    return err ? err : mooi_inspect(group, work, leader, 0);
}

/* ---- before any byte moves ---- */

static moo_err connect_leader(moo_group *group, moo_work *work)
{
    struct mooi_ring *ring = group->ring;
    moo_err err = mooi_links_make(group, work);
    if (err || ring->begun == work->seq)
        return err;
    ring->begun = work->seq;
    mooi_lines_begin(group, work);
    return MOO_OK;
}

/* No transport is allowed to all members. */
static moo_err have_no_way(moo_group *group, moo_work *work)
{
    uint32_t target = mooi_link_target(group, 0);
    if (mooi_leads(group))
        mooi_complain(group, work->seq, MOOI_WHY_NO_WAY, target);
    return mooi_await_rank(group, work,
                           mooi_leader(&group->hosts, group->hosts.mine),
                           RINGED, UINT64_MAX);
}

/* Publish the input, agree with the members here, connect: common to all. */
static moo_err enter(moo_group *group, moo_work *work)
{
    moo_err err = MOO_OK;
    if (!group->ring && !(group->ring = calloc(1, sizeof *group->ring)))
        return mooi_lost(group, work, group->rank);
    if (!(group->hosts.transports & (MOO_TRANSPORT_TCP | MOO_TRANSPORT_OFI)))
        return have_no_way(group, work);
    if (work->stage == ENTER) {
        mooi_publish(group, PUT, mooi_base_of(work));
        work->stage = AGREE;
    }
    if (work->stage == AGREE) {
        if ((err = mooi_agree(group, work)))
            return err;
        work->stage = CONNECT;
    }
    return mooi_leads(group) && work->stage == CONNECT
               ? connect_leader(group, work)
               : MOO_OK;
}

/* ---- few bytes ---- */

/* Everybody's bytes, in the leader's region, by host and then rank. */
static unsigned char *gathered(moo_group *group, moo_work *work)
{
    uint32_t leader = mooi_leader(&group->hosts, group->hosts.mine);
    return mooi_small_buffer(group, work, leader) + GATHERED;
}

/* The load of an exchange: `each` bytes of every member, or, if there is one,
 * of `root`; each host sends one byte at least, so that none can be done before
 * all have begun. */
struct load {
    uint32_t each;
    int root; /* -1: there is none */
};

static uint32_t load_of(const struct mooi_hosts *hosts, uint32_t host,
                        struct load load)
{
    uint32_t bytes = load.root < 0 ? mooi_team(hosts, host) * load.each
                     : hosts->of[load.root] == host ? load.each
                                                    : 0;
    return bytes ? bytes : 1;
}

/* Leader: begin with the team's input, or with the root's. */
static void start_exchange(moo_group *group, moo_work *work, struct load load)
{
    const struct mooi_hosts *hosts = &group->hosts;
    struct mooi_exchange *exchange = &group->ring->exchange;
    exchange->data = gathered(group, work);
    exchange->step = exchange->sent = exchange->received = 0;
    mooi_links_restart(&group->ring->links);
    exchange->start[0] = 0;
    for (uint32_t host = 0; host < hosts->count; host++)
        exchange->start[host + 1] =
            exchange->start[host] + load_of(hosts, host, load);
    unsigned char *to = exchange->data + exchange->start[hosts->mine];
    *to = 0;
    for (uint32_t i = hosts->start[hosts->mine];
         i < hosts->start[hosts->mine + 1]; i++) {
        uint32_t rank = hosts->order[i];
        if (load.root >= 0 && rank != (uint32_t)load.root)
            continue;
        memcpy(to, mooi_small_buffer(group, work, rank), load.each);
        to += load.each;
    }
}

/* The load of every host to all hosts. */
static moo_err exchange(moo_group *group, moo_work *work, struct load load)
{
    moo_err err;
    if (work->stage == ENTER && load.each) {
        mooi_put_small(group, work);
        work->stage = AGREE;
    }
    if ((err = enter(group, work)))
        return err;
    if (mooi_leads(group) && work->stage == CONNECT) {
        uint64_t put = mooi_base_of(work) + 1;
        if (load.each && (err = mooi_await(group, work, PUT, put)))
            return err;
        start_exchange(group, work, load);
    }
    if (work->stage == CONNECT)
        work->stage = EXCHANGE;
    if (mooi_leads(group) && work->stage == EXCHANGE)
        return mooi_bruck_all_gather(group, work, &group->ring->exchange);
    return MOO_OK;
}

static moo_err gather_small(moo_group *group, moo_work *work, struct load load)
{
    moo_err err = work->stage == END ? MOO_OK : exchange(group, work, load);
    if (err)
        return err;
    work->stage = END;
    return mooi_conclude(group, work, true);
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
    return gather_small(group, work, (struct load){0, -1});
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
        err = mooi_await(group, work, COPIED, base + round - stages + 1);
    else if (work->seq != group->view.first_seq)
        err = mooi_await(group, work, COPIED, base - 1);
    if (err)
        return err;
    mooi_round_put(group, work, round);
    mooi_publish(group, PUT, base + round + 1);
    return MOO_OK;
}

static moo_err reduce_step(moo_group *group, moo_work *work, uint64_t round)
{
    uint64_t done = mooi_base_of(work) + round + 1;
    moo_err err = mooi_await(group, work, PUT, done);
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
    moo_err err = mooi_await(group, work, REDUCED, base + round + 1);
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

/* A broadcast's bytes go straight to the tensors of the first host that they
 * reach, so all have to agree before. */
static moo_err before_rounds(moo_group *group, moo_work *work)
{
    moo_err err = work->kind == MOO_GROUP_BROADCAST
                      ? exchange(group, work, (struct load){0, -1})
                      : enter(group, work);
    return err ? err : begin_rounds(group, work);
}

static moo_err run_rounds(moo_group *group, moo_work *work)
{
    moo_err err = work->stage < PUT_STEP ? before_rounds(group, work) : MOO_OK;
    if (!err && work->stage != END)
        err = mooi_shares(group) ? run_together(group, work)
                                 : run_alone(group, work);
    if (err)
        return err;
    work->stage = END;
    return mooi_conclude(group, work, true);
}

static moo_err allreduce(moo_group *group, moo_work *work)
{
    if (!is_small(group, work))
        return run_rounds(group, work);
    moo_err err = gather_small(
        group, work, (struct load){(uint32_t)work->spans.bytes, -1});
    if (!err)
        reduce_gathered(group, work);
    return err;
}

static moo_err broadcast(moo_group *group, moo_work *work)
{
    uint64_t bytes = work->spans.bytes;
    uint32_t root = work->signature.root;
    if (!is_small(group, work))
        return run_rounds(group, work);
    struct load load = {(uint32_t)bytes, (int)root};
    moo_err err = gather_small(group, work, load);
    if (!err && group->rank != root) /* each host before sent one byte */
        mooi_spans_write(&work->spans, 0,
                         gathered(group, work) + group->hosts.of[root], bytes);
    return err;
}

static moo_err all_gather(moo_group *group, moo_work *work)
{
    uint64_t each = work->spans.bytes;
    if (!is_small(group, work))
        return run_rounds(group, work);
    moo_err err = gather_small(group, work, (struct load){(uint32_t)each, -1});
    for (uint32_t i = 0; !err && i < group->view.size; i++)
        memcpy(work->output + group->hosts.order[i] * each,
               gathered(group, work) + i * each, each);
    return err;
}

/* ---- all of them ---- */

/* The calls differ: here, from another host's, or among others. */
static moo_err differ(moo_group *group, moo_work *work)
{
    char *text = work->outcome.text;
    size_t room = sizeof work->outcome.text;
    moo_err err;
    work->differs = true;
    if (mooi_leads(group)) {
        err = connect_leader(group, work);
        if (err && err != (moo_err)MOO_EMISMATCH)
            return err;
        mooi_tell_difference(group, work->outcome.rank, text);
    }
    if ((err = mooi_conclude(group, work, false)))
        return err;
    if (!*text)
        snprintf(text, room, "%s",
                 mooi_difference(group, &work->outcome.rank));
    return (moo_err)MOO_EMISMATCH;
}

typedef moo_err algorithm(moo_group *group, moo_work *work);

static moo_err run(moo_group *group, moo_work *work, algorithm *one)
{
    moo_err err = (moo_err)MOO_EMISMATCH;
    if (!work->differs)
        err = mooi_possible(group, work) ? one(group, work)
                                         : barrier(group, work);
    if (err == (moo_err)MOO_EMISMATCH)
        return differ(group, work);
    /* Its end has been told: it need not fit the group that is left. */
    bool fits = work->told || mooi_possible(group, work);
    return err || fits ? err : MOO_EINVAL;
}

static moo_err run_barrier(moo_group *group, moo_work *work)
{
    return run(group, work, barrier);
}

static moo_err run_allreduce(moo_group *group, moo_work *work)
{
    return run(group, work, allreduce);
}

static moo_err run_broadcast(moo_group *group, moo_work *work)
{
    return run(group, work, broadcast);
}

static moo_err run_all_gather(moo_group *group, moo_work *work)
{
    return run(group, work, all_gather);
}

static moo_err run_reduce_scatter(moo_group *group, moo_work *work)
{
    return run(group, work, run_rounds);
}

void mooi_ring_free(moo_group *group)
{
    if (!group->ring)
        return;
    mooi_ring_hang_up(group);
    mooi_strangers_end(group->ring);
    if (group->ring->bounce)
        mooi_bounce_close(group->ring->bounce);
    free(group->ring->stream.memory);
    free(group->ring);
    group->ring = NULL;
}

const struct mooi_collective mooi_ring_collective = {
    .scheme = "ring",
    .run = {[MOO_GROUP_BARRIER] = run_barrier,
            [MOO_GROUP_ALLREDUCE] = run_allreduce,
            [MOO_GROUP_BROADCAST] = run_broadcast,
            [MOO_GROUP_ALL_GATHER] = run_all_gather,
            [MOO_GROUP_REDUCE_SCATTER] = run_reduce_scatter},
};
