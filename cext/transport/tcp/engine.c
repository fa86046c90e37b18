/* SPDX-License-Identifier: MIT */
/*
 * engine.c: an engine, its threads, and forks.
 *
 * A loop is a thread with an epoll instance. The engine's own does everything;
 * the others, if there are any, send and receive on bulk connections of links
 * that are up.
 *
 * An event names a connection by its address, so nothing may be freed while a
 * loop has one that it has not looked at. The own loop frees between two
 * batches; the others take their events and deal with them *inside*, and the
 * own one waits until all are outside before it ends a link.
 */
#include "transport/tcp/engine.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/fd.h"
#include "core/threads.h"
#include "transport/tcp/contact.h"
#include "transport/tcp/link.h"

#define BATCH 64

/* ---- descriptors ---- */

static struct mooi_tcp_loop *loop_of(struct mooi_tcp *engine,
                                     const struct mooi_tcp_watched *watched)
{
    return watched->loop ? watched->loop : &engine->own;
}

moo_err mooi_tcp_watch(struct mooi_tcp *engine,
                       struct mooi_tcp_watched *watched, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = watched};

    if (watched->events == events)
        return MOO_OK;
    if (epoll_ctl(loop_of(engine, watched)->epoll,
                  watched->events ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, watched->fd,
                  &event))
        return MOO_ESYS;
    watched->events = events;
    return MOO_OK;
}

void mooi_tcp_look_away(struct mooi_tcp *engine,
                        struct mooi_tcp_watched *watched)
{
    if (watched->events)
        epoll_ctl(loop_of(engine, watched)->epoll, EPOLL_CTL_DEL, watched->fd,
                  NULL);
    watched->events = 0;
}

void mooi_tcp_unwatch(struct mooi_tcp *engine,
                      struct mooi_tcp_watched *watched)
{
    if (watched->fd < 0)
        return;
    mooi_tcp_look_away(engine, watched);
    close(watched->fd);
    watched->fd = -1;
}

moo_err mooi_tcp_hand_over(struct mooi_tcp *engine,
                           struct mooi_tcp_watched *watched)
{
    uint32_t events = watched->events;

    if (!engine->others)
        return MOO_OK;
    mooi_tcp_look_away(engine, watched);
    watched->loop = &engine->other[engine->next_other++ % engine->others];
    return mooi_tcp_watch(engine, watched, events);
}

/* ---- sleeping and waking ---- */

static void wake(struct mooi_tcp_loop *loop)
{
    uint64_t one = 1;
    ssize_t written;

    do
        written = write(loop->wake.fd, &one, sizeof one);
    while (written < 0 && errno == EINTR);
}

static void wake_ready(struct mooi_tcp *engine, struct mooi_tcp_watched *self,
                       uint32_t events)
{
    uint64_t count;
    ssize_t got = read(self->fd, &count, sizeof count);

    (void)got; /* the loop looks at everything anyway */
    (void)events;
    if (self == &engine->own.wake)
        engine->next_tick_ns = 0;
}

void mooi_tcp_wake(struct mooi_tcp *engine)
{
    wake(&engine->own);
}

/* Skip a connection that was handed over while its event was in the batch. */
static void dispatch(struct mooi_tcp_loop *loop, int timeout_ms)
{
    struct mooi_tcp *engine = loop->engine;
    struct epoll_event event[BATCH];
    int count = epoll_wait(loop->epoll, event, BATCH, timeout_ms);

    for (int i = 0; i < count; i++) {
        struct mooi_tcp_watched *watched = event[i].data.ptr;
        if (watched->fd >= 0 && loop_of(engine, watched) == loop)
            watched->ready(engine, watched, event[i].events);
    }
}

/* On the own thread, no lock held. */
static void end_all(struct mooi_tcp *engine)
{
    mooi_tcp_strangers_reap(engine, 1);
    mooi_tcp_lock(engine);
    for (struct mooi_tcp_link *link = engine->links; link; link = link->next)
        mooi_tcp_break(link, MOO_ECLOSED, NULL);
    mooi_tcp_unlock(engine);
    mooi_tcp_end_broken(engine);
    mooi_tcp_free_ended(engine);
}

static void *run_own(void *argument)
{
    struct mooi_tcp_loop *loop = argument;
    struct mooi_tcp *engine = loop->engine;

    while (!atomic_load(&engine->closing)) {
        int timeout_ms = mooi_tcp_tick(engine);
        mooi_tcp_end_broken(engine);
        mooi_tcp_free_ended(engine);
        dispatch(loop, timeout_ms);
    }
    end_all(engine);
    return NULL;
}

/* ---- the others ---- */

static void go_inside(struct mooi_tcp_loop *loop)
{
    struct mooi_tcp *engine = loop->engine;

    mooi_tcp_lock(engine);
    while (engine->halted)
        pthread_cond_wait(&engine->changed, &engine->lock);
    loop->inside = 1;
    mooi_tcp_unlock(engine);
}

static void come_out(struct mooi_tcp_loop *loop)
{
    struct mooi_tcp *engine = loop->engine;

    mooi_tcp_lock(engine);
    loop->inside = 0;
    if (engine->halted)
        pthread_cond_broadcast(&engine->changed);
    mooi_tcp_unlock(engine);
}

static void *run_other(void *argument)
{
    struct mooi_tcp_loop *loop = argument;
    struct pollfd any = {.fd = loop->epoll, .events = POLLIN};

    while (!atomic_load(&loop->engine->closing)) {
        poll(&any, 1, -1);
        go_inside(loop);
        dispatch(loop, 0);
        come_out(loop);
    }
    return NULL;
}

