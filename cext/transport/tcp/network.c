/* SPDX-License-Identifier: MIT */
/* network.c: the bytes move over the link itself, as the engine does it. */
#include "plane/net.h"

static moo_err tcp_tell(moo_plane *plane, struct mooi_peer *peer)
{
    (void)plane;
    (void)peer;
    return MOO_OK;
}

static moo_err tcp_hear(moo_plane *plane, struct mooi_source *source,
                        const struct mooi_note *note)
{
    (void)plane;
    (void)source;
    return note->kind == MOOI_NOTE_SERVE ? MOO_OK : MOO_EPROTO;
}

static moo_err tcp_pull(moo_plane *plane, struct mooi_source *source,
                        struct moo_fetch *fetch)
{
    struct mooi_lease_name name = {.slab = fetch->d.slab,
                                   .lease = fetch->d.lease,
                                   .generation = fetch->d.generation};

    (void)plane;
    return mooi_tcp_fetch(source->link, &name, fetch->d.offset,
                          fetch->d.length, fetch->target, fetch);
}

static moo_err tcp_cancel(moo_plane *plane, struct mooi_source *source,
                          struct moo_fetch *fetch)
{
    struct mooi_tcp_link *link;
    moo_err err;

    pthread_mutex_lock(&plane->lock);
    link = source->link;
    if (link)
        mooi_tcp_hold(link);
    pthread_mutex_unlock(&plane->lock);
    if (!link)
        return MOO_ESTALE; /* it ended with the link */
    err = mooi_tcp_cancel(link, fetch);
    mooi_tcp_rele(link);
    return err;
}

static void tcp_part(moo_plane *plane, struct mooi_source *source)
{
    (void)plane; /* the engine has ended all fetches before */
    (void)source;
}

const struct mooi_transport mooi_over_tcp = {
    .scheme = "tcp",
    .bit = MOO_TRANSPORT_TCP,
    .tell = tcp_tell,
    .hear = tcp_hear,
    .pull = tcp_pull,
    .cancel = tcp_cancel,
    .part = tcp_part,
};
