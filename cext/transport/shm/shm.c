/* SPDX-License-Identifier: MIT */
/*
 * shm.c: between processes of one host. The owner pushes its memfds over a
 * unix socket; leases are given back through its shared ledger, without a
 * system call.
 */
#include "transport/shm/shm.h"

#include <fcntl.h>
#include <sys/socket.h>

#include "core/fd.h"
#include "core/pages.h"

void mooi_local_init(struct mooi_local *local)
{
    local->directory = local->listener = -1;
    local->owners = NULL;
    local->pagemap = mooi_pagemap_open();
    pthread_mutex_init(&local->accepting, NULL);
}

moo_err mooi_local_open(struct mooi_local *local, const char *directory)
{
    local->directory = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (local->directory < 0)
        return MOO_ESYS;
    return mooi_link_listen(local, &local->listener);
}

/* Under `accepting`, so that the number cannot become another file for a
 * thread that waits there; the waiting threads are woken first. */
void mooi_local_stop(struct mooi_local *local)
{
    if (local->listener >= 0)
        shutdown(local->listener, SHUT_RDWR);
    pthread_mutex_lock(&local->accepting);
    mooi_close_fd(&local->listener);
    mooi_close_fd(&local->directory);
    pthread_mutex_unlock(&local->accepting);
}

void mooi_local_disown(struct mooi_local *local)
{
    mooi_close_fd(&local->listener);
    for (struct mooi_owner *o = local->owners; o; o = o->next)
        mooi_close_fd(&o->fd);
}

/* An owner in use here keeps its connection: hanging up would end our
 * leases. */
void mooi_local_close(struct mooi_local *local)
{
    for (struct mooi_owner *o = local->owners; o; o = o->next)
        o->forget_at_ns = 1;
    mooi_owners_reap(local);
    mooi_close_fd(&local->pagemap); /* each drop will clean all pages instead */
}

void mooi_local_fini(struct mooi_local *local)
{
    mooi_owners_fini(local);
    pthread_mutex_destroy(&local->accepting);
}

static moo_err shm_attach(struct mooi_local *local,
                          const struct mooi_descriptor *d, int timeout_ms,
                          struct mooi_owner **owner, struct mooi_mapped **slab)
{
    moo_err err = mooi_owner_pin(local, d->owner, timeout_ms, owner);

    if (err != MOO_OK)
        return err;
    err = mooi_owner_slab(local, *owner, d->slab, timeout_ms, slab);
    if (err != MOO_OK)
        mooi_owner_unpin(local, *owner);
    return err;
}

static void shm_release(struct mooi_local *local, struct mooi_owner *owner,
                        uint32_t lease, uint32_t generation,
                        enum mooi_lease_state from)
{
    (void)local;
    mooi_ledger_release(owner->ledger, lease, generation, from);
}

const struct mooi_local_ops mooi_shm = {
    .scheme = "shm",
    .attach = shm_attach,
    .grant = mooi_owner_grant,
    .release = shm_release,
};
