/* SPDX-License-Identifier: MIT */
/* port.c: an endpoint with its completion queue and addresses. */
#include "transport/ofi/internal.h"

#include <netinet/in.h>
#include <string.h>

/* Large enough for the pieces, with room for a provider's own completions. */
#define QUEUE_ENTRIES (2 * MOOI_FABRIC_PIECES)

/* With a descriptor to sleep on, if the provider has one. */
static int open_queue(struct mooi_fabric *fabric, struct mooi_fabric_port *port)
{
    struct fi_cq_attr attr = {.size = QUEUE_ENTRIES,
                              .format = FI_CQ_FORMAT_CONTEXT,
                              .wait_obj = FI_WAIT_FD};
    int err = fi_cq_open(fabric->domain, &attr, &port->cq, NULL);

    if (err) {
        attr.wait_obj = FI_WAIT_NONE;
        return fi_cq_open(fabric->domain, &attr, &port->cq, NULL);
    }
    if (fi_control(&port->cq->fid, FI_GETWAIT, &port->fd))
        port->fd = -1;
    return 0;
}

static int open_addresses(struct mooi_fabric *fabric,
                          struct mooi_fabric_port *port)
{
    struct fi_av_attr attr = {.type = fabric->info->domain_attr->av_type};

    return fi_av_open(fabric->domain, &attr, &port->av, NULL);
}

static int open_endpoint(struct mooi_fabric *fabric,
                         struct mooi_fabric_port *port)
{
    int err = fi_endpoint(fabric->domain, fabric->info, &port->ep, NULL);

    if (!err)
        err = fi_ep_bind(port->ep, &port->cq->fid, FI_TRANSMIT | FI_RECV);
    if (!err)
        err = fi_ep_bind(port->ep, &port->av->fid, 0);
    return err ? err : fi_enable(port->ep);
}

static int open_all(struct mooi_fabric *fabric, struct mooi_fabric_port *port)
{
    int err;

    memset(port, 0, sizeof *port);
    port->fd = -1;
    err = open_queue(fabric, port);
    if (!err)
        err = open_addresses(fabric, port);
    if (!err)
        err = open_endpoint(fabric, port);
    if (err)
        mooi_fabric_port_close(port);
    return err;
}

/* Where an endpoint will listen; NULL: it has no such address. */
static in_port_t *socket_port_of(struct fi_info *info)
{
    struct sockaddr *address = info->src_addr;

    if (address && address->sa_family == AF_INET &&
        info->src_addrlen >= sizeof(struct sockaddr_in))
        return &((struct sockaddr_in *)info->src_addr)->sin_port;
    if (address && address->sa_family == AF_INET6 &&
        info->src_addrlen >= sizeof(struct sockaddr_in6))
        return &((struct sockaddr_in6 *)info->src_addr)->sin6_port;
    return NULL;
}

/* Every attempt has a queue of its own: when an endpoint could not be enabled,
 * as another process took the port between its bind and its listen, libfabric
 * 1.17 leaves it in the queue's list, closed as it is, and fi_trywait crashes. */
int mooi_fabric_port_open(struct mooi_fabric *fabric,
                          struct mooi_fabric_port *port)
{
    in_port_t *listen_at = socket_port_of(fabric->info);
    int err = -FI_EADDRINUSE;

    if (!fabric->first_port)
        return open_all(fabric, port);
    if (!listen_at)
        return -FI_EADDRNOTAVAIL;
    for (uint32_t one = fabric->first_port;
         one <= fabric->last_port && err == -FI_EADDRINUSE; one++) {
        *listen_at = htons((uint16_t)one);
        err = open_all(fabric, port);
    }
    *listen_at = 0;
    return err;
}

void mooi_fabric_port_close(struct mooi_fabric_port *port)
{
    if (port->ep)
        fi_close(&port->ep->fid);
    if (port->av)
        fi_close(&port->av->fid);
    if (port->cq)
        fi_close(&port->cq->fid);
    memset(port, 0, sizeof *port);
    port->fd = -1;
}
