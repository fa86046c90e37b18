/* SPDX-License-Identifier: MIT */
/* owner.c: our view of another process whose memory we have mapped. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/pages.h"
#include "transport/shm/shm.h"

#define GRANT_TIMEOUT_MS 2000

struct mooi_owner *mooi_owner_find(struct mooi_local *local, uint64_t id)
{
    struct mooi_owner *owner = local->owners;

    while (owner && owner->id != id)
        owner = owner->next;
    return owner;
}

struct mooi_owner *mooi_owner_new(struct mooi_local *local, uint64_t id, int fd,
                                  struct mooi_ledger *ledger, uint32_t entries)
{
    struct mooi_owner *owner = calloc(1, sizeof *owner);

    if (!owner)
        return NULL;
    owner->id = id;
    owner->fd = fd;
    owner->ledger = ledger;
    owner->entries = entries;
    for (int i = 0; i < MOOI_MAX_SLABS; i++)
        owner->slab[i].fd = -1;
    pthread_mutex_init(&owner->rpc, NULL);
    owner->next = local->owners;
    local->owners = owner;
    return owner;
}

struct mooi_owner *mooi_owner_self(struct mooi_local *local)
{
    struct mooi_owner *owner = mooi_owner_find(local, local->id);

    return owner ? owner
                 : mooi_owner_new(local, local->id, -1, local->leases->ledger,
                                  MOOI_LEDGER_ENTRIES);
}

static void forget(struct mooi_local *local, struct mooi_owner *owner)
{
    for (int i = 0; i < MOOI_MAX_SLABS; i++)
        mooi_mapped_fini(local, &owner->slab[i]);
    if (owner->fd >= 0) {
        close(owner->fd);
        mooi_ledger_unmap(owner->ledger, owner->entries);
    }
    pthread_mutex_destroy(&owner->rpc);
    free(owner);
}

uint64_t mooi_owners_reap(struct mooi_local *local)
{
    struct mooi_owner **link = &local->owners, *owner;
    uint64_t soonest = UINT64_MAX, now = 0;

    while ((owner = *link)) {
        if (owner->forget_at_ns && !owner->live) {
            now = now ? now : mooi_now_ns();
            if (owner->forget_at_ns <= now) {
                *link = owner->next;
                forget(local, owner);
                continue;
            }
            if (owner->forget_at_ns - now < soonest)
                soonest = owner->forget_at_ns - now;
        }
        link = &owner->next;
    }
    return soonest;
}

void mooi_owner_unpin(struct mooi_local *local, struct mooi_owner *owner)
{
    pthread_mutex_lock(local->lock);
    owner->live--;
    pthread_mutex_unlock(local->lock);
}

void mooi_owners_fini(struct mooi_local *local)
{
    while (local->owners) {
        struct mooi_owner *owner = local->owners;
        local->owners = owner->next;
        forget(local, owner);
    }
}

void mooi_owner_lost(struct mooi_local *local, uint64_t id, int grace_ms)
{
    for (struct mooi_owner *o = local->owners; o; o = o->next)
        if (o->id == id && !o->forget_at_ns)
            o->forget_at_ns =
                mooi_now_ns() + (uint64_t)grace_ms * 1000000u + 1;
}

/* One of our own slabs; lock held. */
static moo_err slab_of_self(struct mooi_local *local, struct mooi_owner *owner,
                            uint32_t index)
{
    struct mooi_mapped *slab = &owner->slab[index];

    if (index >= local->arena->slabs)
        return MOO_EPROTO;
    if (slab->fd < 0) {
        slab->fd = dup(local->arena->slab[index].fd);
        slab->bytes = local->arena->slab[index].bytes;
    }
    return slab->fd < 0 ? MOO_ESYS : MOO_OK;
}

/* Keep a slab that the owner pushed; `fd` becomes ours on MOO_OK. */
static moo_err take_slab(struct mooi_local *local, struct mooi_owner *owner,
                         const struct mooi_message *m, int fd)
{
    uint32_t index = m->u.slab.index;
    uint64_t bytes = m->u.slab.size;
    moo_err err = MOO_EPROTO;

    if (index >= MOOI_MAX_SLABS || bytes % mooi_page() ||
        !mooi_memfd_has(fd, bytes))
        return MOO_EPROTO;
    pthread_mutex_lock(local->lock);
    if (owner->slab[index].fd < 0) {
        owner->slab[index].bytes = bytes;
        owner->slab[index].fd = fd;
        err = MOO_OK;
    }
    pthread_mutex_unlock(local->lock);
    return err;
}

