/* SPDX-License-Identifier: MIT */
/*
 * frames.c: frames as bytes. One walk over the fields both writes and reads
 * them, so the two cannot differ.
 */
#include "collective/protocol/frames.h"

#include <assert.h>
#include <string.h>

struct walk {
    uint8_t *out;      /* NULL: reading */
    const uint8_t *in; /* NULL: writing */
    size_t at, length;
    struct mooi_roll *roll; /* reading: of a VIEW */
    bool bad;
};

/* A field of `bytes` bytes, below `limit` unless that is 0. */
static void number(struct walk *walk, uint64_t *value, size_t bytes,
                   uint64_t limit)
{
    assert(walk->in || walk->out); /* it reads, or it writes */
    if (walk->bad || walk->length - walk->at < bytes) {
        walk->bad = true;
        *value = 0;
        return;
    }
    if (walk->in)
        *value = 0;
    for (size_t i = 0; i < bytes; i++)
        if (walk->in)
            *value |= (uint64_t)walk->in[walk->at + i] << 8 * i;
        else
            walk->out[walk->at + i] = (uint8_t)(*value >> 8 * i);
    walk->at += bytes;
    if (limit && *value >= limit)
        walk->bad = true;
}

#define FIELD(WALK, FIELD_, BYTES, LIMIT) \
    do { \
        uint64_t value_ = (uint64_t)(FIELD_); \
        number((WALK), &value_, (BYTES), (LIMIT)); \
        if ((WALK)->in) \
            (FIELD_) = (__typeof__(FIELD_))value_; \
    } while (0)

static void raw(struct walk *walk, void *bytes, size_t length)
{
    uint8_t *byte = bytes;
    for (size_t i = 0; i < length; i++)
        FIELD(walk, byte[i], 1, 0);
}

/* Text of `room` bytes, of which the last is zero. */
static void text(struct walk *walk, char *bytes, size_t room)
{
    raw(walk, bytes, room);
    walk->bad |= bytes[room - 1] != 0;
}

/* The fields that a host's members share. */
static void place(struct walk *walk, struct mooi_member *member)
{
    text(walk, member->name, sizeof member->name);
    FIELD(walk, member->addresses, 1, MOOI_ADDRESSES_MAX + 1);
    for (uint32_t i = 0; !walk->bad && i < member->addresses; i++) {
        FIELD(walk, member->address[i].family, 1, 7);
        FIELD(walk, member->address[i].port, 2, 0);
        raw(walk, member->address[i].ip, sizeof member->address[i].ip);
    }
}

static void member(struct walk *walk, struct mooi_member *member)
{
    FIELD(walk, member->host, 4, 0);
    FIELD(walk, member->serial, 4, 0);
    FIELD(walk, member->slot, 2, MOOI_TEAM_MAX);
    FIELD(walk, member->pid, 4, 0);
    FIELD(walk, member->id, 8, 0);
    FIELD(walk, member->transports, 4, 0);
    FIELD(walk, member->stripes, 4, 0);
    FIELD(walk, member->checks, 1, 2);
}

static void signature(struct walk *walk, struct mooi_signature *call)
{
    FIELD(walk, call->kind, 1, 0);
    FIELD(walk, call->dtype, 1, 0);
    FIELD(walk, call->op, 1, 0);
    FIELD(walk, call->root, 4, 0);
    FIELD(walk, call->spans, 4, 0);
    FIELD(walk, call->part, 4, 0);
    FIELD(walk, call->parts, 4, 0);
    FIELD(walk, call->bytes, 8, 0);
    FIELD(walk, call->output_bytes, 8, 0);
    FIELD(walk, call->layout, 8, 0);
}

static void fabric(struct walk *walk, struct mooi_fabric_post *post)
{
    text(walk, post->provider, sizeof post->provider);
    FIELD(walk, post->name_bytes, 2, sizeof post->name + 1);
    if (!walk->bad)
        raw(walk, post->name, post->name_bytes);
    FIELD(walk, post->key, 8, 0);
    FIELD(walk, post->base, 8, 0);
}

static void cause(struct walk *walk, struct mooi_cause *cause)
{
    FIELD(walk, cause->why, 1, MOOI_WHYS);
    FIELD(walk, cause->rank, 4, MOOI_MEMBERS_MAX);
    FIELD(walk, cause->pid, 4, 0);
    FIELD(walk, cause->witness, 4, MOOI_MEMBERS_MAX + 1);
}

/* Only the first of a host connects, so its address is enough. */
static void members(struct walk *walk, struct mooi_roll *view)
{
    struct {
        uint32_t first, size;
    } teams[MOOI_HOSTS_MAX];
    uint32_t hosts = 0;
    for (uint32_t i = 0; !walk->bad && i < view->size; i++) {
        struct mooi_member *one = &view->members[i];
        uint32_t at = 0;
        if (walk->in)
            memset(one, 0, sizeof *one);
        member(walk, one);
        while (at < hosts && view->members[teams[at].first].host != one->host)
            at++;
        if (at == MOOI_HOSTS_MAX ||
            (at < hosts && teams[at].size == MOOI_TEAM_MAX)) {
            walk->bad = true;
        } else if (at < hosts) {
            teams[at].size++;
            if (walk->in)
                memcpy(one->name, view->members[teams[at].first].name,
                       sizeof one->name);
        } else {
            teams[hosts].first = i;
            teams[hosts++].size = 1;
            place(walk, one);
        }
    }
}

