/* SPDX-License-Identifier: MIT */
/*
 * control.h: the control messages of a link, mostly the owner's.
 *
 * All control messages begin with "MN", the version, and a kind; little-endian:
 *
 *  SERVE     4 1 transport (MOO_TRANSPORT_…) by which it serves; the first
 *            message; once more, if it goes over to another
 *  FABRIC    4 2 length, 6 its address in the fabric
 *  SLAB      4 4 index, 8 8 bytes, 16 8 key, 24 8 remote address of its start
 *  FAILED    nothing; importer -> owner: a read of the fabric failed
 *  RELEASED  nothing; MOOI_RELEASES_CONFIRMED more leases were given back
 *
 * The message of a slab goes before any descriptor of it.
 */
#ifndef MOOI_CONTROL_H
#define MOOI_CONTROL_H

#include <stddef.h>
#include <stdint.h>

#include "mooactor.h"

#define MOOI_CONTROL_VERSION 2
#define MOOI_CONTROL_BYTES 264 /* none is longer */
#define MOOI_CONTROL_ADDRESS_BYTES 256

enum mooi_control_kind {
    MOOI_CONTROL_SERVE = 1,
    MOOI_CONTROL_FABRIC = 2,
    MOOI_CONTROL_SLAB = 3,
    MOOI_CONTROL_FAILED = 4,
    MOOI_CONTROL_RELEASED = 5
};

/* One control message. */
struct mooi_control {
    enum mooi_control_kind kind;
    union {
        uint32_t serve; /* a transport's bit */
        struct {
            uint32_t bytes; /* never 0 */
            uint8_t address[MOOI_CONTROL_ADDRESS_BYTES];
        } fabric;
        struct {
            uint32_t index; /* below MOOI_MAX_SLABS */
            uint64_t bytes, key, base;
        } slab;
    } u;
};

/* Returns the length. */
size_t mooi_control_pack(const struct mooi_control *control,
                         uint8_t out[MOOI_CONTROL_BYTES]);

/* Takes any bytes. MOO_EVERSION: of another version; MOO_EPROTO: no message of
 * ours. */
moo_err mooi_control_parse(const void *buf, size_t len,
                           struct mooi_control *out);

#endif
