/* SPDX-License-Identifier: MIT */
/*
 * The TCP engine over cables that are pulled, that swallow what goes one way,
 * or that lose packets. A cable joins two network namespaces, of the owner and
 * of the importer.
 */
#include <sched.h>

#include "children.h"
#include "pace.h"
#include "tcp_fixture.h"

#define BYTES ((size_t)32 << 20)
#define IN_TIME_NS ((uint64_t)3000000000u)
#define SLOW_TRIPS_NS ((uint64_t)2000000000u)
#define BEHIND_NS ((uint64_t)100000000u)

static struct side me;

/* ---- cables ---- */

static int cables;

/* Run a command. Every %d in it becomes the test's process id. */
static int shell(const char *command)
{
    char text[400] = "", *to = text;

    for (; *command && to < text + sizeof text - 24; command++) {
        if (command[0] == '%' && command[1] == 'd') {
            to += sprintf(to, "%d", getpid());
            command++;
        } else {
            *to++ = *command;
        }
    }
    *to = 0;
    return system(text);
}

/* "@" stands for the namespace at one end of cable `n`. */
static void at(int n, char end, const char *command)
{
    char text[400];
    const char *mark = strchr(command, '@');

    snprintf(text, sizeof text, "%.*smoot%%d-%d%c%s", (int)(mark - command),
             command, n, end, mark + 1);
    CHECK(!shell(text));
}

static void take_cables_away(void)
{
    char text[80];

    for (; cables > 0; cables--)
        for (char end = 'a'; end <= 'b'; end++) {
            snprintf(text, sizeof text,
                     "ip netns del moot%%d-%d%c 2>/dev/null", cables, end);
            shell(text);
        }
}

/* Returns its number. */
static int lay_cable(void)
{
    int n = ++cables;
    char text[120];

    at(n, 'a', "ip netns add @");
    at(n, 'b', "ip netns add @");
    snprintf(text, sizeof text,
             "ip link add v netns moot%%d-%da type veth peer name v "
             "netns moot%%d-%db", n, n);
    CHECK(!shell(text));
    at(n, 'a', "ip -n @ addr add 10.79.0.1/24 dev v");
    at(n, 'b', "ip -n @ addr add 10.79.0.2/24 dev v");
    at(n, 'a', "ip -n @ link set v up");
    at(n, 'b', "ip -n @ link set v up");
    return n;
}

static int can_lay_cables(void)
{
    if (!geteuid() && !shell("ip netns add moot%d-0a 2>/dev/null") &&
        !shell("ip netns del moot%d-0a"))
        return 1;
    printf("skipped: network namespaces need root and ip\n");
    return 0;
}

/* The owner is at end a, the importer at end b. */
static void enter(int n, char end)
{
    char path[64];
    int fd;

    snprintf(path, sizeof path, "/var/run/netns/moot%d-%d%c", getppid(), n,
             end);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0 && !setns(fd, CLONE_NEWNET));
    close(fd);
}

/* ---- who is at the ends; ids are 2 n and 2 n + 1 ---- */

/* When the link went down, to be compared with when the cable was cut: the
 * clock is one on one machine. */
static void report_the_end(int socket)
{
    uint64_t when;

    await(&me, &me.downs, 1);
    when = mooi_now_ns();
    say(socket, &when, sizeof when);
    close_side(&me);
}

static char *new_memory(void)
{
    char *memory = malloc(BYTES);

    CHECK(memory);
    for (uint64_t i = 0; i < BYTES / 8; i++)
        memcpy(memory + 8 * i, &(uint64_t){i * 0x9e3779b97f4a7c15u}, 8);
    return memory;
}

static void play_owner(int socket, uint64_t id)
{
    struct mooi_tcp_options options = {.id = id, .bind = "10.79.0.1"};
    struct mooi_address address;
    struct mooi_tcp_link *link;
    char *memory = new_memory();

    enter((int)id / 2, 'a');
    memcpy(options.key, session_key, sizeof session_key);
    open_side(&me, id, &options);
    own(&me, 0, memory, BYTES);
    hear(socket, &address, sizeof address);
    CHECK(mooi_tcp_connect(me.engine, id + 1, &address, 1, &link) == MOO_OK);
    await(&me, &me.ups, 1);
    say(socket, "", 1);
    report_the_end(socket);
    free(memory);
}

