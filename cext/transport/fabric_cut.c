/* SPDX-License-Identifier: MIT */
/*
 * fabric_cut.c: taking operations away from the device. No call of libfabric
 * cancels a read. Closing the endpoint does, where there is hardware. The
 * providers over plain sockets give up all operations when the connection
 * breaks, but up to 1.17 at least they crash if the endpoint is closed while an
 * answer is half received. So there we break the connection.
 */
#include "transport/fabric_internal.h"

#ifdef MOOI_FABRIC_BUILT

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

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

/* 1 if it is a connection to that address, which is a listener of libfabric
 * and of nobody else. */
static int leads_to(int fd, const struct mooi_fabric_peer *peer)
{
    struct sockaddr_storage address;
    socklen_t length = sizeof address;

    memset(&address, 0, sizeof address);
    return getpeername(fd, (struct sockaddr *)&address, &length) == 0 &&
           length == peer->name_bytes &&
           !memcmp(&address, peer->name, peer->name_bytes);
}

/* Shut down the sockets to a peer. libfabric does not tell which they are.
 * Returns their number. */
static int hang_up(const struct mooi_fabric_peer *peer)
{
    DIR *open_files = opendir("/proc/self/fd");
    struct dirent *entry;
    int count = 0;

    if (!open_files)
        return 0;
    while ((entry = readdir(open_files))) {
        int fd = atoi(entry->d_name);
        if (leads_to(fd, peer) && !shutdown(fd, SHUT_RDWR))
            count++;
    }
    closedir(open_files);
    return count;
}

/* The next post opens another. */
static void close_port(struct mooi_fabric *fabric)
{
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
    if (!peer->cut && fabric->over_sockets && hang_up(peer))
        peer->cut = 1;
    else
        close_port(fabric);
}

#endif
