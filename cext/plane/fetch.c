/* SPDX-License-Identifier: MIT */
/* fetch.c: imports that do not wait, and the tags of those that ended. */
#include "plane/fetch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "plane/net.h"

_Static_assert(MOO_CONTACT_MS > MOOI_TCP_CONNECT_MS, "the owner gives up first");
/* On one host the wait is only for the owner's own work. */
#define LOCAL_MS 5000

struct moo_fetch *mooi_fetch_new(moo_plane *plane,
                                 const struct mooi_descriptor *d, void *into,
                                 uint64_t tag)
{
    struct moo_fetch *fetch = calloc(1, sizeof *fetch);

    if (!fetch)
        return NULL;
    fetch->plane = plane;
    fetch->holds = 1;
    fetch->d = *d;
    fetch->into = into;
    fetch->tag = tag;
    mooi_cond_init(&fetch->ended);
    return fetch;
}

void mooi_fetch_unref(struct moo_fetch *fetch)
{
    if (--fetch->holds)
        return;
    pthread_cond_destroy(&fetch->ended);
    free(fetch);
}

/* The same with the lock not held. */
static void free_unused(struct moo_fetch *fetch)
{
    moo_plane *plane = fetch->plane;

    pthread_mutex_lock(&plane->lock);
    mooi_fetch_unref(fetch);
    pthread_mutex_unlock(&plane->lock);
}

/* ---- tags: all with the lock held ---- */

/* The descriptor is readable exactly while tags wait. */
static void show_finished(moo_plane *plane)
{
    uint64_t count = 1;

    if (plane->finished_fd < 0)
        return;
    if (plane->finished) {
        if (write(plane->finished_fd, &count, sizeof count) < 0)
            return; /* it is readable already */
    } else if (read(plane->finished_fd, &count, sizeof count) < 0) {
        return; /* it was not */
    }
}

static void post(struct moo_fetch *fetch)
{
    moo_plane *plane = fetch->plane;
    int first = !plane->finished;

    fetch->queued = 1;
    if (first)
        plane->finished = fetch;
    else
        plane->finished_last->next_finished = fetch;
    plane->finished_last = fetch;
    if (first)
        show_finished(plane);
}

static void unpost(struct moo_fetch *fetch)
{
    moo_plane *plane = fetch->plane;
    struct moo_fetch **link = &plane->finished, *before = NULL;

    while (*link != fetch) {
        before = *link;
        link = &before->next_finished;
    }
    *link = fetch->next_finished;
    if (plane->finished_last == fetch)
        plane->finished_last = before;
    fetch->next_finished = NULL;
    fetch->queued = 0;
}

void mooi_fetch_end(struct moo_fetch *fetch, moo_err result)
{
    fetch->done = 1;
    fetch->result = result;
    if (!fetch->pull.reason)
        fetch->pull.reason = errno;
    fetch->plane->fetches--;
    if (fetch->tag && !fetch->freed)
        post(fetch);
    pthread_cond_broadcast(&fetch->ended);
}

int moo_plane_finished_fd(moo_plane *plane)
{
    int fd;

    if (mooi_plane_enter(plane) != MOO_OK) {
        errno = EPERM;
        return -1;
    }
    if (plane->finished_fd < 0) {
        plane->finished_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        show_finished(plane);
    }
    fd = plane->finished_fd;
    pthread_mutex_unlock(&plane->lock);
    return fd;
}

size_t moo_plane_finished(moo_plane *plane, uint64_t *tags, size_t room)
{
    size_t count = 0;

    if (atomic_load(&plane->forked))
        return 0;
    pthread_mutex_lock(&plane->lock);
    while (count < room && plane->finished) {
        tags[count++] = plane->finished->tag;
        unpost(plane->finished);
    }
    if (count && !plane->finished)
        show_finished(plane);
    pthread_mutex_unlock(&plane->lock);
    return count;
}

/* ---- local fetches ---- */

