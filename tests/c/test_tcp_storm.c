/* SPDX-License-Identifier: MIT */
/*
 * Two engines of several threads, and many threads that fetch, cancel, refuse
 * and break links at random: every fetch ends once, with its bytes or an error,
 * and all that was lent is given back.
 */
#include <stdatomic.h>

#include "tcp_fixture.h"

#define SECONDS (SANITIZED ? 8 : 4)
#define LARGEST ((uint64_t)3 << 20)
#define PLAYERS 4

static struct side owner, importer;
static atomic_int over;
static atomic_uint arrived, refused, cancelled, lost;

struct player {
    pthread_t thread;
    unsigned seed;
    char *into;
};

static uint32_t some(struct player *player, uint32_t below)
{
    return (uint32_t)rand_r(&player->seed) % below;
}

/* The importer's link, held; NULL: there is none just now. */
static struct mooi_tcp_link *link_now(void)
{
    struct mooi_tcp_link *link;

    pthread_mutex_lock(&importer.lock);
    link = importer.link;
    if (link)
        mooi_tcp_hold(link);
    pthread_mutex_unlock(&importer.lock);
    return link;
}

static void check(struct player *player, moo_err result, uint32_t slab,
                  uint64_t offset, uint64_t length)
{
    if (result == MOO_OK) {
        CHECK(!slab);
        CHECK(!memcmp(player->into, owner.memory[0] + offset, length));
        arrived++;
    } else if (result == MOO_ESTALE) {
        CHECK(slab == 1);
        refused++;
    } else {
        CHECK(result == MOO_EPEER);
        lost++;
    }
}

static void fetch_something(struct player *player, struct mooi_tcp_link *link)
{
    uint64_t length = some(player, 3) ? some(player, LARGEST)
                                      : some(player, MOOI_TCP_SMALL);
    uint64_t offset = some(player, (uint32_t)(LARGEST - length) + 1);
    /* Of slab 1 there is only the beginning: it is refused on the way. */
    struct mooi_lease_name name = {some(player, 8) == 0, 7, 1};
    struct wanted wanted = {.side = &importer};

    if (name.slab)
        offset = 0, length = LARGEST;
    if (mooi_tcp_fetch(link, &name, offset, length, player->into, &wanted) !=
        MOO_OK)
        return;
    if (some(player, 3) == 0) {
        usleep(some(player, 600));
        if (mooi_tcp_cancel(link, &wanted) == MOO_OK) {
            memset(player->into, 0, length); /* it is ours again */
            CHECK(!wanted.done);
            cancelled++;
            return;
        }
    }
    check(player, end(&wanted), name.slab, offset, length);
}

static void *play(void *argument)
{
    struct player *player = argument;

    while (!over) {
        struct mooi_tcp_link *link = link_now();
        if (!link) {
            usleep(200);
            continue;
        }
        for (int i = 0; i < 5; i++)
            fetch_something(player, link);
        mooi_tcp_rele(link);
    }
    return NULL;
}

/* Whichever side: the link goes, and a new one comes; or it comes first. */
static void change_links(void)
{
    uint64_t until = mooi_now_ns() + SECONDS * 1000000000ull;

    for (int turn = 0; mooi_now_ns() < until; turn++) {
        usleep(20000);
        if (turn % 3 == 0)
            mooi_tcp_drop(importer.engine, owner.id, MOO_EPEER);
        else if (turn % 3 == 1)
            mooi_tcp_drop(owner.engine, importer.id, MOO_EPEER);
        connect_sides(&owner, &importer);
    }
}

static void links_break_while_many_fetch_and_cancel(void)
{
    struct player players[PLAYERS];
    char *memory = malloc(LARGEST);
    int connected;

    for (uint64_t i = 0; i < LARGEST; i++)
        memory[i] = (char)(i * 31 >> 3);
    threads = 3;
    open_side(&owner, 1, NULL);
    open_side(&importer, 2, NULL);
    own(&owner, 0, memory, LARGEST);
    own(&owner, 1, memory, LARGEST / 2);
    connect_sides(&owner, &importer);
    for (unsigned i = 0; i < PLAYERS; i++) {
        players[i] = (struct player){.seed = i + (unsigned)getpid(),
                                     .into = malloc(LARGEST)};
        CHECK(!pthread_create(&players[i].thread, NULL, play, &players[i]));
    }
    change_links();
    over = 1;
    for (int i = 0; i < PLAYERS; i++) {
        pthread_join(players[i].thread, NULL);
        free(players[i].into);
    }
    connected = count_of(&importer, &importer.ups);
    close_side(&owner);
    await(&importer, &importer.downs, connected);
    close_side(&importer);
    printf("   %d links; fetches: %u arrived, %u refused, %u cancelled, %u "
           "lost\n", connected, arrived, refused, cancelled, lost);
    CHECK(arrived && refused && cancelled && lost);
    free(memory);
}

int main(void)
{
    RUN(links_break_while_many_fetch_and_cancel);
    return 0;
}
