/* SPDX-License-Identifier: MIT */
/*
 * tcp_fixture.h: engines for the tests and the benchmark, with memory to serve
 * and a record of what was reported.
 */
#ifndef TCP_FIXTURE_H
#define TCP_FIXTURE_H

#include <pthread.h>

#include "check.h"
#include "core/clock.h"
#include "transport/tcp/tcp.h"

#define SLABS 8

/* One process's side: what it owns, and what it was told. */
struct side {
    struct mooi_tcp *engine;
    uint64_t id;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* owner: lease.slab says which; lease.lease must be 7, else it is stale */
    const char *memory[SLABS];
    uint64_t bytes[SLABS];
    struct mooi_tcp_link *link; /* the newest that is up */
    int ups, downs, controls, releases, sourced, sources;
    pthread_t asked_by[MOO_THREADS_MAX + 1]; /* threads that wanted a source */
    int askers;
    moo_err why; /* of the last down */
    char reason[400];
    uint8_t control[MOOI_TCP_CONTROL_BYTES];
    size_t control_bytes;
};

/* One fetch; its address is the cookie. */
struct wanted {
    struct side *side;
    int done;
    moo_err result;
};

/* Of engines of which it is not said otherwise. */
static uint32_t threads = 1;

static const uint8_t session_key[MOOI_KEY_BYTES] = "the session key";

static inline void change(struct side *side, int *counter)
{
    pthread_mutex_lock(&side->lock);
    ++*counter;
    pthread_cond_broadcast(&side->changed);
    pthread_mutex_unlock(&side->lock);
}

static inline void on_up(void *context, struct mooi_tcp_link *link,
                         uint64_t peer, int incoming)
{
    struct side *side = context;

    (void)peer;
    (void)incoming;
    pthread_mutex_lock(&side->lock);
    side->link = link;
    pthread_mutex_unlock(&side->lock);
    change(side, &side->ups);
}

static inline void on_down(void *context, struct mooi_tcp_link *link,
                           uint64_t peer, moo_err why)
{
    struct side *side = context;

    (void)peer;
    pthread_mutex_lock(&side->lock);
    if (side->link == link)
        side->link = NULL;
    side->why = why;
    mooi_tcp_reason(link, side->reason, sizeof side->reason);
    pthread_mutex_unlock(&side->lock);
    change(side, &side->downs);
}

static inline void note_asker(struct side *side)
{
    int i = 0;

    pthread_mutex_lock(&side->lock);
    while (i < side->askers && !pthread_equal(side->asked_by[i], pthread_self()))
        i++;
    if (i == side->askers && i <= MOO_THREADS_MAX)
        side->asked_by[side->askers++] = pthread_self();
    pthread_mutex_unlock(&side->lock);
}

static inline moo_err on_source(void *context, uint64_t peer,
                                const struct mooi_lease_name *name,
                                uint64_t offset, uint64_t length,
                                const void **data)
{
    struct side *side = context;

    (void)peer;
    if (name->slab >= SLABS || !side->memory[name->slab] || name->lease != 7 ||
        offset + length > side->bytes[name->slab])
        return MOO_ESTALE;
    note_asker(side);
    change(side, &side->sources);
    *data = side->memory[name->slab] + offset;
    return MOO_OK;
}

static inline void on_sourced(void *context, uint64_t peer,
                              const struct mooi_lease_name *name)
{
    struct side *side = context;

    (void)peer;
    (void)name;
    change(side, &side->sourced);
}

static inline void on_released(void *context, uint64_t peer,
                               const struct mooi_lease_name *name)
{
    struct side *side = context;

    (void)peer;
    (void)name;
    change(side, &side->releases);
}

static inline void on_control(void *context, struct mooi_tcp_link *link,
                              uint64_t peer, const uint8_t *bytes,
                              size_t length)
{
    struct side *side = context;

    (void)link;
    (void)peer;
    pthread_mutex_lock(&side->lock);
    memcpy(side->control, bytes, length);
    side->control_bytes = length;
    pthread_mutex_unlock(&side->lock);
    change(side, &side->controls);
}

