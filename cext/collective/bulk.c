/* SPDX-License-Identifier: MIT */
#include "collective/bulk.h"
#include "collective/group.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/wire.h"
#include "transport/ofi.h"

#define BUFFER_BYTES ((uint64_t)1 << 20) /* stays in the caches */
#define READ_BYTES ((uint64_t)256 << 10) /* of one read, at most */
#define READS 4u
#define TELL_BYTES (BUFFER_BYTES / 8) /* read so far, if not all */
#define PATIENCE_MS 10000 /* a silent connection is found sooner */
#define COUNT_BYTES 8

/* A read, or none. The fabric's thread writes `state`, then to `event`. */
enum { FREE, UNDER_WAY, DONE, FAILED };

struct reading {
    struct mooi_bulk *bulk;
    uint64_t end;
    _Atomic int state;
};

struct mooi_bulk {
    struct mooi_bounce *bounce;
    bool sends;
    /* counts of bytes since the beginning */
    uint64_t filled; /* sender: copied in; receiver: told by the sender */
    uint64_t read;   /* sender: told by the receiver; receiver: arrived */
    uint64_t asked, taken; /* receiver: reads begun; copied out */
    uint64_t told;         /* our last count */
    uint8_t own_count[COUNT_BYTES], heard[COUNT_BYTES];
    size_t count_left, heard_bytes;
    /* receiver */
    struct mooi_fabric_peer *peer;
    uint64_t key, base;
    uint32_t first, count; /* readings[first % READS] is the oldest */
    struct reading readings[READS];
};

/* ---- the bounce buffers ---- */

