/* SPDX-License-Identifier: MIT */
/*
 * route_call.c: an owner calls a peer on another host: the choice of the
 * network, the first messages, and the end of the connection.
 */
#include "plane/route.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/times.h"
#include "plane/thread.h"

/* Links that are lost so often within this time have a reason that calls do not
 * mend. */
#define LOSSES_NS ((uint64_t)1000 * 1000000u)
#define MOST_LOSSES 100

__attribute__((format(printf, 2, 3)))
void mooi_route_say(struct mooi_reach *reach, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(reach->why, sizeof reach->why, format, arguments);
    va_end(arguments);
}

/* NULL: none. */
static void take_network(struct mooi_peer *peer,
                         const struct mooi_network_ops *network)
{
    peer->network = network;
    peer->transport = network ? network->bit : 0;
}

moo_err mooi_route_fail(moo_plane *plane, struct mooi_peer *peer, moo_err err)
{
    peer->reach->err = err;
    peer->reach->paused_ns = mooi_now_ns() + MOOI_PAUSE_MS * MOOI_MS;
    peer->reach->guessed = 0;
    take_network(peer, NULL);
    mooi_peer_set_state(plane, peer, MOOI_PEER_PARTED);
    mooi_lease_revoke_all(&plane->leases, &peer->held);
    return err;
}

static void list_names(uint32_t transports, char out[24])
{
    snprintf(out, 24, "%s%s%s", transports & MOO_TRANSPORT_SHM ? " shm" : "",
             transports & MOO_TRANSPORT_OFI ? " ofi" : "",
             transports & MOO_TRANSPORT_TCP ? " tcp" : "");
}

static moo_err nothing_common(moo_plane *plane, struct mooi_peer *peer)
{
    char ours[24], theirs[24];
    const struct mooi_endpoint *endpoint = &peer->reach->endpoint;
    const struct mooi_endpoint *own = &plane->net->endpoint;

    list_names(plane->net->transports, ours);
    list_names(endpoint->transports, theirs);
    mooi_route_say(
        peer->reach,
        "no common transport: this process has%s%s%s%s%s%s, the other "
        "has%s%s%s, on %s host%s",
        ours, *own->provider ? " by " : "", own->provider,
        *plane->serve_why ? " (" : "", plane->serve_why,
        *plane->serve_why ? ")" : "", theirs, *endpoint->provider ? " by " : "",
        endpoint->provider,
        memcmp(endpoint->host, own->host, MOOI_HOST_BYTES) ? "another" : "this",
        endpoint->addresses ? "" : ", and gives no address");
    return mooi_route_fail(plane, peer, MOO_EUNREACHABLE);
}

/* Contact always goes by TCP. After a fabric failed, the bytes go by TCP if
 * that is allowed. */
static const struct mooi_network_ops *
choose_network(const struct mooi_net *net, const struct mooi_reach *reach)
{
    const struct mooi_endpoint *endpoint = &reach->endpoint;
    uint32_t common = net->transports & endpoint->transports;

    if (!endpoint->addresses)
        return NULL;
    if ((common & MOO_TRANSPORT_TCP) && reach->fabric_failed)
        return &mooi_over_tcp;
    if ((common & MOO_TRANSPORT_OFI) && *endpoint->provider &&
        !strcmp(endpoint->provider, net->endpoint.provider))
        return mooi_ofi->network;
    return common & MOO_TRANSPORT_TCP ? &mooi_over_tcp : NULL;
}

/* ---- machines that are silent ---- */

static int same_addresses(const struct mooi_endpoint *a,
                          const struct mooi_endpoint *b)
{
    if (a->addresses != b->addresses)
        return 0;
    for (uint32_t i = 0; i < a->addresses; i++)
        if (a->address[i].family != b->address[i].family ||
            memcmp(a->address[i].ip, b->address[i].ip, sizeof a->address[i].ip))
            return 0;
    return 1;
}

/* The time until which a peer counts as silent because another one at its
 * addresses is; 0: it does not. */
static uint64_t silent_until(const moo_plane *plane,
                             const struct mooi_reach *reach)
{
    uint64_t last = 0, until;

    for (int i = 0; i < MOOI_PEER_BUCKETS; i++)
        for (const struct mooi_peer *p = plane->peer[i]; p; p = p->next)
            if (p->reach && p->reach != reach && p->reach->out_ns > last &&
                same_addresses(&p->reach->endpoint, &reach->endpoint))
                last = p->reach->out_ns;
    until = last + MOOI_PAUSE_MS * MOOI_MS;
    return last && until > mooi_now_ns() ? until : 0;
}

