/* SPDX-License-Identifier: MIT */
/*
 * stream.c: the ring itself, as two cursors on one stream of bytes.
 *
 * Bytes are sent in place: a host's input from its source, partial results
 * from the slot that they were reduced to, results from the sink. Received
 * results go to the sink at once. Received partial results go to the bounce
 * buffer, which stays in the caches, and are reduced from there as soon as
 * whole elements have arrived.
 */
#include <stdlib.h>
#include <string.h>

#include "collective/progress.h"
#include "collective/ring.h"
#include "core/clock.h"

#define BOUNCE_BYTES ((size_t)256 << 10)
#define SEND_BYTES ((size_t)512 << 10) /* at once; receiving has its turn, too */
#define SLOTS 3u

static struct mooi_stream *stream_of(moo_group *group)
{
    return &group->ring->stream;
}

/* ---- the position of a cursor ---- */

static uint32_t steps_of(const struct mooi_plan *plan)
{
    return plan->reduce + plan->gather;
}

/* `lead`: 0 for sent bytes, 1 for received ones. */
static uint32_t chunk_of(const struct mooi_plan *plan, uint32_t step,
                         uint32_t lead)
{
    if (plan->chain)
        return 0;
    return (plan->self + 2 * plan->hosts - step - plan->shift - lead) %
           plan->hosts;
}

/* Bytes of an element on the wire. */
static size_t width_of(const struct mooi_plan *plan, uint32_t step,
                       uint32_t lead)
{
    bool partial = step < plan->reduce;
    if (partial && step == 0)
        partial = lead ? plan->left_partial : plan->own_partial;
    return partial ? plan->partial : plan->element;
}

static uint64_t step_bytes(moo_group *group, moo_work *work,
                           const struct mooi_cursor *cursor, uint32_t lead)
{
    const struct mooi_plan *plan = &stream_of(group)->plan;
    uint32_t chunk = chunk_of(plan, cursor->step, lead);
    return plan->count(group, work, cursor->round, chunk) *
           width_of(plan, cursor->step, lead);
}

/* Advance to the next step that is not empty. */
static void advance(moo_group *group, moo_work *work,
                    struct mooi_cursor *cursor, uint32_t lead)
{
    const struct mooi_plan *plan = &stream_of(group)->plan;
    while (cursor->round < plan->rounds &&
           cursor->at == step_bytes(group, work, cursor, lead)) {
        cursor->at = 0;
        if (++cursor->step < steps_of(plan))
            continue;
        cursor->step = 0;
        cursor->round++;
    }
}

static bool beyond(const struct mooi_cursor *cursor, uint64_t round,
                   uint32_t step)
{
    return cursor->round > round ||
           (cursor->round == round && cursor->step > step);
}

/* ---- slots ---- */

/* The number of the step, over all rounds, among those with partial results
 * here. */
static uint64_t slot_number(const struct mooi_plan *plan, uint64_t round,
                            uint32_t step)
{
    return round * (plan->reduce - 1) + step;
}

static unsigned char *slot_of(const struct mooi_stream *stream, uint64_t round,
                              uint32_t step)
{
    uint64_t number = slot_number(&stream->plan, round, step);
    return stream->slots + number % SLOTS * stream->plan.slot_bytes;
}

/* Whether the slot's last contents have been sent. */
static bool slot_free(const struct mooi_stream *stream)
{
    const struct mooi_plan *plan = &stream->plan;
    const struct mooi_cursor *in = &stream->in;
    if (in->step + 1 >= plan->reduce)
        return true; /* this step needs none */
    uint64_t number = slot_number(plan, in->round, in->step);
    if (number < SLOTS)
        return true;
    uint64_t before = number - SLOTS, each = plan->reduce - 1;
    return beyond(&stream->out, before / each, (uint32_t)(before % each) + 1);
}

/* ---- sending ---- */

static bool is_own(const struct mooi_plan *plan, uint32_t step)
{
    return step == 0 && (!plan->chain || plan->self == plan->first);
}

