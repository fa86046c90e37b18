/* SPDX-License-Identifier: MIT */
#include "core/wire.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void mooi_descriptor_pack(const struct mooi_descriptor *d, uint8_t *out)
{
    out[0] = 'M';
    out[1] = 'D';
    out[2] = MOOI_WIRE_VERSION;
    out[3] = d->flags;
    mooi_put32(out + 4, d->slab);
    mooi_put64(out + 8, d->owner);
    mooi_put64(out + 16, d->offset);
    mooi_put64(out + 24, d->length);
    mooi_put32(out + 32, d->lease);
    mooi_put32(out + 36, d->generation);
}

moo_err mooi_descriptor_parse(const void *buf, size_t len,
                              struct mooi_descriptor *out)
{
    const uint8_t *in = buf;

    if (len != MOO_DESCRIPTOR_BYTES || in[0] != 'M' || in[1] != 'D')
        return MOO_EPROTO;
    if (in[2] != MOOI_WIRE_VERSION)
        return MOO_EVERSION;
    if (in[3] & ~(MOO_MOVED | MOOI_REMOTE | MOOI_TICKET))
        return MOO_EPROTO;
    out->flags = in[3];
    out->slab = mooi_get32(in + 4);
    out->owner = mooi_get64(in + 8);
    out->offset = mooi_get64(in + 16);
    out->length = mooi_get64(in + 24);
    out->lease = mooi_get32(in + 32);
    out->generation = mooi_get32(in + 36);
    if (!out->length || out->offset > UINT64_MAX - out->length ||
        (out->flags & (MOOI_TICKET | MOOI_REMOTE)) == MOOI_TICKET)
        return MOO_EPROTO;
    return MOO_OK;
}

int moo_descriptor_is_remote(const uint8_t *descriptor, size_t bytes)
{
    struct mooi_descriptor d;

    return mooi_descriptor_parse(descriptor, bytes, &d) == MOO_OK &&
           (d.flags & (MOOI_REMOTE | MOOI_TICKET)) == MOOI_REMOTE;
}

int moo_descriptor_is_ticket(const uint8_t *descriptor, size_t bytes)
{
    struct mooi_descriptor d;

    return mooi_descriptor_parse(descriptor, bytes, &d) == MOO_OK &&
           (d.flags & MOOI_TICKET);
}

static void pack_head(uint8_t *out, enum mooi_kind kind)
{
    memset(out, 0, MOOI_MESSAGE_BYTES);
    memcpy(out, "MOOL", 4);
    out[4] = MOOI_WIRE_VERSION;
    out[6] = (uint8_t)kind;
}

void mooi_message_pack(const struct mooi_message *m,
                       uint8_t out[MOOI_MESSAGE_BYTES])
{
    pack_head(out, m->kind);
    switch (m->kind) {
    case MOOI_MSG_HELLO:
        mooi_put64(out + 8, m->u.hello.from);
        mooi_put64(out + 16, m->u.hello.to);
        mooi_put32(out + 24, m->u.hello.entries);
        memcpy(out + 32, m->u.hello.proof, MOOI_MAC_BYTES);
        break;
    case MOOI_MSG_SLAB:
        mooi_put32(out + 8, m->u.slab.index);
        mooi_put64(out + 16, m->u.slab.size);
        break;
    case MOOI_MSG_GRANT:
        mooi_put32(out + 8, m->u.grant.sequence);
        mooi_put32(out + 12, m->u.grant.slab);
        mooi_put64(out + 16, m->u.grant.offset);
        mooi_put64(out + 24, m->u.grant.length);
        mooi_put64(out + 32, m->u.grant.to);
        mooi_put32(out + 40, m->u.grant.lease);
        mooi_put32(out + 44, m->u.grant.generation);
        mooi_put32(out + 48, m->u.grant.flags);
        break;
    case MOOI_MSG_GRANTED:
        mooi_put32(out + 8, m->u.granted.sequence);
        mooi_put32(out + 12, (uint32_t)m->u.granted.error);
        mooi_put32(out + 16, m->u.granted.lease);
        mooi_put32(out + 20, m->u.granted.generation);
        mooi_put32(out + 24, m->u.granted.flags);
        break;
    }
}

static int is_zero(const uint8_t *in, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++)
        if (in[i])
            return 0;
    return 1;
}

