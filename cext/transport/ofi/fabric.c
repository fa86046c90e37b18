/* SPDX-License-Identifier: MIT */
/* fabric.c: opening a fabric, its name and keys for others, its readers. */
#include "transport/ofi/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- opening ---- */

static void fill_pieces(struct mooi_fabric *fabric)
{
    size_t most = fabric->info->ep_attr->max_msg_size;

    fabric->piece_bytes = most < MOOI_FABRIC_PIECE ? most : MOOI_FABRIC_PIECE;
    for (int i = 0; i < MOOI_FABRIC_PIECES; i++) {
        fabric->piece[i].next = fabric->idle;
        fabric->idle = &fabric->piece[i];
    }
}

static int is_over_sockets(const char *provider)
{
    return !strncmp(provider, "tcp", 3) || !strcmp(provider, "net") ||
           !strncmp(provider, "udp", 3);
}

static struct mooi_fabric *new_fabric(const struct mooi_libfabric *library,
                                      const struct mooi_fabric_options *options,
                                      struct fi_info *info)
{
    struct mooi_fabric *fabric = calloc(1, sizeof *fabric);

    if (!fabric)
        return NULL;
    fabric->library = library;
    fabric->info = info;
    fabric->devices = (info->caps & FI_HMEM) != 0;
    fabric->over_sockets = is_over_sockets(info->fabric_attr->prov_name);
    if (fabric->over_sockets) {
        fabric->first_port = options->first_port;
        fabric->last_port = options->last_port;
    }
    fabric->mr_mode = (uint64_t)info->domain_attr->mr_mode;
    fabric->reading.fd = fabric->serving.fd = -1;
    mooi_fabric_reads_init(&fabric->ring);
    mooi_fabric_reads_init(&fabric->ended);
    mooi_fabric_reads_init(&fabric->inbox.reads);
    fabric->regions.next = fabric->regions.previous = &fabric->regions;
    fill_pieces(fabric);
    pthread_mutex_init(&fabric->lock, NULL);
    pthread_cond_init(&fabric->stopped, NULL);
    return fabric;
}

/* Everything but the thread, in the order in which libfabric wants it. */
static void free_fabric(struct mooi_fabric *fabric)
{
    struct mooi_fabric_socket *served = NULL;

    if (fabric->over_sockets && fabric->serving.ep)
        served = mooi_fabric_served(fabric);
    mooi_fabric_port_close(&fabric->reading);
    mooi_fabric_port_close(&fabric->serving);
    while (fabric->regions.next != &fabric->regions)
        mooi_fabric_unregister(fabric->regions.next);
    if (fabric->domain)
        fi_close(&fabric->domain->fid);
    if (fabric->fabric)
        fi_close(&fabric->fabric->fid);
    mooi_fabric_close_left(served);
    fabric->library->freeinfo(fabric->info);
    pthread_cond_destroy(&fabric->stopped);
    pthread_mutex_destroy(&fabric->lock);
    free(fabric);
}

static int open_name(struct mooi_fabric *fabric)
{
    fabric->name_bytes = sizeof fabric->name;
    return fi_getname(&fabric->serving.ep->fid, fabric->name,
                      &fabric->name_bytes);
}

/* Returns libfabric's result, and the name of the failed call. */
static int open_objects(struct mooi_fabric *fabric, const char **call)
{
    int err;

    *call = "fi_fabric";
    err = fabric->library->fabric(fabric->info->fabric_attr, &fabric->fabric,
                                  NULL);
    if (!err) {
        *call = "fi_domain";
        err = fi_domain(fabric->fabric, fabric->info, &fabric->domain, NULL);
    }
    if (!err) {
        *call = "its endpoint";
        err = mooi_fabric_port_open(fabric, &fabric->serving);
    }
    if (!err) {
        *call = "fi_getname";
        err = open_name(fabric);
    }
    return err;
}

static moo_err start(struct mooi_fabric *fabric, char *why, size_t room)
{
    const char *call;
    int failed = open_objects(fabric, &call);

    if (failed == -FI_EADDRINUSE && fabric->first_port) {
        snprintf(why, room, "%s finds no free port in %u-%u: give a larger "
                            "range, four ports for each process",
                 mooi_fabric_provider(fabric), fabric->first_port,
                 fabric->last_port);
        return MOO_EUNREACHABLE;
    }
    if (failed) {
        snprintf(why, room, "%s cannot be opened: %s: %s",
                 mooi_fabric_provider(fabric), call,
                 fabric->library->strerror(-failed));
        return MOO_EUNREACHABLE;
    }
    if (mooi_fabric_thread_start(fabric) == MOO_OK)
        return MOO_OK;
    snprintf(why, room, "cannot start a thread: %s", strerror(errno));
    return MOO_ESYS;
}