static moo_err import_now(struct moo_fetch *fetch, const uint8_t *descriptor,
                          size_t bytes)
{
    void *at;
    size_t length;
    moo_err err = moo_import(fetch->plane, descriptor, bytes, LOCAL_MS, &at,
                             &length);

    if (err != MOO_OK)
        return err;
    if (!fetch->into) {
        fetch->at = at;
        return MOO_OK;
    }
    memcpy(fetch->into, at, length);
    moo_drop(fetch->plane, at);
    return MOO_OK;
}

static moo_err begin_local(struct moo_fetch *fetch, const uint8_t *descriptor,
                           size_t bytes)
{
    moo_err err = import_now(fetch, descriptor, bytes);

    if (err == MOO_ENOMEM || err == MOO_ECLOSED)
        return err;
    pthread_mutex_lock(&fetch->plane->lock);
    fetch->plane->fetches++;
    mooi_fetch_end(fetch, err == MOO_ETIMEOUT ? MOO_EPEER : err);
    pthread_mutex_unlock(&fetch->plane->lock);
    return MOO_OK;
}

/* Nothing is fetched for a ticket; its lease stays. */
static moo_err begin_ticket(struct moo_fetch *fetch)
{
    moo_err err = mooi_plane_enter(fetch->plane);

    if (err != MOO_OK)
        return err;
    fetch->plane->fetches++;
    mooi_fetch_end(fetch, MOO_OK);
    pthread_mutex_unlock(&fetch->plane->lock);
    return MOO_OK;
}

/* ---- remote fetches ---- */

static moo_err begin_locked(struct moo_fetch *fetch, int timeout_ms)
{
    moo_plane *plane = fetch->plane;
    moo_err err = MOO_OK;

    if (!plane->net)
        return MOO_EUNREACHABLE; /* a correct owner found no endpoint of ours */
    fetch->pull.target = fetch->into;
    if (!fetch->into && !fetch->discard)
        err = mooi_block_for_user(plane, fetch->d.length, &fetch->block,
                                  &fetch->pull.target);
    if (err != MOO_OK)
        return err;
    fetch->pull.block = fetch->block;
    err = mooi_source_begin(fetch, timeout_ms);
    if (err != MOO_OK && fetch->block)
        mooi_block_rele(&plane->arena, fetch->block);
    return err;
}

moo_err mooi_fetch_launch(struct moo_fetch *fetch, int timeout_ms)
{
    moo_plane *plane = fetch->plane;
    moo_err err = mooi_plane_enter(plane);

    if (err == MOO_OK) {
        err = begin_locked(fetch, timeout_ms);
        pthread_mutex_unlock(&plane->lock);
    }
    if (err != MOO_OK)
        free_unused(fetch);
    return err;
}

moo_err mooi_fetch_import(moo_plane *plane, const struct mooi_descriptor *d,
                          int timeout_ms, void **out, size_t *out_bytes)
{
    struct moo_fetch *fetch = mooi_fetch_new(plane, d, NULL, 0);
    moo_err err = fetch ? mooi_fetch_launch(fetch, timeout_ms) : MOO_ENOMEM;

    if (err != MOO_OK)
        return err;
    mooi_plane_hold(plane);
    do /* its source ends it in time */
        err = moo_fetch_wait(fetch, 1000, out, out_bytes);
    while (err == MOO_ETIMEOUT);
    moo_fetch_free(fetch);
    return err;
}

moo_err mooi_fetch_discard(moo_plane *plane, const struct mooi_descriptor *d,
                           int timeout_ms)
{
    struct moo_fetch *fetch = mooi_fetch_new(plane, d, NULL, 0);
    moo_err err;

    if (!fetch)
        return MOO_ENOMEM;
    fetch->discard = 1;
    err = mooi_fetch_launch(fetch, timeout_ms);
    if (err == MOO_OK)
        free_unused(fetch);
    return err;
}

