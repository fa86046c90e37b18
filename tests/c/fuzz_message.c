/* SPDX-License-Identifier: MIT */
/*
 * Any bytes for the parser of a link's messages: it takes what packs to the
 * same bytes, and nothing else. Built with -fsanitize=fuzzer by `make fuzz`; by
 * gcc it runs its own random inputs.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "transport/tcp/message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mooi_tcp_message message;
    uint8_t again[MOOI_TCP_HEAD_BYTES];

    for (; size >= sizeof again; data += sizeof again, size -= sizeof again) {
        if (mooi_tcp_message_parse(data, &message) != MOO_OK)
            continue;
        mooi_tcp_message_pack(&message, again);
        if (memcmp(again, data, sizeof again))
            abort();
        if (message.length > MOOI_TCP_CHUNK_MAX ||
            message.offset + message.length < message.offset ||
            (message.kind == MOOI_TCP_CONTROL &&
             message.length > MOOI_TCP_CONTROL_BYTES) ||
            (message.kind == MOOI_TCP_REFUSE && message.error >= MOO_OK))
            abort();
    }
    return 0;
}

#ifndef FUZZER
#include "check.h"

static int parses(const uint8_t *bytes)
{
    struct mooi_tcp_message message;

    return mooi_tcp_message_parse(bytes, &message) == MOO_OK;
}

static void every_kind_survives_packing(void)
{
    static const struct mooi_tcp_message all[] = {
        {.kind = MOOI_TCP_ASK, .flags = 1, .tag = 2, .length = 3,
         .name = {4, 5, 6}, .offset = 1ull << 40},
        {.kind = MOOI_TCP_RELEASE, .name = {4, 5, 6}},
        {.kind = MOOI_TCP_DATA, .flags = 1, .tag = 7, .length = 8,
         .checksum = 9},
        {.kind = MOOI_TCP_REFUSE, .tag = 7, .error = MOO_ESTALE},
        {.kind = MOOI_TCP_CONTROL, .length = MOOI_TCP_CONTROL_BYTES},
        {.kind = MOOI_TCP_PING}};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        uint8_t bytes[MOOI_TCP_HEAD_BYTES], again[MOOI_TCP_HEAD_BYTES];
        struct mooi_tcp_message out;
        mooi_tcp_message_pack(&all[i], bytes);
        CHECK(mooi_tcp_message_parse(bytes, &out) == MOO_OK);
        CHECK(out.kind == all[i].kind && out.error == all[i].error);
        mooi_tcp_message_pack(&out, again);
        CHECK(!memcmp(bytes, again, sizeof bytes));
        bytes[2] = 1; /* without a meaning */
        CHECK(!parses(bytes));
    }
}

static void lengths_are_bounded(void)
{
    static const struct mooi_tcp_message beyond[] = {
        {.kind = MOOI_TCP_ASK, .length = MOOI_TCP_CHUNK_MAX + 1},
        {.kind = MOOI_TCP_ASK, .length = 2, .offset = UINT64_MAX - 1},
        {.kind = MOOI_TCP_DATA, .length = MOOI_TCP_CHUNK_MAX + 1},
        {.kind = MOOI_TCP_CONTROL, .length = MOOI_TCP_CONTROL_BYTES + 1},
        {.kind = MOOI_TCP_CONTROL, .length = 0}};

    for (size_t i = 0; i < sizeof beyond / sizeof *beyond; i++) {
        uint8_t bytes[MOOI_TCP_HEAD_BYTES];
        mooi_tcp_message_pack(&beyond[i], bytes);
        CHECK(!parses(bytes));
    }
}

static void mutants_are_taken_whole_or_not_at_all(void)
{
    srandom(1);
    for (int i = 0; i < 100000; i++) {
        uint8_t data[MOOI_TCP_HEAD_BYTES] = {0};
        data[0] = (uint8_t)(random() % 8);
        for (long k = random() % 4; k >= 0; k--) /* few: others must be 0 */
            data[(size_t)random() % sizeof data] = (uint8_t)random();
        LLVMFuzzerTestOneInput(data, sizeof data);
    }
}

int main(void)
{
    RUN(every_kind_survives_packing);
    RUN(lengths_are_bounded);
    RUN(mutants_are_taken_whole_or_not_at_all);
    return 0;
}
#endif
