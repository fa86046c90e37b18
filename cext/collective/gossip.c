/* SPDX-License-Identifier: MIT */
/*
 * gossip.c: few bytes of every host to every host.
 *
 * After step i a host has the parts of the 2 << i hosts up to itself: it sends
 * all that it has to host + (1 << i), and gets as many from host - (1 << i).
 * As everybody then has the same parts, and reduces them in the same order,
 * small tensors give the bits that shared memory gives.
 */
#include "collective/ring.h"

struct range {
    uint32_t first, count; /* hosts; may go around the end */
};

/* Up to two runs of bytes, as one of `iovec`s, without the first `skip`. */
static int parts_of(const struct mooi_gossip *gossip, uint32_t hosts,
                    struct range range, uint64_t skip, struct iovec *parts)
{
    int count = 0;
    while (range.count) {
        uint32_t n = range.first + range.count > hosts ? hosts - range.first
                                                       : range.count;
        uint32_t begin = gossip->start[range.first];
        uint64_t length = gossip->start[range.first + n] - begin;
        uint64_t less = mooi_lesser(skip, length);
        if (length > less)
            parts[count++] = (struct iovec){gossip->data + begin + less,
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

/* Move what goes at once; *left: whether there is more. */
static moo_err move(moo_group *group, struct range range, bool sends,
                    uint32_t link, bool *moved, bool *left)
{
    struct mooi_ring *ring = group->ring;
    struct mooi_gossip *gossip = &ring->gossip;
    struct iovec parts[MOOI_PIPE_PARTS];
    uint32_t *done = sends ? &gossip->sent : &gossip->received;
    int count = parts_of(gossip, group->hosts.count, range, *done, parts);
    size_t n;
    *left = count > 0;
    if (!count)
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
static moo_err exchange(moo_group *group, moo_work *work, uint32_t link,
                        struct range goes, struct range comes)
{
    for (;;) {
        bool moved = false, out, in;
        if (move(group, goes, true, link, &moved, &out))
            return mooi_lost(group, work, mooi_link_target(group, link));
        if (move(group, comes, false, link, &moved, &in))
            return mooi_lost(group, work, mooi_link_origin(group, link));
        if (!out && !in)
            return MOO_OK;
        if (moved)
            continue;
        moo_err err = mooi_links_wait(group, work, out ? (int)link : -1,
                                      in ? (int)link : -1, false);
        if (err)
            return err;
    }
}

static void next_step(struct mooi_gossip *gossip)
{
    gossip->step++;
    gossip->sent = gossip->received = 0;
}

moo_err mooi_gossip(moo_group *group, moo_work *work,
                    struct mooi_gossip *gossip)
{
    uint32_t hosts = group->hosts.count, self = group->hosts.mine;
    for (; 1u << gossip->step < hosts; next_step(gossip)) {
        uint32_t have = 1u << gossip->step;
        uint32_t n = have < hosts - have ? have : hosts - have;
        moo_err err = exchange(group, work, gossip->step,
                               hosts_up_to(self, n, hosts),
                               hosts_up_to((self + hosts - have) % hosts, n,
                                           hosts));
        if (err)
            return err;
    }
    return MOO_OK;
}

moo_err mooi_gossip_spread(moo_group *group, moo_work *work,
                           struct mooi_gossip *gossip, uint32_t first)
{
    uint32_t hosts = group->hosts.count;
    uint32_t place = (group->hosts.mine + hosts - first) % hosts;
    const struct range all = {first, 1}, none = {0, 0};
    for (; 1u << gossip->step < hosts; next_step(gossip)) {
        uint32_t have = 1u << gossip->step;
        bool sends = place < have && place + have < hosts;
        bool comes = place >= have && place < 2 * have;
        moo_err err = exchange(group, work, gossip->step, sends ? all : none,
                               comes ? all : none);
        if (err)
            return err;
    }
    return MOO_OK;
}
