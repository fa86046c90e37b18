/* SPDX-License-Identifier: MIT */
#include "transport/tcp/handshake.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/random.h>


/* ---- proofs ---- */

moo_err mooi_random(void *out, size_t bytes)
{
    uint8_t *at = out;

    while (bytes) {
        ssize_t got = getrandom(at, bytes, 0);
        if (got < 0 && errno != EINTR)
            return MOO_ESYS;
        if (got > 0) {
            at += got;
            bytes -= (size_t)got;
        }
    }
    return MOO_OK;
}

/* The keyed hash of a label's first 16 bytes, the HELLO, and the CHALLENGE
 * without its proof. */
static void prove(const struct mooi_handshake *h, const char *label,
                  uint8_t out[MOOI_MAC_BYTES])
{
    uint8_t text[16 + MOOI_HELLO_BYTES + MOOI_CHALLENGE_BYTES - MOOI_MAC_BYTES];

    memcpy(text, label, 16);
    memcpy(text + 16, h->talk, sizeof text - 16);
    mooi_mac(h->key, text, sizeof text, out);
}

static const char by_acceptor[] = "moo tcp accepts";
static const char by_connector[] = "moo tcp connects";

static uint8_t *hello_bytes(struct mooi_handshake *h)
{
    return h->talk;
}

static uint8_t *challenge_bytes(struct mooi_handshake *h)
{
    return h->talk + MOOI_HELLO_BYTES;
}

/* ---- what is sent at each step ---- */

static void make_challenge(struct mooi_handshake *h)
{
    mooi_challenge_pack(&h->challenge, h->failed, challenge_bytes(h));
    if (h->failed == MOO_OK)
        prove(h, by_acceptor, challenge_bytes(h) + 48);
    memcpy(h->bytes, challenge_bytes(h), MOOI_CHALLENGE_BYTES);
}

static void make_proof(struct mooi_handshake *h)
{
    uint8_t proof[MOOI_MAC_BYTES];

    prove(h, by_connector, proof);
    mooi_proof_pack(proof, h->failed, h->bytes);
}

/* ---- what is received at each step ---- */

static moo_err take_hello(struct mooi_handshake *h)
{
    uint64_t self = h->challenge.from;
    uint32_t purpose = h->hello.purpose;
    moo_err err;

    memcpy(hello_bytes(h), h->bytes, MOOI_HELLO_BYTES);
    err = mooi_hello_parse(h->bytes, &h->hello);
    if (err == MOO_OK && (h->hello.to != self || h->hello.purpose != purpose))
        err = MOO_EPROTO;
    return err;
}

static moo_err take_challenge(struct mooi_handshake *h)
{
    uint8_t proof[MOOI_MAC_BYTES];
    moo_err err = mooi_challenge_parse(h->bytes, &h->challenge);

    if (err != MOO_OK)
        return err;
    memcpy(challenge_bytes(h), h->bytes, MOOI_CHALLENGE_BYTES);
    prove(h, by_acceptor, proof);
    if (!mooi_mac_equal(proof, h->challenge.proof))
        return MOO_EAUTH;
    return h->challenge.from == h->hello.to ? MOO_OK : MOO_EPROTO;
}

static moo_err take_proof(struct mooi_handshake *h)
{
    uint8_t told[MOOI_MAC_BYTES], proof[MOOI_MAC_BYTES];
    moo_err err = mooi_proof_parse(h->bytes, told);

    if (err != MOO_OK)
        return err;
    prove(h, by_connector, proof);
    return mooi_mac_equal(told, proof) ? MOO_OK : MOO_EAUTH;
}

/* ---- the steps ---- */

/* Both sides walk through the same four messages; the sender of a step's
 * message makes it when the step before is done. */
static const struct {
    uint32_t bytes;
    void (*make)(struct mooi_handshake *);
    moo_err (*take)(struct mooi_handshake *);
} steps[4] = {
    {MOOI_HELLO_BYTES, NULL, take_hello}, /* made at the start */
    {MOOI_CHALLENGE_BYTES, make_challenge, take_challenge},
    {MOOI_PROOF_BYTES, make_proof, take_proof},
    {MOOI_READY_BYTES, NULL, NULL},
};

