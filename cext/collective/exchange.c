/* SPDX-License-Identifier: MIT */
/*
 * exchange.c: few bytes of every host to every host, in as many steps as the
 * number of hosts has binary digits.
 *
 * The all-gather is that of Bruck et al., "Efficient Algorithms for All-to-All
 * Communications in Multiport Message-Passing Systems", IEEE Transactions on
 * Parallel and Distributed Systems 8(11), 1997 ("concatenation", one port).
 * After step i a host has the parts of the 2 << i hosts up to itself: it sends
 * all that it has to host + (1 << i), and gets as many from host - (1 << i). As
 * everybody then has the same parts, and reduces them in the same order, small
 * tensors give the bits that shared memory gives.
 */
#include "collective/progress.h"
#include "collective/ring.h"

struct range {
    uint32_t first, count; /* hosts; may go around the end */
};

/* Up to two runs of bytes, as one of `iovec`s, without the first `skip`. */
static int parts_of(const struct mooi_exchange *exchange, uint32_t hosts,
                    struct range range, uint64_t skip, struct iovec *parts)
{
    int count = 0;
    while (range.count) {
        uint32_t n = range.first + range.count > hosts ? hosts - range.first
                                                       : range.count;
        uint32_t begin = exchange->start[range.first];
        uint64_t length = exchange->start[range.first + n] - begin;
        uint64_t less = mooi_lesser(skip, length);
        if (length > less)
            parts[count++] = (struct iovec){exchange->data + begin + less,
                                            length - less};
        skip -= less;
        range.first = (range.first + n) % hosts;
        range.count -= n;
    }
    return count;
}

static struct range hosts_up_to(uint32_t host, uint32_t count, uint32_t hosts)
{
    return (struct range){(host + hosts + 1 - count) % hosts, count};
}

/* Move bytes without blocking; *left: whether there is more. */
static moo_err move(moo_group *group, struct range range, bool sends,
                    uint32_t link, bool *moved, bool *left)
{
    struct mooi_ring *ring = group->ring;
    struct mooi_exchange *exchange = &ring->exchange;
    struct iovec parts[MOOI_PIPE_PARTS];
    uint32_t *done = sends ? &exchange->sent : &exchange->received;
    int count = parts_of(exchange, group->hosts.count, range, *done, parts);
    size_t n;
    *left = count > 0;
    if (!count || (!sends && !ring->links.lines[link].called))
        return MOO_OK;
    moo_err err =
        sends ? mooi_pipe_send(&ring->links.to[link], parts, count, &n)
              : mooi_pipe_receive(&ring->links.from[link], parts, count, &n);
    if (!err)
        mooi_pipe_sum(sends ? &ring->links.to[link] : &ring->links.from[link],
                      parts, n);
    *done += (uint32_t)n;
    *moved |= n > 0;
    if (!sends && !n)
        mooi_pipe_expect(&ring->links.from[link], 1);
    return err;
}

/* One exchange with the hosts at the ends of a link. */
static moo_err swap(moo_group *group, moo_work *work, uint32_t link,
                    struct range goes, struct range comes)
{
    for (;;) {
        bool moved = false, out, in;
        moo_err err = group->ring->links.lines[link].called
                          ? MOO_OK
                          : mooi_lines_pump(group, work);
        if (err)
            return err;
        if (move(group, goes, true, link, &moved, &out))
            return mooi_lost(group, work, mooi_link_target(group, link));
        if (move(group, comes, false, link, &moved, &in))
            return mooi_lost(group, work, mooi_link_origin(group, link));
        if (!out && !in)
            return MOO_OK;
        if (moved)
            continue;
        err = mooi_links_wait(group, work, out ? (int)link : -1,
                              in ? (int)link : -1, false);
        if (err)
            return err;
    }
}

static void next_step(struct mooi_exchange *exchange)
{
    exchange->step++;
    exchange->sent = exchange->received = 0;
}

moo_err mooi_bruck_all_gather(moo_group *group, moo_work *work,
                              struct mooi_exchange *exchange)
{
    uint32_t hosts = group->hosts.count, self = group->hosts.mine;
    for (; 1u << exchange->step < hosts; next_step(exchange)) {
        uint32_t have = 1u << exchange->step;
        uint32_t n = have < hosts - have ? have : hosts - have;
        moo_err err = swap(group, work, exchange->step,
                           hosts_up_to(self, n, hosts),
                           hosts_up_to((self + hosts - have) % hosts, n,
                                       hosts));
        if (err)
            return err;
    }
    return MOO_OK;
}
