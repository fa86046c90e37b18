/* SPDX-License-Identifier: MIT */
/* net.c: a plane's net: its opening, the engine's events, its end. */
#include "plane/net.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plane/endpoint_file.h"
#include "plane/net_leases.h"
#include "plane/route.h"
#include "plane/source.h"

/* ---- the engine's events; each takes the lock ---- */

static void on_up(void *context, struct mooi_tcp_link *link, uint64_t id,
                  int incoming)
{
    moo_plane *plane = context;
    struct mooi_peer *peer;

    pthread_mutex_lock(&plane->lock);
    peer = mooi_peer_find(plane, id);
    if (incoming)
        mooi_source_up(plane, link, id);
    else if (peer && peer->reach && peer->reach->out.link == link &&
             peer->state == MOOI_PEER_CALLING)
        mooi_route_up(plane, peer);
    pthread_mutex_unlock(&plane->lock);
}

static void on_down(void *context, struct mooi_tcp_link *link, uint64_t id,
                    moo_err why)
{
    moo_plane *plane = context;
    struct mooi_peer *peer;

    pthread_mutex_lock(&plane->lock);
    peer = mooi_peer_find(plane, id);
    if (peer && peer->reach && peer->reach->out.link == link)
        mooi_route_down(plane, peer, why);
    else
        mooi_source_down(plane, link, id, why);
    pthread_mutex_unlock(&plane->lock);
}

static void on_control(void *context, struct mooi_tcp_link *link, uint64_t id,
                       const uint8_t *bytes, size_t length)
{
    moo_plane *plane = context;
    struct mooi_peer *peer;

    pthread_mutex_lock(&plane->lock);
    peer = mooi_peer_find(plane, id);
    if (peer && peer->reach && peer->reach->out.link == link)
        mooi_route_control(plane, peer, bytes, length);
    else
        mooi_source_control(plane, link, id, bytes, length);
    pthread_mutex_unlock(&plane->lock);
}

static void on_fetched(void *context, void *cookie, moo_err result)
{
    moo_plane *plane = context;

    pthread_mutex_lock(&plane->lock);
    mooi_source_ended(cookie, result);
    pthread_mutex_unlock(&plane->lock);
}

static moo_err open_engine(moo_plane *plane, struct mooi_net *net,
                           const moo_serve_options *options)
{
    struct mooi_tcp_events events = {.context = plane,
                                     .up = on_up,
                                     .down = on_down,
                                     .source = mooi_net_source,
                                     .sourced = mooi_net_sourced,
                                     .released = mooi_net_released,
                                     .control = on_control,
                                     .fetched = on_fetched};
    struct mooi_tcp_options tcp = {.id = plane->id,
                                   .bind = options->bind,
                                   .first_port = options->first_port,
                                   .last_port = options->last_port,
                                   .stripes = options->stripes,
                                   .threads = options->threads,
                                   .checksum = options->checksum};

    memcpy(tcp.key, plane->key, MOOI_KEY_BYTES);
    memcpy(tcp.host, net->endpoint.host, MOOI_HOST_BYTES);
    return mooi_tcp_open(&tcp, &events, &net->networks.tcp);
}

static void fill_endpoint(moo_plane *plane, struct mooi_net *net)
{
    net->endpoint.process = plane->id;
    net->endpoint.transports = net->transports;
    net->endpoint.addresses = (uint32_t)mooi_tcp_addresses(
        net->networks.tcp, net->endpoint.address, MOOI_ENDPOINT_ADDRESSES);
}

static moo_err try_fabric(struct mooi_net *net,
                          const moo_serve_options *options, char *why,
                          size_t room)
{
    struct mooi_fabric_options fabric = {.provider = options->provider,
                                         .bind = options->bind,
                                         .devices = options->devices,
                                         .first_port = options->first_port,
                                         .last_port = options->last_port};
    moo_err err;

    err = mooi_ofi_open(&fabric, &net->networks.fabric, why, room);
    if (err != MOO_OK)
        return err;
    snprintf(net->endpoint.provider, sizeof net->endpoint.provider, "%s",
             mooi_ofi->provider(net->networks.fabric));
    net->endpoint.fabric_address_bytes =
        (uint32_t)mooi_ofi->name(net->networks.fabric,
                                 net->endpoint.fabric_address);
    return MOO_OK;
}

/* An allowed transport that cannot be opened is left out, with the reason
 * noted. If it was the only one, or was named, that is an error. */
