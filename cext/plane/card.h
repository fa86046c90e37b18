/* SPDX-License-Identifier: MIT */
/*
 * card.h: where a process can be reached, as it tells others.
 *
 * On one machine a card lies as a file in the session's directory, beside the
 * process's socket and under a name that only holders of the key can make.
 * Between machines the control plane hands it over.
 */
#ifndef MOOI_CARD_H
#define MOOI_CARD_H

#include "plane/plane.h"
#include "transport/tcp/socket.h"

#define MOOI_CARD_VERSION 1
#define MOOI_CARD_ADDRESSES 16
#define MOOI_CARD_PROVIDER 64 /* with its terminating zero */
#define MOOI_CARD_ENDPOINT 256

struct mooi_card {
    uint64_t process;
    uint8_t host[MOOI_HOST_BYTES];
    uint32_t transports; /* allowed there and to be had */
    uint32_t addresses;
    struct mooi_address address[MOOI_CARD_ADDRESSES]; /* best first */
    char provider[MOOI_CARD_PROVIDER];                /* "": no fabric */
    uint32_t endpoint_bytes;
    uint8_t endpoint[MOOI_CARD_ENDPOINT]; /* its name there */
};

/*
 * The bytes of a card, little-endian:
 *
 *   0  4 "MCRD"          4  1 version       5  1 transports
 *   6  1 addresses       7  1 length of the provider's name
 *   8  8 process        16 16 host         32  4 length of the endpoint
 *  36  4 zero
 *  40    the addresses: 1 family, 1 zero, 2 port, 16 ip
 *        the provider's name, printable; the endpoint
 *
 * Returns their number, at most MOO_CARD_BYTES.
 */
size_t mooi_card_pack(const struct mooi_card *card,
                      uint8_t out[MOO_CARD_BYTES]);

/* Takes any bytes. MOO_EVERSION: of another version; MOO_EPROTO: no card. */
moo_err mooi_card_parse(const void *buf, size_t len, struct mooi_card *out);

/* card_file.c: in the plane's directory. They may wait for a disk, but not for
 * other processes. */

/* Say that our card is to come. MOO_ESYS: see errno. */
moo_err mooi_card_announce(moo_plane *plane);

/* Put our card there, which was announced, whole or not at all. MOO_ESYS: see
 * errno. */
moo_err mooi_card_publish(moo_plane *plane, const struct mooi_card *card);

/* Take the card away, or what announced it. Harmless if there is neither. */
void mooi_card_withdraw(moo_plane *plane);

/* Whether that process has announced a card which is not there yet. */
int mooi_card_is_coming(moo_plane *plane, uint64_t id);

/* MOO_ETIMEOUT: there is none (yet). MOO_EPROTO, MOO_EVERSION: no good one. */
moo_err mooi_card_find(moo_plane *plane, uint64_t id, struct mooi_card *out);

/* The identity of this host: a keyed hash of MOOACTOR_HOST_ID if that is set,
 * otherwise of the kernel's boot id and of the directory itself, so that
 * machines as well as containers that do not share the directory differ.
 * MOO_ESYS: see errno. */
moo_err mooi_host_identity(moo_plane *plane, uint8_t out[MOOI_HOST_BYTES]);

#endif
