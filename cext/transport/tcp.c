/* SPDX-License-Identifier: MIT */
/*
 * tcp.c: an engine's beginning and end, its thread, and what a fork does to it.
 */
#include "transport/tcp.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/arena.h"
#include "transport/tcp_internal.h"

#define BATCH 64

/* ---- descriptors ---- */

void mooi_tcp_wake(struct mooi_tcp *engine)
{
    uint64_t one = 1;
    ssize_t written;

    do
        written = write(engine->wake.fd, &one, sizeof one);
    while (written < 0 && errno == EINTR);
}

static void wake_ready(struct mooi_tcp *engine, struct mooi_tcp_watched *self,
                       uint32_t events)
{
    uint64_t count;
    ssize_t got = read(self->fd, &count, sizeof count);

    (void)got; /* the loop looks at everything anyway */
    (void)events;
    engine->next_tick_ns = 0;
}

moo_err mooi_tcp_watch(struct mooi_tcp *engine,
                       struct mooi_tcp_watched *watched, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = watched};

    if (watched->events == events)
        return MOO_OK;
    if (epoll_ctl(engine->epoll,
                  watched->events ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, watched->fd,
                  &event))
        return MOO_ESYS;
    watched->events = events;
    return MOO_OK;
}

void mooi_tcp_unwatch(struct mooi_tcp *engine,
                      struct mooi_tcp_watched *watched)
{
    if (watched->fd < 0)
        return;
    if (watched->events)
        epoll_ctl(engine->epoll, EPOLL_CTL_DEL, watched->fd, NULL);
    close(watched->fd);
    watched->fd = -1;
    watched->events = 0;
}

/* ---- the thread ---- */

static void dispatch(struct mooi_tcp *engine, int timeout_ms)
{
    struct epoll_event event[BATCH];
    int count = epoll_wait(engine->epoll, event, BATCH, timeout_ms);

    for (int i = 0; i < count; i++) {
        struct mooi_tcp_watched *watched = event[i].data.ptr;
        if (watched->fd >= 0)
            watched->ready(engine, watched, event[i].events);
    }
}

static void end_all(struct mooi_tcp *engine)
{
    mooi_tcp_strangers_reap(engine, 1);
    mooi_tcp_lock(engine);
    for (struct mooi_tcp_link *link = engine->links; link; link = link->next)
        mooi_tcp_break(link, MOO_ECLOSED, NULL);
    mooi_tcp_unlock(engine);
    mooi_tcp_end_broken(engine);
    mooi_tcp_bury(engine);
}

static void *run(void *argument)
{
    struct mooi_tcp *engine = argument;

    while (!atomic_load(&engine->closing)) {
        int timeout_ms = mooi_tcp_tick(engine);
        mooi_tcp_end_broken(engine);
        mooi_tcp_bury(engine);
        dispatch(engine, timeout_ms);
    }
    end_all(engine);
    return NULL;
}

/* Without signals: they are for the program's own threads. */
static moo_err start(struct mooi_tcp *engine)
{
    sigset_t all, before;
    int failed;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(&engine->thread, NULL, run, engine);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) {
        errno = failed;
        return MOO_ESYS;
    }
    engine->running = 1;
    return MOO_OK;
}

/* ---- open and close ---- */

static struct mooi_tcp *new_engine(const struct mooi_tcp_options *options,
                                   const struct mooi_tcp_events *events)
{
    struct mooi_tcp *engine = calloc(1, sizeof *engine);

    if (!engine)
        return NULL;
    engine->options = *options;
    engine->options.bind = NULL; /* not ours to keep */
    if (!engine->options.stripes)
        engine->options.stripes = MOOI_TCP_STRIPES;
    engine->events = *events;
    engine->epoll = engine->wake.fd = engine->listener.fd = -1;
    engine->wake.ready = wake_ready;
    engine->listener.ready = mooi_tcp_accept_ready;
    for (int i = 0; i < MOOI_TCP_UNPROVED; i++)
        engine->strangers[i].watched.fd = -1;
    pthread_mutex_init(&engine->lock, NULL);
    pthread_cond_init(&engine->received, NULL);
    return engine;
}

