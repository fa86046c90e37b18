/* SPDX-License-Identifier: MIT */
/*
 * Learner groups of many members: more than 64, on several hosts, each a thread;
 * the reducers alone with as many as a group can have; and one more.
 */
#include "collective/outbox.h"
#include "collective/protocol/agent.h"
#include "collective/protocol/commit.h"
#include "collective/protocol/master.h"
#include "collective_fixture.h"

/* ---- members ---- */

/* `gone`: the rank that has left, or that of nobody's share: 0. */
static void sums_are_those_of_all(moo_group *group, size_t count,
                                  uint32_t gone)
{
    moo_group_info info = info_of(group);
    struct list list = list_new(1, &count, sizeof(float));
    float *x = list.data;
    uint32_t all = info.size * (info.size - 1) / 2;
    for (size_t i = 0; i < count; i++)
        x[i] = (float)(info.rank * (1 + i % 3));
    CHECK_OK(run(group, MOO_GROUP_ALLREDUCE, MOO_DT_F32, MOO_OP_SUM, 0, &list));
    for (size_t i = 0; i < count; i++)
        CHECK(x[i] == (float)((all - gone) * (1 + i % 3)));
    list_free(&list);
}

static void all_get_the_bytes_of(moo_group *group, uint32_t root, size_t count)
{
    struct list list = list_new(1, &count, 1);
    uint8_t *x = list.data;
    memset(x, (int)info_of(group).rank, count);
    CHECK_OK(run(group, MOO_GROUP_BROADCAST, MOO_DT_U8, MOO_OP_SUM, root,
                 &list));
    for (size_t i = 0; i < count; i++)
        CHECK(x[i] == (uint8_t)root);
    list_free(&list);
}

static void rows_are_in_rank_order(moo_group *group, size_t count)
{
    moo_group_info info = info_of(group);
    size_t all = count * info.size;
    double *part = calloc(count, 8), *whole = calloc(all, 8);
    for (size_t i = 0; i < count; i++)
        part[i] = info.rank;
    CHECK_OK(run_one(group, MOO_GROUP_ALL_GATHER, part, count * 8, whole,
                     all * 8));
    for (size_t i = 0; i < all; i++)
        CHECK(whole[i] == (double)(i / count));
    CHECK_OK(run_one(group, MOO_GROUP_REDUCE_SCATTER, whole, all * 8, part,
                     count * 8));
    for (size_t i = 0; i < count; i++)
        CHECK(part[i] == (double)info.rank * info.size);
    free(part);
    free(whole);
}

static void all_operations(moo_group *group, void *unused)
{
    moo_group_info info = info_of(group);
    (void)unused;
    CHECK(info.hosts > 1);
    sums_are_those_of_all(group, 10, 0);
    sums_are_those_of_all(group, 100000, 0);
    all_get_the_bytes_of(group, info.size - 1, 40);
    all_get_the_bytes_of(group, info.size - 1, 100000);
    rows_are_in_rank_order(group, 1);
    rows_are_in_rank_order(group, 700);
    CHECK_OK(barrier(group)); /* all are there yet */
    if (info.rank == info.size - 2)
        return; /* the fixture leaves for it */
    sums_are_those_of_all(group, 10, info.size - 2);
    CHECK(info_of(group).size == info.size - 1);
    CHECK_OK(barrier(group));
}

static void many_members_agree(uint32_t hosts, uint32_t size)
{
    alarm(2 * ALARM_S); /* a hang is a failure */
    struct ranks ranks = ranks_new(size, size / 2);
    spread(&ranks, hosts);
    ranks_run(&ranks, all_operations, NULL);
    ranks_free(&ranks);
}

static void a_host_has_room_for_64(void)
{
    struct ranks ranks = ranks_alone(MOO_GROUP_TEAM_MAX, 1);
    moo_group *groups[MOO_GROUP_TEAM_MAX], *one_more;
    for (uint32_t i = 0; i < MOO_GROUP_TEAM_MAX; i++)
        CHECK(join_at(&ranks, 0, NULL, &groups[i]) == MOO_OK);
    CHECK(join_at(&ranks, 0, NULL, &one_more) == MOO_ENOMEM);
    for (uint32_t i = 0; i < MOO_GROUP_TEAM_MAX; i++)
        moo_group_leave(groups[i]);
    ranks_free(&ranks);
}

/* ---- the reducers ---- */

enum { HOSTS = MOO_GROUP_HOSTS_MAX, EACH = MOO_GROUP_MAX / HOSTS };

static struct {
    struct mooi_master master;
    struct mooi_agent agents[HOSTS + 1];
    struct mooi_words words[HOSTS + 1];
    struct mooi_commit commits[HOSTS];
    struct mooi_outbox up, down;
    struct mooi_roll sent, came[HOSTS + 1];
    uint32_t refused;
    enum mooi_refusal why;
} few;

static void to_host(void *to, uint32_t host, const struct mooi_frame *frame)
{
    (void)to;
    mooi_outbox_add(&few.down, host, frame);
}

