/* SPDX-License-Identifier: MIT */
/*
 * Any bytes for the parsers of endpoints and control messages: they must
 * neither read beyond the buffer nor take what packs to other bytes. Built with
 * -fsanitize=fuzzer by `make fuzz`; by gcc it runs its own random inputs.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "plane/endpoint.h"
#include "transport/control.h"

static void check_control(const uint8_t *data, size_t size)
{
    uint8_t again[MOOI_CONTROL_BYTES];
    struct mooi_control control;

    if (mooi_control_parse(data, size, &control) == MOO_OK &&
        (mooi_control_pack(&control, again) != size ||
         memcmp(again, data, size)))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1), again[MOO_ENDPOINT_BYTES];
    struct mooi_endpoint endpoint;

    /* Of its very size, so that the sanitizer sees a read beyond it. */
    memcpy(copy, data, size);
    if (mooi_endpoint_parse(copy, size, &endpoint) == MOO_OK &&
        (mooi_endpoint_pack(&endpoint, again) != size ||
         memcmp(again, data, size)))
        abort();
    check_control(copy, size);
    free(copy);
    return 0;
}

#ifndef FUZZER
#include "check.h"

static struct mooi_endpoint sample(void)
{
    struct mooi_endpoint endpoint = {.process = 7,
                             .transports = MOO_TRANSPORT_TCP,
                             .addresses = 2,
                             .provider = "verbs;ofi_rxm",
                             .fabric_address_bytes = 20};

    endpoint.address[0] = (struct mooi_address){.family = 4, .port = 80};
    endpoint.address[1] = (struct mooi_address){.family = 6, .port = 65535};
    memset(endpoint.address[0].ip, 10, 4);
    memset(endpoint.address[1].ip, 0xfe, 16);
    memset(endpoint.fabric_address, 3, 20);
    memset(endpoint.host, 9, sizeof endpoint.host);
    return endpoint;
}

static void endpoints_of_any_other_length_are_refused(void)
{
    struct mooi_endpoint endpoint = sample(), out;
    uint8_t bytes[MOO_ENDPOINT_BYTES + 1] = {0};
    size_t length = mooi_endpoint_pack(&endpoint, bytes);

    for (size_t n = 0; n <= sizeof bytes; n++)
        CHECK((mooi_endpoint_parse(bytes, n, &out) == MOO_OK) == (n == length));
}

static void endpoints_of_another_version_are_told_from_nonsense(void)
{
    struct mooi_endpoint endpoint = sample(), out;
    uint8_t bytes[MOO_ENDPOINT_BYTES];
    size_t length = mooi_endpoint_pack(&endpoint, bytes);

    bytes[4]++;
    CHECK(mooi_endpoint_parse(bytes, length, &out) == MOO_EVERSION);
    bytes[0]++;
    CHECK(mooi_endpoint_parse(bytes, length, &out) == MOO_EPROTO);
}

static void mutants_are_taken_whole_or_not_at_all(void)
{
    struct mooi_endpoint endpoint = sample();
    uint8_t good[MOO_ENDPOINT_BYTES], bytes[MOO_ENDPOINT_BYTES];
    size_t length = mooi_endpoint_pack(&endpoint, good);

    srandom(1);
    for (int i = 0; i < 50000; i++) {
        memcpy(bytes, good, length);
        for (int k = 0; k < 3; k++)
            bytes[(size_t)random() % length] = (uint8_t)random();
        LLVMFuzzerTestOneInput(bytes, length);
    }
}

static size_t some_control(uint8_t *out)
{
    struct mooi_control control = {.kind = 1 + random() % 4};

    if (control.kind == MOOI_CONTROL_SERVE) {
        control.u.serve = MOO_TRANSPORT_OFI;
    } else if (control.kind == MOOI_CONTROL_FABRIC) {
        control.u.fabric.bytes = 1 + (uint32_t)random() % 256;
        control.u.fabric.address[0] = 'e';
    } else if (control.kind == MOOI_CONTROL_SLAB) {
        control.u.slab.index = 3;
        control.u.slab.bytes = 1 << 20;
        control.u.slab.key = (uint64_t)random();
        control.u.slab.base = (uint64_t)random() << 20;
    }
    return mooi_control_pack(&control, out);
}

static void neither_are_mutants_of_control_messages_taken_in_part(void)
{
    for (int i = 0; i < 50000; i++) {
        uint8_t bytes[MOOI_CONTROL_BYTES];
        size_t length = some_control(bytes);
        for (int k = 0; k < 3; k++)
            bytes[(size_t)random() % length] = (uint8_t)random();
        LLVMFuzzerTestOneInput(bytes, length);
    }
}

int main(void)
{
    RUN(neither_are_mutants_of_control_messages_taken_in_part);
    RUN(endpoints_of_any_other_length_are_refused);
    RUN(endpoints_of_another_version_are_told_from_nonsense);
    RUN(mutants_are_taken_whole_or_not_at_all);
    return 0;
}
#endif
