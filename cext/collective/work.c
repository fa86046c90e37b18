/* SPDX-License-Identifier: MIT */
/*
 * work.c: the queue of a group, and its runner.
 *
 * Operations run in the order queued, one at a time. The *runner* is the
 * thread that runs the first of them: one that waits for a work, which costs
 * no hand-over, or the group's own thread once that was started. A runner
 * works in slices of time and can stop in the middle of an operation, which
 * keeps its place; another thread may go on from there.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collective/group.h"
#include "collective/view.h"
#include "core/clock.h"
#include "core/threads.h"

#define THREAD_SLICE_S 3600.0

/* ---- the runner ---- */

/* Mutex held. Wait for a change; false: `when` is over. */
static bool wait_for_change(moo_group *group, double when)
{
    struct timespec at = mooi_timespec((uint64_t)(1e9 * when));
    return !pthread_cond_timedwait(&group->changed, &group->mutex, &at);
}

static void free_work(moo_work *work)
{
    mooi_spans_fini(&work->spans);
    mooi_roster_rele(work->roster);
    free(work);
}

/* Mutex held. */
static void remove_first(moo_group *group)
{
    moo_work *work = group->head;
    group->head = work->next;
    group->info.pending--;
    work->done = true;
    if (!work->orphan)
        return;
    free_work(work);
    group->holds--; /* never the last: the group itself is one */
}

/* Mutex held. Invariant: after a failure no member begins another part of the
 * call. The remaining parts end like it and take no sequence numbers, so that
 * all members' next calls have the same number, even if their numbers of parts
 * differ. */
static void complete(moo_group *group, moo_work *work)
{
    const moo_outcome outcome = work->outcome;
    uint32_t left = work->signature.parts - 1 - work->signature.part;
    group->info.operations++;
    group->info.bytes += work->spans.bytes;
    group->info.failures += outcome.status != MOO_OK;
    remove_first(group);
    for (; outcome.status && left; left--) {
        group->head->outcome = outcome;
        remove_first(group);
    }
}

/* Mutex held, no runner, the queue is not empty. Lets go of the mutex. */
static moo_err run_first(moo_group *group, double slice_end)
{
    moo_work *work = group->head;
    group->running = true;
    pthread_mutex_unlock(&group->mutex);
    group->slice_end = slice_end;
    moo_err err = mooi_operation_run(group, work);
    pthread_mutex_lock(&group->mutex);
    group->running = false;
    group->info.waited_s = group->waited;
    if (!err)
        complete(group, work);
    pthread_cond_broadcast(&group->changed);
    return err;
}

static void *thread_main(void *argument)
{
    moo_group *group = argument;
    pthread_mutex_lock(&group->mutex);
    while (!group->closing) {
        if (!group->head || group->running)
            pthread_cond_wait(&group->changed, &group->mutex);
        else
            run_first(group, mooi_now() + THREAD_SLICE_S);
    }
    pthread_mutex_unlock(&group->mutex);
    return NULL;
}

moo_err moo_group_start(moo_group *group)
{
    moo_err err = MOO_OK;
    if (getpid() != group->pid)
        return MOO_EFORK;
    pthread_mutex_lock(&group->mutex);
    if (group->closing) {
        err = MOO_ECLOSED;
    } else if (!group->threaded) {
        err = mooi_thread_create(&group->thread, thread_main, group);
        group->threaded = !err;
    }
    pthread_mutex_unlock(&group->mutex);
    return err;
}

/* Mutex held. Wait until there is no runner. MOO_ETIMEOUT: the slice is
 * over. */
static moo_err take_turn(moo_group *group, double slice_end)
{
    while (group->running && !group->closing)
        if (!wait_for_change(group, slice_end))
            return MOO_ETIMEOUT;
    return group->closing ? MOO_ECLOSED : MOO_OK;
}

moo_err moo_group_ready(moo_group *group, double seconds)
{
    double slice_end = mooi_now() + seconds;
    if (getpid() != group->pid)
        return MOO_EFORK;
    pthread_mutex_lock(&group->mutex);
    moo_err err = take_turn(group, slice_end);
    if (err) {
        pthread_mutex_unlock(&group->mutex);
        return err;
    }
    group->running = true;
    pthread_mutex_unlock(&group->mutex);
    group->slice_end = slice_end;
    err = mooi_wait_formed(group, 0, 0);
    pthread_mutex_lock(&group->mutex);
    group->running = false;
    pthread_cond_broadcast(&group->changed);
    pthread_mutex_unlock(&group->mutex);
    return err == MOOI_PENDING ? MOO_ETIMEOUT : err;
}

