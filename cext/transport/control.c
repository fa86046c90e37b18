/* SPDX-License-Identifier: MIT */
#include "transport/control.h"

#include <string.h>

#include "core/arena.h"
#include "core/wire.h"

#define HEAD 4

_Static_assert(HEAD + 2 + MOOI_CONTROL_ADDRESS_BYTES <= MOOI_CONTROL_BYTES,
               "there is room for the longest name");

size_t mooi_control_pack(const struct mooi_control *control,
                         uint8_t out[MOOI_CONTROL_BYTES])
{
    out[0] = 'M';
    out[1] = 'N';
    out[2] = MOOI_CONTROL_VERSION;
    out[3] = (uint8_t)control->kind;
    switch (control->kind) {
    case MOOI_CONTROL_SERVE:
        out[HEAD] = (uint8_t)control->u.serve;
        return HEAD + 1;
    case MOOI_CONTROL_FABRIC:
        out[HEAD] = (uint8_t)control->u.fabric.bytes;
        out[HEAD + 1] = (uint8_t)(control->u.fabric.bytes >> 8);
        memcpy(out + HEAD + 2, control->u.fabric.address,
               control->u.fabric.bytes);
        return HEAD + 2 + control->u.fabric.bytes;
    case MOOI_CONTROL_SLAB:
        mooi_put32(out + 4, control->u.slab.index);
        mooi_put64(out + 8, control->u.slab.bytes);
        mooi_put64(out + 16, control->u.slab.key);
        mooi_put64(out + 24, control->u.slab.base);
        return 32;
    case MOOI_CONTROL_FAILED:
    case MOOI_CONTROL_RELEASED:
        break;
    }
    return HEAD;
}

static moo_err parse_serve(const uint8_t *in, size_t len,
                           struct mooi_control *out)
{
    if (len != HEAD + 1)
        return MOO_EPROTO;
    out->u.serve = in[HEAD];
    return out->u.serve == MOO_TRANSPORT_TCP ||
                   out->u.serve == MOO_TRANSPORT_OFI
               ? MOO_OK
               : MOO_EPROTO;
}

static moo_err parse_address(const uint8_t *in, size_t len,
                             struct mooi_control *out)
{
    size_t bytes;

    if (len < HEAD + 2)
        return MOO_EPROTO;
    bytes = (size_t)in[HEAD] | (size_t)in[HEAD + 1] << 8;
    if (!bytes || bytes > MOOI_CONTROL_ADDRESS_BYTES ||
        len != HEAD + 2 + bytes)
        return MOO_EPROTO;
    out->u.fabric.bytes = (uint32_t)bytes;
    memcpy(out->u.fabric.address, in + HEAD + 2, bytes);
    return MOO_OK;
}

static moo_err parse_slab(const uint8_t *in, size_t len,
                          struct mooi_control *out)
{
    if (len != 32)
        return MOO_EPROTO;
    out->u.slab.index = mooi_get32(in + 4);
    out->u.slab.bytes = mooi_get64(in + 8);
    out->u.slab.key = mooi_get64(in + 16);
    out->u.slab.base = mooi_get64(in + 24);
    return out->u.slab.index < MOOI_MAX_SLABS && out->u.slab.bytes &&
                   out->u.slab.bytes <= (uint64_t)1 << 46 &&
                   out->u.slab.base <= UINT64_MAX - out->u.slab.bytes
               ? MOO_OK
               : MOO_EPROTO;
}

moo_err mooi_control_parse(const void *buf, size_t len,
                           struct mooi_control *out)
{
    const uint8_t *in = buf;

    memset(out, 0, sizeof *out);
    if (len < HEAD || in[0] != 'M' || in[1] != 'N')
        return MOO_EPROTO;
    if (in[2] != MOOI_CONTROL_VERSION)
        return MOO_EVERSION;
    out->kind = (enum mooi_control_kind)in[3];
    switch (in[3]) {
    case MOOI_CONTROL_SERVE:
        return parse_serve(in, len, out);
    case MOOI_CONTROL_FABRIC:
        return parse_address(in, len, out);
    case MOOI_CONTROL_SLAB:
        return parse_slab(in, len, out);
    case MOOI_CONTROL_FAILED:
    case MOOI_CONTROL_RELEASED:
        return len == HEAD ? MOO_OK : MOO_EPROTO;
    default:
        return MOO_EPROTO;
    }
}
