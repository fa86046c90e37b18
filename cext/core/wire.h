/* SPDX-License-Identifier: MIT */
/*
 * wire.h: the bytes that cross between processes.
 *
 * Everything is little-endian and of fixed size; bytes without a meaning are
 * zero and a parser refuses others. The parsers take any bytes.
 */
#ifndef MOOI_WIRE_H
#define MOOI_WIRE_H

#include <stddef.h>
#include <stdint.h>

#include "core/mac.h"
#include "mooactor.h"

#define MOOI_WIRE_VERSION 1

/*
 * The place of data, and the lease to read it. It travels inside messages of
 * the control plane, MOO_DESCRIPTOR_BYTES long:
 *
 *   0  2 "MD"         2  1 version      3  1 flags
 *   4  4 slab         8  8 owner       16  8 offset in the slab
 *  24  8 length      32  4 lease       36  4 generation of the lease
 */
struct mooi_descriptor {
    uint64_t owner;
    uint64_t offset;
    uint64_t length; /* never 0 */
    uint32_t slab;
    uint32_t lease;
    uint32_t generation;
    uint8_t flags; /* MOO_MOVED, MOOI_REMOTE, MOOI_TICKET */
};

#define MOOI_REMOTE 2 /* the receiver fetches the bytes over a network */
#define MOOI_TICKET 8 /* a remote one, of moo_ticket: see there */

void mooi_descriptor_pack(const struct mooi_descriptor *d, uint8_t *out);
moo_err mooi_descriptor_parse(const void *buf, size_t len,
                              struct mooi_descriptor *out);

/*
 * The messages on the socket between an owner and an importer, each
 * MOOI_MESSAGE_BYTES long: "MOOL", version (2), kind (2), then by kind:
 *
 *  HELLO    8 8 from, 16 8 to, 24 4 ledger entries, 32 16 proof of the key;
 *           carries the ledger's descriptor            owner -> importer
 *  SLAB     8 4 index, 16 8 size; carries the memfd    owner -> importer
 *  GRANT    8 4 sequence, 12 4 slab, 16 8 offset, 24 8 length,
 *           32 8 for whom, 40 4 lease that the asker holds, 44 4 its
 *           generation, 48 4 flags                     importer -> owner
 *  GRANTED  8 4 sequence, 12 4 moo_err, 16 4 lease, 20 4 generation,
 *           24 4 flags of the descriptor
 */
#define MOOI_MESSAGE_BYTES 64

enum mooi_kind {
    MOOI_MSG_HELLO = 1,
    MOOI_MSG_SLAB = 2,
    MOOI_MSG_GRANT = 3,
    MOOI_MSG_GRANTED = 4
};

struct mooi_message {
    enum mooi_kind kind;
    union {
        struct {
            uint64_t from, to;
            uint32_t entries;
            uint8_t proof[MOOI_MAC_BYTES];
        } hello;
        struct {
            uint32_t index;
            uint64_t size;
        } slab;
        struct {
            uint32_t sequence, slab;
            uint64_t offset, length, to;
            uint32_t lease, generation, flags;
        } grant;
        struct {
            uint32_t sequence;
            moo_err error;
            uint32_t lease, generation, flags;
        } granted;
    } u;
};

void mooi_message_pack(const struct mooi_message *m,
                       uint8_t out[MOOI_MESSAGE_BYTES]);

/* MOO_EVERSION if only the version is wrong, MOO_EPROTO for all else. */
moo_err mooi_message_parse(const void *buf, size_t len,
                           struct mooi_message *out);

/* The proof in a HELLO: a hash by the key of both ids and the version. */
void mooi_hello_proof(const uint8_t key[MOOI_KEY_BYTES], uint64_t from,
                      uint64_t to, uint8_t out[MOOI_MAC_BYTES]);

/* The file name of the socket of process `id`, which only a holder of the key
 * can make: so a connecting owner knows the receiver of its memory. */
#define MOOI_NAME_BYTES 48
void mooi_socket_name(const uint8_t key[MOOI_KEY_BYTES], uint64_t id,
                      char out[MOOI_NAME_BYTES]);

static inline void mooi_put16(uint8_t *p, uint16_t x)
{
    p[0] = (uint8_t)x;
    p[1] = (uint8_t)(x >> 8);
}

static inline void mooi_put32(uint8_t *p, uint32_t x)
{
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(x >> 8 * i);
}

static inline void mooi_put64(uint8_t *p, uint64_t x)
{
    for (int i = 0; i < 8; i++)
        p[i] = (uint8_t)(x >> 8 * i);
}

static inline uint16_t mooi_get16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static inline uint32_t mooi_get32(const uint8_t *p)
{
    uint32_t x = 0;
    for (int i = 0; i < 4; i++)
        x |= (uint32_t)p[i] << 8 * i;
    return x;
}

static inline uint64_t mooi_get64(const uint8_t *p)
{
    return mooi_get32(p) | (uint64_t)mooi_get32(p + 4) << 32;
}

#endif
