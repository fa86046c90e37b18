/* SPDX-License-Identifier: MIT */
/*
 * Any bytes for both sides of a handshake, in any pieces: they end, never with
 * somebody let in who did not prove the key, and never waiting for more than a
 * handshake is long. Built with -fsanitize=fuzzer by `make fuzz`; by gcc it
 * runs its own random inputs.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "transport/tcp/handshake.h"

static const uint8_t key[MOOI_KEY_BYTES] = "the session key";
static const uint8_t host[MOOI_HOST_BYTES] = "here";

static void check_parsers(const uint8_t *data, size_t size)
{
    struct mooi_hello hello;
    struct mooi_challenge challenge;
    uint8_t again[MOOI_HELLO_BYTES];

    if (size < MOOI_HELLO_BYTES)
        return;
    if (mooi_hello_parse(data, &hello) == MOO_OK) {
        if (hello.index >= hello.count)
            abort();
        mooi_hello_pack(&hello, again);
        if (memcmp(again, data, MOOI_HELLO_BYTES))
            abort();
    }
    if (mooi_challenge_parse(data, &challenge) == MOO_OK) {
        mooi_challenge_pack(&challenge, MOO_OK, again);
        if (memcmp(again, data, MOOI_CHALLENGE_BYTES))
            abort();
    }
}

/* Feed one side all there is, in two pieces, and then the end. */
static void feed(struct mooi_handshake *side, const uint8_t *data, size_t size)
{
    size_t cut = size ? data[0] % size : 0;
    int ends[2];
    moo_err err;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
        abort();
    if (cut && send(ends[0], data, cut, MSG_NOSIGNAL) < 0)
        abort();
    err = mooi_handshake_step(side, ends[1]);
    if (err == MOO_ETIMEOUT && size > cut) {
        if (send(ends[0], data + cut, size - cut, MSG_NOSIGNAL) < 0)
            abort();
        err = mooi_handshake_step(side, ends[1]);
    }
    if (err == MOO_OK) /* the nonces are fresh: nobody guesses the proof */
        abort();
    shutdown(ends[0], SHUT_WR);
    if (err == MOO_ETIMEOUT)
        err = mooi_handshake_step(side, ends[1]);
    if (err == MOO_OK || err == MOO_ETIMEOUT)
        abort();
    close(ends[0]);
    close(ends[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mooi_hello hello = {.from = 7, .to = 9,
                               .purpose = MOOI_PURPOSE_DATA, .count = 1};
    struct mooi_handshake side;

    check_parsers(data, size);
    if (mooi_handshake_accept(&side, key, 9, host, MOOI_PURPOSE_DATA))
        abort();
    feed(&side, data, size);
    if (mooi_handshake_connect(&side, key, &hello))
        abort();
    feed(&side, data, size);
    return 0;
}

#ifndef FUZZER
#include "check.h"

static void mutants_let_nobody_in(void)
{
    struct mooi_hello hello = {.from = 7, .to = 9,
                               .purpose = MOOI_PURPOSE_DATA, .count = 1};

    srandom(1);
    for (int i = 0; i < 4000; i++) {
        uint8_t data[MOOI_HELLO_BYTES + MOOI_PROOF_BYTES] = {0};
        size_t size = (size_t)random() % (sizeof data + 1);
        mooi_hello_pack(&hello, data);
        mooi_proof_pack(host, MOO_OK, data + MOOI_HELLO_BYTES);
        if (i % 2)
            data[5] = (uint8_t)(random() % 5);
        for (int k = 0; k < i % 5; k++)
            data[(size_t)random() % sizeof data] = (uint8_t)random();
        LLVMFuzzerTestOneInput(data, size);
    }
}

int main(void)
{
    RUN(mutants_let_nobody_in);
    return 0;
}
#endif
