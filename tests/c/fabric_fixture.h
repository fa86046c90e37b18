/* SPDX-License-Identifier: MIT */
/*
 * fabric_fixture.h: owners, which are processes that let their memory be read,
 * and reads from them that one can wait for.
 *
 * The provider is MOOACTOR_FABRIC's, tcp;ofi_rxm without it; TEST_FABRIC_BIND
 * is the address. A process that has used libfabric does not fork any more, so
 * each test is a process of its own, and starts its owners first of all.
 */
#ifndef FABRIC_FIXTURE_H
#define FABRIC_FIXTURE_H

#include <poll.h>
#include <pthread.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "check.h"
#include "transport/ofi/fabric.h"

#define MB ((size_t)1 << 20)
/* Emulated networks lose messages, which are sent again after four seconds. */
#define CONTACT_MS (getenv("TEST_FABRIC_SLOW") ? 15000 : 3000)

/* An owner, as it describes itself. */
struct offer {
    uint8_t name[MOOI_FABRIC_NAME_BYTES];
    size_t name_bytes;
    uint64_t key, base, private_key;
};

struct owner {
    pid_t pid;
    int socket;
    struct offer offer;
};

/* A child that ends with whoever forked it, however that ended. */
static inline pid_t fork_child(void)
{
    pid_t pid = fork();

    CHECK(pid >= 0);
    if (!pid)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    return pid;
}

/* A test sets it: open fabrics for memory of devices (FI_HMEM). Of libfabric's
 * providers that need no hardware, shm alone offers that. */
static int for_devices;

/* A test sets them: the ports that the fabric's sockets may have. */
static uint32_t first_port, last_port;

static inline moo_err try_open_fabric(struct mooi_fabric **out, char *why)
{
    struct mooi_fabric_options options = {.bind = getenv("TEST_FABRIC_BIND")};

    if (for_devices)
        options = (struct mooi_fabric_options){.provider = "shm",
                                               .keyless = 1,
                                               .devices = MOO_DEVICES_REQUIRED};
    else if (!getenv("MOOACTOR_FABRIC"))
        options.provider = "tcp;ofi_rxm";
    options.first_port = first_port;
    options.last_port = last_port;
    return mooi_fabric_open(&options, out, why, MOOI_FABRIC_WHY_BYTES);
}

static inline struct mooi_fabric *open_fabric(void)
{
    struct mooi_fabric *fabric = NULL;
    char why[MOOI_FABRIC_WHY_BYTES] = "";
    moo_err err = try_open_fabric(&fabric, why);

    if (err != MOO_OK)
        fprintf(stderr, "%s\n", why);
    CHECK(err == MOO_OK);
    return fabric;
}

UNWATCHED static inline unsigned char byte_at(size_t i, unsigned seed)
{
    return (unsigned char)((i * 2654435761u + seed) >> 7 ^ i >> 20);
}

static inline unsigned char *new_memory(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CHECK(memory != MAP_FAILED);
    return memory;
}

/* Those of this process. */
static inline int open_sockets(void)
{
    struct stat file;
    int count = 0;

    for (int fd = 0; fd < 1024; fd++)
        count += !fstat(fd, &file) && S_ISSOCK(file.st_mode);
    return count;
}

/* ---- owners ---- */

/* Its own life: offer `bytes`, and the same as private memory, until the other
 * end of the socket is closed. 'f' asks it to fall silent, 'w' to withdraw the
 * offer. */
UNWATCHED static inline void be_owner(int socket, size_t bytes, unsigned seed)
{
    struct offer offer = {.name_bytes = 0};
    int sockets = open_sockets();
    struct mooi_fabric *fabric = open_fabric();
    struct mooi_fabric_region *open, *closed;
    unsigned char *memory = new_memory(bytes);
    char order;

    for (size_t i = 0; i < bytes; i++)
        memory[i] = byte_at(i, seed);
    TELL_WRITTEN(memory, bytes);
    CHECK(mooi_fabric_register(fabric, memory, bytes, MOOI_FABRIC_FROM, 0, 0,
                               &open) == MOO_OK);
    CHECK(mooi_fabric_register(fabric, memory, bytes, MOOI_FABRIC_INTO, 0, 0,
                               &closed) == MOO_OK);
    offer.name_bytes = mooi_fabric_name(fabric, offer.name);
    offer.key = mooi_fabric_key(open);
    offer.private_key = mooi_fabric_key(closed);
    offer.base = mooi_fabric_base(open);
    CHECK(send(socket, &offer, sizeof offer, 0) == sizeof offer);
    while (recv(socket, &order, 1, 0) > 0)
        if (order == 'f') {
            raise(SIGSTOP);
        } else {
            mooi_fabric_unregister(open);
            open = NULL;
            CHECK(send(socket, "", 1, 0) == 1);
        }
    mooi_fabric_unregister(closed);
    if (open)
        mooi_fabric_unregister(open);
    mooi_fabric_close(fabric);
    CHECK(open_sockets() == sockets);
    munmap(memory, bytes);
    /* Not exit: libfabric leaks the memory of a request to connect that came
     * too late, and a sanitizer would take that for ours. */
    _exit(0);
}

