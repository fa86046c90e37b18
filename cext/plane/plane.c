/* SPDX-License-Identifier: MIT */
/*
 * plane.c: open, close, and what happens in a fork. The public functions that
 * move data are in export.c and import.c.
 */
#include "plane/plane.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "core/fd.h"
#include "core/pages.h"
#include "plane/forks.h"
#include "plane/loop.h"
#include "plane/net.h"
#include "plane/peer.h"
#include "plane/route.h"
#include "plane/source.h"
#include "plane/thread.h"

/* All open planes of this process, for the child of a fork. */
static pthread_mutex_t planes_lock = PTHREAD_MUTEX_INITIALIZER;
static moo_plane *planes;

/* Nobody changes a plane while the process is copied. */
static void before_fork(void)
{
    pthread_mutex_lock(&planes_lock);
    for (moo_plane *plane = planes; plane; plane = plane->next) {
        pthread_mutex_lock(&plane->lock);
        mooi_net_before_fork(plane);
        mooi_forks_before(plane);
    }
}

static void after_fork(void)
{
    for (moo_plane *plane = planes; plane; plane = plane->next) {
        mooi_net_after_fork(plane);
        mooi_forks_parent(plane);
        pthread_mutex_unlock(&plane->lock);
    }
    pthread_mutex_unlock(&planes_lock);
}

/* If the child kept these descriptors, the parent's peers would not see its
 * death. */
static void disown_planes(void)
{
    for (moo_plane *plane = planes; plane; plane = plane->next) {
        atomic_store(&plane->forked, 1);
        mooi_close_fd(&plane->epoll);
        mooi_close_fd(&plane->wake);
        mooi_close_fd(&plane->finished_fd);
        for (int i = 0; i < MOOI_PEER_BUCKETS; i++)
            for (struct mooi_peer *p = plane->peer[i]; p; p = p->next)
                mooi_close_fd(&p->shm.fd);
        mooi_local_disown(&plane->local);
        mooi_net_disown(plane);
        mooi_forks_child(plane);
        pthread_mutex_unlock(&plane->lock);
    }
    pthread_mutex_unlock(&planes_lock);
}

static void watch_forks(void)
{
    pthread_atfork(before_fork, after_fork, disown_planes);
}

static void enlist(moo_plane *plane)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&planes_lock);
    plane->next = planes;
    planes = plane;
    pthread_mutex_unlock(&planes_lock);
}

static void delist(moo_plane *plane)
{
    moo_plane **link = &planes;

    pthread_mutex_lock(&planes_lock);
    while (*link && *link != plane)
        link = &(*link)->next;
    if (*link)
        *link = plane->next;
    pthread_mutex_unlock(&planes_lock);
}

/* ---- callbacks of this host's transports ---- */

static int is_dead(void *context, uint64_t id)
{
    return mooi_peer_is_dead(context, id);
}

/* We ask on our own behalf, and have waited for the peer already. */
static moo_err grant_again(void *context, const struct mooi_grant *grant,
                           struct mooi_descriptor *out)
{
    return mooi_peer_grant(context, grant, 1, out);
}

/* ---- opening ---- */

static void init_local(moo_plane *plane)
{
    plane->local = (struct mooi_local){.lock = &plane->lock,
                                       .id = plane->id,
                                       .key = plane->key,
                                       .arena = &plane->arena,
                                       .leases = &plane->leases,
                                       .regions = &plane->regions,
                                       .is_dead = is_dead,
                                       .grant = grant_again,
                                       .context = plane};
    mooi_local_init(&plane->local);
}

static moo_plane *new_plane(uint64_t process_id, const uint8_t *key,
                            uint64_t limit)
{
    moo_plane *plane = calloc(1, sizeof *plane);

    if (!plane)
        return NULL;
    plane->id = process_id;
    atomic_init(&plane->uses, 1);
    memcpy(plane->key, key, MOOI_KEY_BYTES);
    plane->epoll = plane->wake = plane->finished_fd = -1;
    plane->run = mooi_loop_run;
    pthread_mutex_init(&plane->closing, NULL);
    pthread_mutex_init(&plane->lock, NULL);
    mooi_arena_init(&plane->arena, limit);
    mooi_leases_init(&plane->leases, process_id, &plane->arena);
    init_local(plane);
    return plane;
}