/* The bytes of the present step that can be sent. */
static uint64_t ready_bytes(moo_group *group, moo_work *work)
{
    struct mooi_stream *stream = stream_of(group);
    const struct mooi_plan *plan = &stream->plan;
    const struct mooi_cursor *out = &stream->out, *in = &stream->in;
    if (out->round >= plan->rounds || out->round >= stream->enabled)
        return 0;
    uint64_t rest = step_bytes(group, work, out, 0) - out->at;
    if (is_own(plan, out->step))
        return rest;
    uint32_t needs = plan->chain ? 0 : out->step - 1; /* has come in */
    if (beyond(in, out->round, needs))
        return rest;
    if (in->round < out->round || in->step < needs)
        return 0;
    return in->at / width_of(plan, needs, 1) * width_of(plan, out->step, 0) -
           out->at;
}

static unsigned char *out_bytes(moo_group *group, moo_work *work, uint64_t at,
                                uint64_t *run)
{
    struct mooi_stream *stream = stream_of(group);
    const struct mooi_plan *plan = &stream->plan;
    const struct mooi_cursor *out = &stream->out;
    uint32_t chunk = chunk_of(plan, out->step, 0);
    if (is_own(plan, out->step))
        return plan->source(group, work, out->round, chunk, at, run);
    if (out->step < plan->reduce)
        return slot_of(stream, out->round, out->step - 1) + at;
    return plan->sink(group, work, out->round, chunk, at, run);
}

static moo_err push(moo_group *group, moo_work *work, bool *moved,
                    bool *blocked)
{
    struct mooi_stream *stream = stream_of(group);
    struct iovec parts[MOOI_PIPE_PARTS];
    uint64_t ready = mooi_lesser(ready_bytes(group, work), SEND_BYTES), run;
    int count = 0;
    size_t sent;
    for (uint64_t done = 0; done < ready && count < MOOI_PIPE_PARTS;
         done += run) {
        run = ready - done;
        parts[count].iov_base =
            out_bytes(group, work, stream->out.at + done, &run);
        parts[count++].iov_len = run;
    }
    if (!count)
        return MOO_OK;
    moo_err err = mooi_links_send(&group->ring->links, parts, count, &sent);
    stream->out.at += sent;
    advance(group, work, &stream->out, 0);
    *moved |= sent > 0;
    *blocked = sent == 0;
    return err;
}

/* ---- receiving ---- */

/* Reduce the whole elements that have arrived. */
static void fold_received(moo_group *group, moo_work *work)
{
    struct mooi_stream *stream = stream_of(group);
    const struct mooi_plan *plan = &stream->plan;
    struct mooi_cursor *in = &stream->in;
    bool last = in->step + 1 == plan->reduce;
    uint32_t chunk = chunk_of(plan, in->step, 1);
    size_t width = width_of(plan, in->step, 1);
    size_t own = plan->own_partial ? plan->partial : plan->element;
    uint64_t whole = stream->held / width, done = 0;
    while (done < whole) {
        uint64_t at = in->at / width, run = (whole - done) * own, room;
        struct mooi_operand came = {stream->bounce + done * width,
                                    in->step > 0 || plan->left_partial};
        struct mooi_operand here = {
            plan->source(group, work, in->round, chunk, at * own, &run),
            plan->own_partial};
        room = run / own * plan->element;
        unsigned char *to =
            last ? plan->sink(group, work, in->round, chunk,
                              at * plan->element, &room)
                 : slot_of(stream, in->round, in->step) + at * plan->partial;
        uint64_t n = room / plan->element;
        mooi_fold(work, to, !last, came, here, n, last ? plan->divisor : 1);
        done += n;
        in->at += n * width;
    }
    stream->held -= whole * width;
    memmove(stream->bounce, stream->bounce + whole * width, stream->held);
}

static int in_parts(moo_group *group, moo_work *work, uint64_t rest,
                    struct iovec *parts)
{
    struct mooi_stream *stream = stream_of(group);
    const struct mooi_plan *plan = &stream->plan;
    const struct mooi_cursor *in = &stream->in;
    uint64_t run;
    int count = 0;
    if (in->step < plan->reduce) {
        parts[0].iov_base = stream->bounce + stream->held;
        parts[0].iov_len = mooi_lesser(rest, BOUNCE_BYTES) - stream->held;
        return 1;
    }
    for (uint64_t done = 0; done < rest && count < MOOI_PIPE_PARTS;
         done += run) {
        run = rest - done;
        parts[count].iov_base =
            plan->sink(group, work, in->round, chunk_of(plan, in->step, 1),
                       in->at + done, &run);
        parts[count++].iov_len = run;
    }
    return count;
}

