/* SPDX-License-Identifier: MIT */
/*
 * loop.c: loops, each a thread with an epoll instance. The engine's own
 * does everything but what the others take off it: to send and receive on bulk
 * connections of links that stand.
 *
 * An event names a connection by its address, so nothing may be freed while a
 * loop has one that it has not looked at. The own loop frees between two
 * batches; the others take their events and deal with them *inside*, and the
 * own one waits until all are outside before it ends a link.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/threads.h"
#include "transport/tcp/internal.h"

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

/* What was handed over while its event was in the batch is others' business. */
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

static void *run_own(void *argument)
{
    struct mooi_tcp_loop *loop = argument;
    struct mooi_tcp *engine = loop->engine;

    while (!atomic_load(&engine->closing)) {
        int timeout_ms = mooi_tcp_tick(engine);
        mooi_tcp_end_broken(engine);
        mooi_tcp_bury(engine);
        dispatch(loop, timeout_ms);
    }
    mooi_tcp_end_all(engine);
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

/* ---- beginning and end ---- */

void mooi_tcp_loop_init(struct mooi_tcp *engine, struct mooi_tcp_loop *loop)
{
    loop->engine = engine;
    loop->epoll = loop->wake.fd = -1;
    loop->wake.loop = loop;
    loop->wake.ready = wake_ready;
}

moo_err mooi_tcp_loop_open(struct mooi_tcp_loop *loop)
{
    loop->epoll = epoll_create1(EPOLL_CLOEXEC);
    loop->wake.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (loop->epoll < 0 || loop->wake.fd < 0)
        return MOO_ESYS;
    return mooi_tcp_watch(loop->engine, &loop->wake, EPOLLIN);
}

moo_err mooi_tcp_loop_start(struct mooi_tcp_loop *loop)
{
    int own = loop == &loop->engine->own;
    moo_err err = mooi_thread_create(&loop->thread, own ? run_own : run_other,
                                     loop);

    loop->running = err == MOO_OK;
    return err;
}

void mooi_tcp_loop_close(struct mooi_tcp_loop *loop)
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