moo_err mooi_fabric_open(const struct mooi_fabric_options *options,
                         struct mooi_fabric **out, char *why, size_t room)
{
    const struct mooi_libfabric *library;
    struct mooi_fabric *fabric;
    struct fi_info *info;
    moo_err err = mooi_libfabric(&library, why, room);

    if (err == MOO_OK)
        err = mooi_fabric_choose(library, options, &info, why, room);
    if (err != MOO_OK)
        return err;
    fabric = new_fabric(library, options, info);
    if (!fabric) {
        library->freeinfo(info);
        snprintf(why, room, "no memory");
        return MOO_ENOMEM;
    }
    err = start(fabric, why, room);
    if (err == MOO_OK)
        *out = fabric;
    else
        free_fabric(fabric);
    return err;
}

void mooi_fabric_close(struct mooi_fabric *fabric)
{
    mooi_fabric_thread_stop(fabric);
    while (fabric->gone) {
        struct mooi_fabric_peer *peer = fabric->gone;
        fabric->gone = peer->next;
        free(peer);
    }
    free_fabric(fabric);
}

/* ---- what others must know ---- */

const char *mooi_fabric_provider(const struct mooi_fabric *fabric)
{
    return fabric->info->fabric_attr->prov_name;
}

size_t mooi_fabric_name(const struct mooi_fabric *fabric,
                        uint8_t out[MOOI_FABRIC_NAME_BYTES])
{
    memcpy(out, fabric->name, fabric->name_bytes);
    return fabric->name_bytes;
}

void mooi_fabric_statistics(struct mooi_fabric *fabric,
                            struct mooi_fabric_statistics *out)
{
    out->reads = fabric->reads;
    out->asked = fabric->asked;
    out->received = fabric->received;
    out->cuts = fabric->cuts;
}

/* ---- peers ---- */

moo_err mooi_fabric_connect(struct mooi_fabric *fabric, const uint8_t *name,
                            size_t bytes, struct mooi_fabric_peer **out)
{
    struct mooi_fabric_peer *peer;

    if (!bytes || bytes > MOOI_FABRIC_NAME_BYTES)
        return MOO_EINVAL;
    peer = calloc(1, sizeof *peer);
    if (!peer)
        return MOO_ENOMEM;
    peer->fabric = fabric;
    memcpy(peer->name, name, bytes);
    peer->name_bytes = bytes;
    *out = peer;
    return MOO_OK;
}

void mooi_fabric_forget(struct mooi_fabric_peer *peer)
{
    struct mooi_fabric *fabric = peer->fabric;

    pthread_mutex_lock(&fabric->lock);
    peer->next = fabric->inbox.gone;
    fabric->inbox.gone = peer;
    mooi_fabric_thread_wake(fabric);
    pthread_mutex_unlock(&fabric->lock);
}

void mooi_fabric_reason(struct mooi_fabric_peer *peer, char *text, size_t room)
{
    pthread_mutex_lock(&peer->fabric->lock);
    snprintf(text, room, "%s", peer->why);
    pthread_mutex_unlock(&peer->fabric->lock);
}

/* ---- reads ---- */

moo_err mooi_fabric_read(struct mooi_fabric_peer *peer,
                         const struct mooi_fabric_want *want)
{
    struct mooi_fabric *fabric = peer->fabric;
    struct mooi_fabric_read *read;
    moo_err err = MOO_OK;

    if (!want->patience_ms ||
        (want->bytes && !want->region && mooi_fabric_wants_regions(fabric)))
        return MOO_EINVAL;
    read = calloc(1, sizeof *read);
    if (!read)
        return MOO_ENOMEM;
    read->peer = peer;
    read->want = *want;
    pthread_mutex_lock(&fabric->lock);
    if (fabric->closing) {
        err = MOO_ECLOSED;
    } else {
        fabric->reads++;
        fabric->asked += want->bytes;
        mooi_fabric_reads_append(&fabric->inbox.reads, read);
        mooi_fabric_thread_wake(fabric);
    }
    pthread_mutex_unlock(&fabric->lock);
    if (err != MOO_OK)
        free(read);
    return err;
}

moo_err mooi_fabric_cancel(struct mooi_fabric *fabric, const void *cookie)
{
    struct mooi_fabric_stop stop = {.cookie = cookie, .result = MOO_ESTALE};

    pthread_mutex_lock(&fabric->lock);
    if (!fabric->closed) {
        stop.next = fabric->inbox.stops;
        fabric->inbox.stops = &stop;
        mooi_fabric_thread_wake(fabric);
        while (!stop.done)
            pthread_cond_wait(&fabric->stopped, &fabric->lock);
    }
    pthread_mutex_unlock(&fabric->lock);
    return stop.result;
}
