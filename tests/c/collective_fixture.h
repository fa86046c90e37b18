/* SPDX-License-Identifier: MIT */
/*
 * Parts that the tests of learner groups share: lists of tensors, groups whose
 * ranks are threads, and a check that says where it failed.
 */
#ifndef COLLECTIVE_FIXTURE_H
#define COLLECTIVE_FIXTURE_H

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include "check.h"
#include "collective/group.h"
#include "collective/process.h"
#include "collective/view.h"
#include "core/clock.h"

#define CHECK_OK(outcome) check_ok((outcome), __FILE__, __LINE__)

static inline void check_ok(moo_outcome outcome, const char *file, int line)
{
    if (outcome.status == MOO_OK)
        return;
    fprintf(stderr, "%s:%d: status %d, rank %u, epoch %u: %s\n", file, line,
            outcome.status, outcome.rank, outcome.epoch, outcome.text);
    exit(1);
}

/* Up to 8 tensors in one block, reduced in place unless `out` is changed. */
struct list {
    uint32_t count;
    size_t elements;
    void *data;
    const void *in[8];
    void *out[8];
    uint64_t bytes[8];
};

static inline struct list list_new(uint32_t count, const size_t *elements,
                                   size_t element_bytes)
{
    struct list list = {.count = count};
    for (uint32_t i = 0; i < count; i++)
        list.elements += elements[i];
    list.data = calloc(list.elements + 1, element_bytes);
    unsigned char *next = list.data;
    for (uint32_t i = 0; i < count; i++) {
        list.bytes[i] = elements[i] * element_bytes;
        list.in[i] = list.out[i] = next;
        next += list.bytes[i];
    }
    return list;
}

static inline void list_free(struct list *list)
{
    free(list->data);
}

static inline moo_work *submit(moo_group *group, moo_group_kind kind,
                               moo_dtype dtype, moo_reduction op,
                               uint32_t root, const struct list *list)
{
    moo_work *work = NULL;
    moo_request request = {.kind = kind, .dtype = dtype, .op = op,
                           .root = root, .count = list ? list->count : 0};
    if (list) {
        request.inputs = list->in;
        request.outputs = list->out;
        request.bytes = list->bytes;
        for (uint32_t i = 0; i < list->count; i++)
            TELL_WRITTEN((void *)list->in[i], list->bytes[i]);
    }
    CHECK(moo_group_submit(group, &request, 1, &work) == MOO_OK);
    return work;
}

static inline moo_outcome finish_work(moo_work *work)
{
    moo_outcome outcome;
    while (moo_work_wait(work, 10, &outcome) == MOO_ETIMEOUT)
        ;
    moo_work_free(work);
    return outcome;
}

/* As finish_work; and how many took part. */
static inline moo_outcome finish_and_count(moo_work *work, uint32_t *count)
{
    moo_member members[MOO_GROUP_MAX];
    moo_outcome outcome;
    while (moo_work_wait(work, 10, &outcome) == MOO_ETIMEOUT)
        ;
    moo_work_members(work, members, count);
    moo_work_free(work);
    return outcome;
}

static inline moo_outcome run(moo_group *group, moo_group_kind kind,
                              moo_dtype dtype, moo_reduction op, uint32_t root,
                              const struct list *list)
{
    moo_outcome outcome =
        finish_work(submit(group, kind, dtype, op, root, list));
    if (list && outcome.status == MOO_OK)
        for (uint32_t i = 0; i < list->count; i++)
            TELL_READ(list->out[i], list->bytes[i]);
    return outcome;
}

static inline moo_outcome run_one(moo_group *group, moo_group_kind kind,
                                  const void *in, size_t in_bytes, void *out,
                                  size_t out_bytes)
{
    moo_work *work = NULL;
    const void *inputs[1] = {in};
    void *outputs[1] = {out};
    uint64_t bytes[1] = {in_bytes};
    moo_request request = {.kind = kind, .dtype = MOO_DT_F64,
                           .op = MOO_OP_SUM, .count = 1, .inputs = inputs,
                           .outputs = outputs, .bytes = bytes,
                           .output_bytes = out_bytes};
    moo_outcome outcome;
    TELL_WRITTEN((void *)in, in_bytes);
    CHECK(moo_group_submit(group, &request, 1, &work) == MOO_OK);
    outcome = finish_work(work);
    if (outcome.status == MOO_OK)
        TELL_READ(out, out_bytes);
    return outcome;
}

