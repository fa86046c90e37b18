/* SPDX-License-Identifier: MIT */
/*
 * internal.h: the engine of tcp.h, as its files see it.
 *
 *   engine.c    open, close, forks
 *   loop.c      its threads, and what each looks after
 *   connect.c   the owner's connections until they are proved
 *   accept.c    the importer's
 *   link.c      what is common to both directions, and how links end
 *   stripe.c    one connection: messages in, small messages out
 *   owner.c     answering what the importer asks for
 *   fetch.c     fetches, asked for chunk by chunk
 *   importer.c  what comes for them
 *   watch.c     deadlines, pings, silence
 *
 * One lock guards an engine, and is held for short: while sockets are opened
 * and closed (so that a fork finds all of them), and while fetches, asks and
 * small messages are queued. Bulk is sent and received without it, by one
 * thread for each connection: the engine's own, *the* thread, or one of the
 * others that it hands bulk connections to, if there are any. Fields that only
 * one thread uses say so. No thread holds the lock while it calls back.
 *
 * A link ends on the engine's own thread and nowhere else
 * (mooi_tcp_end_broken), while the others are halted. Who finds it broken marks
 * it and wakes that thread.
 */
#ifndef MOOI_TCP_INTERNAL_H
#define MOOI_TCP_INTERNAL_H

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/epoll.h>

#include "transport/tcp/dial.h"
#include "transport/tcp/handshake.h"
#include "transport/tcp/message.h"
#include "transport/tcp/tcp.h"

#define MOOI_TCP_STRIPES 2 /* the default */
#define MOOI_TCP_CHUNK ((uint32_t)512 << 10)
/* Chunks asked for ahead on one bulk connection. */
#define MOOI_TCP_AHEAD 2
#define MOOI_TCP_UNPROVED 64 /* accepted connections, proving themselves */
#define MOOI_TCP_OUTBOX_MAX ((size_t)4 << 20)
/* Whoever does not acknowledge for so long is gone. A ping leaves within two
 * ticks of a cut, so it is found within 3 s; see mooi_socket_is_silent for what
 * is waited for longer, which makes it 5 s at most. */
#define MOOI_TCP_SILENT_MS 1250
/* Who does not speak up meanwhile may be stopped: its buffer is not filled with
 * more pings. From then on the kernel asks, see mooi_socket_ask. */
#define MOOI_TCP_PINGS 16
#define MOOI_TCP_TICK_CONTACT_MS 50
#define MOOI_TCP_TICK_BUSY_MS 250
#define MOOI_TCP_TICK_IDLE_MS 400
/* To epoll: report nothing but the end. */
#define MOOI_TCP_QUIET EPOLLET

/* ---- lists ---- */

/* A ring with its head in it; a node that is in none points to itself. */
struct mooi_tcp_node {
    struct mooi_tcp_node *next, *previous;
};

static inline void mooi_tcp_node_init(struct mooi_tcp_node *node)
{
    node->next = node->previous = node;
}

static inline void mooi_tcp_node_out(struct mooi_tcp_node *node)
{
    node->next->previous = node->previous;
    node->previous->next = node->next;
    mooi_tcp_node_init(node);
}

static inline void mooi_tcp_node_last(struct mooi_tcp_node *ring,
                                      struct mooi_tcp_node *node)
{
    node->next = ring;
    node->previous = ring->previous;
    ring->previous->next = node;
    ring->previous = node;
}

#define MOOI_TCP_OF(type, member, pointer) \
    ((type *)(void *)((char *)(pointer) - offsetof(type, member)))

/* What epoll knows: the first member of whatever has a descriptor. */
struct mooi_tcp_watched {
    int fd; /* -1: none */
    uint32_t events;
    struct mooi_tcp_loop *loop; /* NULL: the engine's own */
    void (*ready)(struct mooi_tcp *engine, struct mooi_tcp_watched *self,
                  uint32_t events);
};

/* ---- importer ---- */

struct mooi_tcp_fetch {
    struct mooi_tcp_node all;     /* of its link */
    struct mooi_tcp_node waiting; /* to be asked for; else in no ring */
    void *cookie;
    struct mooi_lease_name name;
    uint64_t offset, length;
    char *into;
    uint64_t asked, received; /* bytes */
    uint32_t receiving;       /* so many threads are writing to `into` */
};

/* A part of a fetch that was asked for. */
struct mooi_tcp_ask {
    struct mooi_tcp_fetch *fetch; /* NULL: ended meanwhile; throw away */
    char *into;
    uint32_t tag, length;
    uint8_t flags;
};

/* ---- a connection ---- */

struct mooi_tcp_outbox {
    uint8_t *bytes;
    size_t first, end, room;
};

struct mooi_tcp_stripe {
    struct mooi_tcp_watched watched; /* first */
    struct mooi_tcp_link *link;
    uint16_t index; /* 0: express */
    int proved;
    struct mooi_handshake *greeting; /* connector, until proved */

