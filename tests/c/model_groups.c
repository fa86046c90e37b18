/* SPDX-License-Identifier: MIT */
/*
 * A model of learner groups: the reducers of production (collective/protocol/),
 * in virtual time, with everything around them small and made up. Hosts have an
 * agent and members; frames lie in queues; at every step one of the things that
 * can happen happens: a frame arrives, a member goes on, an agent notices
 * something, or there is a fault. In every order, the results of members must
 * agree; `holds` says what that means.
 *
 *   model_groups             all orders of small worlds, and random schedules
 *   model_groups SEED        that schedule, each step told
 *   MODEL_SCHEDULES=10000000 that many random schedules
 *   MODEL_ALL=1              larger worlds, too: minutes, and 2 GiB of memory
 *
 * A schedule is a list of choices. One that fails is shrunk: whatever can be
 * left out of it, so that it still fails, is; the rest is told.
 */
#define MOOI_MEMBERS_MAX 6
#define MOOI_TEAM_MAX 4
#define MOOI_HOSTS_MAX 3
#define MOOI_HOST_NAME_BYTES 1
#define MOOI_ADDRESSES_MAX 1
#define BEYOND 8
#define MOOI_CUTS_MOST 2u
#define MOOI_CUTS_KEPT 4u

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../cext/collective/protocol/agent.c"
#include "../../cext/collective/protocol/commit.c"
#include "../../cext/collective/protocol/frames.c"
#include "../../cext/collective/protocol/master.c"

#include "draw.h"

enum { HOSTS = MOOI_HOSTS_MAX, PEOPLE = 8, DEPTH = 16, AHEAD = 8, EPOCHS = 64, SEQS = 192 };

/* ---- the world ---- */

enum phase { ABSENT, JOINING, CALLING, RUNNING, RESTING, COPYING, DONE };

struct person { /* a process that is, or was, a member */
    enum phase phase;
    bool alive, formed, noticed; /* noticed: its end, by its agent */
    bool leaves;
    uint32_t host, slot, serial;
    uint32_t epoch;  /* of the view that it works in */
    uint32_t since;  /* the epoch in which it joined */
    uint64_t seq;    /* of the operation that ended last, or of the present */
    uint64_t ended;  /* with which its call ended */
    int calls;       /* left to make */
    bool odd;        /* its present call is another than the others' */
    /* as a leader */
    bool sent;
    struct {
        uint32_t got;    /* hosts whose bytes have come */
        uint32_t odd;    /* of which make another call */
        uint32_t inputs; /* people */
    } come[2]; /* by seq: others may be ahead by one */
    struct mooi_commit commit;
    /* what it tells its agent: 0: nothing, 1: rest, 2: a complaint */
    int note;
    uint64_t noted;
    struct mooi_cause complaint;
};

struct cell { /* what others see of a slot */
    uint32_t serial, ack, person;
    uint32_t writer; /* of the bytes in its region */
    uint64_t put;
    bool odd[2], admits[2]; /* by seq */
};

struct queue { /* of frames, one after the other */
    uint32_t count, used;
    uint16_t bytes[DEPTH];
    uint8_t data[4 * MOOI_FRAME_BYTES];
};

struct parcel { /* between leaders */
    bool data;  /* else: the frame */
    uint32_t epoch, inputs, digest;
    uint64_t seq;
    uint32_t bytes;
    uint8_t frame[32];
};

struct line {
    uint32_t count, cut; /* cut: no parcel of this epoch or before arrives */
    struct parcel parcels[AHEAD];
};

struct host {
    bool up, cut, lost, home_lost; /* lost: for the home; home_lost: for it */
    bool killed;
    uint32_t shown; /* the latest view */
    uint64_t seen;  /* views, a bit each */
    uint32_t waiting;
    uint32_t inputs; /* of the prepared operation */
    struct mooi_words words;
    struct mooi_agent agent;
    struct cell cells[MOOI_TEAM_MAX];
    struct queue up_to, down_from;
};

struct roll { /* a view, for the checks */
    uint64_t first_seq;
    uint32_t size;
    bool rested;
    enum mooi_why why;
    uint8_t rank, witness;
    uint8_t people[MOOI_MEMBERS_MAX];
};

enum { UNKNOWN, SUCCEEDED, DISAGREED, ABORTED };

struct world {
    uint32_t hosts, min_size;
    int faults; /* left */
    struct mooi_master master;
    struct host places[HOSTS];
    struct line lines[HOSTS][HOSTS];
    struct person people[PEOPLE];
    struct roll rolls[EPOCHS];
    uint8_t ends[SEQS], reasons[SEQS];
    uint8_t after[SEQS]; /* the view after a call that ended there */
    bool rests[SEQS];
    uint8_t begun[SEQS], results[SEQS]; /* people */
};

static struct world world;
static struct mooi_roll said, heard; /* a view on its way, and one that came */

static jmp_buf failed;
static const char *failure;
static bool told; /* each step */

static void holds(bool what, const char *rule)
{
    if (what)
        return;
    failure = rule;
    longjmp(failed, 1);
}

/* ---- frames on their way ---- */

static void put_frame(struct queue *queue, const struct mooi_frame *frame)
{
    struct mooi_frame copy;
    holds(queue->count < DEPTH, "the model's queues are long enough");
    uint8_t *data = queue->data + queue->used;
    size_t bytes =
        mooi_frame_write(frame, data, sizeof queue->data - queue->used);
    holds(bytes > 0 && mooi_frame_read(&copy, &heard, data, bytes),
          "a frame that is written can be read");
    queue->bytes[queue->count++] = (uint16_t)bytes;
    queue->used += (uint32_t)bytes;
}