static inline moo_outcome barrier(moo_group *group)
{
    return run(group, MOO_GROUP_BARRIER, MOO_DT_F32, MOO_OP_SUM, 0, NULL);
}

static inline moo_group_info info_of(moo_group *group)
{
    moo_group_info info;
    CHECK(moo_group_describe(group, &info) == MOO_OK);
    return info;
}

/* Descriptors and threads of this process; a thread that has ended goes soon. */
static inline int count_resources(void)
{
    return entries("/proc/self/task") + entries("/proc/self/fd");
}

/* ---- ranks ---- */

typedef void rank_function(moo_group *group, void *shared);

/* A host that the ranks are on, with its own memory and its own agent. */
struct place {
    int fd;
    struct mooi_segment *segment; /* one mapping, as sanitizers go by address */
    moo_group_agent *agent;
};

/* The hosts, the group's master, and the thread that carries the frames. */
struct world {
    pthread_mutex_t mutex; /* of all but `stop` and `thread` */
    uint32_t count;
    struct place places[MOO_GROUP_HOSTS_MAX];
    moo_group_master *master;
    int wake, stop;
    _Atomic bool runs; /* the thread has begun */
    pthread_t thread;
};

static inline void place_new(struct world *world)
{
    struct place *place = &world->places[world->count];
    char name[16];
    snprintf(name, sizeof name, "host %u", world->count);
    place->fd = memfd_create("group", MFD_CLOEXEC);
    CHECK(place->fd >= 0);
    CHECK(!ftruncate(place->fd, (off_t)moo_group_segment_bytes()));
    CHECK(mooi_segment_map(place->fd, &place->segment) == MOO_OK);
    CHECK(mooi_agent_open_at(place->segment, world->count + 1, name,
                             &place->agent) == MOO_OK);
    world->count++;
}

/* Let the agents look, and all frames arrive. */
static inline void world_look(struct world *world)
{
    uint8_t bytes[MOO_GROUP_FRAME_BYTES];
    size_t length;
    uint32_t host;
    bool moved = true;
    pthread_mutex_lock(&world->mutex);
    for (uint32_t i = 0; i < world->count; i++)
        moo_group_agent_look(world->places[i].agent);
    while (moved) {
        moved = false;
        for (uint32_t i = 0; i < world->count; i++)
            while ((length = moo_group_agent_next(world->places[i].agent,
                                                  bytes))) {
                CHECK(moo_group_master_take(world->master, i + 1, bytes,
                                            length) == MOO_OK);
                moved = true;
            }
        while ((length = moo_group_master_next(world->master, &host, bytes)))
            CHECK(moo_group_agent_take(world->places[host - 1].agent, bytes,
                                       length) == MOO_OK);
    }
    pthread_mutex_unlock(&world->mutex);
}

static inline void *world_main(void *argument)
{
    struct world *world = argument;
    struct pollfd entries[MOO_GROUP_HOSTS_MAX + 2];
    uint64_t rings;
    atomic_store(&world->runs, true);
    for (;;) {
        entries[0] = (struct pollfd){.fd = world->stop, .events = POLLIN};
        entries[1] = (struct pollfd){.fd = world->wake, .events = POLLIN};
        pthread_mutex_lock(&world->mutex);
        uint32_t count = world->count;
        for (uint32_t i = 0; i < count; i++)
            entries[i + 2] = (struct pollfd){
                .fd = moo_group_agent_fd(world->places[i].agent),
                .events = POLLIN};
        pthread_mutex_unlock(&world->mutex);
        poll(entries, count + 2, -1);
        if (entries[0].revents)
            return NULL;
        if (entries[1].revents)
            CHECK(read(world->wake, &rings, sizeof rings) > 0);
        world_look(world);
    }
}

struct ranks {
    struct world *world;
    uint32_t size, min_size;
    double timeout;
    uint32_t transports;
    uint32_t stripes; /* that one of them wants; 0: the default */
    bool checks; /* one of them wants checksums */
    bool finishes;
    _Atomic uint32_t joined;
    rank_function *function;
    void *shared;
};