    struct mooi_tcp_outbox out;
    int sending;  /* in the middle of DATA: nothing may come between */
    int unserved; /* asks are left that the thread is to answer */

    /* receiving, its loop only: the next head, and what of the present
     * message's body is still to come */
    uint8_t head[MOOI_TCP_HEAD_BYTES];
    uint32_t head_got;
    struct mooi_tcp_message present;
    uint32_t left, checksum;
    uint8_t note[MOOI_TCP_NOTE_BYTES];

    /* importer: asked and not answered, in order */
    struct mooi_tcp_ask asks[MOOI_TCP_DEPTH];
    uint32_t asks_first, asks_count, asked_bytes, next_tag;

    /* owner, its loop only: to be answered, in order; the first one's answer
     * is under way if `sending` */
    struct mooi_tcp_message todo[MOOI_TCP_DEPTH];
    uint32_t todo_first, todo_count;
    uint8_t answer[MOOI_TCP_HEAD_BYTES];
    uint32_t answered; /* bytes of it, head included */
    const char *data;
    int sourced; /* the data are out */

    atomic_int heard; /* anything, since the last tick */
    /* the thread only */
    int kept_short; /* mooi_socket_keep_short was done */
    int pings; /* in a row, with nothing heard */
    int asking; /* mooi_socket_ask is on */
    struct mooi_silence silence;
};

/* ---- a link ---- */

enum mooi_tcp_state {
    MOOI_TCP_DIALING,   /* owner: the express connection is sought */
    MOOI_TCP_GATHERING, /* both: the others are not all there */
    MOOI_TCP_UP,
    MOOI_TCP_DOWN
};

struct mooi_tcp_link {
    struct mooi_tcp *engine;
    struct mooi_tcp_link *next; /* of the engine, or of its graveyard */
    atomic_uint holds;
    uint64_t peer, token;
    int incoming; /* we are the importer */
    enum mooi_tcp_state state;
    moo_err broken;       /* MOO_OK: not; else the thread will end it */
    int announced;        /* `down` is owed */
    int abandoned;        /* nobody is there to be told the end in order */
    uint64_t deadline_ns; /* to come up */
    uint64_t answer_ns;   /* somebody must have answered by then */
    char reason[400];

    /* connector, until the express connection is proved */
    struct mooi_tcp_watched dialing; /* the dial's descriptor */
    struct mooi_dial dial;
    size_t which;            /* of the dial's addresses is being greeted */
    uint64_t greeted_ns;     /* since when; 0: nobody has accepted yet */

    /* fetches: all; small ones to be asked for; others with more to ask for,
     * which take turns */
    struct mooi_tcp_node all, small, bulk;
    uint64_t fetches, asked_bytes;
    uint16_t count; /* of stripes, the express connection included */
    struct mooi_tcp_stripe stripes[];
};

/* A connection that was accepted and has proved nothing yet. */
struct mooi_tcp_stranger {
    struct mooi_tcp_watched watched; /* first */
    uint64_t since_ns;
    struct mooi_handshake handshake;
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
    /* a thread does not write to a fetch's memory any more, or is not inside;
     * or the others may go on */
    pthread_cond_t changed;
    struct mooi_tcp_loop own, other[MOO_THREADS_MAX];
    uint32_t others, next_other;
    int halted; /* the others stay outside */
    struct mooi_tcp_watched listener;
    atomic_int closing;
    int listener_rests; /* no descriptors left: until the next tick */
    struct mooi_tcp_link *links, *graveyard;
    struct mooi_tcp_stranger strangers[MOOI_TCP_UNPROVED];
    uint64_t next_tick_ns; /* the thread only */
    atomic_uint_fast64_t served, received_bytes, refused;
};

/* ---- engine.c ---- */

/* End everything; on the thread, no lock held. */
void mooi_tcp_end_all(struct mooi_tcp *engine);

/* ---- loop.c ---- */

/* A loop is first `init`, which cannot fail, and `close` may follow whatever
 * came of the rest. MOO_ESYS: see errno. */
void mooi_tcp_loop_init(struct mooi_tcp *engine, struct mooi_tcp_loop *loop);
moo_err mooi_tcp_loop_open(struct mooi_tcp_loop *loop);
moo_err mooi_tcp_loop_start(struct mooi_tcp_loop *loop);
/* Wait for its thread, which `closing` has told to end, and free all. */
void mooi_tcp_loop_close(struct mooi_tcp_loop *loop);

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

/* From now on another thread looks after it, if there are any; on the thread,
 * lock held. As mooi_tcp_watch. */
moo_err mooi_tcp_hand_over(struct mooi_tcp *engine,
                           struct mooi_tcp_watched *watched);

/* Wait until no other thread has an event, or is doing anything for a link, and
 * keep them so; on the thread, lock held, which is let go meanwhile. They do
 * not block, but for callbacks. */
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