static struct mooi_frame take_frame(struct queue *queue)
{
    struct mooi_frame frame;
    uint32_t bytes = queue->bytes[0];
    holds(mooi_frame_read(&frame, &heard, queue->data, bytes),
          "a frame can be read");
    queue->used -= bytes;
    memmove(queue->data, queue->data + bytes, queue->used);
    memset(queue->data + queue->used, 0, bytes);
    queue->count--;
    memmove(queue->bytes, queue->bytes + 1,
            queue->count * sizeof *queue->bytes);
    queue->bytes[queue->count] = 0;
    return frame;
}

static void clear(struct queue *queue)
{
    memset(queue, 0, sizeof *queue);
}

/* ---- what the master says ---- */

static uint8_t person_at(uint32_t host, uint32_t serial)
{
    for (uint8_t i = 0; i < PEOPLE; i++)
        if (world.people[i].phase && world.people[i].host + 1 == host &&
            world.people[i].serial == serial)
            return i;
    holds(false, "a view names processes that have joined");
    return 0;
}

static bool is_silent(enum mooi_why why)
{
    return why <= MOOI_WHY_LEFT;
}

static void check_silent(uint32_t epoch)
{
    const struct roll *roll = &world.rolls[epoch], *before = roll - 1;
    uint64_t seq = roll->first_seq - 1;
    uint32_t members = 0;
    for (uint32_t i = 0; i < before->size; i++)
        members |= 1u << before->people[i];
    if (epoch > 1 && roll->first_seq && is_silent(roll->why) && members)
        holds((world.begun[seq] & members) != members,
              "what begins anew silently has not overwritten its inputs");
}

static bool has(const struct roll *roll, uint8_t person)
{
    for (uint32_t i = 0; i < roll->size; i++)
        if (roll->people[i] == person)
            return true;
    return false;
}

/* Newcomers come in behind an operation that says so, or because there are too
 * few members. */
static void check_admission(uint32_t epoch)
{
    const struct roll *roll = &world.rolls[epoch], *before = roll - 1;
    uint32_t stay = 0, come = 0;
    for (uint32_t i = 0; i < roll->size; i++)
        if (has(before, roll->people[i]))
            stay++;
        else
            come++;
    holds(!come || stay < world.min_size || world.rests[roll->first_seq - 2],
          "newcomers enter where all rest");
}

static uint32_t team_in(const struct roll *roll, uint32_t host)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < roll->size; i++)
        count += world.people[roll->people[i]].host == host;
    return count;
}

/* Of two hosts the one with fewer members is out, as a whole, and the other one
 * stays. */
static void check_expulsion(uint32_t epoch)
{
    const struct roll *roll = &world.rolls[epoch], *before = roll - 1;
    if (roll->why != MOOI_WHY_EXPELLED)
        return;
    uint32_t out = world.people[before->people[roll->rank]].host;
    uint32_t stays = world.people[before->people[roll->witness]].host;
    holds(team_in(before, out) <= team_in(before, stays),
          "the host with fewer members is expelled");
    for (uint32_t i = 0; i < before->size; i++) {
        const struct person *person = &world.people[before->people[i]];
        bool goes = person->host == out;
        holds(has(roll, before->people[i]) ? !goes : goes || person->leaves,
              "the host that is expelled is out, and no other");
    }
}

static void note_view(const struct mooi_roll *view)
{
    struct roll roll = {.first_seq = view->first_seq, .size = view->size,
                        .rested = view->rested, .why = view->cause.why,
                        .rank = (uint8_t)view->cause.rank,
                        .witness = (uint8_t)view->cause.witness};
    holds(view->epoch < EPOCHS && view->first_seq < SEQS,
          "the model's tables are long enough");
    for (uint32_t i = 0; i < view->size; i++)
        roll.people[i] =
            person_at(view->members[i].host, view->members[i].serial);
    struct roll *known = &world.rolls[view->epoch];
    if (known->first_seq) {
        holds(!memcmp(known, &roll, sizeof roll), "all see the same views");
        return;
    }
    holds(view->epoch == 1 || world.rolls[view->epoch - 1].first_seq ==
                                  0 ||
              world.rolls[view->epoch - 1].first_seq < view->first_seq,
          "epochs go on");
    *known = roll;
    uint64_t seq = view->first_seq - 1;
    holds(world.ends[seq] == UNKNOWN, "what has succeeded is not aborted");
    world.ends[seq] = ABORTED;
    world.reasons[seq] = view->cause.why;
    check_admission(view->epoch);
    check_expulsion(view->epoch);
    check_silent(view->epoch);
}

static void to_host(void *to, uint32_t host, const struct mooi_frame *frame)
{
    (void)to;
    if (frame->kind == MOOI_VIEW)
        note_view(frame->view);
    if (!world.places[host - 1].lost)
        put_frame(&world.places[host - 1].down_from, frame);
}

static void to_master(void *to, const struct mooi_frame *frame)
{
    struct host *host = &world.places[(uintptr_t)to];
    if (!host->home_lost)
        put_frame(&host->up_to, frame);
}

static void to_members(void *to, const struct mooi_frame *frame)
{
    struct host *host = &world.places[(uintptr_t)to];
    if (frame->kind == MOOI_WAITING)
        host->waiting = frame->waiting.count;
    if (frame->kind != MOOI_VIEW)
        return;
    host->shown = frame->view->epoch;
    host->seen |= (uint64_t)1 << frame->view->epoch;
}

/* ---- leaders ---- */

static const struct roll *roll_of(const struct person *person)
{
    return &world.rolls[person->epoch];
}

