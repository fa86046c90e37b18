/* SPDX-License-Identifier: MIT */
/*
 * lines.c: what the leaders of hosts tell each other beside the tensors' bytes.
 *
 * Invariant: a frame is acted on in its own operation. One of a later operation
 * waits in its line, which is read no further until then: its sender has
 * finished the present one, and so cannot be waiting for us.
 */
#include <stdio.h>
#include <string.h>

#include "collective/calls.h"
#include "collective/fault.h"
#include "collective/progress.h"
#include "collective/ring.h"

#define HEAD_BYTES 2u

/* ---- frames, out and in ---- */

/* Send what waits, without blocking. */
static moo_err flush(struct mooi_pipe *pipe, struct mooi_line *line)
{
    while (line->out_bytes) {
        struct iovec part = {line->out, line->out_bytes};
        size_t sent;
        moo_err err = mooi_pipe_send(pipe, &part, 1, &sent);
        if (err || !sent)
            return err;
        line->out_bytes -= (uint32_t)sent;
        memmove(line->out, line->out + sent, line->out_bytes);
    }
    return MOO_OK;
}

/* false: there is no room, so the other end has read nothing for long. */
static bool add(struct mooi_line *line, const struct mooi_frame *frame)
{
    size_t at = line->out_bytes + HEAD_BYTES, length;
    if (at > sizeof line->out ||
        !(length = mooi_frame_write(frame, line->out + at,
                                    sizeof line->out - at)))
        return false;
    line->out[line->out_bytes] = (uint8_t)length;
    line->out[line->out_bytes + 1] = (uint8_t)(length >> 8);
    line->out_bytes += (uint32_t)(HEAD_BYTES + length);
    return true;
}

/* An error comes again, when the line is pumped. */
void mooi_line_send(struct mooi_line *line, const struct mooi_frame *frame)
{
    add(line, frame);
    flush(&line->to, line);
}

/* Take what has come, as far as there is room. *more: there may be more. */
static moo_err fill(struct mooi_pipe *pipe, struct mooi_line *line, bool *more)
{
    struct iovec part = {line->in + line->in_bytes,
                         sizeof line->in - line->in_bytes};
    size_t got = 0;
    moo_err err = MOO_OK;
    if (part.iov_len)
        err = mooi_pipe_receive(pipe, &part, 1, &got);
    line->in_bytes += (uint32_t)got;
    *more = got && got == part.iov_len;
    return err;
}

/* The first frame that has come whole, which stays; its length with the head,
 * 0: there is none. MOO_EPROTO: it is nonsense. */
static moo_err first(const struct mooi_line *line, struct mooi_frame *frame,
                     uint32_t *length)
{
    uint32_t bytes = line->in[0] | (uint32_t)line->in[1] << 8;
    *length = 0;
    if (line->in_bytes >= HEAD_BYTES && bytes > MOOI_SMALL_FRAME_BYTES)
        return MOO_EPROTO;
    if (line->in_bytes < HEAD_BYTES || line->in_bytes < HEAD_BYTES + bytes)
        return MOO_OK;
    if (!mooi_frame_read(frame, NULL, line->in + HEAD_BYTES, bytes))
        return MOO_EPROTO;
    *length = HEAD_BYTES + bytes;
    return MOO_OK;
}

static void drop_first(struct mooi_line *line, uint32_t length)
{
    line->in_bytes -= length;
    memmove(line->in, line->in + length, line->in_bytes);
}

/* ---- the registered memory of the neighbours ---- */

/* *known: whether *post is set. */
static moo_err hear_fabric(struct mooi_pipe *pipe, struct mooi_line *line,
                           struct mooi_fabric_post *post, bool *known)
{
    struct mooi_frame frame;
    uint32_t length;
    bool more;
    moo_err err = *known ? MOO_OK : fill(pipe, line, &more);
    if (err || *known || (err = first(line, &frame, &length)))
        return err;
    if (!length || frame.kind != MOOI_FABRIC)
        return MOO_OK;
    *post = frame.fabric;
    *known = true;
    drop_first(line, length);
    return MOO_OK;
}

/* The line of the ring is used in both directions for this. */
moo_err mooi_lines_describe(moo_group *group, uint32_t *rank)
{
    struct mooi_links *links = &group->ring->links;
    struct mooi_line *line = &links->lines[0], back = {0};
    struct mooi_frame frame = {.kind = MOOI_FABRIC};
    moo_err err;
    if (!links->described) {
        if (group->ring->bounce)
            mooi_bounce_describe(group->ring->bounce, &frame.fabric);
        links->described = add(line, &frame) && add(&back, &frame);
        *rank = mooi_link_origin(group, 0);
        if ((err = flush(&line->from, &back)))
            return err;
    }
    *rank = mooi_link_target(group, 0);
    if ((err = flush(&line->to, line)) ||
        (err = hear_fabric(&line->to, &links->back, &links->next,
                           &links->next_known)))
        return err;
    *rank = mooi_link_origin(group, 0);
    err = hear_fabric(&line->from, line, &links->before, &links->before_known);
    if (err)
        return err;
    return links->next_known && links->before_known ? MOO_OK : MOO_ETIMEOUT;
}

