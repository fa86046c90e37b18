/* SPDX-License-Identifier: MIT */
/*
 * Links that are lost while both processes live: the owner's leases stay, it
 * calls again, and what was under way comes over the next link.
 */
#include "check.h"
#include "remote_fixture.h"

#define THREADS 4

static void lose(moo_plane *plane, const moo_plane *other)
{
    mooi_tcp_drop(plane->net->networks.tcp, other->id, MOO_EPEER);
}

/* What the importer knows of the owner. */
static struct mooi_source copy_of_source(moo_plane *to, const moo_plane *from)
{
    struct mooi_source *source, copy = {0};

    pthread_mutex_lock(&to->lock);
    source = mooi_source_find(to, from->id);
    if (source)
        copy = *source;
    pthread_mutex_unlock(&to->lock);
    return copy;
}

static int stands(moo_plane *from, moo_plane *to)
{
    return route(from, to) && copy_of_source(to, from).in.by;
}

/* ---- owners that are waited for ---- */

static moo_err begin(moo_plane *to, const uint8_t *descriptor, moo_fetch **out)
{
    return moo_fetch_begin(to, descriptor, MOO_DESCRIPTOR_BYTES, NULL, 0, 0,
                           out);
}

__attribute__((unused)) static void
who_waits_in_vain_gives_back_and_lets_others_wait(void)
{
    moo_plane *from = open_plane(), *to = open_plane();
    uint8_t descriptor[2][MOO_DESCRIPTOR_BYTES];
    char *sent = pattern(MB, 5);
    moo_fetch *fetch;
    size_t got;
    void *at;

    mooi_tcp_before_fork(to->net->networks.tcp); /* its engine stands still */
    for (int i = 0; i < 2; i++) {
        CHECK(moo_export(from, sent, MB, to->id, MOO_NOWAIT, descriptor[i]) ==
              MOO_OK);
    }
    CHECK(moo_discard(to, descriptor[0], MOO_DESCRIPTOR_BYTES, 50) == MOO_OK);
    CHECK(begin(to, descriptor[1], &fetch) == MOO_OK);
    while (!copy_of_source(to, from).given_up_ns)
        usleep(1000);
    CHECK(moo_fetch_wait(fetch, 0, &at, &got) == MOO_ETIMEOUT);
    CHECK(look(from).leases == 2);
    mooi_tcp_after_fork(to->net->networks.tcp);
    CHECK(moo_fetch_wait(fetch, END_MS, &at, &got) == MOO_OK);
    CHECK(got == MB && memcmp(at, sent, MB) == 0);
    moo_drop(to, at);
    moo_fetch_free(fetch);
    while (!is_idle(from))
        usleep(1000);
    moo_plane_free(from);
    moo_plane_free(to);
    free(sent);
}

/* ---- at any moment ---- */

struct crowd {
    moo_plane *from, *to;
    unsigned seed;
    atomic_int stop, arrived;
};

/* Sometimes it is not waited for. */
static void fetch_once(struct crowd *crowd, unsigned *chance)
{
    size_t bytes = 1 + (size_t)rand_r(chance) % (4 * MB), got;
    char *sent = pattern(bytes, (unsigned)rand_r(chance));
    uint8_t descriptor[MOO_DESCRIPTOR_BYTES];
    moo_fetch *fetch;
    void *at;

    export_to(crowd->from, crowd->to, sent, bytes, descriptor);
    CHECK(moo_fetch_begin(crowd->to, descriptor, sizeof descriptor, NULL, 0, 0,
                          &fetch) == MOO_OK);
    if (rand_r(chance) % 4) {
        CHECK(moo_fetch_wait(fetch, END_MS, &at, &got) == MOO_OK);
        CHECK(got == bytes && memcmp(at, sent, bytes) == 0);
        moo_drop(crowd->to, at);
        atomic_fetch_add(&crowd->arrived, 1);
    }
    moo_fetch_free(fetch);
    free(sent);
}

static void *fetch_often(void *argument)
{
    struct crowd *crowd = argument;
    unsigned chance = __atomic_fetch_add(&crowd->seed, 1, __ATOMIC_RELAXED);

    while (!atomic_load(&crowd->stop))
        fetch_once(crowd, &chance);
    return NULL;
}