/* The hosts of a view, by their lowest rank. */
static uint32_t hosts_of(const struct roll *roll, uint32_t hosts[HOSTS])
{
    uint32_t count = 0, known = 0;
    for (uint32_t i = 0; i < roll->size; i++) {
        uint32_t host = world.people[roll->people[i]].host;
        if (known >> host & 1)
            continue;
        known |= 1u << host;
        hosts[count++] = host;
    }
    return count;
}

static uint32_t place_among(const struct roll *roll, uint32_t host)
{
    uint32_t hosts[HOSTS], count = hosts_of(roll, hosts), i = 0;
    while (i < count && hosts[i] != host)
        i++;
    return i;
}

static struct person *leader_in(const struct roll *roll, uint32_t host)
{
    for (uint32_t i = 0; i < roll->size; i++)
        if (world.people[roll->people[i]].host == host)
            return &world.people[roll->people[i]];
    return NULL;
}

static void send_parcel(uint32_t from, uint32_t to, const struct parcel *parcel)
{
    struct line *line = &world.lines[from][to];
    if (parcel->epoch <= line->cut || !world.places[to].up)
        return;
    holds(line->count < AHEAD, "the model's queues are long enough");
    line->parcels[line->count++] = *parcel;
}

static void to_leader(void *to, uint32_t place, const struct mooi_frame *frame)
{
    struct person *leader = &world.people[(uintptr_t)to];
    struct parcel parcel = {.epoch = leader->epoch, .seq = leader->seq};
    uint8_t bytes[MOOI_FRAME_BYTES];
    uint32_t hosts[HOSTS];
    hosts_of(roll_of(leader), hosts);
    parcel.bytes = (uint32_t)mooi_frame_write(frame, bytes, sizeof bytes);
    memcpy(parcel.frame, bytes, sizeof parcel.frame);
    send_parcel(leader->host, hosts[place], &parcel);
}

/* ---- members ---- */

static struct cell *cell_of(const struct person *person)
{
    return &world.places[person->host].cells[person->slot];
}

/* The latest view of its host in which operation `seq` would run. */
static uint32_t view_at(const struct host *host, uint64_t seq)
{
    for (uint32_t epoch = host->shown; epoch; epoch--)
        if (host->seen >> epoch & 1 && world.rolls[epoch].first_seq <= seq)
            return epoch;
    return 0;
}

/* The view that ends operation `seq`, if its host has it. */
static const struct roll *abort_of(const struct host *host, uint64_t seq)
{
    for (uint32_t epoch = host->shown; epoch; epoch--)
        if (host->seen >> epoch & 1 &&
            world.rolls[epoch].first_seq - 1 == seq)
            return &world.rolls[epoch];
    return NULL;
}

static const struct roll *commit_of(const struct host *host, uint64_t seq)
{
    return abort_of(host, seq + 1);
}

static void adopt(struct person *person, uint32_t epoch)
{
    uint8_t self = (uint8_t)(person - world.people);
    uint32_t hosts[HOSTS], count;
    if (epoch == person->epoch || !has(&world.rolls[epoch], self))
        return;
    person->epoch = epoch;
    person->sent = false;
    memset(person->come, 0, sizeof person->come);
    if (leader_in(roll_of(person), person->host) != person)
        return;
    count = hosts_of(roll_of(person), hosts);
    for (uint32_t host = 0; host < HOSTS; host++)
        memset(world.lines[person->host][host].parcels, 0,
               sizeof world.lines[0][0].parcels),
            world.lines[person->host][host].count = 0;
    mooi_commit_open(&person->commit, count,
                     place_among(roll_of(person), person->host),
                     roll_of(person)->first_seq);
}

static void ends(uint64_t seq, int end, uint32_t why)
{
    holds(world.ends[seq] == UNKNOWN ||
              (world.ends[seq] == end && world.reasons[seq] == why),
          "an operation has one outcome for all");
    world.ends[seq] = (uint8_t)end;
    world.reasons[seq] = (uint8_t)why;
}

/* Between two calls every member sees the same of the group. */
static void end_call(struct person *person)
{
    uint8_t *epoch = &world.after[person->ended];
    const struct host *host = &world.places[person->host];
    uint32_t seen = view_at(host, person->seq + 1);
    holds(!*epoch || *epoch == seen, "all see a view after the same call");
    *epoch = (uint8_t)seen;
    person->phase = --person->calls ? CALLING : DONE;
    person->odd = false;
}

/* A newcomer waits for its first view of enough members. */
static void wait_in(struct person *person)
{
    const struct host *host = &world.places[person->host];
    uint8_t self = (uint8_t)(person - world.people);
    for (uint32_t epoch = person->since + 1; epoch <= host->shown; epoch++) {
        const struct roll *roll = &world.rolls[epoch];
        if (!(host->seen >> epoch & 1) || !has(roll, self) ||
            roll->size < world.min_size)
            continue;
        person->seq = roll->first_seq - 1;
        person->phase = CALLING;
        adopt(person, epoch);
        return;
    }
}

static bool all_local(const struct person *person, uint32_t ack, uint64_t put)
{
    const struct roll *roll = roll_of(person);
    for (uint32_t i = 0; i < roll->size; i++) {
        const struct person *other = &world.people[roll->people[i]];
        const struct cell *cell = cell_of(other);
        if (other->host == person->host &&
            (cell->serial != other->serial || cell->ack < ack ||
             cell->put < put))
            return false;
    }
    return true;
}

