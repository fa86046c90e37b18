/* SPDX-License-Identifier: MIT */
/* report.c: a plane's statistics, and the holders of its memory. */
#include <stdlib.h>
#include <string.h>

#include "plane/forks.h"
#include "plane/net.h"
#include "plane/peer.h"

static uint64_t count_peers(const moo_plane *plane)
{
    uint64_t count = 0;

    for (int i = 0; i < MOOI_PEER_BUCKETS; i++)
        for (struct mooi_peer *p = plane->peer[i]; p; p = p->next)
            count += p->state == MOOI_PEER_LINKED;
    return count;
}

static uint64_t count_owners(const moo_plane *plane)
{
    uint64_t count = 0;

    for (struct mooi_owner *o = plane->local.owners; o; o = o->next)
        count += o->id != plane->id;
    return count;
}

static void add_network(const struct mooi_net *net, moo_statistics *out)
{
    struct mooi_tcp_statistics tcp = {0};

    if (net->networks.tcp)
        mooi_tcp_statistics(net->networks.tcp, &tcp);
    out->links = tcp.links;
    out->served_tcp = tcp.served;
    out->fetched_tcp = net->fetched_tcp;
    out->fetched_ofi = net->fetched_ofi;
}

static void fill_statistics(moo_plane *plane, moo_statistics *out)
{
    *out = (moo_statistics){
        .limit = plane->arena.limit,
        .used = plane->arena.used,
        .reserved = plane->arena.reserved,
        .resident = mooi_arena_resident(&plane->arena),
        .slabs = plane->arena.slabs,
        .blocks = plane->arena.blocks,
        .leases = plane->leases.live,
        .peers = count_peers(plane),
        .owners = count_owners(plane),
        .imports = plane->imports,
        .imported = plane->imported,
        .exports = plane->exports,
        .exports_copied = plane->exports_copied,
        .bytes_copied = plane->bytes_copied,
        .revoked = plane->leases.revoked,
        .fetches = plane->fetches,
        .kept_for_forks = plane->arena.kept_bytes + plane->kept_bytes,
    };
    if (plane->net)
        add_network(plane->net, out);
}

void moo_plane_statistics(moo_plane *plane, moo_statistics *out)
{
    memset(out, 0, sizeof *out);
    if (atomic_load(&plane->forked))
        return;
    pthread_mutex_lock(&plane->lock);
    mooi_lease_drain(&plane->leases);
    mooi_owners_reap(&plane->local);
    mooi_forks_reap(plane);
    fill_statistics(plane, out);
    pthread_mutex_unlock(&plane->lock);
}

moo_err moo_plane_traffic(moo_plane *plane, uint64_t id, uint64_t *exported,
                          uint64_t *fetched)
{
    const struct mooi_peer *peer;
    moo_err err = mooi_plane_enter(plane);

    if (err != MOO_OK)
        return err;
    peer = mooi_peer_find(plane, id);
    *exported = peer ? peer->held.exported : 0;
    *fetched = peer ? peer->fetched : 0;
    pthread_mutex_unlock(&plane->lock);
    return MOO_OK;
}

static int larger_first(const void *a, const void *b)
{
    const moo_holder *x = a, *y = b;

    return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

/* Insert `candidate` among the largest so far. */
static size_t offer_holder(moo_holder *out, size_t count, size_t capacity,
                           moo_holder candidate)
{
    if (count < capacity) {
        out[count++] = candidate;
    } else if (capacity && out[capacity - 1].bytes < candidate.bytes) {
        out[capacity - 1] = candidate;
    }
    qsort(out, count, sizeof *out, larger_first);
    return count;
}

/* Each process once: leases of this process to itself count as its own use. */
static size_t list_holders(moo_plane *plane, moo_holder *out, size_t capacity)
{
    size_t count = 0;
    uint64_t leased = 0;
    moo_holder own = {plane->id, 0, 0};

    for (int i = 0; i < MOOI_PEER_BUCKETS; i++)
        for (struct mooi_peer *p = plane->peer[i]; p; p = p->next) {
            moo_holder holder = {p->id, p->held.bytes, p->held.leases};
            if (!p->held.leases)
                continue;
            if (p->id == plane->id) {
                own.leases = p->held.leases;
                continue;
            }
            count = offer_holder(out, count, capacity, holder);
            leased += p->held.bytes;
        }
    if (plane->arena.used > leased) {
        own.bytes = plane->arena.used - leased;
        count = offer_holder(out, count, capacity, own);
    }
    return count;
}

size_t moo_holders(moo_plane *plane, moo_holder *out, size_t capacity)
{
    size_t count;

    if (atomic_load(&plane->forked))
        return 0;
    pthread_mutex_lock(&plane->lock);
    mooi_lease_drain(&plane->leases);
    count = list_holders(plane, out, capacity);
    pthread_mutex_unlock(&plane->lock);
    return count;
}