/* ---- works ---- */

void mooi_group_rele(moo_group *group)
{
    bool last = --group->holds == 0;
    pthread_mutex_unlock(&group->mutex);
    if (!last)
        return;
    pthread_mutex_destroy(&group->mutex);
    pthread_cond_destroy(&group->changed);
    mooi_roster_rele(group->roster);
    free(group);
}

static bool whole_elements(const moo_request *request, size_t element)
{
    for (uint32_t i = 0; i < request->count; i++)
        if (request->bytes[i] % element)
            return false;
    return request->output_bytes % element == 0;
}

static moo_err check(const moo_request *request)
{
    moo_group_kind kind = request->kind;
    size_t element = mooi_dtype_bytes(request->dtype);
    if ((unsigned)kind >= MOO_GROUP_KINDS)
        return MOO_EINVAL;
    bool reduces = kind == MOO_GROUP_ALLREDUCE ||
                   kind == MOO_GROUP_REDUCE_SCATTER;
    if (reduces && (!element || !mooi_reducer_for(request->dtype, request->op)))
        return MOO_EINVAL;
    if (reduces && !whole_elements(request, element))
        return MOO_EINVAL;
    bool one = kind == MOO_GROUP_ALL_GATHER || kind == MOO_GROUP_REDUCE_SCATTER;
    if (one && request->count != 1)
        return MOO_EINVAL;
    return kind == MOO_GROUP_BARRIER && request->count ? MOO_EINVAL : MOO_OK;
}

static moo_err new_work(const moo_request *request, moo_work **out)
{
    bool one = request->kind == MOO_GROUP_ALL_GATHER ||
               request->kind == MOO_GROUP_REDUCE_SCATTER;
    moo_request inputs = *request;
    moo_work *work = calloc(1, sizeof *work);
    if (!work)
        return MOO_ENOMEM;
    if (one)
        inputs.outputs = NULL;
    moo_err err = mooi_spans_init(&work->spans, &inputs);
    if (err) {
        free(work);
        return err;
    }
    work->output = one ? request->outputs[0] : NULL;
    work->kind = request->kind;
    work->reduce = mooi_reducer_for(request->dtype, request->op);
    work->partial = mooi_partial_reducer(request->dtype, request->op);
    work->element = mooi_dtype_bytes(request->dtype);
    work->signature = (struct mooi_signature){
        .kind = request->kind, .dtype = request->dtype, .op = request->op,
        .root = request->root, .spans = request->count,
        .bytes = work->spans.bytes, .layout = request->layout,
        .output_bytes = one ? request->output_bytes : 0};
    *out = work;
    return MOO_OK;
}

static void free_call(moo_work *first)
{
    for (moo_work *next; first; first = next) {
        next = first->next;
        free_work(first);
    }
}

/* The works of a call, linked. Only the last one is the caller's: it is done
 * when all are, and its outcome is the call's. */
static moo_err new_call(moo_group *group, const moo_request *requests,
                        uint32_t parts, moo_work **first, moo_work **last)
{
    moo_work **link = first, *work = NULL;
    moo_err err = parts ? MOO_OK : MOO_EINVAL;
    *first = NULL;
    for (uint32_t part = 0; !err && part < parts; part++) {
        if ((err = check(&requests[part])) ||
            (err = new_work(&requests[part], &work)))
            break;
        work->group = group;
        work->signature.part = part;
        work->signature.parts = parts;
        work->orphan = part + 1 < parts;
        *link = work;
        link = &work->next;
    }
    if (err)
        free_call(*first);
    *last = work;
    return err;
}

moo_err moo_group_submit(moo_group *group, const moo_request *requests,
                         uint32_t parts, moo_work **out)
{
    moo_work *first, *last;
    if (getpid() != group->pid)
        return MOO_EFORK;
    moo_err err = new_call(group, requests, parts, &first, &last);
    if (err)
        return err;
    pthread_mutex_lock(&group->mutex);
    if (group->closing) {
        pthread_mutex_unlock(&group->mutex);
        free_call(first);
        return MOO_ECLOSED;
    }
    if (group->head)
        group->tail->next = first;
    else
        group->head = first;
    group->tail = last;
    group->holds += parts;
    group->info.pending += parts;
    if (group->threaded)
        pthread_cond_broadcast(&group->changed);
    pthread_mutex_unlock(&group->mutex);
    *out = last;
    return MOO_OK;
}

