/* SPDX-License-Identifier: MIT */
/*
 * links.c: the connections of one epoch, once they are made.
 *
 * A thread that waits for bytes checks for failures first: for deaths and
 * decisions, as in every wait, and for sent bytes that the other machine does
 * not acknowledge, as after a cut cable.
 */
#include <errno.h>
#include <poll.h>

#include "collective/progress.h"
#include "collective/ring.h"
#include "core/clock.h"

#define SILENCE_S 0.25 /* between two checks for it */

/* ---- the transport in use, for users ---- */

void mooi_carrier_tell(moo_group *group)
{
    const struct mooi_links *links = &group->ring->links;
    mooi_post_carrier(group, links->bulk_to ? MOO_TRANSPORT_OFI
                                            : MOO_TRANSPORT_TCP);
}

uint32_t mooi_carrier(const moo_group *group)
{
    const struct mooi_hosts *hosts = &group->hosts;
    if (hosts->count < 2)
        return hosts->count ? MOO_TRANSPORT_SHM : 0;
    return mooi_carrier_of(group, mooi_leader(hosts, hosts->mine));
}

/* ---- the end ---- */

static void close_all(struct mooi_links *links)
{
    for (uint32_t i = 0; i < links->count; i++) {
        mooi_pipe_close(&links->to[i]);
        mooi_pipe_close(&links->from[i]);
        mooi_pipe_close(&links->lines[i].to);
        mooi_pipe_close(&links->lines[i].from);
    }
}

void mooi_ring_hang_up(moo_group *group)
{
    if (!group->ring)
        return;
    struct mooi_links *links = &group->ring->links;
    mooi_contact_end(links);
    if (links->bulk_to)
        mooi_bulk_close(links->bulk_to);
    if (links->bulk_from)
        mooi_bulk_close(links->bulk_from);
    links->bulk_to = links->bulk_from = NULL;
    close_all(links);
    *links = (struct mooi_links){0};
}

void mooi_ring_disown(moo_group *group)
{
    if (group->ring)
        close_all(&group->ring->links);
}

/* ---- waiting for bytes ---- */

/* Check for sent bytes without acknowledgement for too long; also on the
 * receiving connections, which send a fabric's counts or the end of a
 * handshake. */
static moo_err look_for_silence(moo_group *group, moo_work *work, double now)
{
    struct mooi_links *links = &group->ring->links;
    if (now - links->looked < SILENCE_S)
        return MOO_OK;
    links->looked = now;
    for (uint32_t i = 0; i < links->count; i++) {
        if (mooi_pipe_silent(&links->to[i]) ||
            mooi_pipe_silent(&links->lines[i].to))
            return mooi_give_up(group, work, MOOI_WHY_CUT,
                                mooi_link_target(group, i));
        if (mooi_pipe_silent(&links->from[i]))
            return mooi_give_up(group, work, MOOI_WHY_CUT,
                                mooi_link_origin(group, i));
    }
    return MOO_OK;
}

/* ---- checksums ---- */

/* Once our sum has gone, no byte of ours does in this operation. */
static void tell_sum(moo_group *group, moo_work *work, uint32_t i)
{
    struct mooi_links *links = &group->ring->links;
    struct mooi_frame frame = {.kind = MOOI_SUM};
    frame.sum.seq = work->seq;
    frame.sum.sum = links->to[i].sum;
    if (!links->lines[i].told)
        mooi_line_send(&links->lines[i], &frame);
    links->lines[i].told = true;
}

/* The sums do not go over the connections that they check. */
moo_err mooi_links_check(moo_group *group, moo_work *work)
{
    const struct mooi_links *links = &group->ring->links;
    if (!group->hosts.checks || group->ring->commit.seq != work->seq ||
        group->ring->commit.entered)
        return MOO_OK;
    for (uint32_t i = 0; i < links->count; i++)
        tell_sum(group, work, i);
    for (uint32_t i = 0; i < links->count; i++) {
        moo_err err = mooi_lines_pump(group, work);
        while (!err && !links->lines[i].summed)
            err = mooi_links_wait(group, work, -1, -1, false);
        if (err)
            return err;
        if (links->lines[i].sum != links->from[i].sum)
            return mooi_give_up(group, work, MOOI_WHY_CUT,
                                mooi_link_origin(group, i));
    }
    return MOO_OK;
}

