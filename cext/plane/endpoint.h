/* SPDX-License-Identifier: MIT */
/*
 * endpoint.h: the addresses of a process, as it tells them to others.
 *
 * On one machine an endpoint lies as a file in the session's directory, beside
 * the process's socket and under a name that only holders of the key can make.
 * Between machines the control plane hands it over.
 */
#ifndef MOOI_ENDPOINT_H
#define MOOI_ENDPOINT_H

#include "mooactor.h"
#include "transport/tcp/socket.h"

#define MOOI_ENDPOINT_VERSION 1
#define MOOI_ENDPOINT_ADDRESSES 16
#define MOOI_ENDPOINT_PROVIDER 64 /* with its terminating zero */
#define MOOI_ENDPOINT_FABRIC 256

struct mooi_endpoint {
    uint64_t process;
    uint8_t host[MOOI_HOST_BYTES];
    uint32_t transports; /* allowed and available there */
    uint32_t addresses;
    struct mooi_address address[MOOI_ENDPOINT_ADDRESSES]; /* best first */
    char provider[MOOI_ENDPOINT_PROVIDER];                /* "": no fabric */
    uint32_t fabric_address_bytes;
    uint8_t fabric_address[MOOI_ENDPOINT_FABRIC];
};

/*
 * The bytes of an endpoint, little-endian:
 *
 *   0  4 "MCRD"          4  1 version       5  1 transports
 *   6  1 addresses       7  1 length of the provider's name
 *   8  8 process        16 16 host
 *  32  4 length of the address in the fabric              36  4 zero
 *  40    the addresses: 1 family, 1 zero, 2 port, 16 ip
 *        the provider's name, printable; the address in the fabric
 *
 * Returns their number, at most MOO_ENDPOINT_BYTES.
 */
size_t mooi_endpoint_pack(const struct mooi_endpoint *endpoint,
                          uint8_t out[MOO_ENDPOINT_BYTES]);

/* Takes any bytes. MOO_EVERSION: of another version; MOO_EPROTO: no
 * endpoint. */
moo_err mooi_endpoint_parse(const void *buf, size_t len,
                            struct mooi_endpoint *out);

#endif