moo_err moo_group_submit_numbers(moo_group *group, const void *numbers,
                                 size_t bytes, uint32_t parts, moo_work **out)
{
    enum { KIND, DTYPE, OP, ROOT, LAYOUT, OUTPUT_BYTES, COUNT, SPANS };
    moo_request requests[MOO_DT_COUNT];
    const uint64_t *n = numbers;
    size_t left = bytes / sizeof *n;
    _Static_assert(sizeof(void *) == sizeof *n, "addresses are numbers");
    if (parts > MOO_DT_COUNT)
        return MOO_EINVAL;
    for (uint32_t part = 0; part < parts; part++) {
        if (left < SPANS || n[COUNT] > (left - SPANS) / 3)
            return MOO_EINVAL;
        const uint64_t *spans = n + SPANS, count = n[COUNT];
        requests[part] = (moo_request){
            .kind = (moo_group_kind)n[KIND], .dtype = (moo_dtype)n[DTYPE],
            .op = (moo_reduction)n[OP], .root = (uint32_t)n[ROOT],
            .layout = n[LAYOUT], .count = (uint32_t)count,
            .inputs = (const void *const *)spans,
            .outputs = (void *const *)(spans + count),
            .bytes = spans + 2 * count, .output_bytes = n[OUTPUT_BYTES]};
        n = spans + 3 * count;
        left -= SPANS + 3 * count;
    }
    return left ? MOO_EINVAL : moo_group_submit(group, requests, parts, out);
}

/* Mutex held. */
static moo_err run_until_done(moo_group *group, moo_work *work,
                              double slice_end)
{
    while (!work->done) {
        if (group->threaded || group->running || group->closing) {
            if (!wait_for_change(group, slice_end) && !work->done)
                return MOO_ETIMEOUT;
        } else if (run_first(group, slice_end)) {
            return MOO_ETIMEOUT;
        }
    }
    return MOO_OK;
}

moo_err moo_work_wait(moo_work *work, double seconds, moo_outcome *outcome)
{
    moo_group *group = work->group;
    moo_err err = MOO_OK;
    if (getpid() != group->pid)
        return MOO_EFORK;
    pthread_mutex_lock(&group->mutex);
    err = run_until_done(group, work, mooi_now() + seconds);
    if (!err)
        *outcome = work->outcome;
    pthread_mutex_unlock(&group->mutex);
    return err;
}

int moo_work_done(moo_work *work)
{
    moo_group *group = work->group;
    if (getpid() != group->pid)
        return 0;
    pthread_mutex_lock(&group->mutex);
    int done = work->done;
    pthread_mutex_unlock(&group->mutex);
    return done;
}

void moo_work_members(moo_work *work, moo_member *members, uint32_t *size)
{
    *size = 0;
    if (!moo_work_done(work) || !work->roster)
        return;
    *size = work->roster->size;
    memcpy(members, work->roster->members, *size * sizeof *members);
}

void moo_work_free(moo_work *work)
{
    moo_group *group = work->group;
    if (getpid() != group->pid)
        return;
    pthread_mutex_lock(&group->mutex);
    if (!work->done) {
        work->orphan = true; /* complete() frees it */
        pthread_mutex_unlock(&group->mutex);
        return;
    }
    free_work(work);
    mooi_group_rele(group);
}

void moo_work_clear(moo_work **slot)
{
    if (*slot)
        moo_work_free(*slot);
    *slot = NULL;
}

/* ---- the end ---- */

/* Mutex held. Wait until no thread is inside an operation. */
void mooi_group_stop(moo_group *group)
{
    group->closing = true;
    mooi_bell_ring(group);
    pthread_cond_broadcast(&group->changed);
    while (group->running)
        pthread_cond_wait(&group->changed, &group->mutex);
    if (!group->threaded)
        return;
    pthread_mutex_unlock(&group->mutex);
    pthread_join(group->thread, NULL);
    pthread_mutex_lock(&group->mutex);
    group->threaded = false;
}

/* Mutex held. */
void mooi_group_fail_queued(moo_group *group)
{
    while (group->head) {
        group->head->outcome.status = MOO_ECLOSED;
        complete(group, group->head);
    }
    pthread_cond_broadcast(&group->changed);
}
