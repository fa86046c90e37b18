/* SPDX-License-Identifier: MIT */
/*
 * engine.h: the engine of tcp.h, as its files see it. In reading order:
 *
 *   engine.c    an engine and its threads
 *   contact.c   connections until both ends are authenticated
 *   link.c      how links begin and end, in both directions
 *   stripe.c    one connection: messages, and an owner's answers
 *   importer.c  fetches: chunks requested, and their data
 *
 * One lock guards an engine, and is held for short: while sockets are opened
 * and closed (so that a fork finds all of them), and while fetches, asks and
 * small messages are queued. Bulk is sent and received without it, by one
 * thread for each connection: the engine's own, *the* thread, or one of the
 * others, if there are any, that it hands bulk connections to. Fields that
 * only one thread uses say so. No thread holds the lock while it calls back.
 *
 * A link ends on the engine's own thread and nowhere else
 * (mooi_tcp_end_broken), while the others are halted. A thread that finds a
 * link broken marks it and wakes the engine's own.
 */
#ifndef MOOI_TCP_ENGINE_H
#define MOOI_TCP_ENGINE_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/epoll.h>

#include "transport/tcp/tcp.h"

#define MOOI_TCP_STRIPES 2 /* the default */
/* To epoll: report nothing but the end. */
#define MOOI_TCP_QUIET EPOLLET

struct mooi_tcp_link;
struct mooi_tcp_loop;
struct mooi_tcp_stranger;

/* The value that epoll returns: the first member of each struct with a
 * descriptor. */
struct mooi_tcp_watched {
    int fd; /* -1: none */
    uint32_t events;
    struct mooi_tcp_loop *loop; /* NULL: the engine's own */
    void (*ready)(struct mooi_tcp *engine, struct mooi_tcp_watched *self,
                  uint32_t events);
};

/* A thread, and the descriptors that it looks after. */
struct mooi_tcp_loop {
    struct mooi_tcp *engine;
    pthread_t thread;
    int running; /* it was started */
    int epoll;
    struct mooi_tcp_watched wake;
    int inside; /* not the own one: events were taken, and are dealt with */
};

struct mooi_tcp {
    struct mooi_tcp_options options;
    struct mooi_tcp_events events;
    pthread_mutex_t lock;
    /* a thread has stopped writing to a fetch's memory, or has left; or the
     * others may go on */
    pthread_cond_t changed;
    struct mooi_tcp_loop own, other[MOO_THREADS_MAX];
    uint32_t others, next_other;
    int halted; /* the others stay outside */
    struct mooi_tcp_watched listener;
    atomic_int closing;
    int listener_rests; /* no descriptors left: until the next tick */
    struct mooi_tcp_link *links, *ended;
    struct mooi_tcp_stranger *strangers; /* MOOI_TCP_UNPROVED, contact.h */
    uint64_t next_tick_ns; /* the thread only */
    atomic_uint_fast64_t served, received_bytes, refused;
};

/* Have the thread look at everything. */
void mooi_tcp_wake(struct mooi_tcp *engine);

/* Let epoll report `events` of a descriptor; lock held. The first time adds
 * it. MOO_ESYS: see errno. */
moo_err mooi_tcp_watch(struct mooi_tcp *engine,
                       struct mooi_tcp_watched *watched, uint32_t events);

/* Let epoll report nothing of it any more; lock held. */
void mooi_tcp_look_away(struct mooi_tcp *engine,
                        struct mooi_tcp_watched *watched);

/* The same, close the descriptor and forget it. Safe to call twice. */
void mooi_tcp_unwatch(struct mooi_tcp *engine,
                      struct mooi_tcp_watched *watched);

/* Hand it to one of the other threads, if there are any; on the thread, lock
 * held. As mooi_tcp_watch. */
moo_err mooi_tcp_hand_over(struct mooi_tcp *engine,
                           struct mooi_tcp_watched *watched);

/* Wait until no other thread has an event or works on a link, and keep them
 * out; on the thread, lock held, which is let go meanwhile. Only callbacks can
 * block them. */
void mooi_tcp_halt_others(struct mooi_tcp *engine);
void mooi_tcp_let_others_go_on(struct mooi_tcp *engine);

static inline void mooi_tcp_lock(struct mooi_tcp *engine)
{
    pthread_mutex_lock(&engine->lock);
}

static inline void mooi_tcp_unlock(struct mooi_tcp *engine)
{
    pthread_mutex_unlock(&engine->lock);
}

#endif
