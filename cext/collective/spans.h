/* SPDX-License-Identifier: MIT */
/* spans.h: many tensors as one. */
#ifndef MOOI_SPANS_H
#define MOOI_SPANS_H

#include <stdbool.h>
#include <stddef.h>

#include "mooactor.h"

/* The tensors of one operation as one virtual run of bytes. in[i] and out[i]
 * have the same length, ends[i] is where they end; in[i] may equal out[i]. */
struct mooi_spans {
    uint32_t count;
    uint64_t bytes;
    uint64_t *ends;
    const unsigned char **in;
    unsigned char **out;
    unsigned char *copy; /* of inputs that results overwrite, or NULL */
};

/* Copies the arrays, not the bytes that they point to. */
moo_err mooi_spans_init(struct mooi_spans *spans, const moo_request *request);
/* Take the inputs from a copy from now on, where results would overwrite them.
 * MOO_ENOMEM. */
moo_err mooi_spans_keep_inputs(struct mooi_spans *spans);
void mooi_spans_fini(struct mooi_spans *spans);
void mooi_spans_read(const struct mooi_spans *spans, uint64_t offset,
                     void *to, size_t bytes);
void mooi_spans_write(const struct mooi_spans *spans, uint64_t offset,
                      const void *from, size_t bytes);
/* Where byte `offset` of the inputs, or outputs, lies. *run: the bytes asked
 * for; reduced to those that follow without a gap. */
unsigned char *mooi_spans_at(const struct mooi_spans *spans, bool output,
                             uint64_t offset, uint64_t *run);
/* The span that holds byte `offset`, which lies inside. */
uint32_t mooi_spans_find(const struct mooi_spans *spans, uint64_t offset);

#endif
