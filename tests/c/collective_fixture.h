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

/* The agent of the ranks' host, and its thread. */
struct agent {
    moo_group_agent *group;
    int stop;
    pthread_t thread;
};

static inline void *agent_main(void *argument)
{
    struct agent *agent = argument;
    struct pollfd entries[2] = {
        {.fd = moo_group_agent_fd(agent->group), .events = POLLIN},
        {.fd = agent->stop, .events = POLLIN}};
    while (poll(entries, 2, -1) < 0 || !entries[1].revents)
        moo_group_agent_look(agent->group);
    return NULL;
}

struct ranks {
    int fd;
    struct agent *agent;
    struct mooi_segment *segment; /* one mapping, as sanitizers go by address */
    uint32_t size, min_size;
    double timeout;
    uint32_t hosts; /* that the ranks pretend to be on; 0: one, unnamed */
    uint32_t transports;
    uint32_t stripes; /* that one of them wants; 0: the default */
    bool checks; /* one of them wants checksums */
    _Atomic uint32_t joined;
    rank_function *function;
    void *shared;
};

/* Without a thread for the agent. */
static inline struct ranks ranks_alone(uint32_t size, uint32_t min_size)
{
    struct ranks ranks = {.size = size, .min_size = min_size, .timeout = 60};
    ranks.fd = memfd_create("group", MFD_CLOEXEC);
    CHECK(ranks.fd >= 0);
    CHECK(!ftruncate(ranks.fd, (off_t)moo_group_segment_bytes()));
    CHECK(mooi_segment_map(ranks.fd, &ranks.segment) == MOO_OK);
    ranks.agent = calloc(1, sizeof *ranks.agent);
    ranks.agent->stop = -1;
    CHECK(mooi_agent_open_at(ranks.segment, &ranks.agent->group) == MOO_OK);
    return ranks;
}

static inline struct ranks ranks_new(uint32_t size, uint32_t min_size)
{
    struct ranks ranks = ranks_alone(size, min_size);
    ranks.agent->stop = eventfd(0, EFD_CLOEXEC);
    CHECK(ranks.agent->stop >= 0);
    CHECK(!pthread_create(&ranks.agent->thread, NULL, agent_main,
                          ranks.agent));
    return ranks;
}

static inline void agent_end(struct agent *agent)
{
    if (agent->stop >= 0) {
        CHECK(!eventfd_write(agent->stop, 1));
        CHECK(!pthread_join(agent->thread, NULL));
        close(agent->stop);
    }
    moo_group_agent_close(agent->group);
    free(agent);
}

static inline void ranks_free(struct ranks *ranks)
{
    agent_end(ranks->agent);
    mooi_segment_unmap(ranks->segment);
    close(ranks->fd);
}

static inline moo_group *join(struct ranks *ranks)
{
    moo_group *group;
    char host[16];
    uint32_t turn = ranks->joined++;
    snprintf(host, sizeof host, "host %u", ranks->hosts ? turn % ranks->hosts : 0);
    moo_group_options options = {.host = host,
                                 .transports = ranks->transports,
                                 .checksum = ranks->checks && turn == 0,
                                 .stripes = turn == 0 ? ranks->stripes : 0};
    CHECK(mooi_join_at(ranks->segment,
                       moo_group_agent_bell(ranks->agent->group), 1,
                       ranks->min_size, ranks->timeout, &options,
                       &group) == MOO_OK);
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
