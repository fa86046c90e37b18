/* SPDX-License-Identifier: MIT */
/* network.c: the engine moves the bytes over the link itself. */
#include "transport/network.h"

moo_err mooi_control_send(struct mooi_tcp_link *link,
                          const struct mooi_control *control)
{
    uint8_t bytes[MOOI_CONTROL_BYTES];

    return mooi_tcp_control(link, bytes, mooi_control_pack(control, bytes));
}

static moo_err tcp_tell(struct mooi_networks *networks,
                        struct mooi_outgoing *to)
{
    (void)networks;
    (void)to;
    return MOO_OK;
}

static moo_err tcp_hear(struct mooi_networks *networks,
                        struct mooi_incoming *from,
                        const struct mooi_control *control)
{
    (void)networks;
    (void)from;
    return control->kind == MOOI_CONTROL_SERVE ? MOO_OK : MOO_EPROTO;
}

static moo_err tcp_pull(struct mooi_pull *pull)
{
    return mooi_tcp_fetch(pull->incoming->link, &pull->name, pull->offset,
                          pull->length, pull->target, pull);
}

static moo_err tcp_cancel(struct mooi_pull *pull)
{
    pthread_mutex_t *lock = pull->networks->lock;
    struct mooi_tcp_link *link;
    moo_err err;

    pthread_mutex_lock(lock);
    link = pull->incoming->link;
    if (link)
        mooi_tcp_hold(link);
    pthread_mutex_unlock(lock);
    if (!link)
        return MOO_ESTALE; /* it ended with the link */
    err = mooi_tcp_cancel(link, pull);
    mooi_tcp_rele(link);
    return err;
}

static void tcp_pulled(struct mooi_pull *pull)
{
    (void)pull; /* the engine has freed what was its own */
}

static void tcp_part(struct mooi_networks *networks, struct mooi_incoming *from)
{
    (void)networks; /* the engine has ended all fetches before */
    (void)from;
}

const struct mooi_network_ops mooi_over_tcp = {
    .scheme = "tcp",
    .bit = MOO_TRANSPORT_TCP,
    .tell = tcp_tell,
    .hear = tcp_hear,
    .pull = tcp_pull,
    .cancel = tcp_cancel,
    .pulled = tcp_pulled,
    .part = tcp_part,
};