/* ---- the public functions ---- */

moo_err moo_fetch_begin(moo_plane *plane, const uint8_t *descriptor,
                        size_t bytes, void *into, size_t into_bytes,
                        uint64_t tag, moo_fetch **out)
{
    struct mooi_descriptor d;
    struct moo_fetch *fetch;
    moo_err err = mooi_descriptor_parse(descriptor, bytes, &d);

    if (atomic_load(&plane->forked))
        return MOO_EFORK;
    if (err != MOO_OK)
        return err;
    if (into && (into_bytes != d.length || d.flags & MOOI_TICKET))
        return MOO_EINVAL;
    pthread_mutex_lock(&plane->lock);
    mooi_import_resolve(plane, &d);
    pthread_mutex_unlock(&plane->lock);
    fetch = mooi_fetch_new(plane, &d, into, tag);
    if (!fetch)
        return MOO_ENOMEM;
    if (d.flags & MOOI_REMOTE && !(d.flags & MOOI_TICKET)) {
        err = mooi_fetch_launch(fetch, MOO_CONTACT_MS);
    } else {
        err = d.flags & MOOI_TICKET ? begin_ticket(fetch)
                                    : begin_local(fetch, descriptor, bytes);
        if (err != MOO_OK)
            free_unused(fetch);
    }
    if (err != MOO_OK)
        return err;
    mooi_plane_hold(plane);
    *out = fetch;
    return MOO_OK;
}

moo_err moo_fetch_begin_once(moo_plane *plane, const uint8_t *descriptor,
                             size_t bytes, void *into, size_t into_bytes,
                             uint64_t tag, moo_fetch **out)
{
    return *out ? MOO_OK
                : moo_fetch_begin(plane, descriptor, bytes, into, into_bytes,
                                  tag, out);
}

/* Lock held, but not while waiting. */
static void wait_until_done(struct moo_fetch *fetch, int timeout_ms)
{
    uint64_t end = mooi_now_ns() + (uint64_t)timeout_ms * 1000000u;
    struct timespec until = mooi_timespec(end);

    while (!fetch->done && timeout_ms > 0)
        if (pthread_cond_timedwait(&fetch->ended, &fetch->plane->lock,
                                   &until) == ETIMEDOUT)
            return;
}

moo_err moo_fetch_wait(moo_fetch *fetch, int timeout_ms, void **out,
                       size_t *out_bytes)
{
    moo_plane *plane = fetch->plane;
    moo_err err = MOO_ETIMEOUT;

    if (atomic_load(&plane->forked))
        return MOO_EFORK;
    pthread_mutex_lock(&plane->lock);
    wait_until_done(fetch, timeout_ms);
    if (fetch->done) {
        err = fetch->told ? MOO_ESTALE : fetch->result;
        fetch->told = 1;
        errno = fetch->pull.reason;
    }
    if (err == MOO_OK) {
        *out = fetch->at;
        *out_bytes = fetch->d.length;
        fetch->at = NULL;
    }
    pthread_mutex_unlock(&plane->lock);
    return err;
}

void moo_fetch_free(moo_fetch *fetch)
{
    moo_plane *plane;
    char *unwanted;

    if (!fetch || atomic_load(&fetch->plane->forked))
        return;
    plane = fetch->plane;
    pthread_mutex_lock(&plane->lock);
    fetch->freed = 1;
    if (!fetch->done)
        mooi_source_cancel(fetch);
    if (fetch->queued) {
        unpost(fetch);
        if (!plane->finished)
            show_finished(plane);
    }
    unwanted = fetch->at;
    mooi_fetch_unref(fetch);
    pthread_mutex_unlock(&plane->lock);
    if (unwanted)
        moo_drop(plane, unwanted);
    mooi_plane_rele(plane);
}

void moo_fetch_free_at(moo_fetch **fetch)
{
    moo_fetch_free(*fetch);
    *fetch = NULL;
}