/* One of them has answered. */
static void end_silence(const moo_plane *plane, const struct mooi_reach *reach)
{
    for (int i = 0; i < MOOI_PEER_BUCKETS; i++)
        for (const struct mooi_peer *p = plane->peer[i]; p; p = p->next)
            if (p->reach && p->reach->out_ns &&
                same_addresses(&p->reach->endpoint, &reach->endpoint))
                p->reach->out_ns = p->reach->paused_ns = 0;
}

/* It is being called. If there is little hope, nobody need wait for that. */
static moo_err called(moo_plane *plane, struct mooi_peer *peer)
{
    struct mooi_reach *reach = peer->reach;
    uint64_t until = silent_until(plane, reach);

    mooi_peer_set_state(plane, peer, MOOI_PEER_CALLING);
    if (reach->was_linked || until)
        mooi_tcp_hasten(reach->out.link, MOOI_ANSWER_MS);
    if (!until || reach->paused_ns > mooi_now_ns())
        return MOO_OK;
    reach->paused_ns = until;
    reach->guessed = 1;
    reach->err = MOO_EUNREACHABLE;
    mooi_route_say(reach, "%s: its host did not answer other calls just now",
                   peer->network->scheme);
    return MOO_EUNREACHABLE;
}

/* ---- calling ---- */

/* The addresses of its endpoint, that of its last link first. Returns their
 * number. */
static size_t list_addresses(const struct mooi_reach *reach,
                             struct mooi_address out[MOOI_ENDPOINT_ADDRESSES])
{
    const struct mooi_endpoint *endpoint = &reach->endpoint;

    memcpy(out, endpoint->address, sizeof endpoint->address);
    for (uint32_t i = 1; reach->was_linked && i < endpoint->addresses; i++)
        if (!memcmp(&out[i], &reach->linked_at, sizeof out[i])) {
            out[i] = out[0];
            out[0] = reach->linked_at;
        }
    return endpoint->addresses;
}

moo_err mooi_route_call(moo_plane *plane, struct mooi_peer *peer)
{
    struct mooi_reach *reach = peer->reach;
    struct mooi_address address[MOOI_ENDPOINT_ADDRESSES];
    size_t count = list_addresses(reach, address);
    moo_err err;

    take_network(peer, choose_network(plane->net, reach));
    if (!peer->network)
        return nothing_common(plane, peer);
    peer->held.remote = 1;
    err = mooi_tcp_connect(plane->net->networks.tcp, peer->id, address, count,
                           &reach->out.link);
    if (err != MOO_OK) {
        mooi_route_say(reach, "%s: cannot connect: %s",
                       peer->network->scheme, moo_strerror(err));
        return mooi_route_fail(plane, peer, err);
    }
    mooi_tcp_hold(reach->out.link);
    return called(plane, peer);
}

/* ---- the result of a call ---- */

static moo_err begin_serving(moo_plane *plane, struct mooi_peer *peer)
{
    struct mooi_control control = {.kind = MOOI_CONTROL_SERVE};
    struct mooi_outgoing *out = &peer->reach->out;
    moo_err err;

    control.u.serve = peer->network->bit;
    err = mooi_control_send(out->link, &control);
    out->slabs_told = 0;
    out->address_told = 0;
    if (err == MOO_OK)
        err = peer->network->tell(&plane->net->networks, out);
    if (err == MOO_OK)
        out->slabs_told = plane->arena.slabs;
    return err;
}

static void explain(const struct mooi_net *net, struct mooi_peer *peer)
{
    struct mooi_reach *reach = peer->reach;
    const char *host =
        memcmp(reach->endpoint.host, net->endpoint.host, MOOI_HOST_BYTES)
            ? "another"
            : "this";

    if (peer->transport == MOO_TRANSPORT_OFI)
        mooi_route_say(reach, "ofi: it is on %s host and both have %s", host,
                       net->endpoint.provider);
    else
        mooi_route_say(reach, "tcp: it is on %s host and %s", host,
                       reach->fabric_failed ? "its fabric failed"
                                            : "there is no common fabric "
                                              "that is allowed");
}

void mooi_route_up(moo_plane *plane, struct mooi_peer *peer)
{
    struct mooi_reach *reach = peer->reach;
    moo_err err = begin_serving(plane, peer);

    if (err != MOO_OK) { /* `down` follows, with the result */
        mooi_tcp_drop(plane->net->networks.tcp, peer->id, err);
        return;
    }
    reach->was_linked = 1;
    reach->released = 0;
    reach->paused_ns = 0;
    end_silence(plane, reach);
    reach->ended++;
    reach->links++;
    mooi_tcp_address(reach->out.link, &reach->linked_at);
    explain(plane->net, peer);
    mooi_peer_set_state(plane, peer, MOOI_PEER_LINKED);
    pthread_cond_broadcast(&plane->net->decided);
}

