/* SPDX-License-Identifier: MIT */
/*
 * read.c: reads, cut into pieces. A piece is idle, flying (libfabric has it),
 * or waits to be posted again, as when it came back because others had to be
 * taken away. Reading twice does no harm.
 */
#include "transport/ofi/internal.h"

#include "core/clock.h"

/* Between attempts on a connection that may be broken. */
#define PAUSE_NS ((uint64_t)2 * 1000000u)
/* For so long is a new connection that broke before its first answer made
 * again. Refusals look the same, so no longer. */
#define CONTACTS_NS ((uint64_t)1000 * 1000000u)

/* ---- failures ---- */

/* libfabric refused to take it. */
static void refused(struct mooi_fabric_read *read, const char *what, int err)
{
    mooi_fabric_explain(read->peer, what,
                        read->peer->fabric->library->strerror(-err));
    if (!read->doomed)
        read->reason = -err;
    mooi_fabric_doom(read, err == -FI_ENOMEM ? MOO_ENOMEM : MOO_ESYS,
                     MOOI_FABRIC_GRACE_NS);
}

/* ---- the port ---- */

/* Prepare for posting to that read's peer. On failure the read is doomed. */
static int prepare(struct mooi_fabric *fabric, struct mooi_fabric_read *read)
{
    struct mooi_fabric_peer *peer = read->peer;
    int err = 0;

    if (!fabric->reading.ep) {
        err = mooi_fabric_port_open(fabric, &fabric->reading);
        fabric->port++;
    }
    if (err) {
        refused(read, "opening an endpoint", err);
        return 0;
    }
    if (peer->port == fabric->port)
        return 1;
    err = fi_av_insert(fabric->reading.av, peer->name, 1, &peer->address, 0,
                       NULL);
    if (err != 1) {
        refused(read, "its address", err < 0 ? err : -FI_EINVAL);
        return 0;
    }
    peer->port = fabric->port;
    return 1;
}

/* ---- posting ---- */

/* 0, or libfabric's error; then the piece is as it was. */
static int post(struct mooi_fabric *fabric, struct mooi_fabric_piece *piece)
{
    struct mooi_fabric_read *read = piece->read;
    const struct mooi_fabric_want *want = &read->want;
    void *descriptor = want->region ? fi_mr_desc(want->region->mr) : NULL;
    ssize_t err = fi_read(fabric->reading.ep, (char *)want->into + piece->offset,
                          piece->bytes, descriptor, read->peer->address,
                          want->from + piece->offset, want->key,
                          &piece->context);

    if (err)
        return (int)err;
    piece->flying = 1;
    read->flying++;
    read->peer->flying++;
    return 0;
}

static int may_post(const struct mooi_fabric *fabric,
                    const struct mooi_fabric_peer *peer)
{
    return peer->full != fabric->turn && !peer->cut &&
           peer->not_before_ns <= fabric->now_ns &&
           peer->flying < MOOI_FABRIC_PEER_PIECES;
}

/* Try a piece that is in no list. 1: it flies. Otherwise its peer is full, or
 * the read is doomed. */
static int launch(struct mooi_fabric *fabric, struct mooi_fabric_piece *piece)
{
    struct mooi_fabric_read *read = piece->read;
    int err;

    if (!prepare(fabric, read))
        return 0;
    err = post(fabric, piece);
    if (err == -FI_EAGAIN)
        read->peer->full = fabric->turn;
    else if (err)
        refused(read, "asking for memory", err);
    return !err;
}

/* Those of doomed reads are taken out by mooi_fabric_expire. */
static void post_again(struct mooi_fabric *fabric)
{
    struct mooi_fabric_piece **link = &fabric->again;

    while (*link) {
        struct mooi_fabric_piece *piece = *link;
        struct mooi_fabric_read *read = piece->read;
        if (read->doomed || !may_post(fabric, read->peer) ||
            !launch(fabric, piece)) {
            link = &piece->next;
            continue;
        }
        *link = piece->next;
        read->waiting--;
    }
}

static struct mooi_fabric_read *next_turn(struct mooi_fabric *fabric)
{
    struct mooi_fabric_read *read = fabric->ring.next;

    for (; read != &fabric->ring; read = read->next)
        if (!read->doomed && read->posted < read->want.bytes &&
            may_post(fabric, read->peer))
            return read;
    return NULL;
}

static void post_next(struct mooi_fabric *fabric, struct mooi_fabric_read *read)
{
    struct mooi_fabric_piece *piece = fabric->idle;
    size_t left = read->want.bytes - read->posted;

    if (!read->posted)
        read->suspect = read->peer->suspect;
    piece->read = read;
    piece->offset = read->posted;
    piece->bytes = left < fabric->piece_bytes ? left : fabric->piece_bytes;
    if (!launch(fabric, piece))
        return;
    fabric->idle = piece->next;
    read->posted += piece->bytes;
    mooi_fabric_reads_remove(read);
    mooi_fabric_reads_append(&fabric->ring, read);
}

int mooi_fabric_post(struct mooi_fabric *fabric)
{
    struct mooi_fabric_read *read;
    int stuck = 0;

    fabric->turn++;
    post_again(fabric);
    while (fabric->idle && (read = next_turn(fabric)))
        post_next(fabric, read);
    for (read = fabric->ring.next; read != &fabric->ring; read = read->next) {
        if (read->peer->full == fabric->turn ||
            read->peer->not_before_ns > fabric->now_ns)
            stuck = 1; /* and its patience runs out */
        else if (!read->flying)
            read->heard_ns = fabric->now_ns; /* it waits for its turn, not for the peer */
    }
    return stuck;
}

/* ---- completions ---- */

/* 1 if a failed piece is worth another attempt, until the patience of its read
 * is over: we hung up, the connection may have been broken before, or it is
 * new: on a busy host some are reset as they come about. */
static int may_repost(const struct mooi_fabric *fabric,
                      const struct mooi_fabric_read *read, int cut,
                      moo_err result)
{
    const struct mooi_fabric_peer *peer = read->peer;
    int is_new = peer->answered_port != fabric->port &&
                 fabric->now_ns - peer->failed_ns < CONTACTS_NS;

    if (read->doomed || result == MOO_OK)
        return 0;
    return cut ||
           (result == MOO_EPEER && ((read->suspect && !read->here) || is_new));
}

void mooi_fabric_completed(struct mooi_fabric *fabric,
                           struct mooi_fabric_piece *piece, moo_err result)
{
    struct mooi_fabric_read *read = piece->read;
    int cut = read->peer->cut;

    mooi_fabric_take_back(piece);
    if (result != MOO_OK && !read->peer->suspect)
        read->peer->failed_ns = fabric->now_ns;
    read->peer->suspect = result != MOO_OK;
    if (may_repost(fabric, read, cut, result)) {
        read->peer->not_before_ns = fabric->now_ns + PAUSE_NS;
        mooi_fabric_post_later(fabric, piece);
        return;
    }
    piece->next = fabric->idle;
    fabric->idle = piece;
    if (result == MOO_OK) {
        read->heard_ns = mooi_now_ns();
        read->peer->answered_port = fabric->port;
        read->here += piece->bytes;
        fabric->asked -= piece->bytes;
        fabric->received += piece->bytes;
    } else {
        mooi_fabric_doom(read, result, MOOI_FABRIC_GRACE_NS);
    }
    if (!read->flying && !read->waiting &&
        (read->doomed || read->posted == read->want.bytes))
        mooi_fabric_end(fabric, read);
}