/* ---- an operation ---- */

void mooi_lines_begin(moo_group *group, moo_work *work)
{
    struct mooi_links *links = &group->ring->links;
    struct mooi_frame frame = {.kind = MOOI_CALL};
    frame.call.seq = work->seq;
    frame.call.rank = group->rank;
    frame.call.signature = work->signature;
    MOOI_FAULT("calling");
    for (uint32_t i = 0; i < links->count; i++) {
        struct mooi_line *line = &links->lines[i];
        line->ahead = line->called = line->told = line->summed = false;
        mooi_line_send(line, &frame);
        MOOI_FAULT("called");
    }
}

static uint64_t seq_of(const struct mooi_frame *frame)
{
    switch (frame->kind) {
    case MOOI_CALL:
        return frame->call.seq;
    case MOOI_DIFFERS:
        return frame->differs.seq;
    case MOOI_SUM:
        return frame->sum.seq;
    case MOOI_ENTER:
        return frame->enter.seq;
    default:
        return 0;
    }
}

static void act_on(moo_group *group, moo_work *work, struct mooi_line *line,
                   const struct mooi_frame *frame)
{
    switch (frame->kind) {
    case MOOI_CALL:
        line->called = mooi_is_our_call(group, work, frame->call.rank,
                                        &frame->call.signature);
        work->differs |= !line->called;
        return;
    case MOOI_DIFFERS:
        if (*work->outcome.text)
            return;
        work->outcome.rank = frame->differs.rank;
        snprintf(work->outcome.text, sizeof work->outcome.text, "%s",
                 frame->differs.text);
        return;
    case MOOI_SUM:
        line->sum = frame->sum.sum;
        line->summed = true;
        return;
    case MOOI_ENTER:
        mooi_commit_take(&group->ring->commit, frame);
        return;
    default:
        return;
    }
}

/* Act on the frames of one line. */
static moo_err hear(moo_group *group, moo_work *work, struct mooi_line *line)
{
    struct mooi_frame frame;
    uint32_t length;
    bool more = true;
    moo_err err;
    while (!line->ahead) {
        if ((err = first(line, &frame, &length)))
            return err;
        if (!length) {
            if (!more)
                return MOO_OK;
            if ((err = fill(&line->from, line, &more)))
                return err;
            continue;
        }
        line->ahead = seq_of(&frame) > work->seq;
        if (line->ahead)
            break;
        drop_first(line, length);
        if (seq_of(&frame) == work->seq)
            act_on(group, work, line, &frame);
    }
    return MOO_OK;
}

moo_err mooi_lines_pump(moo_group *group, moo_work *work)
{
    struct mooi_links *links = &group->ring->links;
    struct mooi_commit *commit = &group->ring->commit;
    for (uint32_t i = 0; i < links->count; i++) {
        struct mooi_line *line = &links->lines[i];
        if (flush(&line->to, line))
            return mooi_lost(group, work, mooi_link_target(group, i));
        /* A leader that has committed the operation may be gone already. */
        if (hear(group, work, line) && commit->seq <= work->seq)
            return mooi_lost(group, work, mooi_link_origin(group, i));
    }
    if (commit->seq == work->seq && commit->warning && !commit->entered)
        work->differs = true;
    return work->differs && !commit->entered ? MOO_EMISMATCH : MOO_OK;
}

/* ---- the barrier ---- */

static void emit(void *to, uint32_t host, const struct mooi_frame *frame)
{
    moo_group *group = to;
    struct mooi_line *line = &group->ring->links.lines[frame->enter.step];
    struct mooi_frame text = {.kind = MOOI_DIFFERS};
    (void)host; /* is mine + (1 << step) */
    if (frame->enter.status) {
        text.differs.seq = frame->enter.seq;
        snprintf(text.differs.text, sizeof text.differs.text, "%s",
                 mooi_difference(group, &text.differs.rank));
        mooi_line_send(line, &text);
    }
    MOOI_FAULT("entering");
    mooi_line_send(line, frame);
    MOOI_FAULT("entered");
}

void mooi_lines_open(moo_group *group)
{
    struct mooi_commit *commit = &group->ring->commit;
    commit->words = mooi_words_of(group);
    commit->emit = emit;
    commit->to = group;
    mooi_commit_open(commit, group->hosts.count, group->hosts.mine,
                     group->view.first_seq);
}