/* Begin the next operation, or take the end that it has already. */
static void call(struct person *person)
{
    struct host *host = &world.places[person->host];
    uint64_t seq = person->seq + 1;
    struct cell *cell = cell_of(person);
    const struct roll *aborted = abort_of(host, seq);
    uint32_t epoch = view_at(host, seq);
    adopt(person, epoch);
    if (aborted && (mooi_state_of(&host->words.word, seq) == MOOI_PAST ||
                    mooi_state_of(&host->words.word, seq) == MOOI_ABORTED)) {
        person->seq = seq;
        ends(seq, ABORTED, aborted->why);
        person->ended = seq;
        if (!is_silent(aborted->why))
            end_call(person);
        return;
    }
    if (epoch != person->epoch) { /* it is in none any more */
        person->phase = DONE;
        return;
    }
    const struct roll *roll = roll_of(person);
    if (roll->size < world.min_size || seq < roll->first_seq)
        return;
    if (cell->serial != person->serial || cell->ack < person->epoch) {
        cell->serial = person->serial;
        cell->person = (uint32_t)(person - world.people);
        cell->ack = person->epoch;
    }
    if (!all_local(person, person->epoch, 0))
        return;
    cell->put = seq;
    cell->writer = person->serial;
    cell->odd[seq & 1] = person->odd;
    cell->admits[seq & 1] = host->waiting != 0;
    person->seq = seq;
    person->phase = RUNNING;
    world.begun[seq] |= (uint8_t)(1u << cell->person);
    for (uint32_t epoch = 2; epoch < EPOCHS && world.rolls[epoch].first_seq;
         epoch++)
        check_silent(epoch);
}

/* The inputs of the members of its host. */
static uint32_t local_inputs(const struct person *person, uint32_t *odd)
{
    const struct roll *roll = roll_of(person);
    uint32_t inputs = 0, all = 0;
    *odd = 0;
    for (uint32_t i = 0; i < roll->size; i++) {
        const struct person *other = &world.people[roll->people[i]];
        if (other->host != person->host)
            continue;
        all++;
        *odd += cell_of(other)->odd[person->seq & 1];
        inputs |= 1u << cell_of(other)->person;
    }
    *odd = *odd == 0 ? 0 : *odd == all ? 1 : 2; /* 2: they differ here */
    return inputs;
}

static void lead(struct person *person)
{
    struct host *host = &world.places[person->host];
    uint32_t hosts[HOSTS], count = hosts_of(roll_of(person), hosts), odd;
    bool rest = roll_of(person)->people[0] == person - world.people &&
                host->waiting;
    uint32_t others = ~(1u << person->host), came;
    if (person->commit.seq != person->seq || person->commit.entered)
        return;
    if (!all_local(person, person->epoch, person->seq))
        return;
    uint32_t inputs = local_inputs(person, &odd);
    if (!person->sent && odd < 2) {
        struct parcel parcel = {.data = true, .epoch = person->epoch,
                                .seq = person->seq, .inputs = inputs,
                                .digest = odd};
        person->sent = true;
        for (uint32_t i = 0; i < count; i++)
            if (hosts[i] != person->host)
                send_parcel(person->host, hosts[i], &parcel);
        return;
    }
    came = person->come[person->seq & 1].got;
    bool bad = odd == 2 || person->commit.warning ||
               (person->come[person->seq & 1].odd & others) !=
                   (odd ? came : 0);
    if (!bad && (uint32_t)__builtin_popcount(came) + 1 < count)
        return;
    host->inputs = inputs | person->come[person->seq & 1].inputs;
    world.rests[person->seq] |= rest || bad;
    mooi_commit_enter(&person->commit, bad, rest || bad);
}

/* In a view of one host nobody leads. */
static void commit_alone(struct person *person)
{
    struct host *host = &world.places[person->host];
    uint32_t odd, inputs;
    if (!all_local(person, person->epoch, person->seq))
        return;
    inputs = local_inputs(person, &odd);
    const struct cell *first =
        cell_of(&world.people[roll_of(person)->people[0]]);
    world.rests[person->seq] |= first->admits[person->seq & 1];
    atomic_store(&host->words.result,
                 mooi_result_of(person->seq, odd == 2,
                                first->admits[person->seq & 1]));
    if (mooi_word_take(&host->words.word, person->seq, MOOI_COMMITTED) ==
        MOOI_COMMITTED)
        host->inputs = inputs;
}

static void rest(struct person *person)
{
    person->phase = RESTING;
    person->note = 1; /* in place of a complaint, if there is one */
}

/* The present operation is committed. */
static void succeed(struct person *person)
{
    struct host *host = &world.places[person->host];
    const struct roll *next = commit_of(host, person->seq);
    uint64_t result = atomic_load(&host->words.result);
    uint32_t status = mooi_result_status(result);
    bool rests = next ? next->rested : mooi_result_rests(result);
    holds(mooi_result_is_for(result, person->seq), "a result stays");
    ends(person->seq, status ? DISAGREED : SUCCEEDED, 0);
    if (!status) {
        uint32_t inputs = host->inputs;
        holds(!world.results[person->seq] ||
                  world.results[person->seq] == inputs,
              "all have the same result");
        world.results[person->seq] = (uint8_t)inputs;
    }
    person->sent = false;
    person->ended = person->seq;
    memset(&person->come[person->seq & 1], 0, sizeof person->come[0]);
    person->phase = COPYING;
    if (rests)
        rest(person);
}

static void copy(struct person *person)
{
    const struct roll *roll = roll_of(person);
    for (uint32_t i = 0; i < roll->size; i++) {
        const struct person *other = &world.people[roll->people[i]];
        holds(other->host != person->host ||
                  cell_of(other)->writer == other->serial,
              "nobody writes to a slot from which others still read");
    }
    end_call(person);
}