static unsigned char *new_buffer(void)
{
    void *start = mmap(NULL, BUFFER_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return start == MAP_FAILED ? NULL : start;
}

static moo_err fill_buffers(struct mooi_bounce *bounce)
{
    moo_err err;
    bounce->out = new_buffer();
    bounce->in = new_buffer();
    if (!bounce->out || !bounce->in)
        return MOO_ENOMEM;
    madvise(bounce->out, BUFFER_BYTES, MADV_DONTFORK);
    madvise(bounce->in, BUFFER_BYTES, MADV_DONTFORK);
    err = mooi_ofi->register_memory(bounce->fabric, bounce->out, BUFFER_BYTES,
                                    MOOI_FABRIC_FROM, 0, 0,
                                    &bounce->out_region);
    if (err || !mooi_ofi->wants_regions(bounce->fabric))
        return err;
    return mooi_ofi->register_memory(bounce->fabric, bounce->in, BUFFER_BYTES,
                                     MOOI_FABRIC_INTO, 0, 0,
                                     &bounce->in_region);
}

moo_err mooi_bounce_open(const char *bind, struct mooi_bounce **out, char *why,
                         size_t room)
{
    struct mooi_fabric_options options = {.bind = bind && *bind ? bind : NULL};
    struct mooi_bounce *bounce = calloc(1, sizeof *bounce);
    if (!bounce)
        return MOO_ENOMEM;
    snprintf(why, room, "no memory or descriptors for it");
    bounce->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    moo_err err = bounce->event < 0
                      ? MOO_ESYS
                      : mooi_ofi_open(&options, &bounce->fabric, why, room);
    if (!err)
        err = fill_buffers(bounce);
    if (err) {
        mooi_bounce_close(bounce);
        return err;
    }
    *out = bounce;
    return MOO_OK;
}

void mooi_bounce_close(struct mooi_bounce *bounce)
{
    if (bounce->in_region)
        mooi_ofi->unregister(bounce->in_region);
    if (bounce->out_region)
        mooi_ofi->unregister(bounce->out_region);
    if (bounce->fabric)
        mooi_ofi->close(bounce->fabric);
    if (bounce->event >= 0)
        close(bounce->event); /* no read writes to it any more */
    if (bounce->in)
        munmap(bounce->in, BUFFER_BYTES);
    if (bounce->out)
        munmap(bounce->out, BUFFER_BYTES);
    free(bounce);
}

void mooi_bounce_describe(const struct mooi_bounce *bounce,
                          struct mooi_fabric_post *post)
{
    strncpy(post->provider, mooi_ofi->provider(bounce->fabric),
            sizeof post->provider - 1);
    post->name_bytes = (uint32_t)mooi_ofi->name(bounce->fabric, post->name);
    post->key = mooi_ofi->key(bounce->out_region);
    post->base = mooi_ofi->base(bounce->out_region);
}

bool mooi_bounce_reaches(const struct mooi_bounce *bounce,
                         const struct mooi_fabric_post *post)
{
    return post->name_bytes > 0 && post->name_bytes <= sizeof post->name &&
           !strncmp(post->provider, mooi_ofi->provider(bounce->fabric),
                    sizeof post->provider);
}

/* ---- beginning and end ---- */

static struct mooi_bulk *new_bulk(struct mooi_bounce *bounce, bool sends)
{
    struct mooi_bulk *bulk = calloc(1, sizeof *bulk);
    if (!bulk)
        return NULL;
    bulk->bounce = bounce;
    bulk->sends = sends;
    for (uint32_t i = 0; i < READS; i++)
        bulk->readings[i].bulk = bulk;
    return bulk;
}

moo_err mooi_bulk_send_open(struct mooi_bounce *bounce, struct mooi_bulk **out)
{
    *out = new_bulk(bounce, true);
    return *out ? MOO_OK : MOO_ENOMEM;
}

moo_err mooi_bulk_receive_open(struct mooi_bounce *bounce,
                               const struct mooi_fabric_post *from,
                               struct mooi_bulk **out)
{
    struct mooi_bulk *bulk = new_bulk(bounce, false);
    if (!bulk)
        return MOO_ENOMEM;
    bulk->key = from->key;
    bulk->base = from->base;
    moo_err err = mooi_ofi->connect(bounce->fabric, from->name,
                                    from->name_bytes, &bulk->peer);
    if (err) {
        mooi_bulk_close(bulk);
        return err;
    }
    *out = bulk;
    return MOO_OK;
}

void mooi_bulk_close(struct mooi_bulk *bulk)
{
    /* No read under way may arrive when the next epoch uses the buffer, or
     * when these have been freed. */
    for (uint32_t i = 0; i < READS; i++) {
        struct reading *reading = &bulk->readings[i];
        if (atomic_load(&reading->state) == UNDER_WAY &&
            mooi_ofi->cancel(bulk->bounce->fabric, reading) != MOO_OK)
            while (atomic_load(&reading->state) == UNDER_WAY)
                poll(NULL, 0, 1); /* its callback is about to come */
    }
    if (bulk->peer)
        mooi_ofi->forget(bulk->peer);
    free(bulk);
}

/* ---- counts ---- */

/* Send `count`, after the count under way, as far as possible without
 * blocking. */
static moo_err tell(struct mooi_bulk *bulk, struct mooi_pipe *pipe,
                    uint64_t count)
{
    moo_err err = MOO_OK;
    size_t sent = 1;
    while (!err && sent && (bulk->count_left || count != bulk->told)) {
        if (!bulk->count_left) {
            mooi_put64(bulk->own_count, count);
            bulk->told = count;
            bulk->count_left = COUNT_BYTES;
        }
        struct iovec part = {bulk->own_count + COUNT_BYTES - bulk->count_left,
                             bulk->count_left};
        err = mooi_pipe_send(pipe, &part, 1, &sent);
        bulk->count_left -= sent;
    }
    return err;
}

/* Take the counts that have arrived; *count: the last one. Each is larger than
 * the one before, and none larger than `most`, so the loop ends. */
static moo_err hear(struct mooi_bulk *bulk, struct mooi_pipe *pipe,
                    uint64_t *count, uint64_t most)
{
    for (;;) {
        struct iovec part = {bulk->heard + bulk->heard_bytes,
                             COUNT_BYTES - bulk->heard_bytes};
        size_t got;
        moo_err err = mooi_pipe_receive(pipe, &part, 1, &got);
        if (err || !got)
            return err;
        bulk->heard_bytes += got;
        if (bulk->heard_bytes < COUNT_BYTES)
            continue;
        uint64_t said = mooi_get64(bulk->heard);
        bulk->heard_bytes = 0;
        if (said <= *count || said > most)
            return MOO_EPROTO;
        *count = said;
    }
}

/* ---- copying ---- */

/* Copy `bytes` between the parts and the buffer, from byte `at` of it. */
static void copy_parts(unsigned char *buffer, uint64_t at, uint64_t bytes,
                       const struct iovec *parts, bool out)
{
    uint64_t within = 0;
    while (bytes) {
        if (within == parts->iov_len) {
            within = 0;
            parts++;
            continue;
        }
        uint64_t place = at % BUFFER_BYTES;
        uint64_t n = mooi_lesser(mooi_lesser(bytes, parts->iov_len - within),
                                 BUFFER_BYTES - place);
        unsigned char *theirs = (unsigned char *)parts->iov_base + within;
        memcpy(out ? theirs : buffer + place, out ? buffer + place : theirs, n);
        within += n;
        at += n;
        bytes -= n;
    }
}

static uint64_t length_of(const struct iovec *parts, int count)
{
    uint64_t length = 0;
    for (int i = 0; i < count; i++)
        length += parts[i].iov_len;
    return length;
}

/* ---- sending ---- */

moo_err mooi_bulk_send(struct mooi_bulk *bulk, struct mooi_pipe *pipe,
                       const struct iovec *parts, int count, size_t *moved)
{
    uint64_t bytes = length_of(parts, count);
    moo_err err = hear(bulk, pipe, &bulk->read, bulk->filled);
    *moved = 0;
    if (err)
        return err;
    bytes = mooi_lesser(bytes, BUFFER_BYTES - (bulk->filled - bulk->read));
    copy_parts(bulk->bounce->out, bulk->filled, bytes, parts, false);
    bulk->filled += bytes;
    *moved = bytes;
    return tell(bulk, pipe, bulk->filled);
}

bool mooi_bulk_flushed(struct mooi_bulk *bulk, struct mooi_pipe *pipe,
                       moo_err *err)
{
    *err = tell(bulk, pipe, bulk->filled);
    return !bulk->count_left && bulk->told == bulk->filled;
}

/* ---- receiving ---- */

/* On the fabric's thread. */
static void on_read(void *cookie, moo_err result)
{
    struct reading *reading = cookie;
    struct mooi_bounce *bounce = reading->bulk->bounce;
    uint64_t one = 1;
    /* With this the bulk may be closed and freed; the buffers stay. */
    atomic_store(&reading->state, result ? FAILED : DONE);
    if (write(bounce->event, &one, sizeof one) < 0)
        return; /* it is full of rings already */
}

static moo_err begin_reads(struct mooi_bulk *bulk)
{
    uint64_t most = mooi_lesser(bulk->filled, bulk->taken + BUFFER_BYTES);
    moo_err err = MOO_OK;
    while (!err && bulk->asked < most && bulk->count < READS) {
        struct reading *reading =
            &bulk->readings[(bulk->first + bulk->count) % READS];
        uint64_t place = bulk->asked % BUFFER_BYTES;
        uint64_t n = mooi_lesser(mooi_lesser(most - bulk->asked, READ_BYTES),
                                 BUFFER_BYTES - place);
        struct mooi_fabric_want want = {
            .from = bulk->base + place, .key = bulk->key,
            .into = bulk->bounce->in + place, .bytes = n,
            .region = bulk->bounce->in_region, .patience_ms = PATIENCE_MS,
            .done = on_read, .cookie = reading};
        reading->end = bulk->asked + n;
        atomic_store(&reading->state, UNDER_WAY);
        err = mooi_ofi->read(bulk->peer, &want);
        if (err)
            atomic_store(&reading->state, FREE);
        bulk->asked += err ? 0 : n;
        bulk->count += err ? 0 : 1;
    }
    return err;
}

static moo_err end_reads(struct mooi_bulk *bulk)
{
    while (bulk->count) {
        struct reading *reading = &bulk->readings[bulk->first % READS];
        int state = atomic_load(&reading->state);
        if (state == UNDER_WAY)
            return MOO_OK;
        if (state == FAILED)
            return MOO_EPEER;
        atomic_store(&reading->state, FREE);
        bulk->read = reading->end;
        bulk->first++;
        bulk->count--;
    }
    return MOO_OK;
}

moo_err mooi_bulk_receive(struct mooi_bulk *bulk, struct mooi_pipe *pipe,
                          const struct iovec *parts, int count, size_t *moved)
{
    uint64_t bytes = length_of(parts, count), rings;
    moo_err err;
    *moved = 0;
    if (read(bulk->bounce->event, &rings, sizeof rings) < 0 && errno != EAGAIN)
        return MOO_ESYS; /* emptied before the look */
    err = hear(bulk, pipe, &bulk->filled, bulk->read + BUFFER_BYTES);
    if (!err)
        err = end_reads(bulk);
    if (err)
        return err;
    bytes = mooi_lesser(bytes, bulk->read - bulk->taken);
    copy_parts(bulk->bounce->in, bulk->taken, bytes, parts, true);
    bulk->taken += bytes;
    *moved = bytes;
    err = begin_reads(bulk);
    if (!err && (bulk->count_left || bulk->read == bulk->filled ||
                 bulk->read - bulk->told >= TELL_BYTES))
        err = tell(bulk, pipe, bulk->read);
    return err;
}

nfds_t mooi_bulk_watch(const struct mooi_bulk *bulk,
                       const struct mooi_pipe *pipe, struct pollfd *entries)
{
    short both = bulk->count_left ? POLLIN | POLLOUT : POLLIN;
    entries[0] = (struct pollfd){.fd = mooi_pipe_turn(pipe), .events = both};
    if (bulk->sends)
        return 1;
    entries[1] = (struct pollfd){.fd = bulk->bounce->event, .events = POLLIN};
    return 2;
}