/* Receive one message of an owner; slabs are taken, an answer is returned in
 * *out with kind MOOI_MSG_GRANTED. The owner's rpc lock is held. */
static moo_err hear(struct mooi_local *local, struct mooi_owner *owner,
                    int timeout_ms, struct mooi_message *out)
{
    int fd;
    moo_err err = mooi_link_receive(owner->fd, out, &fd, timeout_ms);

    if (err == MOO_OK && out->kind == MOOI_MSG_SLAB) {
        err = take_slab(local, owner, out, fd);
        if (err == MOO_OK)
            return MOO_OK;
    } else if (err == MOO_OK && out->kind != MOOI_MSG_GRANTED) {
        err = MOO_EPROTO;
    }
    if (fd >= 0)
        close(fd);
    return err;
}

static int has_slab(struct mooi_local *local, struct mooi_owner *owner,
                    uint32_t index)
{
    int has;

    pthread_mutex_lock(local->lock);
    has = owner->slab[index].fd >= 0;
    pthread_mutex_unlock(local->lock);
    return has;
}

moo_err mooi_owner_slab(struct mooi_local *local, struct mooi_owner *owner,
                        uint32_t index, int timeout_ms,
                        struct mooi_mapped **out)
{
    struct mooi_message m;
    moo_err err = MOO_OK;

    if (index >= MOOI_MAX_SLABS)
        return MOO_EPROTO;
    *out = &owner->slab[index];
    if (owner->fd < 0) {
        pthread_mutex_lock(local->lock);
        err = slab_of_self(local, owner, index);
        pthread_mutex_unlock(local->lock);
        return err;
    }
    if (has_slab(local, owner, index))
        return MOO_OK;
    pthread_mutex_lock(&owner->rpc);
    while (err == MOO_OK && !has_slab(local, owner, index))
        err = hear(local, owner, timeout_ms, &m);
    pthread_mutex_unlock(&owner->rpc);
    return err;
}

/* Wait for the answer to request `sequence`; older answers, to requests that
 * timed out, are ignored (nobody uses their leases, which end with the death
 * of the third process). The owner's rpc lock is held. */
static moo_err await_grant(struct mooi_local *local, struct mooi_owner *owner,
                           uint32_t sequence, struct mooi_message *out)
{
    for (;;) {
        moo_err err = hear(local, owner, GRANT_TIMEOUT_MS, out);
        if (err != MOO_OK)
            return err;
        if (out->kind != MOOI_MSG_GRANTED)
            continue;
        if (out->u.granted.sequence == sequence)
            return out->u.granted.error;
        if (out->u.granted.error == MOO_OK &&
            out->u.granted.lease < owner->entries)
            mooi_ledger_release(owner->ledger, out->u.granted.lease,
                                out->u.granted.generation, MOOI_GRANTED);
    }
}

static void fill_grant(struct mooi_message *m, struct mooi_owner *owner,
                       const struct mooi_import *import, uint64_t offset,
                       uint64_t length, uint64_t to, int moved)
{
    memset(m, 0, sizeof *m);
    m->kind = MOOI_MSG_GRANT;
    m->u.grant.sequence = ++owner->sequence;
    m->u.grant.slab = import->slab;
    m->u.grant.offset = offset;
    m->u.grant.length = length;
    m->u.grant.to = to;
    m->u.grant.lease = import->lease;
    m->u.grant.generation = import->generation;
    m->u.grant.flags = (uint32_t)moved;
}

moo_err mooi_owner_grant(struct mooi_local *local,
                         const struct mooi_import *import, uint64_t offset,
                         uint64_t length, uint64_t to, int moved,
                         struct mooi_descriptor *out)
{
    struct mooi_owner *owner = import->owner;
    struct mooi_message m;
    moo_err err;

    pthread_mutex_lock(&owner->rpc);
    fill_grant(&m, owner, import, offset, length, to, moved);
    err = mooi_link_send(owner->fd, &m, -1);
    if (err == MOO_OK)
        err = await_grant(local, owner, owner->sequence, &m);
    pthread_mutex_unlock(&owner->rpc);
    if (err == MOO_OK && m.u.granted.lease >= owner->entries)
        err = MOO_EPROTO;
    if (err == MOO_OK)
        *out = (struct mooi_descriptor){.owner = owner->id,
                                        .offset = offset,
                                        .length = length,
                                        .slab = import->slab,
                                        .lease = m.u.granted.lease,
                                        .generation = m.u.granted.generation,
                                        .flags = (uint8_t)m.u.granted.flags};
    return err;
}
