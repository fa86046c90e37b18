/* SPDX-License-Identifier: MIT */
/*
 * engine.c: an engine's beginning and end, and what a fork does to it.
 */
#include "transport/tcp/tcp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/threads.h"
#include "transport/tcp/internal.h"

/* ---- open and close ---- */

void mooi_tcp_end_all(struct mooi_tcp *engine)
{
    mooi_tcp_strangers_reap(engine, 1);
    mooi_tcp_lock(engine);
    for (struct mooi_tcp_link *link = engine->links; link; link = link->next)
        mooi_tcp_break(link, MOO_ECLOSED, NULL);
    mooi_tcp_unlock(engine);
    mooi_tcp_end_broken(engine);
    mooi_tcp_bury(engine);
}

/* One for every eight processors: fewer cannot feed more than one. */
static uint32_t default_threads(void)
{
    uint32_t threads = mooi_processors() / 8;

    return threads < 1 ? 1 : threads > 4 ? 4 : threads;
}

/* One thread does everything; several take bulk off the engine's own. */
static void choose_sizes(struct mooi_tcp *engine)
{
    struct mooi_tcp_options *options = &engine->options;

    if (!options->threads)
        options->threads = default_threads();
    engine->others = options->threads > 1 ? options->threads : 0;
    if (!options->stripes)
        options->stripes = options->threads > MOOI_TCP_STRIPES
                               ? options->threads
                               : MOOI_TCP_STRIPES;
}

static struct mooi_tcp *new_engine(const struct mooi_tcp_options *options,
                                   const struct mooi_tcp_events *events)
{
    struct mooi_tcp *engine = calloc(1, sizeof *engine);

    if (!engine)
        return NULL;
    engine->options = *options;
    engine->options.bind = NULL; /* not ours to keep */
    choose_sizes(engine);
    engine->events = *events;
    mooi_tcp_loop_init(engine, &engine->own);
    for (uint32_t i = 0; i < engine->others; i++)
        mooi_tcp_loop_init(engine, &engine->other[i]);
    engine->listener.fd = -1;
    engine->listener.ready = mooi_tcp_accept_ready;
    for (int i = 0; i < MOOI_TCP_UNPROVED; i++)
        engine->strangers[i].watched.fd = -1;
    pthread_mutex_init(&engine->lock, NULL);
    pthread_cond_init(&engine->changed, NULL);
    return engine;
}

static moo_err open_files(struct mooi_tcp *engine, const char *bind_to)
{
    moo_err err = mooi_tcp_loop_open(&engine->own);

    for (uint32_t i = 0; i < engine->others && err == MOO_OK; i++)
        err = mooi_tcp_loop_open(&engine->other[i]);
    if (err == MOO_OK)
        err = mooi_socket_listen(bind_to, &engine->listener.fd);
    if (err == MOO_OK)
        err = mooi_tcp_watch(engine, &engine->listener, EPOLLIN);
    return err;
}

/* The own one last: without the others it does no harm. */
static moo_err start(struct mooi_tcp *engine)
{
    moo_err err = MOO_OK;

    for (uint32_t i = 0; i < engine->others && err == MOO_OK; i++)
        err = mooi_tcp_loop_start(&engine->other[i]);
    if (err == MOO_OK)
        err = mooi_tcp_loop_start(&engine->own);
    return err;
}

/* The own one ends all links, with callbacks, before the others go. */
static void end_engine(struct mooi_tcp *engine)
{
    atomic_store(&engine->closing, 1);
    mooi_tcp_loop_close(&engine->own);
    for (uint32_t i = 0; i < engine->others; i++)
        mooi_tcp_loop_close(&engine->other[i]);
    mooi_tcp_unwatch(engine, &engine->listener);
    pthread_cond_destroy(&engine->changed);
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

    if (options->stripes > MOO_STRIPES_MAX ||
        options->threads > MOO_THREADS_MAX)
        return MOO_EINVAL;
    engine = new_engine(options, events);
    if (!engine)
        return MOO_ENOMEM;
    err = open_files(engine, options->bind);
    if (err == MOO_OK)
        err = start(engine);
    if (err != MOO_OK) {
        reason = errno;
        end_engine(engine);
        errno = reason;
        return err;
    }
    *out = engine;
    return MOO_OK;
}

void mooi_tcp_close(struct mooi_tcp *engine)
{
    end_engine(engine);
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

/* The epoll instances are the parent's too: nothing may be taken out. */
static void disown_link(struct mooi_tcp_link *link)
{
    for (uint16_t i = 0; i < link->count; i++)
        close_only(&link->stripes[i].watched.fd);
    close_only(&link->dialing.fd);
    for (size_t i = 0; i < link->dial.count; i++)
        close_only(&link->dial.fd[i]);
    link->dial.poll = -1;
}

static void disown_loop(struct mooi_tcp_loop *loop)
{
    close_only(&loop->wake.fd);
    close_only(&loop->epoll);
}

void mooi_tcp_disown(struct mooi_tcp *engine)
{
    for (struct mooi_tcp_link *link = engine->links; link; link = link->next)
        disown_link(link);
    for (int i = 0; i < MOOI_TCP_UNPROVED; i++)
        close_only(&engine->strangers[i].watched.fd);
    close_only(&engine->listener.fd);
    disown_loop(&engine->own);
    for (uint32_t i = 0; i < engine->others; i++)
        disown_loop(&engine->other[i]);
    mooi_tcp_unlock(engine);
}