static moo_err open_files(struct mooi_tcp *engine, const char *bind_to)
{
    moo_err err;

    engine->epoll = epoll_create1(EPOLL_CLOEXEC);
    engine->wake.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (engine->epoll < 0 || engine->wake.fd < 0)
        return MOO_ESYS;
    err = mooi_socket_listen(bind_to, &engine->listener.fd);
    if (err == MOO_OK)
        err = mooi_tcp_watch(engine, &engine->wake, EPOLLIN);
    if (err == MOO_OK)
        err = mooi_tcp_watch(engine, &engine->listener, EPOLLIN);
    return err;
}

static void free_engine(struct mooi_tcp *engine)
{
    mooi_tcp_unwatch(engine, &engine->wake);
    mooi_tcp_unwatch(engine, &engine->listener);
    if (engine->epoll >= 0)
        close(engine->epoll);
    pthread_cond_destroy(&engine->received);
    pthread_mutex_destroy(&engine->lock);
    free(engine);
}

moo_err mooi_tcp_open(const struct mooi_tcp_options *options,
                      const struct mooi_tcp_events *events,
                      struct mooi_tcp **out)
{
    struct mooi_tcp *engine;
    moo_err err;
    int reason;

    if (options->stripes > MOOI_TCP_STRIPES_MAX)
        return MOO_EINVAL;
    engine = new_engine(options, events);
    if (!engine)
        return MOO_ENOMEM;
    err = open_files(engine, options->bind);
    if (err == MOO_OK)
        err = start(engine);
    if (err != MOO_OK) {
        reason = errno;
        free_engine(engine);
        errno = reason;
        return err;
    }
    *out = engine;
    return MOO_OK;
}

void mooi_tcp_close(struct mooi_tcp *engine)
{
    atomic_store(&engine->closing, 1);
    mooi_tcp_wake(engine);
    pthread_join(engine->thread, NULL);
    free_engine(engine);
}

size_t mooi_tcp_addresses(struct mooi_tcp *engine, struct mooi_address *out,
                          size_t room)
{
    return mooi_socket_addresses(engine->listener.fd, out, room);
}

void mooi_tcp_statistics(struct mooi_tcp *engine,
                         struct mooi_tcp_statistics *out)
{
    memset(out, 0, sizeof *out);
    mooi_tcp_lock(engine);
    for (struct mooi_tcp_link *link = engine->links; link; link = link->next) {
        out->links += link->state == MOOI_TCP_UP;
        out->asked += link->asked_bytes;
        out->fetches += link->fetches;
    }
    mooi_tcp_unlock(engine);
    out->served = atomic_load(&engine->served);
    out->received = atomic_load(&engine->received_bytes);
    out->refused = atomic_load(&engine->refused);
}

/* ---- forks ---- */

void mooi_tcp_before_fork(struct mooi_tcp *engine)
{
    mooi_tcp_lock(engine);
}

void mooi_tcp_after_fork(struct mooi_tcp *engine)
{
    mooi_tcp_unlock(engine);
}

static void close_only(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* The epoll instance is the parent's too: nothing may be taken out of it. */
static void disown_link(struct mooi_tcp_link *link)
{
    for (uint16_t i = 0; i < link->count; i++)
        close_only(&link->stripes[i].watched.fd);
    close_only(&link->dialing.fd);
    for (size_t i = 0; i < link->dial.count; i++)
        close_only(&link->dial.fd[i]);
    link->dial.poll = -1;
}

void mooi_tcp_disown(struct mooi_tcp *engine)
{
    for (struct mooi_tcp_link *link = engine->links; link; link = link->next)
        disown_link(link);
    for (int i = 0; i < MOOI_TCP_UNPROVED; i++)
        close_only(&engine->strangers[i].watched.fd);
    close_only(&engine->listener.fd);
    close_only(&engine->wake.fd);
    close_only(&engine->epoll);
    mooi_tcp_unlock(engine);
}