/* Without a thread that carries the frames. */
static inline struct ranks ranks_alone(uint32_t size, uint32_t min_size)
{
    struct ranks ranks = {.size = size, .min_size = min_size, .timeout = 60};
    struct world *world = ranks.world = calloc(1, sizeof *world);
    pthread_mutex_init(&world->mutex, NULL);
    world->wake = world->stop = -1;
    CHECK(moo_group_master_open(&world->master) == MOO_OK);
    place_new(world);
    return ranks;
}

static inline struct ranks ranks_new(uint32_t size, uint32_t min_size)
{
    struct ranks ranks = ranks_alone(size, min_size);
    struct world *world = ranks.world;
    world->stop = eventfd(0, EFD_CLOEXEC);
    world->wake = eventfd(0, EFD_CLOEXEC);
    CHECK(world->stop >= 0 && world->wake >= 0);
    CHECK(!pthread_create(&world->thread, NULL, world_main, world));
    while (!atomic_load(&world->runs))
        sched_yield(); /* see fork_rank */
    return ranks;
}

/* Those who join from now on are on so many hosts, in turn; 0: on one. */
static inline void spread(struct ranks *ranks, uint32_t hosts)
{
    struct world *world = ranks->world;
    pthread_mutex_lock(&world->mutex);
    while (world->count < hosts)
        place_new(world);
    pthread_mutex_unlock(&world->mutex);
    if (world->wake >= 0)
        CHECK(!eventfd_write(world->wake, 1));
}

static inline void ranks_free(struct ranks *ranks)
{
    struct world *world = ranks->world;
    if (world->stop >= 0) {
        CHECK(!eventfd_write(world->stop, 1));
        CHECK(!pthread_join(world->thread, NULL));
        close(world->stop);
        close(world->wake);
    }
    for (uint32_t i = 0; i < world->count; i++) {
        moo_group_agent_close(world->places[i].agent);
        mooi_segment_unmap(world->places[i].segment);
        close(world->places[i].fd);
    }
    moo_group_master_close(world->master);
    free(world);
}

/* As fork, while the thread of the agents is nowhere: least of all in a
 * sanitizer's allocator, whose locks the child would have for ever. */
static inline pid_t fork_rank(struct ranks *ranks)
{
    pthread_mutex_lock(&ranks->world->mutex);
    pid_t pid = fork();
    CHECK(pid >= 0);
    pthread_mutex_unlock(&ranks->world->mutex);
    return pid;
}

static inline moo_err join_at(struct ranks *ranks, uint32_t place,
                              const moo_group_options *options,
                              moo_group **group)
{
    struct place *at = &ranks->world->places[place];
    return mooi_join_at(at->segment, moo_group_agent_bell(at->agent), 1,
                        ranks->min_size, ranks->timeout, options, group);
}

static inline moo_group *join(struct ranks *ranks)
{
    moo_group *group;
    uint32_t turn = ranks->joined++;
    moo_group_options options = {.transports = ranks->transports,
                                 .finishes = ranks->finishes,
                                 .checksum = ranks->checks && turn == 0,
                                 .stripes = turn == 0 ? ranks->stripes : 0};
    CHECK(join_at(ranks, turn % ranks->world->count, &options, &group) ==
          MOO_OK);
    while (moo_group_ready(group, 10) == MOO_ETIMEOUT)
        ;
    return group;
}

/* A member is in from the moment when the group has min_size members, which
 * may be before the last rank came. Return after a barrier of all. */
static inline moo_group *join_all(struct ranks *ranks)
{
    moo_group *group = join(ranks);
    uint32_t size = 0;
    while (size < ranks->size) {
        size = info_of(group).size;
        CHECK_OK(barrier(group));
    }
    return group;
}

static inline void *rank_main(void *argument)
{
    struct ranks *ranks = argument;
    moo_group *group = join_all(ranks);
    ranks->function(group, ranks->shared);
    moo_group_leave(group);
    return NULL;
}

/* Run `function` once per rank, each in a thread of its own. */
static inline void ranks_run(struct ranks *ranks, rank_function *function,
                             void *shared)
{
    pthread_t threads[MOO_GROUP_MAX];
    ranks->function = function;
    ranks->shared = shared;
    for (uint32_t i = 0; i < ranks->size; i++)
        CHECK(!pthread_create(&threads[i], NULL, rank_main, ranks));
    for (uint32_t i = 0; i < ranks->size; i++)
        CHECK(!pthread_join(threads[i], NULL));
}

#endif