static void run(struct person *person)
{
    struct host *host = &world.places[person->host];
    uint32_t hosts[HOSTS];
    const struct roll *aborted;
    enum mooi_state state = mooi_state_of(&host->words.word, person->seq);
    if (state == MOOI_OPEN || state == MOOI_HALTED) { /* since it looked */
        if (hosts_of(roll_of(person), hosts) == 1)
            commit_alone(person);
        else if (leader_in(roll_of(person), person->host) == person)
            lead(person);
        return;
    }
    if (state == MOOI_PREPARED || state == MOOI_HALTED_PREPARED)
        return;
    aborted = abort_of(host, person->seq);
    if (!aborted) {
        succeed(person);
        return;
    }
    ends(person->seq, ABORTED, aborted->why);
    person->phase = CALLING;
    person->ended = person->seq;
    if (!is_silent(aborted->why))
        end_call(person);
}

/* Everything is committed; wait for the view. */
static void take_rest(struct person *person)
{
    const struct host *host = &world.places[person->host];
    const struct roll *next = commit_of(host, person->seq);
    if (!next)
        return;
    person->phase = COPYING;
    if (is_silent(next->why))
        ends(++person->seq, ABORTED, next->why);
}

static void step(struct person *person)
{
    switch (person->phase) {
    case JOINING:
        wait_in(person);
        break;
    case CALLING:
        call(person);
        break;
    case RUNNING:
        run(person);
        break;
    case RESTING:
        take_rest(person);
        break;
    case COPYING:
        copy(person);
        break;
    default:
        break;
    }
}

/* ---- what happens beside ---- */

static void arrive(struct host *from, uint32_t number)
{
    struct mooi_frame frame = take_frame(&from->up_to);
    mooi_master_take(&world.master, number + 1, &frame);
}

static void receive(uint32_t from, uint32_t to)
{
    struct line *line = &world.lines[from][to];
    struct parcel parcel = line->parcels[0];
    struct person *leader = NULL;
    for (int i = 0; i < PEOPLE; i++) {
        struct person *person = &world.people[i];
        if (person->alive && person->host == to && person->epoch &&
            person->epoch >= parcel.epoch &&
            leader_in(roll_of(person), to) == person)
            leader = person;
    }
    if (!leader)
        return; /* it waits there */
    memmove(line->parcels, line->parcels + 1,
            (AHEAD - 1) * sizeof *line->parcels);
    memset(&line->parcels[AHEAD - 1], 0, sizeof *line->parcels);
    line->count--;
    if (!parcel.data) {
        struct mooi_frame frame;
        holds(mooi_frame_read(&frame, NULL, parcel.frame, parcel.bytes),
              "a frame can be read");
        mooi_commit_take(&leader->commit, &frame);
    } else if (parcel.epoch == leader->epoch) {
        uint32_t turn = parcel.seq & 1;
        leader->come[turn].got |= 1u << from;
        leader->come[turn].odd |= (uint32_t)(parcel.digest != 0) << from;
        leader->come[turn].inputs |= parcel.inputs;
    }
}

static void hear_note(struct person *person)
{
    struct host *host = &world.places[person->host];
    int note = person->note;
    person->note = 0;
    if (note == 1)
        mooi_agent_look(&host->agent);
    else
        mooi_agent_complain(&host->agent, person->noted, &person->complaint);
}

static void notice_end(struct person *person)
{
    struct host *host = &world.places[person->host];
    person->noticed = true;
    uint64_t begun = cell_of(person)->serial == person->serial
                         ? cell_of(person)->put
                         : 0;
    mooi_agent_gone(&host->agent, person->slot, !person->leaves, begun);
}

static uint32_t rank_of(const struct person *person, const struct person *one)
{
    const struct roll *roll = roll_of(person);
    uint32_t rank = 0;
    while (roll->people[rank] != one - world.people)
        rank++;
    return rank;
}

static void complain(struct person *person, enum mooi_why why,
                     const struct person *about)
{
    person->note = 2;
    person->noted = person->seq + (person->phase == CALLING);
    person->complaint =
        (struct mooi_cause){.why = why, .rank = rank_of(person, about),
                            .witness = rank_of(person, person)};
}

/* The leader at the other end of a connection of its that was cut in this
 * epoch. */
static const struct person *finds_a_cut(const struct person *person)
{
    if (person->phase != RUNNING || person->note ||
        leader_in(roll_of(person), person->host) != person)
        return NULL;
    for (uint32_t host = 0; host < HOSTS; host++)
        if (world.lines[person->host][host].cut >= person->epoch ||
            world.lines[host][person->host].cut >= person->epoch) {
            const struct person *other = leader_in(roll_of(person), host);
            if (other)
                return other;
        }
    return NULL;
}

/* ---- choices ---- */

enum act {
    STEP, NOTICE, NOTE, FIND_CUT, LOOK, UP, DOWN, RECEIVE, HOME_NOTICES,
    AGENT_NOTICES, AGENT_KILLS,
    /* faults */
    KILL, LEAVE, JOIN, CRASH, CUT_HOME, CUT_LINE, LATE, ODD, CUT_FOR_GOOD, ACTS
};
static const char *const act_names[ACTS] = {
    "steps", "its end is noticed", "its note is read", "finds a cut",
    "looks: the agent of host",
    "frame to the master", "frame from the master", "parcel",
    "the home loses host", "the agent loses the home of host",
    "the agent kills all on host", "is killed", "leaves", "joins on host",
    "crashes: host", "is cut off the home: host", "line cut", "is late",
    "makes another call", "line cut for good"};

struct choice {
    enum act act;
    uint32_t a, b;
};

static bool present(const struct person *person)
{
    return person->phase && person->alive && !person->leaves;
}

