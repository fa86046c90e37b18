/* SPDX-License-Identifier: MIT */
/*
 * shm.c: collective operations through shared memory, the regions of
 * buffers.h. A bulk buffer holds STAGES rounds of the pipeline in turn.
 *
 * Small tensors take one step: everybody puts all its bytes into its small
 * buffer, and everybody reduces all of them. Large ones are cut into
 * rounds, each of one chunk per rank. For each round
 *
 *   put     a rank copies into its buffer the chunks that others own,
 *   reduce  the owner of a chunk reduces its own private input and the
 *           others' copies, in rank order, into the place in its buffer that
 *           its own chunk would have taken, and into its own output;
 *   get     everybody copies the owners' results to its output.
 *
 * With n ranks and S bytes a rank reads (n-1)/n S of its own and writes as
 * much into its region; reads as much from others to reduce and as much again
 * to get the results. The buffers stay in the caches, so main memory sees one
 * read and one write of every private byte, as in a plain copy. (Tried and
 * dropped: chunks of 128 KiB and more leave the second-level cache; a single
 * step for more than SMALL_LIMIT makes every rank read everybody's bytes.)
 *
 * The three steps of neighbouring rounds overlap (put i, reduce i-1, get
 * i-2), so that nobody has to meet anybody at the same instant. Buffers are
 * reused when everybody's COPIED says so.
 */
#include <string.h>

#include "collective/buffers.h"
#include "collective/progress.h"

#define STAGES MOOI_STAGES
#define SMALL_LIMIT ((uint64_t)64 << 10) /* of all ranks together */
#define BLOCK_BYTES ((uint64_t)8 << 10)

_Static_assert(SMALL_LIMIT <= SMALL_BYTES, "a small operation must fit");
_Static_assert(STAGES * MOO_GROUP_TEAM_MAX * MOOI_CHUNK_LEAST <= BULK_BYTES,
               "the bulk buffers must fit");

/* The progress of an operation, in work->stage. */
enum { ENTER, AGREE, FIRST, SECOND, THIRD };

struct chunk {
    uint64_t offset, bytes; /* of the tensors as one run */
};

/* The place of chunk `which` in the buffer that `rank` uses for a round. */
static unsigned char *place(moo_group *group, moo_work *work, uint32_t rank,
                            uint64_t round, uint32_t which)
{
    uint64_t stage = round % STAGES * group->view.size + which;
    return mooi_bulk_buffer(group, rank) + stage * work->chunk;
}

/* ---- the pipeline ---- */

/* The steps of one round, each after its own waits. The last step of a kind
 * must call mooi_conclude before it finishes the last round. */
typedef moo_err step(moo_group *group, moo_work *work, uint64_t round);

static moo_err one_step(step *run, moo_group *group, moo_work *work,
                        uint64_t delay)
{
    if (!run || work->iteration < delay ||
        work->iteration - delay >= work->rounds)
        return MOO_OK;
    return run(group, work, work->iteration - delay);
}

static void enter_pipeline(moo_group *group, moo_work *work)
{
    if (work->stage != ENTER)
        return;
    mooi_publish(group, PUT, mooi_base_of(work));
    work->stage = AGREE;
}

/* Cut `bytes` into rounds of one chunk for each of `ranks`. All members must
 * cut alike, so rank 0 chooses the largest chunk. */
static void cut(moo_group *group, moo_work *work)
{
    bool scatters = work->kind == MOO_GROUP_REDUCE_SCATTER;
    uint64_t bytes = scatters ? work->signature.output_bytes
                              : work->spans.bytes;
    uint64_t ranks = scatters ? 1 : group->view.size;
    uint64_t want = mooi_align(bytes / ranks / (2 * STAGES));
    uint64_t most = work->signature.chunk, least = mooi_lesser(MOOI_CHUNK_LEAST, most);
    work->chunk = want < least ? least : mooi_lesser(want, most);
    work->rounds = (bytes + work->chunk * ranks - 1) / (work->chunk * ranks);
}