void mooi_tcp_halt_others(struct mooi_tcp *engine)
{
    engine->halted = 1;
    for (uint32_t i = 0; i < engine->others; i++)
        while (engine->other[i].inside)
            pthread_cond_wait(&engine->changed, &engine->lock);
}

void mooi_tcp_let_others_go_on(struct mooi_tcp *engine)
{
    engine->halted = 0;
    if (engine->others)
        pthread_cond_broadcast(&engine->changed);
}

/* ---- a loop's beginning and end ---- */

/* It cannot fail, and loop_close may always follow. */
static void loop_init(struct mooi_tcp *engine, struct mooi_tcp_loop *loop)
{
    loop->engine = engine;
    loop->epoll = loop->wake.fd = -1;
    loop->wake.loop = loop;
    loop->wake.ready = wake_ready;
}

static moo_err loop_open(struct mooi_tcp_loop *loop)
{
    loop->epoll = epoll_create1(EPOLL_CLOEXEC);
    loop->wake.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (loop->epoll < 0 || loop->wake.fd < 0)
        return MOO_ESYS;
    return mooi_tcp_watch(loop->engine, &loop->wake, EPOLLIN);
}

static moo_err loop_start(struct mooi_tcp_loop *loop)
{
    int own = loop == &loop->engine->own;
    moo_err err = mooi_thread_create(&loop->thread, own ? run_own : run_other,
                                     loop);

    loop->running = err == MOO_OK;
    return err;
}

/* Wait for its thread, which `closing` has told to end, and free all. */
static void loop_close(struct mooi_tcp_loop *loop)
{
    if (loop->running) {
        wake(loop);
        pthread_join(loop->thread, NULL);
    }
    loop->running = 0;
    mooi_tcp_unwatch(loop->engine, &loop->wake);
    if (loop->epoll >= 0)
        close(loop->epoll);
    loop->epoll = -1;
}

/* ---- open and close ---- */

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
    struct mooi_tcp_stranger *strangers =
        calloc(MOOI_TCP_UNPROVED, sizeof *strangers);

    if (!engine || !strangers) {
        free(engine);
        free(strangers);
        return NULL;
    }
    engine->strangers = strangers;
    engine->options = *options;
    engine->options.bind = NULL; /* not ours to keep */
    choose_sizes(engine);
    engine->events = *events;
    loop_init(engine, &engine->own);
    for (uint32_t i = 0; i < engine->others; i++)
        loop_init(engine, &engine->other[i]);
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
    moo_err err = loop_open(&engine->own);

    for (uint32_t i = 0; i < engine->others && err == MOO_OK; i++)
        err = loop_open(&engine->other[i]);
    if (err == MOO_OK)
        err = mooi_socket_listen_within(bind_to, engine->options.first_port,
                                        engine->options.last_port,
                                        &engine->listener.fd);
    if (err == MOO_OK)
        err = mooi_tcp_watch(engine, &engine->listener, EPOLLIN);
    return err;
}

/* The own one last: without the others it does no harm. */
static moo_err start(struct mooi_tcp *engine)
{
    moo_err err = MOO_OK;

    for (uint32_t i = 0; i < engine->others && err == MOO_OK; i++)
        err = loop_start(&engine->other[i]);
    if (err == MOO_OK)
        err = loop_start(&engine->own);
    return err;
}

/* The own one ends all links, with callbacks, before the others go. */
void mooi_tcp_stop(struct mooi_tcp *engine)
{
    atomic_store(&engine->closing, 1);
    loop_close(&engine->own);
    for (uint32_t i = 0; i < engine->others; i++)
        loop_close(&engine->other[i]);
    mooi_tcp_unwatch(engine, &engine->listener);
}

void mooi_tcp_free(struct mooi_tcp *engine)
{
    pthread_cond_destroy(&engine->changed);
    pthread_mutex_destroy(&engine->lock);
    free(engine->strangers);
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
        mooi_tcp_close(engine);
        errno = reason;
        return err;
    }
    *out = engine;
    return MOO_OK;
}

void mooi_tcp_close(struct mooi_tcp *engine)
{
    mooi_tcp_stop(engine);
    mooi_tcp_free(engine);
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

/* The epoll instances are the parent's too: nothing may be taken out. */
static void disown_link(struct mooi_tcp_link *link)
{
    for (uint16_t i = 0; i < link->count; i++)
        mooi_close_fd(&link->stripes[i].watched.fd);
    mooi_close_fd(&link->dialing.fd);
    for (size_t i = 0; i < link->dial.count; i++) {
        mooi_close_fd(&link->dial.fd[i]);
        mooi_close_fd(&link->dial.older[i]);
    }
    link->dial.poll = -1;
}

static void disown_loop(struct mooi_tcp_loop *loop)
{
    mooi_close_fd(&loop->wake.fd);
    mooi_close_fd(&loop->epoll);
}

void mooi_tcp_disown(struct mooi_tcp *engine)
{
    for (struct mooi_tcp_link *link = engine->links; link; link = link->next)
        disown_link(link);
    for (int i = 0; i < MOOI_TCP_UNPROVED; i++)
        mooi_close_fd(&engine->strangers[i].watched.fd);
    mooi_close_fd(&engine->listener.fd);
    disown_loop(&engine->own);
    for (uint32_t i = 0; i < engine->others; i++)
        disown_loop(&engine->other[i]);
    mooi_tcp_unlock(engine);
}
