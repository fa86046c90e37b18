/* SPDX-License-Identifier: MIT */
/*
 * words.h: the decisions of one host on the operations of a group.
 *
 * Every operation has a sequence number, counted alike by all members. A host
 * decides in their order, so one word tells everything: the number of the
 * latest operation that is not simply open, and its state.
 *
 *   from                     to                      by
 *   open                     COMMITTED               any member, in a view of
 *                                                    one host
 *   open                     PREPARED                the leader: all bytes that
 *                                                    local members need are in
 *                                                    local memory
 *   PREPARED                 COMMITTED               the leader: its barrier
 *                                                    (commit.h) is complete
 *   open, PREPARED           HALTED, HALTED_PREPARED the agent
 *   HALTED, HALTED_PREPARED  COMMITTED or ABORTED    the agent, as its master
 *                                                    has decided
 *
 * "Open" is the number behind a decided one. A word of zero says that nothing
 * has begun. Any thread of any process; nothing here blocks.
 */
#ifndef MOOI_WORDS_H
#define MOOI_WORDS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef _Atomic uint64_t mooi_word;

/* Of a group on one host, in the memory that its members share. */
struct mooi_words {
    mooi_word word;
    /* How the operation that is prepared, or committed, ends: its number, a
     * status, which is 0 unless the members' calls differ, and whether members
     * rest behind it: nobody begins another before the next view. Written
     * before the word, by the leader, or in a view of one host, if members rest,
     * by every member, alike. Of no meaning for other numbers. */
    _Atomic uint64_t result;
};

enum mooi_state {
    MOOI_COMMITTED,
    MOOI_ABORTED,
    MOOI_PREPARED,
    MOOI_HALTED,
    MOOI_HALTED_PREPARED,
    /* what a word of another number says: */
    MOOI_OPEN,
    MOOI_PAST, /* decided; aborted if a view says so (VIEW, frames.h) */
};

#define MOOI_STATE_BITS 3

static inline uint64_t mooi_word_of(uint64_t seq, enum mooi_state state)
{
    return seq << MOOI_STATE_BITS | state;
}

static inline uint64_t mooi_word_seq(uint64_t word)
{
    return word >> MOOI_STATE_BITS;
}

/* The state of the operation that it names. */
static inline enum mooi_state mooi_word_state(uint64_t word)
{
    return (enum mooi_state)(word & ((1u << MOOI_STATE_BITS) - 1));
}

#define MOOI_RESULT_BITS 9 /* of a status, and of `rest` */
#define MOOI_STATUS_MAX 255u

static inline uint64_t mooi_result_of(uint64_t seq, uint32_t status, bool rest)
{
    return seq << MOOI_RESULT_BITS | (uint64_t)rest << 8 |
           (status < MOOI_STATUS_MAX ? status : MOOI_STATUS_MAX);
}

static inline bool mooi_result_is_for(uint64_t result, uint64_t seq)
{
    return result >> MOOI_RESULT_BITS == seq;
}

static inline uint32_t mooi_result_status(uint64_t result)
{
    return result & MOOI_STATUS_MAX;
}

static inline bool mooi_result_rests(uint64_t result)
{
    return result >> 8 & 1;
}

static inline bool mooi_is_decided(enum mooi_state state)
{
    return state == MOOI_COMMITTED || state == MOOI_ABORTED;
}

/* The state of operation `seq`, if the word is `word`. */
static inline enum mooi_state mooi_state_in(uint64_t word, uint64_t seq)
{
    if (mooi_word_seq(word) > seq)
        return MOOI_PAST;
    return mooi_word_seq(word) < seq ? MOOI_OPEN : mooi_word_state(word);
}

static inline enum mooi_state mooi_state_of(const mooi_word *word,
                                            uint64_t seq)
{
    return mooi_state_in(atomic_load(word), seq);
}

/* Let an operation that is open be in `to`. Returns its state afterwards,
 * which is another one if somebody was faster. */
static inline enum mooi_state mooi_word_take(mooi_word *word, uint64_t seq,
                                             enum mooi_state to)
{
    uint64_t seen = atomic_load(word);
    while (mooi_word_seq(seen) + 1 == seq &&
           mooi_is_decided(mooi_word_state(seen)))
        if (atomic_compare_exchange_weak(word, &seen, mooi_word_of(seq, to)))
            return to;
    return mooi_state_in(seen, seq);
}

/* From `from` to `to`. Returns the state afterwards. */
static inline enum mooi_state mooi_word_move(mooi_word *word, uint64_t seq,
                                             enum mooi_state from,
                                             enum mooi_state to)
{
    uint64_t seen = mooi_word_of(seq, from);
    if (atomic_compare_exchange_strong(word, &seen, mooi_word_of(seq, to)))
        return to;
    return mooi_state_in(seen, seq);
}

#endif
