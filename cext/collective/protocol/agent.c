/* SPDX-License-Identifier: MIT */
/*
 * agent.c: one host's word, reports and halts.
 *
 * Invariant: once halted, the word stays as it is until the next view.
 *
 * The slot of a member that is gone can be given away at once, though others
 * may still read its memory: a newcomer writes nothing before all members of
 * its host work in its first view.
 */
#include "collective/protocol/agent.h"

/* ---- halting ---- */

/* Halt the first operation that is not decided. Returns what is. */
static uint64_t halt_word(mooi_word *word, bool *prepared)
{
    for (;;) {
        uint64_t seen = atomic_load(word);
        uint64_t seq = mooi_word_seq(seen);
        enum mooi_state state = mooi_word_state(seen);
        *prepared = state == MOOI_PREPARED || state == MOOI_HALTED_PREPARED;
        if (state == MOOI_HALTED || state == MOOI_HALTED_PREPARED)
            return seq - 1;
        if (mooi_is_decided(state)) {
            if (mooi_word_take(word, seq + 1, MOOI_HALTED) == MOOI_HALTED)
                return seq;
        } else if (mooi_word_move(word, seq, MOOI_PREPARED,
                                  MOOI_HALTED_PREPARED) ==
                   MOOI_HALTED_PREPARED) {
            return seq - 1;
        }
    }
}

static bool rests_behind(const struct mooi_agent *agent, uint64_t seq)
{
    uint64_t result = atomic_load(&agent->words->result);
    return mooi_result_is_for(result, seq) && mooi_result_rests(result);
}

static void report(struct mooi_agent *agent,
                   const struct mooi_cause *complaint)
{
    struct mooi_frame frame = {.kind = MOOI_REPORT};
    if (agent->halted || !agent->epoch)
        return;
    agent->halted = true;
    agent->misses = false;
    frame.report.epoch = agent->epoch;
    frame.report.committed =
        halt_word(&agent->words->word, &frame.report.prepared);
    frame.report.resting = rests_behind(agent, frame.report.committed);
    if (complaint)
        frame.report.complaint = *complaint;
    agent->emit(agent->to, &frame);
}

/* ---- members ---- */

void mooi_agent_join(struct mooi_agent *agent, struct mooi_member *member,
                     uint32_t min_size, uint32_t policy)
{
    struct mooi_frame frame = {.kind = MOOI_JOIN};
    member->host = agent->host;
    member->serial = ++agent->serials;
    agent->slots[member->slot] =
        (struct mooi_agent_slot){member->serial, true, false};
    frame.join.member = *member;
    frame.join.min_size = min_size;
    frame.join.policy = policy;
    agent->emit(agent->to, &frame);
}

void mooi_agent_gone(struct mooi_agent *agent, uint32_t slot, bool died,
                     uint64_t begun)
{
    struct mooi_agent_slot *left = &agent->slots[slot];
    struct mooi_frame frame = {.kind = MOOI_GONE};
    if (!left->taken)
        return;
    left->taken = false;
    frame.gone.serial = left->serial;
    frame.gone.died = died;
    frame.gone.begun = begun;
    agent->emit(agent->to, &frame);
    agent->misses |= left->in_view;
}

void mooi_agent_complain(struct mooi_agent *agent, uint64_t seq,
                         const struct mooi_cause *complaint)
{
    enum mooi_state state = mooi_state_of(&agent->words->word, seq);
    if (state != MOOI_PAST && !mooi_is_decided(state))
        report(agent, complaint);
}

void mooi_agent_look(struct mooi_agent *agent)
{
    uint64_t seen = atomic_load(&agent->words->word);
    if (agent->misses || (mooi_word_state(seen) == MOOI_COMMITTED &&
                          rests_behind(agent, mooi_word_seq(seen))))
        report(agent, NULL);
}

/* ---- the master ---- */

/* The members of the view take their seats; other slots are free again. */
static void seat(struct mooi_agent *agent, const struct mooi_roll *view)
{
    for (uint32_t slot = 0; slot < MOOI_TEAM_MAX; slot++)
        agent->slots[slot].in_view = false;
    for (uint32_t i = 0; i < view->size; i++) {
        const struct mooi_member *member = &view->members[i];
        if (member->host == agent->host &&
            agent->slots[member->slot].serial == member->serial)
            agent->slots[member->slot].in_view = true;
    }
}

static void open_view(struct mooi_agent *agent, const struct mooi_frame *frame)
{
    const struct mooi_roll *view = frame->view;
    uint64_t seen = atomic_load(&agent->words->word);
    if (view->epoch <= agent->epoch)
        return;
    agent->epoch = view->epoch;
    seat(agent, view);
    agent->show(agent->to, frame);
    /* Everything before the aborted one is committed: also what this host had
     * prepared, or has never seen. */
    if (mooi_word_seq(seen) < view->first_seq)
        atomic_store(&agent->words->word,
                     mooi_word_of(view->first_seq - 1, MOOI_ABORTED));
    agent->halted = agent->misses = false;
}

void mooi_agent_take(struct mooi_agent *agent, const struct mooi_frame *frame)
{
    if (frame->kind == MOOI_HALT && frame->halt.epoch == agent->epoch)
        report(agent, NULL);
    else if (frame->kind == MOOI_VIEW)
        open_view(agent, frame);
    else if (frame->kind == MOOI_WAITING || frame->kind == MOOI_REFUSED)
        agent->show(agent->to, frame);
    if (frame->kind != MOOI_REFUSED)
        return;
    for (uint32_t slot = 0; slot < MOOI_TEAM_MAX; slot++)
        if (agent->slots[slot].serial == frame->refused.serial)
            agent->slots[slot].taken = false;
}
