/* SPDX-License-Identifier: MIT */
/*
 * Fuzzing the frames of learner groups. Reading any bytes
 * touches nothing beyond them, and what they mean is written as the same bytes:
 * there is one way to say a thing. The reducers take any frame that can be read.
 *
 * With -DFUZZER it is a libFuzzer target, otherwise a test with a fixed seed.
 */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "collective/protocol/agent.h"
#include "collective/protocol/commit.h"
#include "collective/protocol/master.h"

static void drop(void *to, const struct mooi_frame *frame)
{
    (void)to, (void)frame;
}

static void drop_for(void *to, uint32_t host, const struct mooi_frame *frame)
{
    uint8_t bytes[MOOI_FRAME_BYTES];
    (void)to, (void)host;
    CHECK(mooi_frame_write(frame, bytes, sizeof bytes) > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct mooi_words words;
    static struct mooi_agent agent = {.host = 1, .words = &words, .emit = drop,
                                      .show = drop};
    static struct mooi_roll came, sent;
    static struct mooi_master master = {.emit = drop_for, .roll = &sent};
    static struct mooi_commit commit = {.words = &words, .emit = drop_for};
    struct mooi_frame frame;
    uint8_t *exact = malloc(size ? size : 1), again[MOOI_FRAME_BYTES];
    CHECK(exact);
    if (size)
        memcpy(exact, data, size);
    if (mooi_frame_read(&frame, &came, exact, size)) {
        CHECK(mooi_frame_write(&frame, again, sizeof again) == size);
        CHECK(!memcmp(again, exact, size));
        if (!commit.hosts)
            mooi_commit_open(&commit, 3, 0, 2);
        mooi_agent_take(&agent, &frame);
        mooi_commit_take(&commit, &frame);
        mooi_master_take(&master, 1 + size % 5, &frame);
    }
    free(exact);
    return 0;
}

#ifndef FUZZER

static uint32_t random_below(uint32_t *state, uint32_t limit)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % limit;
}

/* Few members or many, on few hosts or many. */
static struct mooi_roll *any_view(uint32_t *state)
{
    static struct mooi_roll view;
    uint32_t hosts = 1 + random_below(state, MOOI_HOSTS_MAX);
    uint32_t most = MOOI_MEMBERS_MAX >> random_below(state, 11);
    if (most > hosts * MOOI_TEAM_MAX)
        most = hosts * MOOI_TEAM_MAX;
    view.epoch = random_below(state, 9);
    view.size = random_below(state, most + 1);
    for (uint32_t i = 0; i < view.size; i++) {
        view.members[i].host = 1 + i % hosts;
        view.members[i].slot = i / hosts;
    }
    return &view;
}

/* One of each kind, with large values in it. */
static size_t sample(uint32_t *state, uint8_t bytes[MOOI_FRAME_BYTES])
{
    struct mooi_frame frame = {0};
    frame.kind = (enum mooi_frame_kind)(1 + random_below(state, MOOI_FABRIC));
    switch (frame.kind) {
    case MOOI_JOIN:
        frame.join.min_size = 1 + random_below(state, MOOI_MEMBERS_MAX);
        frame.join.member.slot = random_below(state, MOOI_TEAM_MAX);
        frame.join.member.serial = random_below(state, 9);
        break;
    case MOOI_GONE:
        frame.gone.serial = random_below(state, 9);
        break;
    case MOOI_REPORT:
        frame.report.epoch = random_below(state, 9);
        frame.report.committed = random_below(state, 99);
        frame.report.prepared = random_below(state, 2);
        break;
    case MOOI_VIEW:
        frame.view = any_view(state);
        break;
    case MOOI_REFUSED:
        frame.refused.why = MOOI_FULL;
        break;
    case MOOI_ENTER:
        frame.enter.seq = 2;
        frame.enter.step = random_below(state, 8);
        break;
    default:
        break;
    }
    return mooi_frame_write(&frame, bytes, MOOI_FRAME_BYTES);
}

/* `teams` hosts of `each` members, in turn, and one more on the first. */
static size_t length_of(uint32_t teams, uint32_t each, uint32_t more)
{
    static struct mooi_roll view;
    static uint8_t bytes[MOOI_FRAME_BYTES];
    struct mooi_frame frame = {.kind = MOOI_VIEW, .view = &view};
    view.size = teams * each + more;
    for (uint32_t i = 0; i < view.size && i < MOOI_MEMBERS_MAX; i++) {
        view.members[i].host = 1 + i % teams;
        view.members[i].addresses = MOOI_ADDRESSES_MAX;
    }
    return mooi_frame_write(&frame, bytes, sizeof bytes);
}

static void views_have_limits(void)
{
    CHECK(length_of(MOOI_HOSTS_MAX, MOOI_MEMBERS_MAX / MOOI_HOSTS_MAX, 0));
    CHECK(length_of(2, MOOI_TEAM_MAX, 0));
    CHECK(!length_of(2, MOOI_TEAM_MAX, 1));
    CHECK(!length_of(MOOI_HOSTS_MAX + 1, 1, 0));
    CHECK(!length_of(MOOI_HOSTS_MAX, MOOI_MEMBERS_MAX / MOOI_HOSTS_MAX, 1));
}

int main(void)
{
    uint8_t bytes[MOOI_FRAME_BYTES];
    uint32_t state = 1;
    views_have_limits();
    for (int round = 0; round < 200000; round++) {
        size_t size = sample(&state, bytes);
        CHECK(size > 0);
        LLVMFuzzerTestOneInput(bytes, size);
        for (uint32_t n = random_below(&state, 4); n; n--)
            bytes[random_below(&state, (uint32_t)size)] =
                (uint8_t)random_below(&state, 256);
        LLVMFuzzerTestOneInput(bytes, random_below(&state, (uint32_t)size + 1));
        LLVMFuzzerTestOneInput(bytes, size);
    }
    return 0;
}
#endif
