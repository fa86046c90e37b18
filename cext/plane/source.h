/* SPDX-License-Identifier: MIT */
/*
 * source.h: an importer's view of the processes on other hosts that sent it
 * data, and the fetches from there. The plane's lock is held in all functions.
 */
#ifndef MOOI_SOURCE_H
#define MOOI_SOURCE_H

#include "plane/fetch.h"
#include "plane/net.h"
#include "plane/releases.h"

/* A process that called us, or should call us. */
struct mooi_source {
    uint64_t id;
    struct mooi_source *next;
    struct mooi_incoming in;
    struct moo_fetch *waiting, *flying;
    struct mooi_releases releases;
    uint64_t lost_ns; /* when its last link was lost; 0: there was none */
    uint64_t given_up_ns; /* when a fetch had waited for it in vain, or 0 */
    uint32_t pins;
};

struct mooi_source *mooi_source_find(const moo_plane *plane, uint64_t id);

/* A link from that process is up, has a message, or is down. */
void mooi_source_up(moo_plane *plane, struct mooi_tcp_link *link, uint64_t id);
void mooi_source_control(moo_plane *plane, struct mooi_tcp_link *link,
                         uint64_t id, const uint8_t *control, size_t length);
void mooi_source_down(moo_plane *plane, struct mooi_tcp_link *link,
                      uint64_t id, moo_err why);

/* It died: nothing more will come of it. */
void mooi_source_lost(moo_plane *plane, uint64_t id);

/* End fetches that waited too long: for their owner's call with
 * MOO_EUNREACHABLE, for its next call or for a message after it with MOO_EPEER.
 * Returns the nanoseconds until the next is due, or UINT64_MAX. */
uint64_t mooi_source_expire(moo_plane *plane);

/* The engine is closed, the plane closes: end waiting fetches, free all. */
void mooi_source_fini(moo_plane *plane);

/* Start a fetch that has its memory, or let it wait up to `timeout_ms` for its
 * owner's call. On any error it was not begun. */
moo_err mooi_source_begin(struct moo_fetch *fetch, int timeout_ms);

/* End a fetch that is not done; the lock is let go meanwhile. */
void mooi_source_cancel(struct moo_fetch *fetch);

/* A fetch's pull, which had begun, has ended. If the link was lost under it,
 * the fetch waits for the next one. */
void mooi_source_ended(struct mooi_pull *pull, moo_err result);

#endif
