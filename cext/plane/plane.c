/* SPDX-License-Identifier: MIT */
/*
 * plane.c: open, close, and what happens in a fork. The public functions that
 * move data are in export.c and import.c.
 */
#include "plane/plane.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/pages.h"
#include "plane/net.h"

/* All open planes of this process, for the child of a fork. */
static pthread_mutex_t planes_lock = PTHREAD_MUTEX_INITIALIZER;
static moo_plane *planes;

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

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

/* In the child, descriptors that it kept would make the parent's death
 * invisible to its peers. */
static void disown_planes(void)
{
    for (moo_plane *plane = planes; plane; plane = plane->next) {
        atomic_store(&plane->forked, 1);
        close_fd(&plane->listener);
        close_fd(&plane->epoll);
        close_fd(&plane->wake);
        close_fd(&plane->finished_fd);
        for (int i = 0; i < MOOI_PEER_BUCKETS; i++)
            for (struct mooi_peer *p = plane->peer[i]; p; p = p->next)
                close_fd(&p->fd);
        for (struct mooi_owner *o = plane->owners; o; o = o->next)
            close_fd(&o->fd);
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

static moo_plane *new_plane(uint64_t process_id, const uint8_t *key,
                            uint64_t limit)
{
    moo_plane *plane = calloc(1, sizeof *plane);

    if (!plane)
        return NULL;
    plane->id = process_id;
    atomic_init(&plane->uses, 1);
    memcpy(plane->key, key, MOOI_KEY_BYTES);
    plane->directory = plane->listener = plane->ledger_fd = -1;
    plane->epoll = plane->wake = plane->finished_fd = -1;
    plane->leases_free = MOOI_NO_LEASE;
    pthread_mutex_init(&plane->lock, NULL);
    pthread_mutex_init(&plane->accepting, NULL);
    mooi_arena_init(&plane->arena, limit);
    plane->pagemap = mooi_pagemap_open();
    return plane;
}

static moo_err open_files(moo_plane *plane, const char *directory)
{
    moo_err err;

    plane->directory = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (plane->directory < 0)
        return MOO_ESYS;
    plane->epoll = epoll_create1(EPOLL_CLOEXEC);
    plane->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (plane->epoll < 0 || plane->wake < 0)
        return MOO_ESYS;
    err = mooi_ledger_create(MOOI_LEDGER_ENTRIES, &plane->ledger_fd,
                             &plane->ledger);
    if (err != MOO_OK)
        return err;
    return mooi_link_listen(plane, &plane->listener);
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

/* An owner that something here still uses keeps its connection: hanging up
 * would end our leases. */
static void hang_up(moo_plane *plane)
{
    for (int i = 0; i < MOOI_PEER_BUCKETS; i++)
        for (struct mooi_peer *p = plane->peer[i]; p; p = p->next)
            close_fd(&p->fd);
    for (struct mooi_owner *o = plane->owners; o; o = o->next)
        o->forget_at_ns = 1;
    mooi_owners_reap(plane);
    close_fd(&plane->epoll);
    close_fd(&plane->wake);
    close_fd(&plane->ledger_fd);
    close_fd(&plane->finished_fd);
    close_fd(&plane->pagemap); /* drops will clean all pages instead */
}

/* Under `accepting`, because a number must not come to mean another file to
 * who waits there; they are woken first. */
static void stop_accepting(moo_plane *plane)
{
    if (plane->listener >= 0)
        shutdown(plane->listener, SHUT_RDWR);
    pthread_mutex_lock(&plane->accepting);
    close_fd(&plane->listener);
    close_fd(&plane->directory);
    pthread_mutex_unlock(&plane->accepting);
}

void moo_plane_close(moo_plane *plane)
{
    if (atomic_load(&plane->forked))
        return;
    mooi_thread_stop(plane);
    if (plane->net)
        mooi_net_close(plane);
    stop_accepting(plane);
    pthread_mutex_lock(&plane->lock);
    hang_up(plane);
    pthread_mutex_unlock(&plane->lock);
}

static void free_peers(moo_plane *plane)
{
    for (int i = 0; i < MOOI_PEER_BUCKETS; i++)
        while (plane->peer[i]) {
            struct mooi_peer *peer = plane->peer[i];
            plane->peer[i] = peer->next;
            close_fd(&peer->fd);
            free(peer->reach);
            free(peer);
        }
}

static void destroy(moo_plane *plane)
{
    delist(plane);
    mooi_forks_fini(plane);
    mooi_owners_fini(plane);
    free_peers(plane);
    mooi_net_fini(plane);
    if (plane->ledger)
        mooi_ledger_unmap(plane->ledger, MOOI_LEDGER_ENTRIES);
    mooi_arena_fini(&plane->arena);
    free(plane->lease);
    free(plane->region);
    pthread_mutex_destroy(&plane->accepting);
    pthread_mutex_destroy(&plane->lock);
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
        mooi_peer_bury(plane, peer);
    if (peer && plane->net) {
        mooi_source_lost(plane, id);
        mooi_tcp_drop(plane->net->tcp, id);
    }
    for (struct mooi_owner *o = plane->owners; o; o = o->next)
        if (o->id == id && !o->forget_at_ns)
            o->forget_at_ns =
                mooi_now_ns() + (uint64_t)grace_ms * 1000000u + 1;
    if (!plane->closed && plane->owners && !mooi_thread_start(plane))
        mooi_thread_wake(plane); /* it does the forgetting */
    pthread_mutex_unlock(&plane->lock);
}