static moo_err open_files(moo_plane *plane, const char *directory)
{
    moo_err err;

    plane->epoll = epoll_create1(EPOLL_CLOEXEC);
    plane->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (plane->epoll < 0 || plane->wake < 0)
        return MOO_ESYS;
    err = mooi_leases_open(&plane->leases);
    return err == MOO_OK ? mooi_local_open(&plane->local, directory) : err;
}

moo_err moo_plane_open(const char *directory, uint64_t process_id,
                       const uint8_t *key, uint64_t limit, moo_plane **out)
{
    moo_plane *plane;
    moo_err err;
    int reason;

    if (process_id >= MOOI_FORK_ENDED || limit < mooi_page())
        return MOO_EINVAL;
    plane = new_plane(process_id, key, limit);
    if (!plane)
        return MOO_ENOMEM;
    err = open_files(plane, directory);
    if (err == MOO_OK) {
        enlist(plane);
        *out = plane;
        return MOO_OK;
    }
    reason = errno;
    moo_plane_free(plane);
    errno = reason;
    return err;
}

/* ---- closing ---- */

static void hang_up(moo_plane *plane)
{
    for (int i = 0; i < MOOI_PEER_BUCKETS; i++)
        for (struct mooi_peer *p = plane->peer[i]; p; p = p->next)
            mooi_close_fd(&p->shm.fd);
    mooi_local_close(&plane->local);
    mooi_close_fd(&plane->epoll);
    mooi_close_fd(&plane->wake);
    mooi_close_fd(&plane->leases.fd);
    mooi_close_fd(&plane->finished_fd);
}

void moo_plane_close(moo_plane *plane)
{
    if (atomic_load(&plane->forked))
        return;
    pthread_mutex_lock(&plane->closing); /* who comes second waits for the end */
    mooi_thread_stop(plane);
    if (plane->net)
        mooi_net_close(plane);
    mooi_local_stop(&plane->local);
    pthread_mutex_lock(&plane->lock);
    hang_up(plane);
    pthread_mutex_unlock(&plane->lock);
    pthread_mutex_unlock(&plane->closing);
}

static void free_peers(moo_plane *plane)
{
    for (int i = 0; i < MOOI_PEER_BUCKETS; i++)
        while (plane->peer[i]) {
            struct mooi_peer *peer = plane->peer[i];
            plane->peer[i] = peer->next;
            mooi_close_fd(&peer->shm.fd);
            free(peer->reach);
            free(peer);
        }
}

static void destroy(moo_plane *plane)
{
    delist(plane);
    mooi_forks_fini(plane);
    mooi_local_fini(&plane->local);
    free_peers(plane);
    mooi_net_fini(plane);
    mooi_leases_fini(&plane->leases);
    mooi_arena_fini(&plane->arena);
    mooi_regions_fini(&plane->regions);
    pthread_mutex_destroy(&plane->lock);
    pthread_mutex_destroy(&plane->closing);
    free(plane);
}

void mooi_plane_rele(moo_plane *plane)
{
    if (atomic_fetch_sub_explicit(&plane->uses, 1, memory_order_acq_rel) == 1)
        destroy(plane);
}

void moo_plane_free(moo_plane *plane)
{
    if (atomic_load(&plane->forked))
        return; /* its mappings may be in use, and its locks held for ever */
    moo_plane_close(plane);
    destroy(plane);
}

void moo_plane_rele(moo_plane *plane)
{
    if (atomic_load(&plane->forked))
        return;
    moo_plane_close(plane);
    mooi_plane_rele(plane);
}

void moo_peer_lost(moo_plane *plane, uint64_t id, int grace_ms)
{
    struct mooi_peer *peer;

    if (atomic_load(&plane->forked) || id == plane->id)
        return;
    pthread_mutex_lock(&plane->lock);
    peer = plane->closed ? NULL : mooi_peer_get(plane, id);
    if (peer && peer->state != MOOI_PEER_DEAD)
        mooi_peer_mark_dead(plane, peer);
    if (peer && plane->net) {
        mooi_source_lost(plane, id);
        mooi_tcp_drop(plane->net->networks.tcp, id, MOO_EPEER);
    }
    mooi_owner_lost(&plane->local, id, grace_ms);
    if (!plane->closed && plane->local.owners && !mooi_thread_start(plane))
        mooi_thread_wake(plane); /* the thread forgets them */
    pthread_mutex_unlock(&plane->lock);
}