static inline void on_fetched(void *context, void *cookie, moo_err result)
{
    struct side *side = context;
    struct wanted *wanted = cookie;

    pthread_mutex_lock(&side->lock);
    CHECK(!wanted->done); /* exactly once */
    wanted->result = result;
    wanted->done = 1;
    pthread_cond_broadcast(&side->changed);
    pthread_mutex_unlock(&side->lock);
}

static inline void open_side(struct side *side, uint64_t id,
                             const struct mooi_tcp_options *special)
{
    struct mooi_tcp_options options = {.id = id};
    struct mooi_tcp_events events = {
        .context = side,       .up = on_up,           .down = on_down,
        .source = on_source,   .sourced = on_sourced, .released = on_released,
        .control = on_control,       .fetched = on_fetched};

    memset(side, 0, sizeof *side);
    pthread_mutex_init(&side->lock, NULL);
    pthread_cond_init(&side->changed, NULL);
    side->id = id;
    memcpy(options.key, session_key, sizeof session_key);
    if (special) {
        options = *special;
        options.id = id;
    }
    if (!options.threads)
        options.threads = threads;
    CHECK(mooi_tcp_open(&options, &events, &side->engine) == MOO_OK);
}

static inline void close_side(struct side *side)
{
    mooi_tcp_close(side->engine);
    CHECK(side->sources == side->sourced);
    pthread_mutex_destroy(&side->lock);
    pthread_cond_destroy(&side->changed);
}

static inline int count_of(struct side *side, const int *counter)
{
    int count;

    pthread_mutex_lock(&side->lock);
    count = *counter;
    pthread_mutex_unlock(&side->lock);
    return count;
}

/* Machines may be busy with other things. */
static int patience_s = 120;

/* Sanitizers make everything slow, above all the start of a process. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

/* Wait until a counter of a side, or a fetch's `done`, is at least `least`. */
#define await(side, counter, least) await_at(side, counter, least, __LINE__)
static inline void await_at(struct side *side, const int *counter, int least,
                            int line)
{
    struct timespec end;

    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += patience_s;
    pthread_mutex_lock(&side->lock);
    while (*counter < least)
        if (pthread_cond_timedwait(&side->changed, &side->lock, &end)) {
            fprintf(stderr, "line %d: %d of %d came; %d up, %d down: %s\n",
                    line, *counter, least, side->ups, side->downs,
                    side->reason);
            exit(1);
        }
    pthread_mutex_unlock(&side->lock);
}

static inline moo_err begin(struct side *side, struct wanted *wanted,
                            uint32_t slab, uint64_t offset, uint64_t length,
                            void *into)
{
    struct mooi_lease_name name = {.slab = slab, .lease = 7, .generation = 1};

    *wanted = (struct wanted){.side = side};
    return mooi_tcp_fetch(side->link, &name, offset, length, into, wanted);
}

static inline moo_err end(struct wanted *wanted)
{
    await(wanted->side, &wanted->done, 1);
    return wanted->result;
}

static inline moo_err fetch(struct side *side, uint32_t slab, uint64_t offset,
                            uint64_t length, void *into)
{
    struct wanted wanted;
    moo_err err = begin(side, &wanted, slab, offset, length, into);

    return err == MOO_OK ? end(&wanted) : err;
}

static inline void own(struct side *side, uint32_t slab, const void *memory,
                       uint64_t bytes)
{
    side->memory[slab] = memory;
    side->bytes[slab] = bytes;
}

static inline void connect_sides(struct side *owner, struct side *importer)
{
    struct mooi_address addresses[8];
    struct mooi_tcp_link *link;
    size_t count = mooi_tcp_addresses(importer->engine, addresses, 8);
    int owner_ups = owner->ups, importer_ups = importer->ups;

    CHECK(mooi_tcp_connect(owner->engine, importer->id, addresses, count,
                           &link) == MOO_OK);
    await(owner, &owner->ups, owner_ups + 1);
    await(importer, &importer->ups, importer_ups + 1);
}

#endif