static moo_err open_fabric(moo_plane *plane, struct mooi_net *net,
                           const moo_serve_options *options)
{
    char why[MOOI_FABRIC_WHY_BYTES] = "";
    moo_err err;

    if (!(net->transports & MOO_TRANSPORT_OFI))
        return MOO_OK;
    err = try_fabric(net, options, why, sizeof why);
    if (err == MOO_OK)
        return MOO_OK;
    snprintf(plane->serve_why, sizeof plane->serve_why, "ofi: %s", why);
    net->transports &= ~(uint32_t)MOO_TRANSPORT_OFI;
    return net->transports && options->devices != MOO_DEVICES_REQUIRED ? MOO_OK
                                                                       : err;
}

static struct mooi_net *new_net(moo_plane *plane)
{
    struct mooi_net *net = calloc(1, sizeof *net);

    if (!net)
        return NULL;
    net->networks.lock = &plane->lock;
    net->networks.arena = &plane->arena;
    net->networks.ended = mooi_source_ended;
    mooi_cond_init(&net->decided);
    return net;
}

static void free_devices(struct mooi_net *net)
{
    while (net->devices) {
        struct mooi_device *device = net->devices;
        net->devices = device->next;
        free(device);
    }
}

static void free_net(struct mooi_net *net)
{
    free_devices(net);
    if (net->networks.fabric)
        mooi_ofi->close(net->networks.fabric);
    pthread_cond_destroy(&net->decided);
    free(net);
}

/* Under the lock, because the engine may call back at once. */
static moo_err start(moo_plane *plane, struct mooi_net *net,
                     const moo_serve_options *options)
{
    moo_err err;

    pthread_mutex_lock(&plane->lock);
    err = open_engine(plane, net, options);
    if (err == MOO_OK) {
        fill_endpoint(plane, net);
        plane->net = net;
    }
    pthread_mutex_unlock(&plane->lock);
    return err;
}

static int needs_net(const struct mooi_net *net)
{
    return net->transports != MOO_TRANSPORT_SHM;
}

/* The endpoint is announced first: opening a fabric takes long on a busy
 * machine, and others then know that an endpoint will come. */
static moo_err open_net(moo_plane *plane, struct mooi_net *net,
                        const moo_serve_options *options)
{
    moo_err err = mooi_host_identity(plane, net->endpoint.host);

    net->transports = options->transports;
    if (err == MOO_OK && needs_net(net))
        err = mooi_endpoint_announce(plane);
    if (err == MOO_OK)
        err = open_fabric(plane, net, options);
    if (err == MOO_OK && needs_net(net))
        err = start(plane, net, options);
    return err;
}

moo_err mooi_net_open(moo_plane *plane, const moo_serve_options *options)
{
    struct mooi_net *net = new_net(plane);
    moo_err err;
    int reason;

    if (!net)
        return MOO_ENOMEM;
    err = open_net(plane, net, options);
    if (err != MOO_OK || !needs_net(net)) {
        reason = errno;
        mooi_endpoint_withdraw(plane);
        free_net(net);
        errno = reason;
        return err;
    }
    return mooi_endpoint_publish(plane, &net->endpoint);
}

void mooi_net_close(moo_plane *plane)
{
    struct mooi_net *net = plane->net;
    struct mooi_tcp *tcp;

    pthread_mutex_lock(&plane->lock);
    pthread_cond_broadcast(&net->decided);
    while (net->busy)
        pthread_cond_wait(&net->decided, &plane->lock);
    tcp = net->networks.tcp;
    pthread_mutex_unlock(&plane->lock);
    if (!tcp)
        return; /* closed before */
    mooi_endpoint_withdraw(plane);
    mooi_tcp_stop(tcp);
    pthread_mutex_lock(&plane->lock);
    net->networks.tcp = NULL; /* forks and statistics find it there */
    pthread_mutex_unlock(&plane->lock);
    mooi_tcp_free(tcp);
    if (net->networks.fabric)
        mooi_ofi->close(net->networks.fabric);
    pthread_mutex_lock(&plane->lock);
    net->networks.fabric = NULL;
    mooi_source_fini(plane);
    pthread_mutex_unlock(&plane->lock);
}

void mooi_net_fini(moo_plane *plane)
{
    if (plane->net)
        free_net(plane->net);
    plane->net = NULL;
}

void mooi_net_before_fork(moo_plane *plane)
{
    if (plane->net && plane->net->networks.tcp)
        mooi_tcp_before_fork(plane->net->networks.tcp);
}

void mooi_net_after_fork(moo_plane *plane)
{
    if (plane->net && plane->net->networks.tcp)
        mooi_tcp_after_fork(plane->net->networks.tcp);
}

void mooi_net_disown(moo_plane *plane)
{
    if (plane->net && plane->net->networks.tcp)
        mooi_tcp_disown(plane->net->networks.tcp);
}