static bool may(struct choice choice)
{
    struct person *person = &world.people[choice.a];
    struct host *host = &world.places[choice.a % HOSTS]; /* if it is one */
    if (choice.act >= KILL && !world.faults)
        return false;
    switch (choice.act) {
    case STEP:
        return present(person) && person->phase != DONE;
    case NOTICE:
        return person->phase && !present(person) && !person->noticed &&
               world.places[person->host].up;
    case NOTE:
        return person->note && world.places[person->host].up;
    case FIND_CUT:
        return present(person) && finds_a_cut(person);
    case LOOK:
        return host->up && host->agent.misses;
    case UP:
        return host->up_to.count && !host->lost;
    case DOWN:
        return host->down_from.count && host->up && !host->home_lost;
    case RECEIVE:
        return world.lines[choice.a][choice.b].count;
    case HOME_NOTICES:
        return (host->cut || !host->up) && !host->lost;
    case AGENT_NOTICES:
        return host->cut && host->up && !host->home_lost;
    case AGENT_KILLS:
        return host->home_lost && host->up && !host->killed;
    case KILL:
    case LEAVE:
        return present(person);
    case JOIN:
        return host->up && !host->cut && !world.people[PEOPLE - 1].phase;
    case CRASH:
        return host->up;
    case CUT_HOME:
        return host->up && !host->cut;
    case CUT_LINE:
    case CUT_FOR_GOOD:
        return choice.a < choice.b && choice.b < world.hosts;
    case LATE:
        return present(person) && !person->note && person->epoch &&
               (person->phase == RUNNING || person->phase == CALLING);
    case ODD:
        return present(person) && person->phase == CALLING && !person->odd;
    default:
        return false;
    }
}

static void end_all(uint32_t number)
{
    for (int i = 0; i < PEOPLE; i++)
        if (world.people[i].host == number)
            world.people[i].alive = false;
}

static void let_join(uint32_t number)
{
    struct host *host = &world.places[number];
    struct mooi_member member = {.pid = 1};
    uint32_t i = 0;
    while (world.people[i].phase)
        i++;
    while (member.slot < MOOI_TEAM_MAX && host->agent.slots[member.slot].taken)
        member.slot++;
    if (member.slot == MOOI_TEAM_MAX)
        return;
    mooi_agent_join(&host->agent, &member, world.min_size, false);
    world.people[i] = (struct person){
        .phase = JOINING, .alive = true, .host = number,
        .slot = member.slot, .serial = member.serial, .calls = 2,
        .since = host->shown};
    world.people[i].commit.words = &host->words;
    world.people[i].commit.emit = to_leader;
    world.people[i].commit.to = (void *)(uintptr_t)i;
}

static void act_on(struct choice choice)
{
    struct person *person = &world.people[choice.a];
    struct host *host = &world.places[choice.a % HOSTS]; /* if it is one */
    struct mooi_frame frame;
    if (choice.act >= KILL)
        world.faults--;
    switch (choice.act) {
    case STEP:
        step(person);
        break;
    case NOTICE:
        notice_end(person);
        break;
    case NOTE:
        hear_note(person);
        break;
    case FIND_CUT:
        complain(person, MOOI_WHY_CUT, finds_a_cut(person));
        break;
    case LOOK:
        mooi_agent_look(&host->agent);
        break;
    case UP:
        arrive(host, choice.a);
        break;
    case DOWN:
        frame = take_frame(&host->down_from);
        mooi_agent_take(&host->agent, &frame);
        break;
    case RECEIVE:
        receive(choice.a, choice.b);
        break;
    case HOME_NOTICES:
        host->lost = true;
        clear(&host->up_to);
        mooi_master_lost(&world.master, choice.a + 1);
        break;
    case AGENT_NOTICES:
        host->home_lost = true;
        clear(&host->down_from);
        break;
    case AGENT_KILLS:
        host->killed = true;
        end_all(choice.a);
        break;
    case KILL:
        person->alive = false;
        break;
    case LEAVE:
        person->leaves = true;
        break;
    case JOIN:
        let_join(choice.a);
        break;
    case CRASH:
        host->up = false;
        end_all(choice.a);
        break;
    case CUT_HOME:
        host->cut = true;
        break;
    case CUT_LINE:
    case CUT_FOR_GOOD:
        for (int way = 0; way < 2; way++) {
            struct line *line = way ? &world.lines[choice.a][choice.b]
                                    : &world.lines[choice.b][choice.a];
            uint32_t cut = choice.act == CUT_LINE ? world.master.epoch
                                                  : UINT32_MAX;
            memset(line, 0, sizeof *line);
            line->cut = cut;
        }
        break;
    case LATE:
        complain(person, MOOI_WHY_LATE, person);
        break;
    case ODD:
        person->odd = true;
        break;
    default:
        break;
    }
}

static uint32_t choices_now(struct choice *choices, bool faults)
{
    uint32_t count = 0;
    for (enum act act = 0; act < (faults ? ACTS : KILL); act++) {
        bool of_person = act <= FIND_CUT || act == KILL || act == LEAVE ||
                         act == LATE || act == ODD;
        bool of_two = act == RECEIVE || act == CUT_LINE ||
                      act == CUT_FOR_GOOD;
        uint32_t most = of_person ? PEOPLE : world.hosts;
        for (uint32_t a = 0; a < most; a++)
            for (uint32_t b = 0; b < (of_two ? world.hosts : 1); b++) {
                struct choice choice = {act, a, b};
                if (may(choice))
                    choices[count++] = choice;
            }
    }
    return count;
}

static bool is_expelled(const struct person *person)
{
    for (uint32_t epoch = person->epoch + 1; epoch <= world.master.epoch;
         epoch++)
        if (world.rolls[epoch].why == MOOI_WHY_EXPELLED &&
            !has(&world.rolls[epoch], (uint8_t)(person - world.people)))
            return true;
    return false;
}