/* ---- the ring's bytes ---- */

void mooi_links_restart(struct mooi_links *links)
{
    for (uint32_t i = 0; i < links->count; i++) {
        mooi_pipe_restart(&links->to[i]);
        mooi_pipe_restart(&links->from[i]);
    }
}

moo_err mooi_links_send(struct mooi_links *links, const struct iovec *parts,
                        int count, size_t *moved)
{
    struct mooi_pipe *pipe = &links->to[0];
    moo_err err =
        links->bulk_to
            ? mooi_bulk_send(links->bulk_to, pipe, parts, count, moved)
            : mooi_pipe_send(pipe, parts, count, moved);
    if (!err)
        mooi_pipe_sum(pipe, parts, *moved);
    return err;
}

bool mooi_links_flushed(struct mooi_links *links, moo_err *err)
{
    *err = MOO_OK;
    return !links->bulk_to ||
           mooi_bulk_flushed(links->bulk_to, &links->to[0], err);
}

moo_err mooi_links_receive(struct mooi_links *links,
                           const struct iovec *parts, int count,
                           uint64_t rest, size_t *moved)
{
    struct mooi_pipe *pipe = &links->from[0];
    moo_err err =
        links->bulk_from
            ? mooi_bulk_receive(links->bulk_from, pipe, parts, count, moved)
            : mooi_pipe_receive(pipe, parts, count, moved);
    if (err)
        return err;
    mooi_pipe_sum(pipe, parts, *moved);
    if (!*moved && !links->bulk_from)
        mooi_pipe_expect(pipe, rest);
    return MOO_OK;
}

static void watch_for(struct pollfd *entries, nfds_t *count, int fd,
                      short events)
{
    entries[(*count)++] = (struct pollfd){.fd = fd, .events = events};
}

static void watch_ends(const struct mooi_links *links, int out, int in,
                       bool bulk, struct pollfd *entries, nfds_t *count)
{
    if (out >= 0 && bulk && links->bulk_to)
        *count += mooi_bulk_watch(links->bulk_to, &links->to[0], entries);
    else if (out >= 0)
        watch_for(entries, count, mooi_pipe_turn(&links->to[out]), POLLOUT);
    if (in >= 0 && bulk && links->bulk_from)
        *count += mooi_bulk_watch(links->bulk_from, &links->from[0],
                                  entries + *count);
    else if (in >= 0)
        watch_for(entries, count, mooi_pipe_turn(&links->from[in]), POLLIN);
}

/* A line whose next frame has to wait would be ready all the time. */
static void watch_lines(const struct mooi_links *links,
                        struct pollfd *entries, nfds_t *count)
{
    for (uint32_t i = 0; i < links->count; i++) {
        const struct mooi_line *line = &links->lines[i];
        if (!line->ahead)
            watch_for(entries, count, line->from.stripes[0].fd, POLLIN);
        if (line->out_bytes)
            watch_for(entries, count, line->to.stripes[0].fd, POLLOUT);
    }
}

moo_err mooi_links_wait(moo_group *group, moo_work *work, int out, int in,
                        bool bulk)
{
    struct mooi_links *links = &group->ring->links;
    uint32_t rank = in >= 0 || out < 0
                        ? mooi_link_origin(group, in < 0 ? 0 : (uint32_t)in)
                        : mooi_link_target(group, (uint32_t)out);
    struct pollfd entries[4 + 2 * MOOI_LINKS];
    double now = mooi_now(), left = group->slice_end - now;
    nfds_t count = 0;
    moo_err err = mooi_inspect(group, work, rank, now);
    if (!err)
        err = look_for_silence(group, work, now);
    if (err)
        return err;
    if (left <= 0 || group->closing)
        return MOOI_PENDING;
    watch_ends(links, out, in, bulk, entries, &count);
    nfds_t ends = count;
    watch_lines(links, entries, &count);
    int rc = poll(entries, count,
                  (int)((left < POLL_S ? left : POLL_S) * 1e3) + 1);
    group->waited += mooi_now() - now;
    if (rc < 0 && errno == EINTR)
        return MOOI_PENDING;
    while (rc > 0 && ends < count)
        if (entries[ends++].revents)
            return mooi_lines_pump(group, work);
    return MOO_OK;
}
