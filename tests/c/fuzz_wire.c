/* SPDX-License-Identifier: MIT */
/*
 * A message between processes comes back as it was, or is refused. Any bytes
 * for the parsers: they must neither read beyond the buffer nor take what packs
 * to other bytes. Built with -fsanitize=fuzzer by `make fuzz`; by
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

static struct mooi_descriptor sample(void)
{
    return (struct mooi_descriptor){.owner = 0x0123456789abcdef,
                                    .offset = 4096,
                                    .length = 12345,
                                    .slab = 3,
                                    .lease = 77,
                                    .generation = 9,
                                    .flags = MOO_MOVED};
}

static void descriptors_of_any_other_length_are_refused(void)
{
    struct mooi_descriptor in = sample(), out;
    uint8_t bytes[MOO_DESCRIPTOR_BYTES + 1] = {0};

    mooi_descriptor_pack(&in, bytes);
    for (size_t length = 0; length <= sizeof bytes; length++)
        CHECK((mooi_descriptor_parse(bytes, length, &out) == MOO_OK) ==
              (length == MOO_DESCRIPTOR_BYTES));
}

static void descriptors_that_make_no_sense_are_refused(void)
{
    struct mooi_descriptor in = sample(), out;
    uint8_t bytes[MOO_DESCRIPTOR_BYTES];

    in.length = 0;
    mooi_descriptor_pack(&in, bytes);
    CHECK(mooi_descriptor_parse(bytes, sizeof bytes, &out) == MOO_EPROTO);
    in.length = 2;
    in.offset = UINT64_MAX - 1;
    mooi_descriptor_pack(&in, bytes);
    CHECK(mooi_descriptor_parse(bytes, sizeof bytes, &out) == MOO_EPROTO);
    in = sample();
    in.flags = 4;
    mooi_descriptor_pack(&in, bytes);
    CHECK(mooi_descriptor_parse(bytes, sizeof bytes, &out) == MOO_EPROTO);
    bytes[2] = MOOI_WIRE_VERSION + 1;
    CHECK(mooi_descriptor_parse(bytes, sizeof bytes, &out) == MOO_EVERSION);
}

static void every_kind_refuses_bytes_without_a_meaning(void)
{
    static const size_t meaningless[][2] = {{MOOI_MSG_HELLO, 63},
                                            {MOOI_MSG_HELLO, 28},
                                            {MOOI_MSG_SLAB, 12},
                                            {MOOI_MSG_SLAB, 24},
                                            {MOOI_MSG_GRANT, 52},
                                            {MOOI_MSG_GRANTED, 24},
                                            {MOOI_MSG_GRANTED, 28}};

    for (size_t i = 0; i < sizeof meaningless / sizeof *meaningless; i++) {
        struct mooi_message m, out;
        uint8_t bytes[MOOI_MESSAGE_BYTES];
        memset(&m, 0, sizeof m);
        m.kind = (enum mooi_kind)meaningless[i][0];
        if (m.kind == MOOI_MSG_SLAB)
            m.u.slab.size = 4096;
        if (m.kind == MOOI_MSG_GRANT)
            m.u.grant.length = 1;
        mooi_message_pack(&m, bytes);
        CHECK(mooi_message_parse(bytes, sizeof bytes, &out) == MOO_OK);
        bytes[meaningless[i][1]] = 4; /* of the flags no known one */
        CHECK(mooi_message_parse(bytes, sizeof bytes, &out) == MOO_EPROTO);
    }
}

static void siphash_gives_the_published_values(void)
{
    /* The reference's first vectors: key 00..0f, input the empty string, 00. */
    static const uint8_t none[] = {0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25,
                                   0xa8, 0xe6, 0x6d, 0xf6, 0x72, 0x14,
                                   0xc7, 0x55, 0x02, 0x93};
    static const uint8_t one[] = {0xda, 0x87, 0xc1, 0xd8, 0x6b, 0x99,
                                  0xaf, 0x44, 0x34, 0x76, 0x59, 0x11,
                                  0x9b, 0x22, 0xfc, 0x45};
    uint8_t key[MOOI_KEY_BYTES], out[MOOI_MAC_BYTES], zero = 0;

    for (uint8_t i = 0; i < sizeof key; i++)
        key[i] = i;
    mooi_mac(key, "", 0, out);
    CHECK(mooi_mac_equal(out, none));
    mooi_mac(key, &zero, 1, out);
    CHECK(mooi_mac_equal(out, one));
}

static void a_proof_fits_one_direction_and_one_key_only(void)
{
    uint8_t key[MOOI_KEY_BYTES] = "a", other[MOOI_KEY_BYTES] = "b";
    uint8_t proof[MOOI_MAC_BYTES], wrong[MOOI_MAC_BYTES];

    mooi_hello_proof(key, 1, 2, proof);
    mooi_hello_proof(key, 2, 1, wrong);
    CHECK(!mooi_mac_equal(proof, wrong));
    mooi_hello_proof(other, 1, 2, wrong);
    CHECK(!mooi_mac_equal(proof, wrong));
    mooi_hello_proof(key, 1, 2, wrong);
    CHECK(mooi_mac_equal(proof, wrong));
}

/* Valid messages with a few bytes changed reach further than noise. */
static void mutants_are_taken_whole_or_not_at_all(void)
{
    srandom(1);
    for (int i = 0; i < 100000; i++) {
        uint8_t data[MOOI_MESSAGE_BYTES] = "MOOL\1\0";
        size_t size = i % 2 ? MOOI_MESSAGE_BYTES : MOO_DESCRIPTOR_BYTES;
        data[6] = (uint8_t)(random() % 6);
        if (size == MOO_DESCRIPTOR_BYTES)
            memcpy(data, "MD\1\0", 4);
        for (long k = random() % 8; k >= 0; k--)
            data[(size_t)random() % size] = (uint8_t)random();
        LLVMFuzzerTestOneInput(data, size);
    }
}

int main(void)
{
    RUN(descriptors_of_any_other_length_are_refused);
    RUN(descriptors_that_make_no_sense_are_refused);
    RUN(every_kind_refuses_bytes_without_a_meaning);
    RUN(siphash_gives_the_published_values);
    RUN(a_proof_fits_one_direction_and_one_key_only);
    RUN(mutants_are_taken_whole_or_not_at_all);
    return 0;
}
#endif
