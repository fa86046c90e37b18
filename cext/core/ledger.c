/* SPDX-License-Identifier: MIT */
#include "core/ledger.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/pages.h"

_Static_assert(sizeof(struct mooi_entry) == 8, "shared between processes");
_Static_assert(ATOMIC_INT_LOCK_FREE == 2, "shared atomics must be lock-free");

moo_err mooi_ledger_create(uint32_t entries, int *fd, struct mooi_ledger **out)
{
    size_t bytes = mooi_round_up(MOOI_LEDGER_BYTES(entries));
    int created;
    moo_err err = mooi_memfd("mooactor-ledger", bytes, &created);

    if (err != MOO_OK)
        return err;
    err = mooi_ledger_map(created, entries, out);
    if (err != MOO_OK) {
        close(created);
        return err;
    }
    *fd = created;
    return MOO_OK;
}

moo_err mooi_ledger_map(int fd, uint32_t entries, struct mooi_ledger **out)
{
    size_t bytes = mooi_round_up(MOOI_LEDGER_BYTES(entries));
    void *at;

    if (!entries || entries > MOOI_LEDGER_ENTRIES || !mooi_memfd_has(fd, bytes))
        return MOO_EPROTO;
    at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return errno == ENOMEM ? MOO_ENOMEM : MOO_ESYS;
    *out = at;
    return MOO_OK;
}

void mooi_ledger_unmap(struct mooi_ledger *ledger, uint32_t entries)
{
    munmap(ledger, mooi_round_up(MOOI_LEDGER_BYTES(entries)));
}

int mooi_ledger_shift(struct mooi_ledger *ledger, uint32_t index,
                      uint32_t generation, enum mooi_lease_state from,
                      enum mooi_lease_state to)
{
    uint32_t expected = generation << 2 | from;

    return atomic_compare_exchange_strong_explicit(
        &ledger->entry[index].word, &expected, generation << 2 | to,
        memory_order_acq_rel, memory_order_relaxed);
}

int mooi_ledger_is(const struct mooi_ledger *ledger, uint32_t index,
                   uint32_t generation, enum mooi_lease_state state)
{
    return atomic_load_explicit(&ledger->entry[index].word,
                                memory_order_acquire) ==
           (generation << 2 | state);
}

int mooi_ledger_release(struct mooi_ledger *ledger, uint32_t index,
                        uint32_t generation, enum mooi_lease_state from)
{
    uint32_t head;

    if (!mooi_ledger_shift(ledger, index, generation, from, MOOI_RELEASED))
        return 0;
    head = atomic_load_explicit(&ledger->head, memory_order_relaxed);
    do
        atomic_store_explicit(&ledger->entry[index].next, head,
                              memory_order_relaxed);
    /* Release: the holder's last reads of the data come before the push. */
    while (!atomic_compare_exchange_weak_explicit(
        &ledger->head, &head, index + 1, memory_order_release,
        memory_order_relaxed));
    return 1;
}

uint32_t mooi_ledger_take(struct mooi_ledger *ledger)
{
    /* The common case costs no locked instruction. */
    if (!atomic_load_explicit(&ledger->head, memory_order_relaxed))
        return MOOI_NO_LEASE;
    return atomic_exchange_explicit(&ledger->head, 0, memory_order_acquire) - 1;
}

uint32_t mooi_ledger_next(struct mooi_ledger *ledger, uint32_t index)
{
    return atomic_load_explicit(&ledger->entry[index].next,
                                memory_order_relaxed) - 1;
}
