/* SPDX-License-Identifier: MIT */
#include "transport/handshake.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/random.h>

#include "core/wire.h"

#define HEAD_BYTES 8

/* ---- the messages ---- */

static void put16(uint8_t *p, uint16_t x)
{
    p[0] = (uint8_t)x;
    p[1] = (uint8_t)(x >> 8);
}

static uint16_t get16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static void pack_head(uint8_t *out, size_t bytes, int kind, moo_err told)
{
    memset(out, 0, bytes);
    memcpy(out, "MOOT", 4);
    out[4] = MOOI_HANDSHAKE_VERSION;
    out[5] = (uint8_t)kind;
    out[6] = (uint8_t)-told;
}

/* What one side may tell the other. */
static int may_be_told(moo_err err)
{
    return err == MOO_OK || err == MOO_EPROTO || err == MOO_EAUTH ||
           err == MOO_EVERSION || err == MOO_ENOMEM || err == MOO_ECLOSED;
}

/* MOO_OK, the error that was told, or our own. */
static moo_err parse_head(const uint8_t *in, int kind)
{
    if (memcmp(in, "MOOT", 4))
        return MOO_EPROTO;
    if (in[4] != MOOI_HANDSHAKE_VERSION)
        return MOO_EVERSION;
    if (in[5] != kind || !may_be_told((moo_err)-in[6]) || in[7])
        return MOO_EPROTO;
    if (kind == MOOI_HS_HELLO && in[6])
        return MOO_EPROTO;
    return (moo_err)-in[6];
}

void mooi_hello_pack(const struct mooi_hello *hello,
                     uint8_t out[MOOI_HELLO_BYTES])
{
    pack_head(out, MOOI_HELLO_BYTES, MOOI_HS_HELLO, MOO_OK);
    mooi_put64(out + 8, hello->from);
    mooi_put64(out + 16, hello->to);
    mooi_put32(out + 24, hello->purpose);
    put16(out + 28, hello->index);
    put16(out + 30, hello->count);
    mooi_put64(out + 32, hello->token);
    mooi_put32(out + 40, hello->flags);
    memcpy(out + 48, hello->host, MOOI_HOST_BYTES);
    memcpy(out + 64, hello->nonce, MOOI_NONCE_BYTES);
}

moo_err mooi_hello_parse(const uint8_t in[MOOI_HELLO_BYTES],
                         struct mooi_hello *out)
{
    moo_err err = parse_head(in, MOOI_HS_HELLO);

    if (err != MOO_OK)
        return err;
    if (get16(in + 28) >= get16(in + 30) || mooi_get32(in + 44))
        return MOO_EPROTO;
    out->from = mooi_get64(in + 8);
    out->to = mooi_get64(in + 16);
    out->purpose = mooi_get32(in + 24);
    out->index = get16(in + 28);
    out->count = get16(in + 30);
    out->token = mooi_get64(in + 32);
    out->flags = mooi_get32(in + 40);
    memcpy(out->host, in + 48, MOOI_HOST_BYTES);
    memcpy(out->nonce, in + 64, MOOI_NONCE_BYTES);
    return MOO_OK;
}

void mooi_challenge_pack(const struct mooi_challenge *challenge, moo_err told,
                         uint8_t out[MOOI_CHALLENGE_BYTES])
{
    pack_head(out, MOOI_CHALLENGE_BYTES, MOOI_HS_CHALLENGE, told);
    if (told != MOO_OK)
        return;
    mooi_put64(out + 8, challenge->from);
    memcpy(out + 16, challenge->host, MOOI_HOST_BYTES);
    memcpy(out + 32, challenge->nonce, MOOI_NONCE_BYTES);
    memcpy(out + 48, challenge->proof, MOOI_MAC_BYTES);
}

moo_err mooi_challenge_parse(const uint8_t in[MOOI_CHALLENGE_BYTES],
                             struct mooi_challenge *out)
{
    moo_err err = parse_head(in, MOOI_HS_CHALLENGE);

    if (err != MOO_OK)
        return err;
    out->from = mooi_get64(in + 8);
    memcpy(out->host, in + 16, MOOI_HOST_BYTES);
    memcpy(out->nonce, in + 32, MOOI_NONCE_BYTES);
    memcpy(out->proof, in + 48, MOOI_MAC_BYTES);
    return MOO_OK;
}

void mooi_proof_pack(const uint8_t proof[MOOI_MAC_BYTES], moo_err told,
                     uint8_t out[MOOI_PROOF_BYTES])
{
    pack_head(out, MOOI_PROOF_BYTES, MOOI_HS_PROOF, told);
    if (told == MOO_OK)
        memcpy(out + 8, proof, MOOI_MAC_BYTES);
}

moo_err mooi_proof_parse(const uint8_t in[MOOI_PROOF_BYTES],
                         uint8_t proof[MOOI_MAC_BYTES])
{
    moo_err err = parse_head(in, MOOI_HS_PROOF);

    if (err == MOO_OK)
        memcpy(proof, in + 8, MOOI_MAC_BYTES);
    return err;
}

void mooi_ready_pack(moo_err told, uint8_t out[MOOI_READY_BYTES])
{
    pack_head(out, MOOI_READY_BYTES, MOOI_HS_READY, told);
}

moo_err mooi_ready_parse(const uint8_t in[MOOI_READY_BYTES])
{
    return parse_head(in, MOOI_HS_READY);
}

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

/* The keyed hash of a label, the HELLO, and the CHALLENGE without its proof. */
static void prove(const struct mooi_handshake *h, const char label[16],
                  uint8_t out[MOOI_MAC_BYTES])
{
    uint8_t text[16 + MOOI_HELLO_BYTES + MOOI_CHALLENGE_BYTES - MOOI_MAC_BYTES];

    memcpy(text, label, 16);
    memcpy(text + 16, h->talk, sizeof text - 16);
    mooi_mac(h->key, text, sizeof text, out);
}

static const char by_acceptor[16] = "moo tcp accepts";
static const char by_connector[16] = "moo tcp connects";

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

/* Both sides walk through the same four messages; who sends a step's message
 * makes it when the step before is done. */
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
    return parse_head(h->bytes, h->step + 1);
}

/* A message came in, or as much of it as is needed to refuse it. What it tells
 * us is final; what we find wrong ourselves is answered first. READY is the
 * last word, so not answered. */
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
           (!sends(h) && h->moved >= HEAD_BYTES &&
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