static moo_err parse_hello(const uint8_t *in, struct mooi_message *out)
{
    out->u.hello.from = mooi_get64(in + 8);
    out->u.hello.to = mooi_get64(in + 16);
    out->u.hello.entries = mooi_get32(in + 24);
    memcpy(out->u.hello.proof, in + 32, MOOI_MAC_BYTES);
    return is_zero(in, 28, 32) && is_zero(in, 48, 64) ? MOO_OK : MOO_EPROTO;
}

static moo_err parse_slab(const uint8_t *in, struct mooi_message *out)
{
    out->u.slab.index = mooi_get32(in + 8);
    out->u.slab.size = mooi_get64(in + 16);
    if (!out->u.slab.size || out->u.slab.size > (uint64_t)1 << 46)
        return MOO_EPROTO;
    return is_zero(in, 12, 16) && is_zero(in, 24, 64) ? MOO_OK : MOO_EPROTO;
}

static moo_err parse_grant(const uint8_t *in, struct mooi_message *out)
{
    out->u.grant.sequence = mooi_get32(in + 8);
    out->u.grant.slab = mooi_get32(in + 12);
    out->u.grant.offset = mooi_get64(in + 16);
    out->u.grant.length = mooi_get64(in + 24);
    out->u.grant.to = mooi_get64(in + 32);
    out->u.grant.lease = mooi_get32(in + 40);
    out->u.grant.generation = mooi_get32(in + 44);
    out->u.grant.flags = mooi_get32(in + 48);
    if (!out->u.grant.length || (out->u.grant.flags & ~(uint32_t)MOO_MOVED) ||
        out->u.grant.offset > UINT64_MAX - out->u.grant.length)
        return MOO_EPROTO;
    return is_zero(in, 52, 64) ? MOO_OK : MOO_EPROTO;
}

static moo_err parse_granted(const uint8_t *in, struct mooi_message *out)
{
    int32_t error = (int32_t)mooi_get32(in + 12);

    if (error > MOO_OK || error < MOO_EUNREACHABLE)
        return MOO_EPROTO;
    out->u.granted.sequence = mooi_get32(in + 8);
    out->u.granted.error = (moo_err)error;
    out->u.granted.lease = mooi_get32(in + 16);
    out->u.granted.generation = mooi_get32(in + 20);
    out->u.granted.flags = mooi_get32(in + 24);
    if (out->u.granted.flags &
        ~(uint32_t)(MOO_MOVED | MOOI_REMOTE | MOOI_TICKET))
        return MOO_EPROTO;
    return is_zero(in, 28, 64) ? MOO_OK : MOO_EPROTO;
}

moo_err mooi_message_parse(const void *buf, size_t len,
                           struct mooi_message *out)
{
    const uint8_t *in = buf;

    if (len != MOOI_MESSAGE_BYTES || memcmp(in, "MOOL", 4) || in[7])
        return MOO_EPROTO;
    if (in[4] != MOOI_WIRE_VERSION || in[5])
        return MOO_EVERSION;
    out->kind = (enum mooi_kind)in[6];
    switch (in[6]) {
    case MOOI_MSG_HELLO:
        return parse_hello(in, out);
    case MOOI_MSG_SLAB:
        return parse_slab(in, out);
    case MOOI_MSG_GRANT:
        return parse_grant(in, out);
    case MOOI_MSG_GRANTED:
        return parse_granted(in, out);
    default:
        return MOO_EPROTO;
    }
}

void mooi_hello_proof(const uint8_t key[MOOI_KEY_BYTES], uint64_t from,
                      uint64_t to, uint8_t out[MOOI_MAC_BYTES])
{
    uint8_t text[32] = "moo hello";

    text[15] = MOOI_WIRE_VERSION;
    mooi_put64(text + 16, from);
    mooi_put64(text + 24, to);
    mooi_mac(key, text, sizeof text, out);
}

void mooi_socket_name(const uint8_t key[MOOI_KEY_BYTES], uint64_t id,
                      char out[MOOI_NAME_BYTES])
{
    uint8_t text[24] = "moo socket", mac[MOOI_MAC_BYTES];

    text[15] = MOOI_WIRE_VERSION;
    mooi_put64(text + 16, id);
    mooi_mac(key, text, sizeof text, mac);
    snprintf(out, MOOI_NAME_BYTES, "%016" PRIx64 "-%016" PRIx64 ".data", id,
             mooi_get64(mac));
}
