/* SPDX-License-Identifier: MIT */
/*
 * message.h: the messages of a link after the handshake, byte for byte.
 *
 * Every message starts with 32 bytes, little-endian; unused bytes are zero,
 * and the parser refuses anything else:
 *
 *   0 1 kind   1 1 flags   2 2 zero   4 4 tag   8 4 length
 *
 *  ASK      tag, length, flags; 12 4 slab, 16 4 lease, 20 4 generation,
 *           24 8 offset in the lease                    importer -> owner
 *  RELEASE  12 4 slab, 16 4 lease, 20 4 generation      importer -> owner
 *  DATA     tag, length, flags; 12 4 checksum if the flags say so;
 *           `length` bytes follow                       owner -> importer
 *  REFUSE   tag; 12 4 -moo_err                          owner -> importer
 *  CONTROL  length; as many bytes follow                both
 *  PING     nothing; only to be acknowledged by the kernel        both
 *
 * On each connection DATA and REFUSE answer the ASKs in their order, tags
 * included; at most MOOI_TCP_DEPTH may wait for their answer.
 */
#ifndef MOOI_MESSAGE_H
#define MOOI_MESSAGE_H

#include <stddef.h>
#include <stdint.h>

#include "transport/tcp/tcp.h"

#define MOOI_TCP_HEAD_BYTES 32
#define MOOI_TCP_CHUNK_MAX ((uint32_t)4 << 20)
#define MOOI_TCP_DEPTH 32
#define MOOI_TCP_SUMMED 1 /* flag: with CRC32C of the bytes */

enum mooi_tcp_kind {
    MOOI_TCP_ASK = 1,
    MOOI_TCP_RELEASE,
    MOOI_TCP_DATA,
    MOOI_TCP_REFUSE,
    MOOI_TCP_CONTROL,
    MOOI_TCP_PING
};

struct mooi_tcp_message {
    enum mooi_tcp_kind kind;
    uint8_t flags; /* ASK and DATA */
    uint32_t tag, length;
    struct mooi_lease_name name;
    uint64_t offset;
    uint32_t checksum;
    moo_err error;
};

void mooi_tcp_message_pack(const struct mooi_tcp_message *message,
                           uint8_t out[MOOI_TCP_HEAD_BYTES]);

/* Any bytes. MOO_EPROTO: no message of ours. */
moo_err mooi_tcp_message_parse(const uint8_t in[MOOI_TCP_HEAD_BYTES],
                               struct mooi_tcp_message *out);

#endif
