/* SPDX-License-Identifier: MIT */
/*
 * master.c: a group's master (protocol/master.h) for those who carry its frames.
 */
#include <stdlib.h>

#include "collective/outbox.h"
#include "collective/protocol/master.h"
#include "core/clock.h"
#include "mooactor.h"
#include "transport/tcp/handshake.h"

_Static_assert(MOO_GROUP_FRAME_BYTES >= MOOI_FRAME_BYTES,
               "a frame must fit where the header says");

struct moo_group_master {
    struct mooi_master master;
    struct mooi_roll roll;
    struct mooi_outbox outbox;
};

static void set_clock(moo_group_master *master)
{
    master->master.now_ms = (uint64_t)(mooi_now() * 1e3);
}

static void post(void *to, uint32_t host, const struct mooi_frame *frame)
{
    mooi_outbox_add(&((moo_group_master *)to)->outbox, host, frame);
}

moo_err moo_group_master_open(moo_group_master **out)
{
    moo_group_master *master = calloc(1, sizeof *master);
    if (!master)
        return MOO_ENOMEM;
    master->master.roll = &master->roll;
    master->master.emit = post;
    master->master.to = master;
    if (mooi_random(master->master.key, sizeof master->master.key)) {
        free(master);
        return MOO_ESYS;
    }
    *out = master;
    return MOO_OK;
}

moo_err moo_group_master_take(moo_group_master *master, uint32_t host,
                              const void *bytes, size_t length)
{
    struct mooi_frame frame;
    if (!host || !mooi_frame_read(&frame, NULL, bytes, length))
        return MOO_EPROTO;
    set_clock(master);
    mooi_master_take(&master->master, host, &frame);
    return MOO_OK;
}

void moo_group_master_lost(moo_group_master *master, uint32_t host)
{
    set_clock(master);
    mooi_master_lost(&master->master, host);
}

size_t moo_group_master_next(moo_group_master *master, uint32_t *host,
                             void *bytes)
{
    return mooi_outbox_next(&master->outbox, host, bytes);
}

void moo_group_master_close(moo_group_master *master)
{
    mooi_outbox_clear(&master->outbox);
    free(master);
}