/* Nothing more happens by itself. Everybody who waits has a reason. */
static void check_rest(void)
{
    for (int i = 0; i < PEOPLE; i++) {
        const struct person *person = &world.people[i];
        const struct roll *roll = &world.rolls[world.master.epoch];
        bool few = world.master.state == MOOI_GROUP_FORMING, waits = false;
        if (!present(person) || person->phase == DONE ||
            world.places[person->host].cut)
            continue;
        holds(world.master.state != MOOI_GROUP_HALTING,
              "the master decides in the end");
        for (uint32_t r = 0; r < roll->size; r++)
            waits |= world.people[roll->people[r]].phase == DONE;
        holds(few || waits, "nobody waits for ever");
        if (person->phase != JOINING && !is_expelled(person))
            holds(has(roll, (uint8_t)i), "who lives is in the view");
        holds(person->phase != RESTING, "who rests is woken");
    }
}

/* ---- worlds ---- */

static void begin(uint32_t hosts, uint32_t people, uint32_t min_size,
                  int faults)
{
    memset(&world, 0, sizeof world);
    world.hosts = hosts;
    world.min_size = min_size;
    world.faults = faults;
    world.master.emit = to_host;
    world.master.roll = &said;
    for (uint32_t i = 0; i < hosts; i++) {
        struct host *host = &world.places[i];
        host->up = true;
        host->agent.host = i + 1;
        host->agent.words = &host->words;
        host->agent.emit = to_master;
        host->agent.show = to_members;
        host->agent.to = (void *)(uintptr_t)i;
    }
    for (uint32_t i = 0; i < people; i++)
        let_join(i % hosts);
}

static void tell(struct choice choice)
{
    if (!told)
        return;
    if (choice.act <= FIND_CUT || (choice.act >= KILL && choice.act != JOIN &&
                                   choice.act != CRASH &&
                                   choice.act != CUT_HOME &&
                                   choice.act != CUT_LINE &&
                                   choice.act != CUT_FOR_GOOD))
        printf("  member %u (seq %u, epoch %u, phase %d) %s\n",
               (unsigned)choice.a, (unsigned)world.people[choice.a].seq,
               (unsigned)world.people[choice.a].epoch,
               (int)world.people[choice.a].phase, act_names[choice.act]);
    else
        printf("  %s %u %u\n", act_names[choice.act], (unsigned)choice.a,
               (unsigned)choice.b);
}

/* ---- random schedules ---- */

enum { STEPS = 400, QUIET = 4000 };

struct schedule {
    uint32_t hosts, people, min_size;
    int faults;
    uint32_t count;
    struct choice choices[STEPS];
};

/* In turn, until nothing changes. */
static void go_on_to_the_end(void)
{
    static struct world before;
    struct choice choices[256];
    for (int round = 0; round < QUIET; round++) {
        uint32_t count = choices_now(choices, false);
        before = world;
        for (uint32_t i = 0; i < count; i++)
            if (may(choices[i])) {
                tell(choices[i]);
                act_on(choices[i]);
            }
        if (!memcmp(&before, &world, sizeof world)) {
            check_rest();
            return;
        }
    }
    holds(false, "it comes to an end");
}

/* Draw one thing that can happen. */
static bool choose(struct choice *choice)
{
    for (int tries = 0; tries < 64; tries++) {
        *choice = (struct choice){.act = STEP, .a = draw(PEOPLE)};
        if (draw(3)) {
            choice->act = (enum act)draw(draw(12) ? KILL : ACTS);
            bool of_person = choice->act <= FIND_CUT || choice->act == KILL ||
                             choice->act == LEAVE || choice->act == LATE ||
                             choice->act == ODD;
            choice->a = draw(of_person ? PEOPLE : world.hosts);
            if (choice->act == RECEIVE || choice->act == CUT_LINE ||
                choice->act == CUT_FOR_GOOD)
                choice->b = draw(world.hosts);
        }
        if (may(*choice))
            return true;
    }
    return false;
}

static void draw_schedule(struct schedule *schedule, uint64_t seed)
{
    draw_from(seed);
    schedule->hosts = 1 + draw(HOSTS);
    schedule->people = 1 + draw(5);
    schedule->min_size = 1 + draw(schedule->people < 3 ? schedule->people : 3);
    schedule->faults = (int)draw(5);
    schedule->count = 0;
}

static void play_on(struct schedule *schedule)
{
    uint32_t steps = 40 + draw(STEPS - 40);
    begin(schedule->hosts, schedule->people, schedule->min_size,
          schedule->faults);
    while (schedule->count < steps &&
           choose(&schedule->choices[schedule->count])) {
        struct choice choice = schedule->choices[schedule->count++];
        tell(choice);
        act_on(choice);
    }
    world.faults = 0;
    go_on_to_the_end();
}

/* Whether it still fails without the choices that may not be made. */
static bool replay_fails(const struct schedule *schedule, const char *rule)
{
    failure = NULL;
    if (!setjmp(failed)) {
        begin(schedule->hosts, schedule->people, schedule->min_size,
              schedule->faults);
        for (uint32_t i = 0; i < schedule->count; i++)
            if (may(schedule->choices[i])) {
                tell(schedule->choices[i]);
                act_on(schedule->choices[i]);
            }
        world.faults = 0;
        go_on_to_the_end();
    }
    return failure && !strcmp(failure, rule);
}

/* Leave out ever shorter runs of choices. */
static void shrink(struct schedule *schedule, const char *rule)
{
    static struct schedule shorter;
    for (uint32_t n = schedule->count; n; n /= 2)
        for (uint32_t from = 0; from + n <= schedule->count;) {
            shorter = *schedule;
            memmove(&shorter.choices[from], &shorter.choices[from + n],
                    (shorter.count - from - n) * sizeof *shorter.choices);
            shorter.count -= n;
            if (replay_fails(&shorter, rule))
                *schedule = shorter;
            else
                from += n;
        }
}