static moo_err pull(moo_group *group, moo_work *work, bool *moved,
                    bool *blocked)
{
    struct mooi_stream *stream = stream_of(group);
    const struct mooi_plan *plan = &stream->plan;
    struct mooi_cursor *in = &stream->in;
    struct iovec parts[MOOI_PIPE_PARTS];
    size_t got;
    if (in->round >= plan->rounds || in->round >= stream->enabled ||
        !slot_free(stream))
        return MOO_OK;
    if (!group->ring->links.lines[0].called) {
        *blocked = true;
        return MOO_OK;
    }
    uint64_t rest = step_bytes(group, work, in, 1) - in->at;
    int count = in_parts(group, work, rest, parts);
    /* The left neighbour needs no bytes of ours to complete this step. */
    moo_err err = mooi_links_receive(&group->ring->links, parts, count,
                                     rest - stream->held, &got);
    *moved |= got > 0;
    *blocked = got == 0;
    if (in->step >= plan->reduce) {
        in->at += got;
    } else {
        stream->held += got;
        fold_received(group, work);
    }
    advance(group, work, in, 1);
    return err;
}

/* ---- both ---- */

/* Buffers are kept for the next operation. */
static moo_err make_room(struct mooi_stream *stream,
                         const struct mooi_plan *plan)
{
    size_t slots = plan->reduce > 1 ? SLOTS * plan->slot_bytes : 0;
    size_t needs = BOUNCE_BYTES + slots;
    if (stream->room < needs) {
        free(stream->memory);
        stream->room = 0;
        stream->memory = aligned_alloc(64, (needs + 63) & ~(size_t)63);
        if (!stream->memory)
            return MOO_ENOMEM;
        stream->room = needs;
    }
    stream->bounce = stream->memory;
    stream->slots = stream->memory + BOUNCE_BYTES;
    return MOO_OK;
}

moo_err mooi_stream_begin(moo_group *group, moo_work *work,
                          const struct mooi_plan *plan)
{
    struct mooi_stream *stream = stream_of(group);
    const struct mooi_cursor start = {0}, end = {.round = plan->rounds};
    uint32_t last = (plan->first + plan->hosts - 1) % plan->hosts;
    moo_err err = make_room(stream, plan);
    if (err)
        return err;
    stream->plan = *plan;
    stream->enabled = 0;
    stream->held = 0;
    stream->out = plan->chain && plan->self == last ? end : start;
    stream->in = plan->chain && plan->self == plan->first ? end : start;
    advance(group, work, &stream->out, 0);
    advance(group, work, &stream->in, 1);
    mooi_links_restart(&group->ring->links);
    mooi_pipe_prepare(&group->ring->links.to[0]);
    return MOO_OK;
}

static bool is_done(const struct mooi_stream *stream, uint64_t rounds)
{
    return stream->out.round >= rounds && stream->in.round >= rounds;
}

moo_err mooi_stream_drive(moo_group *group, moo_work *work, uint64_t rounds)
{
    struct mooi_stream *stream = stream_of(group);
    struct mooi_links *links = &group->ring->links;
    moo_err err;
    while (!is_done(stream, rounds) ||
           !mooi_links_flushed(links, &err)) {
        bool moved = false, out = false, in = false;
        err = links->lines[0].called ? MOO_OK : mooi_lines_pump(group, work);
        if (err)
            return err;
        if (push(group, work, &moved, &out))
            return mooi_lost(group, work, mooi_link_target(group, 0));
        if (pull(group, work, &moved, &in))
            return mooi_lost(group, work, mooi_link_origin(group, 0));
        out |= !mooi_links_flushed(links, &err);
        if (err)
            return mooi_lost(group, work, mooi_link_target(group, 0));
        if (moved && mooi_now() < group->slice_end && !group->closing)
            continue;
        err = mooi_links_wait(group, work, out ? 0 : -1, in ? 0 : -1, true);
        if (err)
            return err;
    }
    return MOO_OK;
}