bool mooi_possible(moo_group *group, moo_work *work)
{
    uint64_t bytes = work->spans.bytes, size = group->view.size;
    switch (work->kind) {
    case MOO_GROUP_BROADCAST:
        return work->signature.root < size;
    case MOO_GROUP_ALL_GATHER:
        return work->signature.output_bytes == bytes * size;
    case MOO_GROUP_REDUCE_SCATTER:
        return work->signature.output_bytes * size == bytes;
    default:
        return true;
    }
}

static moo_err agree_on_pipeline(moo_group *group, moo_work *work)
{
    moo_err err = mooi_agree(group, work);
    if (err)
        return err;
    if (mooi_possible(group, work))
        cut(group, work);
    if (work->rounds)
        return MOO_OK;
    err = mooi_conclude(group, work, true);
    return err || mooi_possible(group, work) ? err : MOO_EINVAL;
}

static moo_err pipeline(moo_group *group, moo_work *work, step *first,
                        step *second, step *third)
{
    moo_err err;
    if (work->stage == AGREE && (err = agree_on_pipeline(group, work)))
        return err;
    if (work->stage == AGREE)
        work->stage = FIRST;
    for (; work->rounds && work->iteration < work->rounds + 2;
         work->iteration++) {
        if (work->stage == FIRST) {
            if ((err = one_step(first, group, work, 0)))
                return err;
            work->stage = SECOND;
        }
        if (work->stage == SECOND) {
            if ((err = one_step(second, group, work, 1)))
                return err;
            work->stage = THIRD;
        }
        if ((err = one_step(third, group, work, 2)))
            return err;
        work->stage = FIRST;
    }
    return MOO_OK;
}

/* Wait until nobody reads the buffer that this rank fills next. At the first
 * operation of an epoch the acknowledgements have shown that already. */
static moo_err await_buffer(moo_group *group, moo_work *work, uint64_t round)
{
    if (round >= STAGES)
        return mooi_await(group, work, COPIED,
                          mooi_base_of(work) + round - STAGES + 1);
    if (work->seq == group->view.first_seq)
        return MOO_OK;
    return mooi_await(group, work, COPIED, mooi_base_of(work) - 1);
}

/* The work is decided before the last round is handed out: all have put it
 * by then, so the missing bytes will arrive. */
static moo_err conclude_last(moo_group *group, moo_work *work,
                             uint64_t round)
{
    return round + 1 == work->rounds ? mooi_conclude(group, work, true) : MOO_OK;
}

/* This rank needs no member's buffers of that round any more. */
static moo_err copied(moo_group *group, moo_work *work, uint64_t round)
{
    mooi_publish(group, COPIED, mooi_base_of(work) + round + 1);
    return MOO_OK;
}

/* ---- allreduce, reduce_scatter ---- */

static struct chunk chunk_of(moo_group *group, moo_work *work,
                             uint64_t round, uint32_t which)
{
    uint64_t size = group->view.size, part = work->signature.output_bytes;
    if (work->kind == MOO_GROUP_REDUCE_SCATTER) {
        uint64_t at = round * work->chunk;
        return (struct chunk){which * part + at,
                              mooi_lesser(work->chunk, part - at)};
    }
    uint64_t begin = round * size * work->chunk;
    uint64_t length = mooi_lesser(size * work->chunk, work->spans.bytes - begin);
    uint64_t each = mooi_align((length + size - 1) / size);
    uint64_t from = mooi_lesser(which * each, length);
    return (struct chunk){begin + from, mooi_lesser(each, length - from)};
}

static moo_err put_chunks(moo_group *group, moo_work *work, uint64_t round)
{
    moo_err err = await_buffer(group, work, round);
    if (err)
        return err;
    for (uint32_t i = 1; i < group->view.size; i++) {
        uint32_t owner = (group->rank + i) % group->view.size;
        struct chunk chunk = chunk_of(group, work, round, owner);
        mooi_spans_read(&work->spans, chunk.offset,
                        place(group, work, group->rank, round, owner),
                        chunk.bytes);
    }
    mooi_publish(group, PUT, mooi_base_of(work) + round + 1);
    return MOO_OK;
}

/* Reduce this rank's chunk, block by block: to `result`, and from there to
 * the output while it is still in the first-level cache. */
