/* SPDX-License-Identifier: MIT */
/*
 * handshake.h: mutual authentication of a TCP connection. Both processes prove
 * the session key before either trusts a byte of the other.
 *
 *   HELLO     connector: version, purpose, who, whom, which connection of how
 *             many, host identity, a fresh nonce
 *   CHALLENGE acceptor: host identity, a fresh nonce, and the keyed hash of
 *             both messages: it knows the key, and is who was asked for
 *   PROOF     connector: the keyed hash of both messages, told apart by a label
 *   READY     acceptor: welcome, or why not
 *
 * Nonces of both sides are in both hashes, so nothing can be replayed, and the
 * labels differ, so nothing can be mirrored. Each message has a fixed size and
 * starts with the same eight bytes in all versions:
 *
 *   0 4 "MOOT"   4 1 version   5 1 kind   6 1 -moo_err   7 1 zero
 *
 * HELLO     8 8 from, 16 8 to, 24 4 purpose, 28 2 index, 30 2 count,
 *           32 8 token, 40 4 flags, 44 4 zero, 48 16 host,
 *           64 16 nonce                                           80 bytes
 * CHALLENGE 8 8 from, 16 16 host, 32 16 nonce, 48 16 proof          64 bytes
 * PROOF     8 16 proof                                              24 bytes
 * READY     nothing more                                             8 bytes
 *
 * A side that gives up puts the reason into the head of its next message,
 * which has no proof, and hangs up.
 */
#ifndef MOOI_HANDSHAKE_H
#define MOOI_HANDSHAKE_H

#include <stddef.h>
#include <stdint.h>

#include "core/mac.h"
#include "core/times.h"
#include "mooactor.h"
#include "transport/tcp/socket.h"

#define MOOI_HANDSHAKE_VERSION 1
#define MOOI_NONCE_BYTES 16
#define MOOI_HANDSHAKE_HEAD_BYTES 8
#define MOOI_HELLO_BYTES 80
#define MOOI_CHALLENGE_BYTES 64
#define MOOI_PROOF_BYTES 24
#define MOOI_READY_BYTES 8

/* The purpose of a connection. */
enum mooi_purpose { MOOI_PURPOSE_DATA = 1, MOOI_PURPOSE_RING = 2 };

struct mooi_hello {
    uint64_t from, to;
    uint32_t purpose;
    uint16_t index, count; /* it is one of so many: index < count */
    uint64_t token;        /* the same in those of one link */
    uint32_t flags;        /* defined by the purpose */
    uint8_t host[MOOI_HOST_BYTES];
    uint8_t nonce[MOOI_NONCE_BYTES];
};

struct mooi_challenge {
    uint64_t from;
    uint8_t host[MOOI_HOST_BYTES];
    uint8_t nonce[MOOI_NONCE_BYTES];
    uint8_t proof[MOOI_MAC_BYTES];
};

enum mooi_handshake_kind {
    MOOI_HS_HELLO = 1,
    MOOI_HS_CHALLENGE = 2,
    MOOI_HS_PROOF = 3,
    MOOI_HS_READY = 4
};

/* The messages, for the state machine below and for the tests. The parsers take
 * any bytes of the right length. MOO_EVERSION: another version; the rest is
 * not looked at. MOO_EPROTO: no message of ours. Otherwise MOO_OK, or the
 * error that the other side reported. *out is set after MOO_OK only. */
moo_err mooi_handshake_head(const uint8_t in[MOOI_HANDSHAKE_HEAD_BYTES],
                            int kind);
void mooi_hello_pack(const struct mooi_hello *hello,
                     uint8_t out[MOOI_HELLO_BYTES]);
moo_err mooi_hello_parse(const uint8_t in[MOOI_HELLO_BYTES],
                         struct mooi_hello *out);
void mooi_challenge_pack(const struct mooi_challenge *challenge, moo_err told,
                         uint8_t out[MOOI_CHALLENGE_BYTES]);
moo_err mooi_challenge_parse(const uint8_t in[MOOI_CHALLENGE_BYTES],
                             struct mooi_challenge *out);
void mooi_proof_pack(const uint8_t proof[MOOI_MAC_BYTES], moo_err told,
                     uint8_t out[MOOI_PROOF_BYTES]);
moo_err mooi_proof_parse(const uint8_t in[MOOI_PROOF_BYTES],
                         uint8_t proof[MOOI_MAC_BYTES]);
void mooi_ready_pack(moo_err told, uint8_t out[MOOI_READY_BYTES]);

/* One side of one handshake. All of it lies in here; nothing is allocated. */
struct mooi_handshake {
    uint8_t key[MOOI_KEY_BYTES];
    int accepting;
    moo_err failed;         /* why we gave up; sent before we hang up */
    int step;               /* messages done, 0 to 4 */
    uint32_t moved;         /* bytes of the present one */
    struct mooi_hello hello; /* accepting: the connector's message */
    struct mooi_challenge challenge; /* connecting: the acceptor's */
    uint8_t talk[MOOI_HELLO_BYTES + MOOI_CHALLENGE_BYTES]; /* both, as sent */
    uint8_t bytes[MOOI_HELLO_BYTES]; /* the present message */
};

/* Begin as connector; the nonce of `hello` is filled in. MOO_ESYS: no random
 * numbers, see errno. */
moo_err mooi_handshake_connect(struct mooi_handshake *handshake,
                               const uint8_t key[MOOI_KEY_BYTES],
                               const struct mooi_hello *hello);

/* Begin as acceptor: process `id` on `host`, for one purpose. */
moo_err mooi_handshake_accept(struct mooi_handshake *handshake,
                              const uint8_t key[MOOI_KEY_BYTES], uint64_t id,
                              const uint8_t host[MOOI_HOST_BYTES],
                              uint32_t purpose);

/* Go on as far as the socket lets us, without blocking.
 * MOO_OK: both are authenticated; `hello` and `challenge` name the other side.
 * No byte beyond the handshake was read. MOO_ETIMEOUT: call again when the
 * socket is ready, see mooi_handshake_wants. Anything else is final, and the
 * caller closes the socket: MOO_EAUTH: one does not know the key.
 * MOO_EVERSION. MOO_EPROTO: it is not mooactor, or another process than
 * expected. MOO_EPEER: hung up. MOO_ESYS: see errno. */
moo_err mooi_handshake_step(struct mooi_handshake *handshake, int fd);

/* POLLIN or POLLOUT. */
short mooi_handshake_wants(const struct mooi_handshake *handshake);

/* Random bytes of the system. Blocks only before the machine has any.
 * MOO_ESYS: see errno. */
moo_err mooi_random(void *out, size_t bytes);

#endif
