/* SPDX-License-Identifier: MIT */
#include "plane/endpoint.h"

#include <string.h>

#include "core/wire.h"

#define HEAD 40
#define ADDRESS 20
#define ALL (MOO_TRANSPORT_SHM | MOO_TRANSPORT_OFI | MOO_TRANSPORT_TCP)

_Static_assert(HEAD + ADDRESS * MOOI_ENDPOINT_ADDRESSES +
               MOOI_ENDPOINT_PROVIDER + MOOI_ENDPOINT_FABRIC <=
               MOO_ENDPOINT_BYTES,
               "an endpoint has room for everything");

static uint8_t *pack_address(const struct mooi_address *address, uint8_t *out)
{
    memset(out, 0, ADDRESS);
    out[0] = address->family;
    out[2] = (uint8_t)address->port;
    out[3] = (uint8_t)(address->port >> 8);
    memcpy(out + 4, address->ip, address->family == 4 ? 4 : 16);
    return out + ADDRESS;
}

size_t mooi_endpoint_pack(const struct mooi_endpoint *endpoint,
                          uint8_t out[MOO_ENDPOINT_BYTES])
{
    size_t provider = strlen(endpoint->provider);
    uint8_t *end = out + HEAD;

    memset(out, 0, HEAD);
    memcpy(out, "MCRD", 4);
    out[4] = MOOI_ENDPOINT_VERSION;
    out[5] = (uint8_t)endpoint->transports;
    out[6] = (uint8_t)endpoint->addresses;
    out[7] = (uint8_t)provider;
    mooi_put64(out + 8, endpoint->process);
    memcpy(out + 16, endpoint->host, MOOI_HOST_BYTES);
    mooi_put32(out + 32, endpoint->fabric_address_bytes);
    for (uint32_t i = 0; i < endpoint->addresses; i++)
        end = pack_address(&endpoint->address[i], end);
    memcpy(end, endpoint->provider, provider);
    end += provider;
    memcpy(end, endpoint->fabric_address, endpoint->fabric_address_bytes);
    return (size_t)(end - out) + endpoint->fabric_address_bytes;
}

static int is_zero(const uint8_t *in, size_t count)
{
    while (count && !in[count - 1])
        count--;
    return !count;
}

static moo_err parse_address(const uint8_t *in, struct mooi_address *out)
{
    out->family = in[0];
    out->port = (uint16_t)(in[2] | in[3] << 8);
    memcpy(out->ip, in + 4, 16);
    if ((in[0] != 4 && in[0] != 6) || in[1] || !out->port)
        return MOO_EPROTO;
    return in[0] == 6 || is_zero(in + 8, 12) ? MOO_OK : MOO_EPROTO;
}

static moo_err parse_head(const uint8_t *in, size_t len,
                          struct mooi_endpoint *out)
{
    if (len < HEAD || len > MOO_ENDPOINT_BYTES || memcmp(in, "MCRD", 4))
        return MOO_EPROTO;
    if (in[4] != MOOI_ENDPOINT_VERSION)
        return MOO_EVERSION;
    out->transports = in[5];
    out->addresses = in[6];
    out->process = mooi_get64(in + 8);
    memcpy(out->host, in + 16, MOOI_HOST_BYTES);
    out->fabric_address_bytes = mooi_get32(in + 32);
    if (!in[5] || (in[5] & ~ALL) || !is_zero(in + 36, 4) ||
        out->addresses > MOOI_ENDPOINT_ADDRESSES ||
        in[7] >= MOOI_ENDPOINT_PROVIDER ||
        out->fabric_address_bytes > MOOI_ENDPOINT_FABRIC)
        return MOO_EPROTO;
    return len == HEAD + ADDRESS * out->addresses + in[7] +
                      out->fabric_address_bytes
               ? MOO_OK
               : MOO_EPROTO;
}

moo_err mooi_endpoint_parse(const void *buf, size_t len,
                            struct mooi_endpoint *out)
{
    const uint8_t *in = buf, *at = in + HEAD;
    moo_err err;

    memset(out, 0, sizeof *out);
    err = parse_head(in, len, out);
    for (uint32_t i = 0; err == MOO_OK && i < out->addresses; i++) {
        err = parse_address(at, &out->address[i]);
        at += ADDRESS;
    }
    if (err != MOO_OK)
        return err;
    for (int i = 0; i < in[7]; i++)
        if (at[i] <= ' ' || at[i] > '~')
            return MOO_EPROTO;
    memcpy(out->provider, at, in[7]);
    memcpy(out->fabric_address, at + in[7], out->fabric_address_bytes);
    return MOO_OK;
}