/* ---- connect.c, accept.c; on the thread, no lock held ---- */

void mooi_tcp_accept_ready(struct mooi_tcp *engine,
                           struct mooi_tcp_watched *listener, uint32_t events);
/* Go on with a link's dial; lock held. */
void mooi_tcp_dial_go_on(struct mooi_tcp_link *link);
void mooi_tcp_dial_end(struct mooi_tcp_link *link);
/* Do not wait for ever for one who accepted and says nothing; lock held. */
void mooi_tcp_greeting_late(struct mooi_tcp_link *link, uint64_t now);
/* Hang up on strangers that took too long, or on all. */
void mooi_tcp_strangers_reap(struct mooi_tcp *engine, int all);

static inline uint32_t
mooi_tcp_handshake_events(const struct mooi_handshake *handshake)
{
    return mooi_handshake_wants(handshake) == POLLIN ? EPOLLIN : EPOLLOUT;
}

/* ---- link.c ---- */

/* A new link with no connection yet, in the engine's list; lock held. NULL: no
 * memory. */
struct mooi_tcp_link *mooi_tcp_link_new(struct mooi_tcp *engine, uint64_t peer,
                                        uint16_t count, int incoming);

/* A link is to end; any thread, lock held. The first reason counts; `text` is
 * one sentence, or NULL for what `why` means. */
void mooi_tcp_break(struct mooi_tcp_link *link, moo_err why, const char *text);

/* Whether it can be used; lock held. */
static inline int mooi_tcp_is_up(const struct mooi_tcp_link *link)
{
    return link->state == MOOI_TCP_UP && link->broken == MOO_OK;
}

/* One more connection is proved; lock held. Returns whether that was all. */
int mooi_tcp_gather(struct mooi_tcp_stripe *stripe);

/* End all broken links, with callbacks; on the thread, no lock held. */
void mooi_tcp_end_broken(struct mooi_tcp *engine);

/* All connections of a link are proved; on the thread, no lock held. */
void mooi_tcp_bring_up(struct mooi_tcp_link *link);

/* Free what ended, when no event can name it any more. */
void mooi_tcp_bury(struct mooi_tcp *engine);

/* ---- stripe.c ---- */

void mooi_tcp_stripe_ready(struct mooi_tcp *engine,
                           struct mooi_tcp_watched *watched, uint32_t events);

/* Queue a small message, `body` being that of a NOTE; lock held. MOO_ENOMEM. */
moo_err mooi_tcp_post(struct mooi_tcp_stripe *stripe,
                      const struct mooi_tcp_message *message,
                      const uint8_t *body);

/* Send what is queued, as far as it goes, unless DATA is under way, and watch
 * for what is left; lock held. A failure breaks the link. */
void mooi_tcp_flush(struct mooi_tcp_stripe *stripe);

/* Take note of what a receive brought: first the body's part, then the head's;
 * its loop only. */
void mooi_tcp_took(struct mooi_tcp_stripe *stripe, size_t moved);

/* ---- owner.c: on the stripe's thread, no lock held ---- */

moo_err mooi_tcp_serve_later(struct mooi_tcp_stripe *stripe,
                             const struct mooi_tcp_message *ask);
/* Answer until nothing is left, the socket is full, or it is others' turn. */
moo_err mooi_tcp_serve(struct mooi_tcp_stripe *stripe);
/* The link has ended: give back the source that is out; on the thread. */
void mooi_tcp_serve_no_more(struct mooi_tcp_stripe *stripe);

/* ---- fetch.c; lock held ---- */

/* Ask for as much as credit and connections allow. */
void mooi_tcp_ask_more(struct mooi_tcp_link *link);
/* Let go of a fetch, which is freed: nothing touches its memory from here on.
 * Returns its cookie. */
void *mooi_tcp_fetch_end(struct mooi_tcp_link *link,
                         struct mooi_tcp_fetch *fetch);

/* ---- importer.c ---- */

/* On the stripe's thread, no lock held. An answer's head came. */
moo_err mooi_tcp_data_begins(struct mooi_tcp_stripe *stripe);
moo_err mooi_tcp_refused(struct mooi_tcp_stripe *stripe);
/* Receive what is to follow, and the next head with it. *drained: there is no
 * more. As mooi_socket_receive. */
moo_err mooi_tcp_receive_data(struct mooi_tcp_stripe *stripe, int *drained);
/* All of the answer has come. */
moo_err mooi_tcp_data_ends(struct mooi_tcp_stripe *stripe);
/* The link has ended: end all its fetches; on the thread, no lock held. */
void mooi_tcp_fetches_fail(struct mooi_tcp_link *link, moo_err why);

/* ---- watch.c ---- */

/* Look after everything, if it is time; on the thread, no lock held. Returns
 * for how many milliseconds to sleep at most; -1: for ever. */
int mooi_tcp_tick(struct mooi_tcp *engine);

#endif
