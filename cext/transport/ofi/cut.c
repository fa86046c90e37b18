/* SPDX-License-Identifier: MIT */
/*
 * cut.c: taking operations away from the device. No call of libfabric cancels
 * a read. With hardware, closing the endpoint does.
 *
 * The providers over plain sockets give up all operations when the connection
 * breaks, so there we break it. But libfabric 1.17.0 frees a read twice if the
 * endpoint is closed, or sending fails, while its answer is half received
 * (1.17.1 does not), and may never report one whose request could not be sent.
 * So we also empty the connection: the first thing that libfabric sees is its
 * end, and then no answer is half received. Only if that does not bring back
 * everything is the endpoint closed, after the same with all connections.
 */
#include "transport/ofi/internal.h"

#define QUIET_POLLS 50 /* empty looks: libfabric has seen the ends */
#define MOST_POLLS 2000

void mooi_fabric_take_back(struct mooi_fabric_piece *piece)
{
    struct mooi_fabric_peer *peer = piece->read->peer;

    piece->flying = 0;
    piece->read->flying--;
    peer->flying--;
    if (!peer->flying)
        peer->cut = 0;
}

void mooi_fabric_post_later(struct mooi_fabric *fabric,
                            struct mooi_fabric_piece *piece)
{
    piece->read->waiting++;
    piece->next = fabric->again;
    fabric->again = piece;
}

/* Look at the queue once; pieces that came back will be read again. Returns
 * whether there were any. */
static int look_away(const struct mooi_fabric_port *port)
{
    struct fi_cq_err_entry error = {0};
    struct fi_cq_entry entry;
    ssize_t count = fi_cq_read(port->cq, &entry, 1);

    if (count == -FI_EAVAIL)
        return fi_cq_readerr(port->cq, &error, 0) == 1;
    return count == 1;
}

/* After this no connection is in the middle of an answer. */
static void hang_up_all(struct mooi_fabric *fabric)
{
    const struct mooi_fabric_peer *last = NULL;
    int polls = 0, quiet = 0;

    for (int i = 0; i < MOOI_FABRIC_PIECES; i++) {
        const struct mooi_fabric_piece *piece = &fabric->piece[i];
        if (!piece->flying || piece->read->peer == last)
            continue;
        last = piece->read->peer;
        (void)mooi_fabric_hang_up(last);
    }
    for (; polls < MOST_POLLS && quiet < QUIET_POLLS; polls++)
        quiet = look_away(&fabric->reading) ? 0 : quiet + 1;
}

/* The next post opens another. */
static void close_port(struct mooi_fabric *fabric)
{
    if (fabric->over_sockets)
        hang_up_all(fabric);
    mooi_fabric_port_close(&fabric->reading);
    for (int i = 0; i < MOOI_FABRIC_PIECES; i++) {
        struct mooi_fabric_piece *piece = &fabric->piece[i];
        if (!piece->flying)
            continue;
        mooi_fabric_take_back(piece);
        mooi_fabric_post_later(fabric, piece);
    }
}

void mooi_fabric_cut(struct mooi_fabric *fabric, struct mooi_fabric_peer *peer)
{
    fabric->cuts++;
    if (!peer->cut && fabric->over_sockets && !fabric->rough &&
        mooi_fabric_hang_up(peer))
        peer->cut = 1;
    else
        close_port(fabric);
}