static void lose_links(struct crowd *crowd)
{
    for (int lost = 1; lost <= 20; lost++) {
        int so_far = atomic_load(&crowd->arrived);
        CHECK_SOON(atomic_load(&crowd->arrived) > so_far + THREADS);
        if (lost % 2)
            lose(crowd->from, crowd->to);
        else
            lose(crowd->to, crowd->from);
    }
}

static void links_lost_at_any_moment_lose_nothing(void)
{
    struct crowd crowd = {.from = open_plane(), .to = open_plane(), .seed = 1};
    pthread_t threads[THREADS];

    for (int i = 0; i < THREADS; i++)
        CHECK(!pthread_create(&threads[i], NULL, fetch_often, &crowd));
    lose_links(&crowd);
    atomic_store(&crowd.stop, 1);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    CHECK_SOON(is_idle(crowd.from) && is_idle(crowd.to));
    moo_plane_free(crowd.from);
    moo_plane_free(crowd.to);
}

/* ---- leases that were given back ---- */

static uint32_t unconfirmed(moo_plane *to, const moo_plane *from)
{
    return copy_of_source(to, from).releases.count;
}

static void pass(moo_plane *from, moo_plane *to, int count)
{
    char sent[100] = "something";

    for (int i = 0; i < count; i++) {
        uint8_t descriptor[MOO_DESCRIPTOR_BYTES];
        size_t bytes;
        void *at;
        export_to(from, to, sent, sizeof sent, descriptor);
        CHECK(moo_import(to, descriptor, sizeof descriptor, END_MS, &at,
                         &bytes) == MOO_OK);
        CHECK(bytes == sizeof sent && !memcmp(at, sent, bytes));
        moo_drop(to, at);
    }
}

static void what_was_given_back_is_said_until_it_is_confirmed(void)
{
    moo_plane *from = open_plane(), *to = open_plane();
    uint8_t kept[MOO_DESCRIPTOR_BYTES];

    pass(from, to, 100);
    CHECK_SOON(unconfirmed(to, from) == 100 - MOOI_RELEASES_CONFIRMED);
    export_to(from, to, "x", 1, kept); /* a reason to call again */
    lose(to, from);
    CHECK_SOON(copy_of_source(to, from).in.epoch == 2);
    pass(from, to, 2 * MOOI_RELEASES_CONFIRMED - 100);
    CHECK_SOON(unconfirmed(to, from) == 0);
    CHECK(moo_discard(to, kept, sizeof kept, END_MS) == MOO_OK);
    CHECK_SOON(is_idle(from) && is_idle(to));
    CHECK(unconfirmed(to, from) == 1);
    moo_peer_lost(to, from->id, 0);
    CHECK(unconfirmed(to, from) == 0);
    moo_plane_free(from);
    moo_plane_free(to);
}

/* ---- a lease that nobody has fetched yet ---- */

static void what_was_exported_before_the_loss_arrives_after_it(void)
{
    moo_plane *from = open_plane(), *to = open_plane();
    uint8_t descriptor[MOO_DESCRIPTOR_BYTES];
    char *sent = pattern(MB, 3);
    size_t bytes;
    void *at;

    for (int side = 0; side < 2; side++) {
        export_to(from, to, sent, MB, descriptor);
        CHECK_SOON(stands(from, to));
        lose(side ? to : from, side ? from : to);
        CHECK(moo_import(to, descriptor, sizeof descriptor, END_MS, &at,
                         &bytes) == MOO_OK);
        CHECK(bytes == MB && memcmp(at, sent, MB) == 0);
        moo_drop(to, at);
    }
    CHECK_SOON(is_idle(from) && is_idle(to));
    free(sent);
    moo_plane_free(from);
    moo_plane_free(to);
}

/* ---- */

static void run_all(void)
{
    RUN(what_was_exported_before_the_loss_arrives_after_it);
    RUN(what_was_given_back_is_said_until_it_is_confirmed);
#ifndef __SANITIZE_THREAD__ /* it takes the locks of a fork, and does not fork */
    RUN(who_waits_in_vain_gives_back_and_lets_others_wait);
#endif
    RUN(links_lost_at_any_moment_lose_nothing);
}

int main(void)
{
    CHECK(mkdtemp(directory));
    run_all();
    transport = MOO_TRANSPORT_OFI;
    if (has_fabric())
        run_all();
    remove_directory(directory);
    return 0;
}