static void view(struct walk *walk, struct mooi_roll *view)
{
    FIELD(walk, view->epoch, 4, 0);
    FIELD(walk, view->min_size, 4, MOOI_MEMBERS_MAX + 1);
    FIELD(walk, view->first_seq, 8, (uint64_t)1 << 40);
    FIELD(walk, view->rested, 1, 2);
    raw(walk, view->key, sizeof view->key);
    cause(walk, &view->cause);
    FIELD(walk, view->size, 4, MOOI_MEMBERS_MAX + 1);
    members(walk, view);
}

static void body(struct walk *walk, struct mooi_frame *frame)
{
    switch (frame->kind) {
    case MOOI_JOIN:
        member(walk, &frame->join.member);
        place(walk, &frame->join.member);
        FIELD(walk, frame->join.min_size, 4, MOOI_MEMBERS_MAX + 1);
        FIELD(walk, frame->join.policy, 1, 0);
        break;
    case MOOI_GONE:
        FIELD(walk, frame->gone.serial, 4, 0);
        FIELD(walk, frame->gone.died, 1, 2);
        FIELD(walk, frame->gone.begun, 8, 0);
        break;
    case MOOI_REPORT:
        FIELD(walk, frame->report.epoch, 4, 0);
        FIELD(walk, frame->report.committed, 8, (uint64_t)1 << 40);
        FIELD(walk, frame->report.prepared, 1, 2);
        FIELD(walk, frame->report.resting, 1, 2);
        cause(walk, &frame->report.complaint);
        break;
    case MOOI_HALT:
        FIELD(walk, frame->halt.epoch, 4, 0);
        break;
    case MOOI_VIEW:
        if (frame->view)
            view(walk, frame->view);
        else
            walk->bad = true;
        break;
    case MOOI_WAITING:
        FIELD(walk, frame->waiting.count, 4, MOOI_MEMBERS_MAX + 1);
        break;
    case MOOI_REFUSED:
        FIELD(walk, frame->refused.serial, 4, 0);
        FIELD(walk, frame->refused.why, 1, MOOI_OTHER_POLICY + 1);
        break;
    case MOOI_ENTER:
        FIELD(walk, frame->enter.step, 1, 8);
        FIELD(walk, frame->enter.seq, 8, (uint64_t)1 << 40);
        FIELD(walk, frame->enter.status, 1, 0);
        FIELD(walk, frame->enter.rest, 1, 2);
        break;
    case MOOI_CALL:
        FIELD(walk, frame->call.seq, 8, (uint64_t)1 << 40);
        FIELD(walk, frame->call.rank, 2, MOOI_MEMBERS_MAX);
        signature(walk, &frame->call.signature);
        break;
    case MOOI_DIFFERS:
        FIELD(walk, frame->differs.seq, 8, (uint64_t)1 << 40);
        FIELD(walk, frame->differs.rank, 2, MOOI_MEMBERS_MAX);
        text(walk, frame->differs.text, sizeof frame->differs.text);
        break;
    case MOOI_SUM:
        FIELD(walk, frame->sum.seq, 8, (uint64_t)1 << 40);
        FIELD(walk, frame->sum.sum, 4, 0);
        break;
    case MOOI_FABRIC:
        fabric(walk, &frame->fabric);
        break;
    default:
        walk->bad = true;
    }
}

static void all(struct walk *walk, struct mooi_frame *frame)
{
    FIELD(walk, frame->kind, 1, MOOI_FABRIC + 1);
    if (walk->in && frame->kind == MOOI_VIEW)
        frame->view = walk->roll;
    if (!walk->bad)
        body(walk, frame);
}

size_t mooi_frame_write(const struct mooi_frame *frame, uint8_t *bytes,
                        size_t room)
{
    struct walk walk = {.out = bytes, .length = room};
    all(&walk, (struct mooi_frame *)frame); /* which it only reads */
    return walk.bad ? 0 : walk.at;
}

bool mooi_frame_read(struct mooi_frame *frame, struct mooi_roll *roll,
                     const uint8_t *bytes, size_t length)
{
    struct walk walk = {.in = bytes, .length = length, .roll = roll};
    memset(frame, 0, sizeof *frame);
    all(&walk, frame);
    return !walk.bad && walk.at == length;
}

void mooi_roll_copy(struct mooi_roll *to, const struct mooi_roll *from)
{
    memcpy(to, from,
           offsetof(struct mooi_roll, members) +
               from->size * sizeof *from->members);
}
