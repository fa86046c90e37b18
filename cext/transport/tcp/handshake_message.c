/* SPDX-License-Identifier: MIT */
/* handshake_message.c: the messages of a handshake, packed and parsed. */
#include <string.h>

#include "core/wire.h"
#include "transport/tcp/handshake.h"

static void pack_head(uint8_t *out, size_t bytes, int kind, moo_err told)
{
    memset(out, 0, bytes);
    memcpy(out, "MOOT", 4);
    out[4] = MOOI_HANDSHAKE_VERSION;
    out[5] = (uint8_t)kind;
    out[6] = (uint8_t)-told;
}

/* The errors that one side may report to the other. */
static int may_be_told(moo_err err)
{
    return err == MOO_OK || err == MOO_EPROTO || err == MOO_EAUTH ||
           err == MOO_EVERSION || err == MOO_ENOMEM || err == MOO_ECLOSED;
}

moo_err mooi_handshake_head(const uint8_t in[MOOI_HANDSHAKE_HEAD_BYTES],
                            int kind)
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
    mooi_put16(out + 28, hello->index);
    mooi_put16(out + 30, hello->count);
    mooi_put64(out + 32, hello->token);
    mooi_put32(out + 40, hello->flags);
    memcpy(out + 48, hello->host, MOOI_HOST_BYTES);
    memcpy(out + 64, hello->nonce, MOOI_NONCE_BYTES);
}

moo_err mooi_hello_parse(const uint8_t in[MOOI_HELLO_BYTES],
                         struct mooi_hello *out)
{
    moo_err err = mooi_handshake_head(in, MOOI_HS_HELLO);

    if (err != MOO_OK)
        return err;
    if (mooi_get16(in + 28) >= mooi_get16(in + 30) || mooi_get32(in + 44))
        return MOO_EPROTO;
    out->from = mooi_get64(in + 8);
    out->to = mooi_get64(in + 16);
    out->purpose = mooi_get32(in + 24);
    out->index = mooi_get16(in + 28);
    out->count = mooi_get16(in + 30);
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
    moo_err err = mooi_handshake_head(in, MOOI_HS_CHALLENGE);

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
    moo_err err = mooi_handshake_head(in, MOOI_HS_PROOF);

    if (err == MOO_OK)
        memcpy(proof, in + 8, MOOI_MAC_BYTES);
    return err;
}

void mooi_ready_pack(moo_err told, uint8_t out[MOOI_READY_BYTES])
{
    pack_head(out, MOOI_READY_BYTES, MOOI_HS_READY, told);
}