static inline struct owner start_owner(size_t bytes, unsigned seed)
{
    struct owner owner;
    int ends[2];

    CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends));
    owner.pid = fork_child();
    if (!owner.pid) {
        close(ends[0]);
        be_owner(ends[1], bytes, seed);
    }
    close(ends[1]);
    owner.socket = ends[0];
    return owner;
}

static inline void await_owner(struct owner *owner)
{
    CHECK(recv(owner->socket, &owner->offer, sizeof owner->offer, 0) ==
          sizeof owner->offer);
}

static inline void kill_owner(struct owner *owner)
{
    CHECK(!kill(owner->pid, SIGKILL));
    CHECK(waitpid(owner->pid, NULL, 0) == owner->pid);
    close(owner->socket);
}

/* It ends by itself, as it should. */
static inline void end_owner(struct owner *owner)
{
    int status;

    shutdown(owner->socket, SHUT_RDWR); /* later owners have copies of it */
    close(owner->socket);
    CHECK(waitpid(owner->pid, &status, 0) == owner->pid);
    CHECK(WIFEXITED(status) && !WEXITSTATUS(status));
}

static inline struct mooi_fabric_peer *connect_to(struct mooi_fabric *fabric,
                                                  const struct owner *owner)
{
    struct mooi_fabric_peer *peer;

    CHECK(mooi_fabric_connect(fabric, owner->offer.name,
                              owner->offer.name_bytes,
                              &peer) == MOO_OK);
    return peer;
}

/* ---- reads ---- */

/* The silence that reads bear, for a busy machine; tests of silence bear less. */
static uint32_t patience_ms = 60000;

struct reading {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int calls;
    moo_err result;
};

#define READING {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0}

static inline void on_read(void *cookie, moo_err result)
{
    struct reading *reading = cookie;

    pthread_mutex_lock(&reading->lock);
    reading->calls++;
    reading->result = result;
    pthread_cond_signal(&reading->changed);
    pthread_mutex_unlock(&reading->lock);
}

static inline moo_err await_read(struct reading *reading)
{
    pthread_mutex_lock(&reading->lock);
    while (!reading->calls)
        pthread_cond_wait(&reading->changed, &reading->lock);
    CHECK(reading->calls == 1);
    pthread_mutex_unlock(&reading->lock);
    return reading->result;
}

static inline int has_ended(struct reading *reading)
{
    int calls;

    pthread_mutex_lock(&reading->lock);
    calls = reading->calls;
    pthread_mutex_unlock(&reading->lock);
    return calls;
}

/* Memory to read into, registered. */
struct place {
    unsigned char *memory;
    size_t bytes;
    struct mooi_fabric_region *region;
};

static inline struct place new_place(struct mooi_fabric *fabric, size_t bytes)
{
    struct place place = {.memory = new_memory(bytes), .bytes = bytes};

    CHECK(mooi_fabric_register(fabric, place.memory, bytes, MOOI_FABRIC_INTO,
                               0, 0, &place.region) == MOO_OK);
    return place;
}

static inline void free_place(struct place *place)
{
    mooi_fabric_unregister(place->region);
    munmap(place->memory, place->bytes);
}

static inline void begin_read(struct mooi_fabric_peer *peer, uint64_t from,
                              uint64_t key, struct place *place, size_t at,
                              size_t bytes, struct reading *reading)
{
    struct mooi_fabric_want want = {.from = from,
                                    .key = key,
                                    .into = place->memory + at,
                                    .bytes = bytes,
                                    .region = place->region,
                                    .patience_ms = patience_ms,
                                    .contact_ms = patience_ms > CONTACT_MS
                                                      ? patience_ms
                                                      : CONTACT_MS,
                                    .done = on_read,
                                    .cookie = reading};

    CHECK(mooi_fabric_read(peer, &want) == MOO_OK);
}

/* ---- an owner, and who reads from it ---- */

struct pair {
    struct owner owner;
    struct mooi_fabric *fabric;
    struct mooi_fabric_peer *peer;
    struct place place;
};

static inline struct pair new_pair(size_t bytes, unsigned seed)
{
    struct pair pair = {.owner = start_owner(bytes, seed)};

    pair.fabric = open_fabric();
    pair.place = new_place(pair.fabric, bytes);
    await_owner(&pair.owner);
    pair.peer = connect_to(pair.fabric, &pair.owner);
    return pair;
}

/* The reader's side; `end_owner` or `kill_owner` is for the other. */
static inline void end_reader(struct pair *pair)
{
    mooi_fabric_forget(pair->peer);
    free_place(&pair->place);
    mooi_fabric_close(pair->fabric);
}

static inline void end_pair(struct pair *pair)
{
    end_reader(pair);
    end_owner(&pair->owner);
}

static inline void begin_part(struct pair *pair, size_t at, size_t bytes,
                              struct reading *reading)
{
    *reading = (struct reading)READING;
    begin_read(pair->peer, pair->owner.offer.base + at, pair->owner.offer.key,
               &pair->place, at, bytes, reading);
}

#endif