/* The importer could not read from the fabric: change to TCP if that is
 * allowed. It will then request the fetches that it has not begun. */
void mooi_route_control(moo_plane *plane, struct mooi_peer *peer,
                        const uint8_t *control, size_t length)
{
    struct mooi_control parsed;
    moo_err err;

    if (mooi_control_parse(control, length, &parsed) != MOO_OK ||
        parsed.kind != MOOI_CONTROL_FAILED) {
        mooi_tcp_drop(plane->net->networks.tcp, peer->id, MOO_EPROTO);
        return;
    }
    if (peer->transport != MOO_TRANSPORT_OFI)
        return; /* we have changed already */
    peer->reach->fabric_failed = 1;
    if (choose_network(plane->net, peer->reach) != &mooi_over_tcp)
        return;
    take_network(peer, &mooi_over_tcp);
    explain(plane->net, peer);
    err = begin_serving(plane, peer);
    if (err != MOO_OK)
        mooi_tcp_drop(plane->net->networks.tcp, peer->id, err);
}

/* The error for the exporter. If a process had a link and nobody listens at
 * its address any more, it is gone. A process that never had a link may be
 * behind a firewall, and one that only lost the connection may well be
 * alive. */
static moo_err outcome_of(const struct mooi_reach *reach, moo_err why)
{
    if (why == MOO_ECLOSED)
        return why;
    return reach->was_linked &&
                   mooi_tcp_nobody_at(reach->out.link, &reach->linked_at)
               ? MOO_EPEER
               : MOO_EUNREACHABLE;
}

/* Whether the link of a living peer was lost under something. Then its leases
 * stay, and it is called once more. A peer that hangs up on that call, too, may be
 * about to die: calls go on until nobody listens. */
static int is_called_again(const moo_plane *plane, const struct mooi_peer *peer,
                           moo_err why, int silent)
{
    const struct mooi_reach *reach = peer->reach;
    uint64_t now = mooi_now_ns();

    if (plane->closed || why != MOO_EPEER)
        return 0;
    if (peer->state == MOOI_PEER_LINKED)
        return (silent || peer->held.leases) &&
               (reach->losses < MOST_LOSSES ||
                now - reach->losses_ns > LOSSES_NS);
    return peer->state == MOOI_PEER_CALLING && !silent &&
           now - reach->lost_ns < MOOI_HANGS_UP_MS * MOOI_MS &&
           !mooi_tcp_nobody_at(reach->out.link, &reach->linked_at);
}

static void count_loss(struct mooi_reach *reach)
{
    reach->lost_ns = mooi_now_ns();
    if (reach->lost_ns - reach->losses_ns > LOSSES_NS) {
        reach->losses_ns = reach->lost_ns;
        reach->losses = 0;
    }
    reach->losses++;
}

/* At once, for it may be back already, or in a moment. */
static void call_again(moo_plane *plane, struct mooi_peer *peer, int silent)
{
    struct mooi_reach *reach = peer->reach;

    if (peer->state == MOOI_PEER_LINKED)
        count_loss(reach);
    reach->tried_ns = mooi_now_ns();
    if (silent || mooi_thread_start(plane) != MOO_OK)
        (void)mooi_route_call(plane, peer);
    else
        (void)mooi_peer_tried(plane, peer, MOO_ETIMEOUT);
}

/* The call has failed, or the link is not called again. */
static void give_up(moo_plane *plane, struct mooi_peer *peer, moo_err err,
                    int silent)
{
    struct mooi_reach *reach = peer->reach;
    int stood = peer->state == MOOI_PEER_LINKED;

    mooi_route_fail(plane, peer, err);
    if (silent)
        reach->out_ns = mooi_now_ns();
    else if (stood)
        reach->paused_ns = 0; /* the next export calls again, at once */
}

void mooi_route_down(moo_plane *plane, struct mooi_peer *peer, moo_err why)
{
    struct mooi_reach *reach = peer->reach;
    struct mooi_tcp_link *link = reach->out.link;
    int silent = reach->was_linked && mooi_tcp_is_unanswered(link);
    int again = is_called_again(plane, peer, why, silent);
    moo_err err = outcome_of(reach, why);
    char story[MOOI_WHY_BYTES - 64];

    mooi_tcp_reason(link, story, sizeof story);
    mooi_tcp_rele(link);
    reach->out.link = NULL;
    if (peer->state != MOOI_PEER_DEAD) {
        mooi_route_say(reach, "%s: %s",
                       peer->network ? peer->network->scheme : "tcp", story);
        if (again)
            call_again(plane, peer, silent);
        else
            give_up(plane, peer, err, silent);
    }
    reach->ended += !again;
    pthread_cond_broadcast(&plane->net->decided);
}
