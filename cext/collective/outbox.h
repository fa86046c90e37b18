/* SPDX-License-Identifier: MIT */
/* outbox.h: frames that wait for somebody to carry them, in order. */
#ifndef MOOI_OUTBOX_H
#define MOOI_OUTBOX_H

#include "collective/protocol/frames.h"

struct mooi_letter;

struct mooi_outbox { /* all zero: empty */
    struct mooi_letter *first, *last;
};

/* Aborts if there is no memory: a frame that is lost would be waited for by
 * all members, for ever. */
void mooi_outbox_add(struct mooi_outbox *outbox, uint32_t host,
                     const struct mooi_frame *frame);
/* Take out the first: *host, and its bytes, which `bytes` must have room for,
 * MOOI_FRAME_BYTES. Returns their number; 0: there is none. */
size_t mooi_outbox_next(struct mooi_outbox *outbox, uint32_t *host,
                        void *bytes);
void mooi_outbox_clear(struct mooi_outbox *outbox);

#endif
