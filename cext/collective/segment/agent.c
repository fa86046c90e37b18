/* SPDX-License-Identifier: MIT */
/*
 * agent.c: the agent's side of a group's segment. It drives the reducers of
 * protocol/: it reads what members ask for in their cells, watches their
 * processes, and writes views.
 *
 * All that it waits for makes one descriptor readable: an epoll of the bell and
 * of a pidfd for each member.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "collective/outbox.h"
#include "collective/process.h"
#include "collective/protocol/agent.h"
#include "collective/segment/segment.h"

struct watch {
    int pidfd; /* -1: none */
    int32_t pid;
};

struct moo_group_agent {
    struct mooi_segment *segment;
    bool mapped;
    int bell, events;
    char name[MOOI_HOST_NAME_BYTES];
    struct mooi_agent agent;
    struct mooi_outbox outbox; /* to the master */
    struct mooi_roll roll;     /* of a view that comes */
    struct watch watches[MOOI_TEAM_MAX];
};

/* ---- the segment ---- */

static void show(void *to, const struct mooi_frame *frame)
{
    struct mooi_segment *segment = ((moo_group_agent *)to)->segment;
    if (frame->kind == MOOI_WAITING) {
        atomic_store(&segment->newcomers, frame->waiting.count);
    } else if (frame->kind == MOOI_VIEW) {
        mooi_roll_copy(&segment->rolls[frame->view->epoch % ROLLS],
                       frame->view);
        atomic_store(&segment->newcomers, 0); /* unless it is told again */
        atomic_store(&segment->epoch, frame->view->epoch);
    } else if (frame->kind == MOOI_REFUSED) {
        for (uint32_t slot = 0; slot < MOOI_TEAM_MAX; slot++) {
            struct mooi_cell *cell = &segment->cells[slot];
            uint64_t taken = mooi_slot_word(cell->member.pid, TAKEN);
            if (atomic_load(&cell->serial) != frame->refused.serial)
                continue;
            atomic_store(&cell->refusal, frame->refused.why);
            atomic_compare_exchange_strong(
                &cell->state, &taken,
                mooi_slot_word(cell->member.pid, REFUSED));
        }
    }
}

static void to_master(void *to, const struct mooi_frame *frame)
{
    mooi_outbox_add(&((moo_group_agent *)to)->outbox, 0, frame);
}

/* ---- members ---- */

static void unwatch(moo_group_agent *agent, uint32_t slot)
{
    struct watch *watch = &agent->watches[slot];
    if (watch->pidfd >= 0)
        close(watch->pidfd);
    watch->pidfd = -1;
}

/* false: it is dead. Without a descriptor left it counts as dead, too: it could
 * not be trusted to be noticed. */
static bool watch(moo_group_agent *agent, uint32_t slot, int32_t pid,
                  uint32_t start)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = slot};
    int pidfd = mooi_watch_open(pid, start);
    if (pidfd < 0)
        return false;
    if (epoll_ctl(agent->events, EPOLL_CTL_ADD, pidfd, &event)) {
        close(pidfd);
        return false;
    }
    agent->watches[slot] = (struct watch){pidfd, pid};
    return true;
}

static void set_free(moo_group_agent *agent, uint32_t slot)
{
    struct mooi_cell *cell = &agent->segment->cells[slot];
    unwatch(agent, slot);
    atomic_store(&cell->serial, 0);
    atomic_store(&cell->state, mooi_slot_word(0, FREE));
}

static void let_in(moo_group_agent *agent, uint32_t slot)
{
    struct mooi_cell *cell = &agent->segment->cells[slot];
    struct mooi_member member = cell->member;
    uint64_t knocks = mooi_slot_word(member.pid, KNOCKS);
    member.slot = slot;
    memcpy(member.name, agent->name, sizeof member.name);
    if (agent->watches[slot].pidfd < 0 &&
        !watch(agent, slot, member.pid, cell->start)) {
        set_free(agent, slot);
        return;
    }
    if (!atomic_compare_exchange_strong(&cell->state, &knocks,
                                        mooi_slot_word(member.pid, TAKEN)))
        return; /* it has left already */
    mooi_agent_join(&agent->agent, &member, cell->min_size, cell->policy);
    atomic_store(&cell->serial, member.serial);
}

