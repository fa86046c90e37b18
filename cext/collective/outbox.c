/* SPDX-License-Identifier: MIT */
/*
 * outbox.c: frames that wait for somebody to carry them.
 */
#include <stdlib.h>
#include <string.h>

#include "collective/outbox.h"

struct mooi_letter {
    struct mooi_letter *next;
    uint32_t host;
    size_t length;
    uint8_t bytes[];
};

void mooi_outbox_add(struct mooi_outbox *outbox, uint32_t host,
                     const struct mooi_frame *frame)
{
    uint8_t bytes[MOOI_FRAME_BYTES];
    size_t length = mooi_frame_write(frame, bytes, sizeof bytes);
    struct mooi_letter *letter = malloc(sizeof *letter + length);
    if (!letter || !length)
        abort();
    letter->next = NULL;
    letter->host = host;
    letter->length = length;
    memcpy(letter->bytes, bytes, length);
    if (outbox->last)
        outbox->last->next = letter;
    else
        outbox->first = letter;
    outbox->last = letter;
}

size_t mooi_outbox_next(struct mooi_outbox *outbox, uint32_t *host,
                        void *bytes)
{
    struct mooi_letter *letter = outbox->first;
    if (!letter)
        return 0;
    size_t length = letter->length;
    *host = letter->host;
    memcpy(bytes, letter->bytes, length);
    outbox->first = letter->next;
    if (!outbox->first)
        outbox->last = NULL;
    free(letter);
    return length;
}

void mooi_outbox_clear(struct mooi_outbox *outbox)
{
    uint8_t bytes[MOOI_FRAME_BYTES];
    uint32_t host;
    while (mooi_outbox_next(outbox, &host, bytes))
        ;
}
