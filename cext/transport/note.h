/* SPDX-License-Identifier: MIT */
/*
 * note.h: what is said over a link beside the bytes, mostly by the owner.
 *
 * All notes begin with "MN", the version, and a kind; little-endian:
 *
 *  SERVE     4 1 transport (MOO_TRANSPORT_…) by which it serves; the first
 *            note; once more, if it goes over to another
 *  ENDPOINT  4 2 length, 6 the name of its endpoint in the fabric
 *  SLAB      4 4 index, 8 8 bytes, 16 8 key, 24 8 remote address of its start
 *  FAILED    nothing; importer -> owner: a read of the fabric failed
 *
 * A slab is told of before a descriptor of it leaves.
 */
#ifndef MOOI_NOTE_H
#define MOOI_NOTE_H

#include <stddef.h>
#include <stdint.h>

#include "mooactor.h"

#define MOOI_NOTE_VERSION 1
#define MOOI_NOTE_BYTES 264 /* none is longer */
#define MOOI_NOTE_ENDPOINT_BYTES 256

enum mooi_note_kind {
    MOOI_NOTE_SERVE = 1,
    MOOI_NOTE_ENDPOINT = 2,
    MOOI_NOTE_SLAB = 3,
    MOOI_NOTE_FAILED = 4
};

struct mooi_note {
    enum mooi_note_kind kind;
    union {
        uint32_t serve; /* a transport's bit */
        struct {
            uint32_t bytes; /* never 0 */
            uint8_t name[MOOI_NOTE_ENDPOINT_BYTES];
        } endpoint;
        struct {
            uint32_t index; /* below MOOI_MAX_SLABS */
            uint64_t bytes, key, base;
        } slab;
    } u;
};

/* Returns the length. */
size_t mooi_note_pack(const struct mooi_note *note,
                      uint8_t out[MOOI_NOTE_BYTES]);

/* Takes any bytes. MOO_EVERSION: of another version; MOO_EPROTO: no note. */
moo_err mooi_note_parse(const void *buf, size_t len, struct mooi_note *out);

#endif
