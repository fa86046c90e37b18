/* SPDX-License-Identifier: MIT */
/*
 * commit.c: the dissemination barrier of the leaders.
 *
 * Invariant: a leader sends nothing of an operation before it has swapped the
 * word to PREPARED. That is what the theorem of master.h rests on.
 */
#include "collective/protocol/commit.h"

void mooi_commit_open(struct mooi_commit *commit, uint32_t hosts,
                      uint32_t mine, uint64_t first_seq)
{
    struct mooi_commit opened = {
        .hosts = hosts, .mine = mine, .seq = first_seq,
        .words = commit->words, .emit = commit->emit, .to = commit->to};
    *commit = opened;
}

static void send_step(struct mooi_commit *commit)
{
    struct mooi_frame frame = {.kind = MOOI_ENTER};
    frame.enter.step = commit->step;
    frame.enter.seq = commit->seq;
    frame.enter.status = commit->status;
    frame.enter.rest = commit->rest;
    uint32_t host = (commit->mine + (1u << commit->step)) % commit->hosts;
    commit->emit(commit->to, host, &frame);
}

/* A reader that sees the word sees the result. */
static void publish(struct mooi_commit *commit)
{
    atomic_store(&commit->words->result,
                 mooi_result_of(commit->seq, commit->status, commit->rest));
}

/* Go through the steps that have come. */
static enum mooi_state go_on(struct mooi_commit *commit)
{
    while (1u << commit->step < commit->hosts) {
        if (!(commit->got >> commit->step & 1))
            return mooi_state_of(&commit->words->word, commit->seq);
        commit->rest |= commit->rests >> commit->step & 1;
        if (1u << ++commit->step < commit->hosts)
            send_step(commit);
    }
    publish(commit);
    enum mooi_state state = mooi_word_move(&commit->words->word, commit->seq,
                                           MOOI_PREPARED, MOOI_COMMITTED);
    if (state != MOOI_COMMITTED)
        return state;
    commit->got = commit->rests = commit->warning = 0;
    commit->seq++;
    commit->entered = false;
    return state;
}

enum mooi_state mooi_commit_enter(struct mooi_commit *commit, uint32_t status,
                                  bool rest)
{
    if (commit->entered)
        return go_on(commit);
    commit->step = 0;
    commit->status = status;
    commit->rest = rest;
    publish(commit);
    enum mooi_state state = mooi_word_take(&commit->words->word, commit->seq,
                                           MOOI_PREPARED);
    if (state != MOOI_PREPARED)
        return state;
    commit->entered = true;
    if (commit->hosts > 1)
        send_step(commit);
    return go_on(commit);
}

enum mooi_state mooi_commit_take(struct mooi_commit *commit,
                                 const struct mooi_frame *frame)
{
    if (frame->kind == MOOI_ENTER && frame->enter.seq == commit->seq &&
        frame->enter.step < MOOI_COMMIT_STEPS) {
        commit->got |= 1u << frame->enter.step;
        commit->rests |= (uint32_t)frame->enter.rest << frame->enter.step;
        if (commit->warning < frame->enter.status)
            commit->warning = frame->enter.status;
    }
    return commit->entered ? go_on(commit) : MOOI_OPEN;
}