static void reduce_chunk(moo_group *group, moo_work *work, uint64_t round,
                         struct chunk chunk, unsigned char *result)
{
    const struct mooi_spans *spans = &work->spans;
    const void *sources[MOO_GROUP_TEAM_MAX];
    uint32_t size = group->view.size;
    uint64_t done = 0;
    while (done < chunk.bytes) {
        uint64_t at = chunk.offset + done;
        uint32_t i = mooi_spans_find(spans, at);
        uint64_t within = at - (i ? spans->ends[i - 1] : 0);
        uint64_t n = mooi_lesser(mooi_lesser(spans->ends[i] - at, BLOCK_BYTES),
                            chunk.bytes - done);
        for (uint32_t rank = 0; rank < size; rank++)
            sources[rank] =
                place(group, work, rank, round, group->rank) + done;
        sources[group->rank] = spans->in[i] + within;
        work->reduce(result + done, sources, size, n / work->element);
        if (spans->out[i])
            memcpy(spans->out[i] + within, result + done, n);
        done += n;
    }
}

static moo_err reduce_own(moo_group *group, moo_work *work, uint64_t round)
{
    moo_err err =
        mooi_await(group, work, PUT, mooi_base_of(work) + round + 1);
    if (err)
        return err;
    reduce_chunk(group, work, round,
                 chunk_of(group, work, round, group->rank),
                 place(group, work, group->rank, round, group->rank));
    mooi_publish(group, REDUCED, mooi_base_of(work) + round + 1);
    return MOO_OK;
}

static moo_err get_results(moo_group *group, moo_work *work, uint64_t round)
{
    moo_err err =
        mooi_await(group, work, REDUCED, mooi_base_of(work) + round + 1);
    if (err || (err = conclude_last(group, work, round)))
        return err;
    for (uint32_t i = 1; i < group->view.size; i++) {
        uint32_t owner = (group->rank + i) % group->view.size;
        struct chunk chunk = chunk_of(group, work, round, owner);
        mooi_spans_write(&work->spans, chunk.offset,
                         place(group, work, owner, round, owner),
                         chunk.bytes);
    }
    return copied(group, work, round);
}

static void reduce_small(moo_group *group, moo_work *work)
{
    const struct mooi_spans *spans = &work->spans;
    const void *sources[MOO_GROUP_TEAM_MAX];
    uint64_t begin = 0;
    for (uint32_t i = 0; i < spans->count; begin = spans->ends[i++]) {
        for (uint32_t rank = 0; rank < group->view.size; rank++)
            sources[rank] = mooi_small_buffer(group, work, rank) + begin;
        work->reduce(spans->out[i], sources, group->view.size,
                     (spans->ends[i] - begin) / work->element);
    }
}

void mooi_put_small(moo_group *group, moo_work *work)
{
    mooi_spans_read(&work->spans, 0,
                    mooi_small_buffer(group, work, group->rank),
                    work->spans.bytes);
    mooi_publish(group, PUT, mooi_base_of(work) + 1);
}

static moo_err allreduce_small(moo_group *group, moo_work *work)
{
    moo_err err;
    if (work->stage == ENTER) {
        mooi_put_small(group, work);
        work->stage = AGREE;
    }
    if ((err = mooi_agree(group, work)) ||
        (err = mooi_await(group, work, PUT, mooi_base_of(work) + 1)) ||
        (err = mooi_conclude(group, work, true)))
        return err;
    reduce_small(group, work);
    return MOO_OK;
}

static moo_err allreduce_alone(moo_group *group, moo_work *work)
{
    const struct mooi_spans *spans = &work->spans;
    uint64_t begin = 0;
    mooi_publish(group, PUT, mooi_base_of(work));
    moo_err err = mooi_conclude(group, work, true);
    for (uint32_t i = 0; !err && i < spans->count; begin = spans->ends[i++])
        if (spans->out[i] != spans->in[i])
            memcpy(spans->out[i], spans->in[i], spans->ends[i] - begin);
    return err;
}

static moo_err allreduce(moo_group *group, moo_work *work)
{
    if (group->view.size == 1)
        return allreduce_alone(group, work);
    if (work->spans.bytes * group->view.size <= SMALL_LIMIT)
        return allreduce_small(group, work);
    enter_pipeline(group, work);
    return pipeline(group, work, put_chunks, reduce_own, get_results);
}

