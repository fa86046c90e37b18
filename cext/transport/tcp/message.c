/* SPDX-License-Identifier: MIT */
#include "transport/tcp/message.h"

#include <string.h>

#include "core/wire.h"

#define ERROR_LAST 63

void mooi_tcp_message_pack(const struct mooi_tcp_message *m,
                           uint8_t out[MOOI_TCP_HEAD_BYTES])
{
    memset(out, 0, MOOI_TCP_HEAD_BYTES);
    out[0] = (uint8_t)m->kind;
    switch (m->kind) {
    case MOOI_TCP_ASK:
        out[1] = m->flags;
        mooi_put32(out + 4, m->tag);
        mooi_put32(out + 8, m->length);
        mooi_put64(out + 24, m->offset);
        /* fall through */
    case MOOI_TCP_RELEASE:
        mooi_put32(out + 12, m->name.slab);
        mooi_put32(out + 16, m->name.lease);
        mooi_put32(out + 20, m->name.generation);
        break;
    case MOOI_TCP_DATA:
        out[1] = m->flags;
        mooi_put32(out + 4, m->tag);
        mooi_put32(out + 8, m->length);
        mooi_put32(out + 12, m->checksum);
        break;
    case MOOI_TCP_REFUSE:
        mooi_put32(out + 4, m->tag);
        mooi_put32(out + 12, (uint32_t)-m->error);
        break;
    case MOOI_TCP_CONTROL:
        mooi_put32(out + 8, m->length);
        break;
    case MOOI_TCP_PING:
        break;
    }
}

static int is_sane(const struct mooi_tcp_message *m, uint32_t error)
{
    switch (m->kind) {
    case MOOI_TCP_ASK:
        return m->length <= MOOI_TCP_CHUNK_MAX &&
               m->offset <= UINT64_MAX - m->length;
    case MOOI_TCP_DATA:
        return m->length <= MOOI_TCP_CHUNK_MAX &&
               (m->flags || !m->checksum);
    case MOOI_TCP_REFUSE:
        return error >= 1 && error <= ERROR_LAST;
    case MOOI_TCP_CONTROL:
        return m->length >= 1 && m->length <= MOOI_TCP_CONTROL_BYTES;
    case MOOI_TCP_RELEASE:
    case MOOI_TCP_PING:
        return 1;
    }
    return 0;
}

/* Read all fields; packing them again shows fields that are not this
 * kind's. */
moo_err mooi_tcp_message_parse(const uint8_t in[MOOI_TCP_HEAD_BYTES],
                               struct mooi_tcp_message *out)
{
    uint32_t at_12 = mooi_get32(in + 12);
    uint8_t again[MOOI_TCP_HEAD_BYTES];
    struct mooi_tcp_message m = {
        .kind = (enum mooi_tcp_kind)in[0],
        .flags = in[1],
        .tag = mooi_get32(in + 4),
        .length = mooi_get32(in + 8),
        .name = {at_12, mooi_get32(in + 16), mooi_get32(in + 20)},
        .offset = mooi_get64(in + 24),
        .checksum = at_12,
    };

    if (in[0] < MOOI_TCP_ASK || in[0] > MOOI_TCP_PING ||
        m.flags & ~MOOI_TCP_SUMMED || !is_sane(&m, at_12))
        return MOO_EPROTO;
    if (m.kind == MOOI_TCP_REFUSE)
        m.error = (moo_err)-(int)at_12;
    mooi_tcp_message_pack(&m, again);
    if (memcmp(in, again, sizeof again))
        return MOO_EPROTO;
    *out = m;
    return MOO_OK;
}