static void look_at(moo_group_agent *agent, uint32_t slot)
{
    struct mooi_cell *cell = &agent->segment->cells[slot];
    uint64_t state = atomic_load(&cell->state), complaint;
    struct mooi_cause cause;
    int32_t pid = (int32_t)(state >> 8);
    switch ((enum mooi_slot_state)(state & 0xff)) {
    case CLAIMED:
        if (agent->watches[slot].pidfd < 0 &&
            !watch(agent, slot, pid, mooi_start_time(pid)))
            set_free(agent, slot);
        break;
    case KNOCKS:
        let_in(agent, slot);
        break;
    case TAKEN:
        complaint = atomic_load(&cell->complaint);
        cause = mooi_complaint_in(complaint);
        if (complaint)
            mooi_agent_complain(&agent->agent, complaint >> 24, &cause);
        break;
    default:
        break;
    }
}

/* Whether its process is dead or not, a member that says that it leaves has
 * left. */
static void look_for_end(moo_group_agent *agent, uint32_t slot)
{
    const struct watch *watch = &agent->watches[slot];
    struct mooi_cell *cell = &agent->segment->cells[slot];
    bool left = mooi_slot_state(cell) == LEAVES;
    if (!left && (watch->pidfd < 0 || !mooi_watch_dead(watch->pidfd)))
        return;
    mooi_agent_gone(&agent->agent, slot, !left, left ? cell->begun : 0);
    set_free(agent, slot);
}

/* ---- the agent ---- */

moo_err mooi_agent_open_at(struct mooi_segment *segment, uint32_t host,
                           const char *name, moo_group_agent **out)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = UINT32_MAX};
    if (!host || strlen(name) >= sizeof ((moo_group_agent *)0)->name)
        return MOO_EINVAL;
    moo_group_agent *agent = calloc(1, sizeof *agent);
    if (!agent)
        return MOO_ENOMEM;
    strcpy(agent->name, name);
    agent->segment = segment;
    for (uint32_t slot = 0; slot < MOOI_TEAM_MAX; slot++)
        agent->watches[slot].pidfd = -1;
    agent->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    agent->events = epoll_create1(EPOLL_CLOEXEC);
    if (agent->bell < 0 || agent->events < 0 ||
        epoll_ctl(agent->events, EPOLL_CTL_ADD, agent->bell, &event)) {
        moo_group_agent_close(agent);
        return MOO_ESYS;
    }
    agent->agent = (struct mooi_agent){.host = host, .words = &segment->words,
                                       .emit = to_master, .show = show,
                                       .to = agent};
    segment->host = host;
    segment->version = SEGMENT_VERSION;
    atomic_store(&segment->magic, SEGMENT_MAGIC);
    *out = agent;
    return MOO_OK;
}

moo_err moo_group_agent_open(int fd, uint32_t host, const char *name,
                             moo_group_agent **out)
{
    struct mooi_segment *segment;
    moo_err err = mooi_segment_map(fd, &segment);
    if (err)
        return err;
    err = mooi_agent_open_at(segment, host, name, out);
    if (err)
        mooi_segment_unmap(segment);
    else
        (*out)->mapped = true;
    return err;
}

int moo_group_agent_bell(const moo_group_agent *agent)
{
    return agent->bell;
}

int moo_group_agent_fd(const moo_group_agent *agent)
{
    return agent->events;
}

void moo_group_agent_look(moo_group_agent *agent)
{
    uint64_t rings;
    bool rang = read(agent->bell, &rings, sizeof rings) > 0;
    /* Ends first: newcomers do not meet the dead, and a connection that broke
     * because a member left is no reason to complain. */
    for (uint32_t slot = 0; slot < MOOI_TEAM_MAX; slot++)
        look_for_end(agent, slot);
    mooi_agent_look(&agent->agent);
    for (uint32_t slot = 0; slot < MOOI_TEAM_MAX; slot++)
        look_at(agent, slot);
    mooi_agent_look(&agent->agent);
    if (rang)
        mooi_notify_all(agent->segment);
}

moo_err moo_group_agent_take(moo_group_agent *agent, const void *bytes,
                             size_t length)
{
    struct mooi_frame frame;
    if (!mooi_frame_read(&frame, &agent->roll, bytes, length))
        return MOO_EPROTO;
    mooi_agent_take(&agent->agent, &frame);
    mooi_agent_look(&agent->agent); /* it may have been told before the view */
    mooi_notify_all(agent->segment);
    return MOO_OK;
}

size_t moo_group_agent_next(moo_group_agent *agent, void *bytes)
{
    uint32_t master;
    return mooi_outbox_next(&agent->outbox, &master, bytes);
}

void moo_group_agent_close(moo_group_agent *agent)
{
    for (uint32_t slot = 0; slot < MOOI_TEAM_MAX; slot++)
        unwatch(agent, slot);
    mooi_outbox_clear(&agent->outbox);
    if (agent->bell >= 0)
        close(agent->bell);
    if (agent->events >= 0)
        close(agent->events);
    if (agent->mapped)
        mooi_segment_unmap(agent->segment);
    free(agent);
}
