/* SPDX-License-Identifier: MIT */
/*
 * group.c: joining a group, looking at it, leaving it. The operations are in
 * work.c.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collective/process.h"
#include "collective/ring.h"
#include "collective/view.h"
#include "core/clock.h"

/* ---- joining ---- */

static void init_locks(moo_group *group)
{
    mooi_cond_init(&group->changed);
    pthread_mutex_init(&group->mutex, NULL);
}

#define ALL_TRANSPORTS \
    (MOO_TRANSPORT_SHM | MOO_TRANSPORT_OFI | MOO_TRANSPORT_TCP)

#define STRIPES 1 /* unless the options say otherwise */

static moo_err take_options(moo_group *group, const moo_group_options *options)
{
    struct mooi_address address;
    const char *bind = options && options->bind ? options->bind : "";
    group->transports = options && options->transports ? options->transports
                                                       : ALL_TRANSPORTS;
    group->checks = options && options->checksum;
    group->finishes = options && options->finishes;
    group->policy = group->finishes | (options ? options->backend << 1 : 0);
    group->stripes = options && options->stripes ? options->stripes : STRIPES;
    if (group->transports & ~(uint32_t)ALL_TRANSPORTS ||
        group->stripes > MOO_STRIPES_MAX || group->policy > 255 ||
        strlen(bind) >= sizeof group->bind ||
        (*bind && strcmp(bind, "*") && mooi_address_parse(bind, 0, &address)))
        return MOO_EINVAL;
    strcpy(group->bind, bind);
    if (!(group->transports & (MOO_TRANSPORT_TCP | MOO_TRANSPORT_OFI)))
        return MOO_OK;
    return mooi_socket_listen_within(*bind ? bind : NULL,
                                     options ? options->first_port : 0,
                                     options ? options->last_port : 0,
                                     &group->listener);
}

static void let_go(moo_group *group)
{
    close(group->agent);
    if (group->listener >= 0)
        close(group->listener);
}

moo_err mooi_join_at(struct mooi_segment *segment, int bell,
                     uint64_t process_id, uint32_t min_size, double timeout_s,
                     const moo_group_options *options, moo_group **out)
{
    if (min_size < 1 || min_size > MOO_GROUP_MAX || !(timeout_s > 0))
        return MOO_EINVAL;
    moo_group *group = calloc(1, sizeof *group);
    if (!group)
        return MOO_ENOMEM;
    group->algorithms = &mooi_shm_collective;
    group->min_size = group->info.min_size = min_size;
    group->pid = getpid();
    group->start = mooi_start_time(group->pid);
    group->agent = fcntl(bell, F_DUPFD_CLOEXEC, 0);
    if (group->agent < 0 || !group->start) { /* the agent could not watch it */
        free(group);
        return MOO_ESYS;
    }
    group->id = process_id;
    group->timeout = timeout_s;
    group->holds = 1;
    group->listener = -1;
    moo_err err = take_options(group, options);
    if (!err)
        err = mooi_enter(group, segment);
    if (err) {
        let_go(group);
        free(group);
        return err;
    }
    init_locks(group);
    *out = group;
    return MOO_OK;
}

moo_err moo_group_join(int fd, int bell, uint64_t process_id, uint32_t min_size,
                       double timeout_s, const moo_group_options *options,
                       moo_group **out)
{
    struct mooi_segment *segment;
    moo_err err = mooi_segment_map(fd, &segment);
    if (err)
        return err;
    err = mooi_join_at(segment, bell, process_id, min_size, timeout_s, options,
                       out);
    if (err)
        mooi_segment_unmap(segment);
    else
        (*out)->mapped = true;
    return err;
}

/* ---- looking ---- */

/* MOO_OK: the mutex is held, and until it is let go of the group stays open.
 * The child of a fork never takes it: a thread that it has not got may hold
 * it. */
static moo_err look(moo_group *group)
{
    if (getpid() != group->pid)
        return MOO_EFORK;
    pthread_mutex_lock(&group->mutex);
    if (!group->closing)
        return MOO_OK;
    pthread_mutex_unlock(&group->mutex);
    return MOO_ECLOSED;
}

moo_err moo_group_describe(moo_group *group, moo_group_info *info)
{
    moo_err err = look(group);
    if (err)
        return err;
    *info = group->info;
    info->hosts = group->hosts.count;
    info->transport = mooi_carrier(group);
    pthread_mutex_unlock(&group->mutex);
    return MOO_OK;
}

moo_err moo_group_members(moo_group *group, moo_member *members,
                          uint32_t *size)
{
    moo_err err = look(group);
    if (err)
        return err;
    *size = group->info.size;
    mooi_describe_members(group, members);
    pthread_mutex_unlock(&group->mutex);
    return MOO_OK;
}

moo_err moo_group_obstacle(moo_group *group, moo_outcome *out)
{
    moo_err err = look(group);
    if (err)
        return err;
    mooi_obstacle(group, out);
    pthread_mutex_unlock(&group->mutex);
    return MOO_OK;
}

/* ---- leaving ---- */

/* Invariant: once `closing` is set under the mutex no operation begins, and
 * none is queued; once mooi_group_stop has returned no thread is inside one,
 * and none touches the segment or the ring. */
void moo_group_close(moo_group *group)
{
    if (look(group))
        return;
    mooi_group_stop(group);
    bool midway = group->head &&
                  (group->head->entered || group->head->signature.part);
    mooi_group_fail_queued(group);
    pthread_mutex_unlock(&group->mutex);
    mooi_exit(group, midway);
    mooi_ring_free(group); /* after that: who sees it waits for a decision */
    let_go(group);
    if (group->mapped)
        mooi_segment_unmap(group->segment);
}

void moo_group_leave(moo_group *group)
{
    if (getpid() != group->pid) {
        mooi_ring_disown(group);
        let_go(group);
        if (group->mapped)
            mooi_segment_unmap(group->segment);
        return; /* the rest is a copy of objects that another process uses */
    }
    moo_group_close(group);
    pthread_mutex_lock(&group->mutex);
    mooi_group_rele(group);
}

void moo_group_clear(moo_group **slot)
{
    if (*slot)
        moo_group_leave(*slot);
    *slot = NULL;
}