static void fail_with(struct schedule *schedule, const char *rule,
                      const char *where, uint64_t seed)
{
    printf("%s %llu: not so: %s\n", where, (unsigned long long)seed, rule);
    shrink(schedule, rule);
    printf("%u hosts, %u members at first, min_size %u; %u steps:\n",
           (unsigned)schedule->hosts, (unsigned)schedule->people,
           (unsigned)schedule->min_size, (unsigned)schedule->count);
    told = true;
    replay_fails(schedule, rule);
    exit(1);
}

static void play_random(uint64_t seed)
{
    static struct schedule schedule;
    draw_schedule(&schedule, seed);
    if (setjmp(failed))
        fail_with(&schedule, failure, "schedule", seed);
    play_on(&schedule);
}

/* ---- all orders of a small world ---- */

#define ANY UINT32_MAX
enum { DEEPEST = 200 };

static uint64_t *seen_states;
static int seen_bits;
static uint64_t state_count;

static uint64_t print_of(const void *start, size_t bytes)
{
    const uint64_t *words = start;
    uint64_t hash = 0xcbf29ce484222325ull;
    for (size_t i = 0; i < bytes / 8; i++) {
        if (!words[i])
            continue;
        hash = (hash ^ i) * 0xd6e8feb86659fd93ull;
        hash ^= hash >> 32;
        hash = (hash ^ words[i]) * 0x9e3779b97f4a7c15ull;
        hash ^= hash >> 29;
    }
    return hash ? hash : 1;
}

/* false: it was there already. */
static bool first_time(uint64_t print)
{
    uint64_t mask = ((uint64_t)1 << seen_bits) - 1, i = print & mask;
    for (; seen_states[i]; i = (i + 1) & mask)
        if (seen_states[i] == print)
            return false;
    seen_states[i] = print;
    state_count++;
    return true;
}

static struct schedule path;

/* Everything that can follow. Depth first: the set of states is the same. With
 * `delays` only what differs so often from the order of `choices_now`, but with
 * faults at any time; a choice that passes over n others counts n times (Emmi,
 * Qadeer and Rakamarić, "Delay-Bounded Scheduling", POPL 2011). */
static void explore(uint64_t most, uint32_t delays)
{
    struct choice choices[96];
    uint32_t count = choices_now(choices, true), moved = 0;
    static struct world worlds[DEEPEST]; /* on the path */
    struct world *here = &worlds[path.count];
    if (state_count > most || path.count == DEEPEST)
        return;
    *here = world;
    for (uint32_t i = 0; i < count; i++) {
        bool fault = choices[i].act >= KILL;
        uint32_t left = fault || delays == ANY ? delays : delays - moved;
        if (!fault && moved > delays)
            continue;
        path.choices[path.count++] = choices[i];
        act_on(choices[i]);
        bool changed = memcmp(here, &world, sizeof world) != 0;
        moved += changed && !fault;
        if (changed && first_time(print_of(&world, sizeof world) + left))
            explore(most, left);
        world = *here;
        path.count--;
    }
    if (!moved)
        check_rest();
}

/* Let all join, in one order, until they are about to call. */
static void form(void)
{
    bool moved = true;
    while (moved) {
        moved = false;
        for (uint32_t i = 0; i < world.hosts; i++) {
            const struct choice ways[] = {{UP, i, 0}, {DOWN, i, 0}};
            for (int way = 0; way < 2; way++)
                for (; may(ways[way]); moved = true)
                    act_on(ways[way]);
        }
    }
    for (uint32_t i = 0; i < PEOPLE; i++)
        if (world.people[i].phase == JOINING)
            step(&world.people[i]);
}

/* `formed`: all have joined before; `bits`: of the number of states that there is
 * room for. */
static void explore_all(uint32_t hosts, uint32_t people, uint32_t min_size,
                        int faults, bool formed, uint32_t delays, int bits)
{
    uint64_t most = (uint64_t)3 << (bits - 2);
    seen_bits = bits;
    path = (struct schedule){.hosts = hosts, .people = people,
                             .min_size = min_size, .faults = faults};
    seen_states = calloc((size_t)1 << bits, sizeof *seen_states);
    state_count = 0;
    if (setjmp(failed))
        fail_with(&path, failure, "world of hosts", hosts);
    begin(hosts, people, min_size, faults);
    if (formed)
        form();
    explore(most, delays);
    printf("%u hosts, %u members%s, %d faults", (unsigned)hosts,
           (unsigned)people, formed ? " of a group" : "", faults);
    if (delays != ANY)
        printf(", %u delays", (unsigned)delays);
    printf(": %llu states%s\n", (unsigned long long)state_count,
           state_count > most ? ", not all" : "");
    fflush(stdout);
    free(seen_states);
}

int main(int argc, char **argv)
{
    const char *wanted = getenv("MODEL_SCHEDULES");
    uint64_t schedules = wanted ? strtoull(wanted, NULL, 10) : 100000;
    if (argc > 1) {
        told = true;
        play_random(strtoull(argv[1], NULL, 10));
        return 0;
    }
    for (uint64_t seed = 0; seed < schedules; seed++)
        play_random(seed);
    printf("%llu schedules\n", (unsigned long long)schedules);
    explore_all(1, 2, 1, 1, false, ANY, 24);
    explore_all(2, 2, 2, 1, false, ANY, 24);
    explore_all(3, 3, 1, 2, true, 0, 24);
    if (!getenv("MODEL_ALL"))
        return 0;
    explore_all(3, 3, 1, 1, true, 1, 28);
    explore_all(3, 3, 1, 2, true, 1, 28);
    explore_all(2, 2, 1, 2, true, ANY, 28);
    return 0;
}
