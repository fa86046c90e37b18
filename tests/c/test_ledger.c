/* SPDX-License-Identifier: MIT */
/* Leases given back by several threads and processes at once: none is lost,
 * none comes twice. */
#include <pthread.h>

#include "check.h"
#include "core/ledger.h"

#define ENTRIES 4096
#define HOLDERS 4
#define ROUNDS 50

static struct mooi_ledger *ledger;
static _Atomic uint32_t round_now;

static void set(uint32_t index, uint32_t generation, uint32_t state)
{
    atomic_store(&ledger->entry[index].word, generation << 2 | state);
}

/* Take back what was released; returns how many, each in generation `g`. */
static uint32_t collect(uint32_t g)
{
    uint32_t count = 0, next;

    for (uint32_t i = mooi_ledger_take(ledger); i != MOOI_NO_LEASE; i = next) {
        next = mooi_ledger_next(ledger, i);
        CHECK(i < ENTRIES);
        CHECK(mooi_ledger_shift(ledger, i, g, MOOI_RELEASED, MOOI_FREE));
        count++;
    }
    return count;
}

/* Each holder releases its share of each round as soon as it is granted. */
static void *hold_and_release(void *argument)
{
    uint32_t mine = *(uint32_t *)argument;

    for (uint32_t r = 1; r <= ROUNDS; r++) {
        while (atomic_load(&round_now) < r)
            sched_yield();
        for (uint32_t i = mine; i < ENTRIES; i += HOLDERS) {
            CHECK(mooi_ledger_shift(ledger, i, r, MOOI_GRANTED, MOOI_HELD));
            CHECK(mooi_ledger_release(ledger, i, r, MOOI_HELD));
            CHECK(!mooi_ledger_release(ledger, i, r, MOOI_HELD));
        }
    }
    return NULL;
}

static void every_lease_comes_back_once(void)
{
    pthread_t thread[HOLDERS];
    uint32_t number[HOLDERS];
    int fd;

    CHECK(mooi_ledger_create(ENTRIES, &fd, &ledger) == MOO_OK);
    atomic_store(&round_now, 0);
    for (uint32_t i = 0; i < HOLDERS; i++) {
        number[i] = i;
        CHECK(!pthread_create(&thread[i], NULL, hold_and_release, &number[i]));
    }
    for (uint32_t r = 1; r <= ROUNDS; r++) {
        uint32_t back = 0;
        for (uint32_t i = 0; i < ENTRIES; i++)
            set(i, r, MOOI_GRANTED);
        atomic_store(&round_now, r);
        while (back < ENTRIES) {
            back += collect(r);
            sched_yield();
        }
        CHECK(back == ENTRIES);
    }
    for (int i = 0; i < HOLDERS; i++)
        pthread_join(thread[i], NULL);
    mooi_ledger_unmap(ledger, ENTRIES);
    close(fd);
}

static _Atomic uint32_t revoked, released;

static void *try_to_release(void *argument)
{
    (void)argument;
    for (uint32_t i = 0; i < ENTRIES; i++)
        if (mooi_ledger_release(ledger, i, 5, MOOI_GRANTED))
            atomic_fetch_add(&released, 1);
    return NULL;
}

static void *try_to_revoke(void *argument)
{
    (void)argument;
    for (uint32_t i = ENTRIES; i-- > 0;)
        if (mooi_ledger_shift(ledger, i, 5, MOOI_GRANTED, MOOI_FREE))
            atomic_fetch_add(&revoked, 1);
    return NULL;
}

static void of_revoke_and_release_one_wins(void)
{
    pthread_t a, b;
    int fd;

    CHECK(mooi_ledger_create(ENTRIES, &fd, &ledger) == MOO_OK);
    for (int n = 0; n < 30; n++) {
        for (uint32_t i = 0; i < ENTRIES; i++)
            set(i, 5, MOOI_GRANTED);
        atomic_store(&revoked, 0);
        atomic_store(&released, 0);
        CHECK(!pthread_create(&a, NULL, try_to_release, NULL));
        CHECK(!pthread_create(&b, NULL, try_to_revoke, NULL));
        pthread_join(a, NULL);
        pthread_join(b, NULL);
        CHECK(collect(5) == atomic_load(&released));
        CHECK(atomic_load(&released) + atomic_load(&revoked) == ENTRIES);
    }
    mooi_ledger_unmap(ledger, ENTRIES);
    close(fd);
}

static void an_old_generation_touches_nothing(void)
{
    int fd;

    CHECK(mooi_ledger_create(ENTRIES, &fd, &ledger) == MOO_OK);
    set(3, 8, MOOI_HELD);
    CHECK(!mooi_ledger_release(ledger, 3, 7, MOOI_HELD));
    CHECK(mooi_ledger_take(ledger) == MOOI_NO_LEASE);
    mooi_ledger_unmap(ledger, ENTRIES);
    close(fd);
}

static void ledgers_that_could_shrink_are_not_mapped(void)
{
    struct mooi_ledger *mapped;
    FILE *file = tmpfile();

    CHECK(file && !ftruncate(fileno(file), 1 << 20));
    CHECK(mooi_ledger_map(fileno(file), 64, &mapped) == MOO_EPROTO);
    fclose(file);
}

int main(void)
{
    RUN(every_lease_comes_back_once);
    RUN(of_revoke_and_release_one_wins);
    RUN(an_old_generation_touches_nothing);
    RUN(ledgers_that_could_shrink_are_not_mapped);
    return 0;
}