/* Told 0: wait; 1: fetch until the end; 2: fetch once and tell. */
static void play_importer(int socket, uint64_t id)
{
    struct mooi_tcp_options options = {.id = id, .bind = "*"};
    struct mooi_address address;
    char *into = calloc(1, BYTES), *memory = new_memory(), todo;
    moo_err err = MOO_OK;

    enter((int)id / 2, 'b');
    CHECK(into);
    memcpy(options.key, session_key, sizeof session_key);
    open_side(&me, id, &options);
    CHECK(mooi_tcp_addresses(me.engine, &address, 1) == 1);
    CHECK(address.ip[0] == 10);
    say(socket, &address, sizeof address);
    await(&me, &me.ups, 1);
    say(socket, "", 1);
    hear(socket, &todo, 1);
    if (todo == 2) {
        CHECK(fetch(&me, 0, 0, BYTES / 8, into) == MOO_OK);
        CHECK(!memcmp(into, memory, BYTES / 8));
        CHECK(!count_of(&me, &me.downs));
        say(socket, "", 1);
    }
    while (todo == 1 && err == MOO_OK)
        err = fetch(&me, 0, 0, BYTES, into);
    CHECK(err == MOO_OK || err == MOO_EPEER);
    report_the_end(socket);
    free(into);
    free(memory);
}

/* ---- cuts ---- */

enum how { PULLED, OWNER_UNHEARD, IMPORTER_UNHEARD };

struct cut {
    const char *name;
    enum how how;
    char busy;    /* a transfer is under way */
    int slow_rto; /* the kernels send again after four seconds, not before */
    int cable;
    pid_t child[2];
    int socket[2]; /* owner's, importer's */
    uint64_t at_ns, lost_ns;
};

/* Lay the cable, and connect the two. */
static void connect_both(struct cut *cut)
{
    static const char slow[] =
        "ip -n @ route change 10.79.0.0/24 dev v rto_min 4s";
    struct mooi_address address;
    char byte;

    cut->cable = lay_cable();
    for (char end = 'a'; cut->slow_rto && end <= 'b'; end++)
        at(cut->cable, end, slow);
    cut->child[0] = start("owner", 2 * (uint64_t)cut->cable, &cut->socket[0]);
    cut->child[1] =
        start("importer", 2 * (uint64_t)cut->cable + 1, &cut->socket[1]);
    hear(cut->socket[1], &address, sizeof address);
    say(cut->socket[0], &address, sizeof address);
    for (int i = 0; i < 2; i++)
        hear(cut->socket[i], &byte, 1);
}

/* A silent hole: packets go to a neighbour that is not there. */
static void cut_now(struct cut *cut)
{
    if (cut->how == PULLED)
        at(cut->cable, 'a', "ip -n @ link set v down");
    else if (cut->how == OWNER_UNHEARD)
        at(cut->cable, 'a', "ip -n @ neigh replace 10.79.0.2 lladdr "
                            "02:00:00:00:00:01 dev v nud permanent");
    else
        at(cut->cable, 'b', "ip -n @ neigh replace 10.79.0.1 lladdr "
                            "02:00:00:00:00:01 dev v nud permanent");
    cut->at_ns = mooi_now_ns();
    cut->lost_ns = pace_lost_ns();
}

/* The time that a machine that is behind takes longer: its round trips are
 * slow, too, and a link has more patience then. */
static uint64_t allowance_ns(const struct cut *cut)
{
    uint64_t lost_ns = pace_lost_ns() - cut->lost_ns;

    return lost_ns + (lost_ns < BEHIND_NS ? 0 : SLOW_TRIPS_NS);
}