static int sends(const struct mooi_handshake *h)
{
    return h->step % 2 == h->accepting;
}

short mooi_handshake_wants(const struct mooi_handshake *h)
{
    return sends(h) ? POLLOUT : POLLIN;
}

moo_err mooi_handshake_connect(struct mooi_handshake *h,
                               const uint8_t key[MOOI_KEY_BYTES],
                               const struct mooi_hello *hello)
{
    memset(h, 0, sizeof *h);
    memcpy(h->key, key, MOOI_KEY_BYTES);
    h->hello = *hello;
    if (mooi_random(h->hello.nonce, MOOI_NONCE_BYTES) != MOO_OK)
        return MOO_ESYS;
    mooi_hello_pack(&h->hello, hello_bytes(h));
    memcpy(h->bytes, hello_bytes(h), MOOI_HELLO_BYTES);
    return MOO_OK;
}

moo_err mooi_handshake_accept(struct mooi_handshake *h,
                              const uint8_t key[MOOI_KEY_BYTES], uint64_t id,
                              const uint8_t host[MOOI_HOST_BYTES],
                              uint32_t purpose)
{
    memset(h, 0, sizeof *h);
    memcpy(h->key, key, MOOI_KEY_BYTES);
    h->accepting = 1;
    h->hello.purpose = purpose; /* until theirs is compared with it */
    h->challenge.from = id;
    memcpy(h->challenge.host, host, MOOI_HOST_BYTES);
    return mooi_random(h->challenge.nonce, MOOI_NONCE_BYTES);
}

static void make(struct mooi_handshake *h)
{
    if (h->step == 3)
        mooi_ready_pack(h->failed, h->bytes);
    else if (steps[h->step].make)
        steps[h->step].make(h);
}

/* Kinds are numbered like steps, from 1. */
static moo_err head_of_present(const struct mooi_handshake *h)
{
    return mooi_handshake_head(h->bytes, h->step + 1);
}

/* A message arrived, or enough of it to refuse it. An error that it reports is
 * final. An error that we find is reported first, except in READY, which is
 * the last message. */
static moo_err take(struct mooi_handshake *h, int fd)
{
    moo_err err = head_of_present(h);
    int ours = !memcmp(h->bytes, "MOOT", 4) &&
               h->bytes[4] == MOOI_HANDSHAKE_VERSION;
    size_t skipped;

    if (ours && err != MOO_OK && h->bytes[6])
        return err;
    if (err == MOO_OK && steps[h->step].take)
        err = steps[h->step].take(h);
    if (h->step == 3)
        return err;
    h->failed = err;
    if (err != MOO_OK) /* unread bytes would turn our answer into a reset */
        mooi_socket_skip(fd, MOOI_HELLO_BYTES, &skipped);
    return MOO_OK;
}

static int is_there(const struct mooi_handshake *h)
{
    return h->moved == steps[h->step].bytes ||
           (!sends(h) && h->moved >= MOOI_HANDSHAKE_HEAD_BYTES &&
            head_of_present(h) != MOO_OK);
}

static moo_err move(struct mooi_handshake *h, int fd)
{
    struct iovec part = {h->bytes + h->moved,
                         steps[h->step].bytes - h->moved};
    size_t moved;
    moo_err err = sends(h) ? mooi_socket_send(fd, &part, 1, 0, &moved)
                           : mooi_socket_receive(fd, &part, 1, &moved);

    h->moved += (uint32_t)moved;
    return err;
}

moo_err mooi_handshake_step(struct mooi_handshake *h, int fd)
{
    while (h->step < 4) {
        int sent = sends(h);
        moo_err err = MOO_OK;
        if (h->moved < steps[h->step].bytes)
            err = move(h, fd);
        if (err == MOO_OK && !is_there(h))
            continue;
        if (err == MOO_OK && !sent)
            err = take(h, fd);
        if (err != MOO_OK)
            return h->failed != MOO_OK && err != MOO_ETIMEOUT ? h->failed : err;
        if (sent && h->failed != MOO_OK)
            return h->failed;
        h->step++;
        h->moved = 0;
        if (h->step < 4 && sends(h))
            make(h);
    }
    return MOO_OK;
}