static void to_master(void *to, const struct mooi_frame *frame)
{
    mooi_outbox_add(&few.up, 1 + (uint32_t)(uintptr_t)to, frame);
}

static bool take_next(struct mooi_outbox *from, uint32_t *host,
                      struct mooi_frame *frame)
{
    static uint8_t bytes[MOOI_FRAME_BYTES];
    static struct mooi_roll roll;
    size_t length = mooi_outbox_next(from, host, bytes);
    CHECK(!length || mooi_frame_read(frame, &roll, bytes, length));
    return length > 0;
}

/* Until no frame is on its way. */
static void carry(void)
{
    struct mooi_frame frame;
    uint32_t host;
    for (bool moved = true; moved;) {
        moved = false;
        for (; take_next(&few.up, &host, &frame); moved = true)
            mooi_master_take(&few.master, host, &frame);
        for (; take_next(&few.down, &host, &frame); moved = true)
            mooi_agent_take(&few.agents[host - 1], &frame);
    }
}

static void to_members(void *to, const struct mooi_frame *frame)
{
    if (frame->kind == MOOI_VIEW)
        mooi_roll_copy(&few.came[(uintptr_t)to], frame->view);
    if (frame->kind == MOOI_REFUSED) {
        few.refused = 1 + (uint32_t)(uintptr_t)to;
        few.why = frame->refused.why;
    }
}

static void to_leader(void *to, uint32_t host, const struct mooi_frame *frame)
{
    (void)to;
    mooi_commit_take(&few.commits[host], frame);
}

static void let_join(uint32_t host, uint32_t slot)
{
    struct mooi_member member = {.slot = slot, .pid = 1, .addresses = 1};
    snprintf(member.name, sizeof member.name, "host %u", host);
    mooi_agent_join(&few.agents[host], &member, MOO_GROUP_MAX, false);
}

/* All hosts have the same view of so many members. */
static void check_views(uint32_t hosts, uint32_t size)
{
    for (uint32_t host = 0; host < hosts; host++) {
        const struct mooi_roll *view = &few.came[host];
        CHECK(view->epoch == few.master.epoch && view->size == size);
        for (uint32_t rank = 0; rank < size; rank++) {
            const struct mooi_member *member = &view->members[rank];
            char name[16];
            snprintf(name, sizeof name, "host %u", member->host - 1);
            CHECK(!strcmp(member->name, name));
            CHECK(member->serial == few.came[0].members[rank].serial);
        }
    }
}

static void all_commit(uint32_t hosts)
{
    uint64_t seq = few.came[0].first_seq;
    for (uint32_t host = 0; host < hosts; host++) {
        few.commits[host].words = &few.words[host];
        few.commits[host].emit = to_leader;
        mooi_commit_open(&few.commits[host], hosts, host, seq);
    }
    for (uint32_t host = 0; host < hosts; host++)
        mooi_commit_enter(&few.commits[host], 0, false);
    for (uint32_t host = 0; host < hosts; host++)
        CHECK(mooi_state_of(&few.words[host].word, seq) == MOOI_COMMITTED);
}

static void the_reducers_have_the_limits_of_the_design(void)
{
    few.master.emit = to_host;
    few.master.roll = &few.sent;
    for (uint32_t host = 0; host <= HOSTS; host++)
        few.agents[host] = (struct mooi_agent){
            .host = host + 1, .words = &few.words[host], .emit = to_master,
            .show = to_members, .to = (void *)(uintptr_t)host};
    for (uint32_t slot = 0; slot < EACH; slot++) {
        CHECK(few.master.state == MOOI_GROUP_FORMING);
        for (uint32_t host = 0; host < HOSTS; host++)
            let_join(host, slot);
        carry();
    }
    CHECK(few.master.state == MOOI_GROUP_OPEN && !few.refused);
    check_views(HOSTS, MOO_GROUP_MAX);
    all_commit(HOSTS);

    let_join(3, EACH); /* one member more; then one host more */
    carry();
    CHECK(few.refused == 1 + 3 && few.why == MOOI_FULL);
    few.refused = 0;
    mooi_agent_gone(&few.agents[HOSTS - 1], 0, false, 0);
    mooi_agent_look(&few.agents[HOSTS - 1]);
    carry();
    CHECK(few.master.state == MOOI_GROUP_FORMING);
    check_views(HOSTS, MOO_GROUP_MAX - 1);
    let_join(HOSTS, 0);
    carry();
    CHECK(few.refused == 1 + HOSTS && few.why == MOOI_FULL);

    mooi_master_lost(&few.master, HOSTS);
    carry();
    check_views(HOSTS - 1, MOO_GROUP_MAX - EACH);
}

int main(int argc, char **argv)
{
    the_reducers_have_the_limits_of_the_design();
    a_host_has_room_for_64();
    if (argc > 2)
        many_members_agree((uint32_t)atoi(argv[1]), (uint32_t)atoi(argv[2]));
    else
        many_members_agree(5, 100);
    return 0;
}
