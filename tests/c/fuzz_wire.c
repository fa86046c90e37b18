/* SPDX-License-Identifier: MIT */
/*
 * Any bytes for the parsers: they must neither read beyond the buffer nor take
 * what packs to other bytes. Built with -fsanitize=fuzzer by `make fuzz`; by
 * gcc it runs its own random inputs.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/wire.h"

static void check_message(const uint8_t *data, size_t size)
{
    struct mooi_message message;
    uint8_t again[MOOI_MESSAGE_BYTES];

    if (mooi_message_parse(data, size, &message) != MOO_OK)
        return;
    mooi_message_pack(&message, again);
    if (memcmp(again, data, sizeof again))
        abort();
}

static void check_descriptor(const uint8_t *data, size_t size)
{
    struct mooi_descriptor d;
    uint8_t again[MOO_DESCRIPTOR_BYTES];

    if (mooi_descriptor_parse(data, size, &d) != MOO_OK)
        return;
    if (!d.length || d.offset + d.length < d.offset)
        abort();
    mooi_descriptor_pack(&d, again);
    if (memcmp(again, data, sizeof again))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_message(data, size);
    check_descriptor(data, size);
    return 0;
}

#ifndef FUZZER
#include "check.h"

/* Valid messages with a few bytes changed reach further than noise. */
static void mutants_are_taken_whole_or_not_at_all(void)
{
    srandom(1);
    for (int i = 0; i < 1000000; i++) {
        uint8_t data[MOOI_MESSAGE_BYTES] = "MOOL\1\0";
        size_t size = i % 2 ? MOOI_MESSAGE_BYTES : MOO_DESCRIPTOR_BYTES;
        data[6] = (uint8_t)(random() % 6);
        if (size == MOO_DESCRIPTOR_BYTES)
            memcpy(data, "MD\1\0", 4);
        for (int k = 0; k < 8; k++)
            data[(size_t)random() % size] = (uint8_t)random();
        LLVMFuzzerTestOneInput(data, size);
    }
}

int main(void)
{
    RUN(mutants_are_taken_whole_or_not_at_all);
    return 0;
}
#endif