static moo_err reduce_to_output(moo_group *group, moo_work *work,
                                uint64_t round)
{
    moo_err err =
        mooi_await(group, work, PUT, mooi_base_of(work) + round + 1);
    if (err || (err = conclude_last(group, work, round)))
        return err;
    reduce_chunk(group, work, round,
                 chunk_of(group, work, round, group->rank),
                 work->output + round * work->chunk);
    return copied(group, work, round);
}

static moo_err reduce_scatter(moo_group *group, moo_work *work)
{
    enter_pipeline(group, work);
    return pipeline(group, work, put_chunks, reduce_to_output, NULL);
}

/* ---- broadcast, all_gather: whole rounds, as they are ---- */

static struct chunk whole_of(moo_group *group, moo_work *work, uint64_t round)
{
    uint64_t most = work->chunk * group->view.size;
    uint64_t begin = round * most;
    return (struct chunk){begin, mooi_lesser(most, work->spans.bytes - begin)};
}

static moo_err put_whole(moo_group *group, moo_work *work, uint64_t round)
{
    struct chunk chunk = whole_of(group, work, round);
    moo_err err = await_buffer(group, work, round);
    if (err)
        return err;
    mooi_spans_read(&work->spans, chunk.offset,
                    place(group, work, group->rank, round, 0), chunk.bytes);
    mooi_publish(group, PUT, mooi_base_of(work) + round + 1);
    return MOO_OK;
}

static moo_err put_as_root(moo_group *group, moo_work *work, uint64_t round)
{
    if (group->rank != work->signature.root)
        return MOO_OK;
    return put_whole(group, work, round);
}

static moo_err get_from_root(moo_group *group, moo_work *work,
                             uint64_t round)
{
    uint32_t root = work->signature.root;
    struct chunk chunk = whole_of(group, work, round);
    moo_err err = MOO_OK;
    if (group->rank != root)
        err = mooi_await_rank(group, work, root, PUT,
                              mooi_base_of(work) + round + 1);
    if (err || (err = conclude_last(group, work, round)))
        return err;
    if (group->rank != root)
        mooi_spans_write(&work->spans, chunk.offset,
                         place(group, work, root, round, 0), chunk.bytes);
    return copied(group, work, round);
}

static moo_err broadcast(moo_group *group, moo_work *work)
{
    enter_pipeline(group, work);
    return pipeline(group, work, put_as_root, NULL, get_from_root);
}

static moo_err get_from_all(moo_group *group, moo_work *work, uint64_t round)
{
    struct chunk chunk = whole_of(group, work, round);
    uint64_t each = work->spans.bytes;
    moo_err err =
        mooi_await(group, work, PUT, mooi_base_of(work) + round + 1);
    if (err || (err = conclude_last(group, work, round)))
        return err;
    for (uint32_t i = 0; i < group->view.size; i++) {
        uint32_t rank = (group->rank + i) % group->view.size;
        memcpy(work->output + rank * each + chunk.offset,
               place(group, work, rank, round, 0), chunk.bytes);
    }
    return copied(group, work, round);
}

static moo_err all_gather(moo_group *group, moo_work *work)
{
    enter_pipeline(group, work);
    return pipeline(group, work, put_whole, NULL, get_from_all);
}

/* ---- barrier ---- */

static moo_err barrier(moo_group *group, moo_work *work)
{
    moo_err err;
    if (work->stage == ENTER)
        mooi_publish(group, PUT, mooi_base_of(work));
    work->stage = AGREE;
    if ((err = mooi_agree(group, work)) ||
        (err = mooi_conclude(group, work, true)))
        return err;
    return MOO_OK;
}

const struct mooi_collective mooi_shm_collective = {
    .scheme = "shm",
    .run = {[MOO_GROUP_BARRIER] = barrier,
            [MOO_GROUP_ALLREDUCE] = allreduce,
            [MOO_GROUP_BROADCAST] = broadcast,
            [MOO_GROUP_ALL_GATHER] = all_gather,
            [MOO_GROUP_REDUCE_SCATTER] = reduce_scatter},
};