static void end_cut(struct cut *cut)
{
    uint64_t end_ns[2];
    int status;

    for (int i = 0; i < 2; i++) {
        hear(cut->socket[i], &end_ns[i], sizeof end_ns[i]);
        end_ns[i] -= end_ns[i] < cut->at_ns ? end_ns[i] : cut->at_ns;
    }
    printf("   %s%s%s: owner %.2f s, importer %.2f s\n", cut->name,
           cut->busy ? ", in mid-transfer" : ", idle",
           cut->slow_rto ? ", slow to send again" : "",
           (double)end_ns[0] / 1e9, (double)end_ns[1] / 1e9);
    for (int i = 0; i < 2; i++) {
        CHECK(end_ns[i] < IN_TIME_NS + allowance_ns(cut));
        CHECK(waitpid(cut->child[i], &status, 0) == cut->child[i]);
        CHECK(WIFEXITED(status) && !WEXITSTATUS(status));
        close(cut->socket[i]);
    }
}

static void make_cuts(struct cut *cuts, size_t count)
{
    for (size_t i = 0; i < count; i++)
        connect_both(&cuts[i]);
    pace_begin();
    for (size_t i = 0; i < count; i++)
        say(cuts[i].socket[1], &cuts[i].busy, 1);
    for (size_t i = 0; i < count; i++) {
        usleep((useconds_t)(random() % 500000)); /* at any phase */
        cut_now(&cuts[i]);
    }
    for (size_t i = 0; i < count; i++)
        end_cut(&cuts[i]);
    pace_end();
}

static void idle_links_notice_any_cut_in_time(void)
{
    struct cut cuts[] = {
        {.name = "pulled", .how = PULLED},
        {.name = "pulled", .how = PULLED, .slow_rto = 1},
        {.name = "owner unheard", .how = OWNER_UNHEARD, .slow_rto = 1},
        {.name = "importer unheard", .how = IMPORTER_UNHEARD, .slow_rto = 1}};

    make_cuts(cuts, sizeof cuts / sizeof *cuts);
}

static void busy_links_do(void)
{
    struct cut cuts[] = {
        {.name = "pulled", .how = PULLED, .busy = 1},
        {.name = "importer unheard", .how = IMPORTER_UNHEARD, .busy = 1},
        {.name = "owner unheard", .how = OWNER_UNHEARD, .busy = 1,
         .slow_rto = 1}};

    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++)
        make_cuts(&cuts[i], 1);
}

/* ---- loss ---- */

/* A queue that holds a few packets only loses the rest of each burst. */
static void a_link_that_loses_packets_is_slow_and_stands(void)
{
    struct cut link = {.name = "lossy", .busy = 2};
    uint64_t began;
    char byte;

    if (shell("tc -V >/dev/null 2>&1")) {
        printf("skipped: a lossy link needs tc\n");
        return;
    }
    connect_both(&link);
    pace_begin();
    for (char end = 'a'; end <= 'b'; end++)
        at(link.cable, end, "tc -n @ qdisc add dev v root tbf rate 40mbit "
                            "burst 4k limit 6k");
    began = mooi_now_ns();
    say(link.socket[1], &link.busy, 1);
    hear(link.socket[1], &byte, 1);
    printf("   %.2f s\n", (double)(mooi_now_ns() - began) / 1e9);
    cut_now(&link);
    end_cut(&link);
    pace_end();
}

int main(int count, char **arguments)
{
    int files = entries("/proc/self/fd");

    threads = 2; /* the express connection and the bulk have one each */
    if (count == 4) {
        patience_s = ALARM_S - 10; /* others are started, and cut, meanwhile */
        return play(arguments, ALARM_S, play_owner, play_importer);
    }
    if (!can_lay_cables())
        return 0;
    srandom((unsigned)getpid());
    atexit(take_cables_away);
    RUN(idle_links_notice_any_cut_in_time);
    RUN(busy_links_do);
    RUN(a_link_that_loses_packets_is_slow_and_stands);
    CHECK(entries("/proc/self/fd") == files);
    CHECK(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD);
    return 0;
}
