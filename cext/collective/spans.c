/* SPDX-License-Identifier: MIT */
/*
 * spans.c: a list of tensors as one run of bytes, without ever joining them.
 */
#include <stdlib.h>
#include <string.h>

#include "collective/spans.h"

moo_err mooi_spans_init(struct mooi_spans *spans, const moo_request *request)
{
    uint32_t n = request->count;
    unsigned char *block = malloc(n * (sizeof *spans->ends +
                                       sizeof *spans->in +
                                       sizeof *spans->out) + 1);
    if (!block)
        return MOO_ENOMEM;
    spans->ends = (uint64_t *)block;
    spans->in = (const unsigned char **)(spans->ends + n);
    spans->out = (unsigned char **)(spans->in + n);
    spans->count = 0;
    spans->bytes = 0;
    spans->copy = NULL;
    for (uint32_t i = 0; i < n; i++) {
        if (!request->bytes[i])
            continue; /* an empty tensor takes part in the layout only */
        spans->bytes += request->bytes[i];
        spans->ends[spans->count] = spans->bytes;
        spans->in[spans->count] = request->inputs ? request->inputs[i] : NULL;
        spans->out[spans->count++] = request->outputs ? request->outputs[i] : NULL;
    }
    return MOO_OK;
}

moo_err mooi_spans_keep_inputs(struct mooi_spans *spans)
{
    uint64_t begin = 0;
    if (spans->copy)
        return MOO_OK;
    for (uint32_t i = 0; i < spans->count; begin = spans->ends[i++]) {
        if (spans->in[i] != spans->out[i])
            continue;
        if (!spans->copy && !(spans->copy = malloc(spans->bytes)))
            return MOO_ENOMEM;
        memcpy(spans->copy + begin, spans->in[i], spans->ends[i] - begin);
        spans->in[i] = spans->copy + begin;
    }
    return MOO_OK;
}

void mooi_spans_fini(struct mooi_spans *spans)
{
    free(spans->copy);
    free(spans->ends);
}

uint32_t mooi_spans_find(const struct mooi_spans *spans, uint64_t offset)
{
    uint32_t low = 0, high = spans->count - 1;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (spans->ends[middle] > offset)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static uint64_t begin_of(const struct mooi_spans *spans, uint32_t i)
{
    return i ? spans->ends[i - 1] : 0;
}

static size_t piece(const struct mooi_spans *spans, uint32_t i,
                    uint64_t offset, size_t bytes)
{
    uint64_t left = spans->ends[i] - offset;
    return left < bytes ? (size_t)left : bytes;
}

void mooi_spans_read(const struct mooi_spans *spans, uint64_t offset,
                     void *to, size_t bytes)
{
    unsigned char *next = to;
    if (!bytes)
        return;
    for (uint32_t i = mooi_spans_find(spans, offset); bytes; i++) {
        size_t n = piece(spans, i, offset, bytes);
        memcpy(next, spans->in[i] + (offset - begin_of(spans, i)), n);
        next += n, offset += n, bytes -= n;
    }
}

void mooi_spans_write(const struct mooi_spans *spans, uint64_t offset,
                      const void *from, size_t bytes)
{
    const unsigned char *next = from;
    if (!bytes)
        return;
    for (uint32_t i = mooi_spans_find(spans, offset); bytes; i++) {
        size_t n = piece(spans, i, offset, bytes);
        memcpy(spans->out[i] + (offset - begin_of(spans, i)), next, n);
        next += n, offset += n, bytes -= n;
    }
}

unsigned char *mooi_spans_at(const struct mooi_spans *spans, bool output,
                             uint64_t offset, uint64_t *run)
{
    uint32_t i = mooi_spans_find(spans, offset);
    unsigned char *start =
        output ? spans->out[i] : (unsigned char *)(uintptr_t)spans->in[i];
    *run = piece(spans, i, offset, *run);
    return start + (offset - begin_of(spans, i));
}
