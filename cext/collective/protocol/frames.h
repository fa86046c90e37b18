/* SPDX-License-Identifier: MIT */
/*
 * frames.h: what the parts of the protocol tell each other.
 *
 *   JOIN     host → master     a process wants to be a member
 *   GONE     host → master     a member has left, or its process is dead
 *   REPORT   host → master     the host has halted; how far it has come
 *   HALT     master → hosts    halt, and report
 *   VIEW     master → hosts    the members from now on; go on
 *   WAITING  master → a host   so many newcomers wait at the door
 *   REFUSED  master → host     that process cannot be a member
 *   CALL     leader → leader   what the host's members have called
 *   DIFFERS  leader → leader   how calls differ; ENTER with a status follows
 *   SUM      leader → leader   the checksum of all tensor bytes sent so far
 *   ENTER    leader → leader   one step of the barrier that commits
 *   FABRIC   leader → leader   its registered memory, before all else
 *
 * Between a host and the master frames arrive in order, or the connection is
 * closed and each takes the other for lost. As bytes a frame is bounded, little
 * endian, and every field of it is checked when it is read.
 */
#ifndef MOOI_FRAMES_H
#define MOOI_FRAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mooactor.h"
#include "transport/tcp/socket.h"

#ifndef MOOI_MEMBERS_MAX
#define MOOI_MEMBERS_MAX MOO_GROUP_MAX
#define MOOI_TEAM_MAX MOO_GROUP_TEAM_MAX
#define MOOI_HOSTS_MAX MOO_GROUP_HOSTS_MAX
#endif

#ifndef MOOI_HOST_NAME_BYTES
#define MOOI_HOST_NAME_BYTES 64 /* of a host's name, with its terminating zero */
#endif
#ifndef MOOI_ADDRESSES_MAX
#define MOOI_ADDRESSES_MAX 8 /* of a member */
#endif
#define MOOI_TEXT_BYTES 256 /* of how calls differ, with the zero */
#define MOOI_SECRET_BYTES 16
#define MOOI_PROVIDER_BYTES 64     /* with its terminating zero */
#define MOOI_FABRIC_ADDRESS_BYTES 256

/* A member. Hosts have numbers that are never used again, and number their
 * members likewise, so (host, serial) is its identity. */
struct mooi_member {
    uint32_t host, serial;
    uint32_t slot; /* its place in the memory of its host */
    int32_t pid;
    uint64_t id;         /* the runtime's process id */
    uint32_t transports; /* that it allows */
    uint32_t stripes;    /* it wants so many, 1 or more */
    bool checks;         /* it wants checksums, see pipe.h */
    char name[MOOI_HOST_NAME_BYTES]; /* of its host, for users */
    uint32_t addresses; /* where it listens; 0: nowhere. In a view: a leader */
    struct mooi_address address[MOOI_ADDRESSES_MAX];
};

/* Why an operation was aborted, and the epoch with it. All members are told,
 * unless the cause is silent: then no member had all inputs of the operation,
 * and all begin it anew under the next number. */
enum mooi_why {
    MOOI_WHY_NONE,  /* silent: a change while nothing ran */
    MOOI_WHY_REST,  /* silent: newcomers have come in */
    MOOI_WHY_LEFT,  /* silent: a member left before it began */
    MOOI_WHY_SHORT, /* a member left in the middle, or too few remain */
    MOOI_WHY_DIED,  /* a member died */
    MOOI_WHY_CUT,   /* a connection broke, or could not be made */
    MOOI_WHY_EXPELLED, /* so often that the host of `rank` is out of the group */
    MOOI_WHY_LATE,  /* the deadline passed, waiting for a member */
    MOOI_WHY_NO_WAY, /* two members have no transport in common */
    MOOI_WHY_FEW, /* fewer than min_size members for too long */
    MOOI_WHYS
};

struct mooi_cause {
    enum mooi_why why;
    uint32_t rank;    /* the member that is the reason, in the old epoch */
    int32_t pid;      /* its process */
    uint32_t witness; /* the rank that noticed; FEW: how many members */
};

/* The members of an epoch, by rank, MOOI_TEAM_MAX of a host at most and of
 * MOOI_HOSTS_MAX hosts. Operation first_seq - 1 was aborted, for
 * the sake of `cause`; all earlier ones that are not the like of it in an
 * earlier view are committed. */
struct mooi_roll {
    uint32_t epoch, min_size, size;
    uint64_t first_seq;
    bool rested; /* operation first_seq - 2 is committed, and members rest */
    uint8_t key[MOOI_SECRET_BYTES]; /* connections of members prove it */
    struct mooi_cause cause;
    struct mooi_member members[MOOI_MEMBERS_MAX]; /* `size` of them */
};

/* A call of a host's members, which are alike. */
struct mooi_signature {
    uint32_t kind, dtype, op, root, spans, part, parts;
    uint64_t bytes, output_bytes, layout;
    uint32_t admit, chunk; /* rank 0 decides these two; not in frames */
};

/* The registered memory of a leader, see bulk.h. */
struct mooi_fabric_post {
    char provider[MOOI_PROVIDER_BYTES]; /* empty: it has no fabric */
    uint32_t name_bytes;
    uint8_t name[MOOI_FABRIC_ADDRESS_BYTES];
    uint64_t key, base;
};

enum mooi_refusal { MOOI_FULL = 1, MOOI_OTHER_SIZE, MOOI_OTHER_POLICY };

enum mooi_frame_kind {
    MOOI_JOIN = 1,
    MOOI_GONE,
    MOOI_REPORT,
    MOOI_HALT,
    MOOI_VIEW,
    MOOI_WAITING,
    MOOI_REFUSED,
    MOOI_ENTER,
    MOOI_CALL,
    MOOI_DIFFERS,
    MOOI_SUM,
    MOOI_FABRIC
};

struct mooi_frame {
    enum mooi_frame_kind kind;
    union {
        struct {
            struct mooi_member member;
            uint32_t min_size;
            uint32_t policy; /* a byte that all members have in common */
        } join;
        struct {
            uint32_t serial;
            bool died;
            uint64_t begun; /* the last operation that it had begun */
        } gone;
        struct {
            uint32_t epoch;
            uint64_t committed; /* it and all before are decided */
            bool prepared;      /* the next one is PREPARED */
            bool resting;       /* members rest behind `committed` */
            struct mooi_cause complaint; /* of a member */
        } report;
        struct {
            uint32_t epoch;
        } halt;
        struct mooi_roll *view; /* of whoever writes, or reads */
        struct {
            uint32_t count;
        } waiting;
        struct {
            uint32_t serial;
            enum mooi_refusal why;
        } refused;
        struct {
            uint32_t step;
            uint64_t seq;
            uint32_t status;
            bool rest; /* some host before wants it */
        } enter;
        struct {
            uint64_t seq;
            uint32_t rank; /* of the leader */
            struct mooi_signature signature;
        } call;
        struct {
            uint64_t seq;
            uint32_t rank; /* that made another call */
            char text[MOOI_TEXT_BYTES];
        } differs;
        struct {
            uint64_t seq;
            uint32_t sum;
        } sum;
        struct mooi_fabric_post fabric;
    };
};

/* Room for any frame; a host's name and addresses are in a view once. */
#define MOOI_FRAME_BYTES \
    (64 + MOOI_MEMBERS_MAX * 31 + \
     MOOI_HOSTS_MAX * (1 + MOOI_HOST_NAME_BYTES + 19 * MOOI_ADDRESSES_MAX))
#define MOOI_SMALL_FRAME_BYTES 512 /* for those that are no VIEW */

/* Write a frame to `bytes`. Returns the length; 0: it is more than `room`, or
 * against the limits. */
size_t mooi_frame_write(const struct mooi_frame *frame, uint8_t *bytes,
                        size_t room);
/* false: it is none, and *frame is garbage. Reads nothing beyond `length`, and
 * bounds no loop by a number that it has not checked. `roll`: where a VIEW has
 * its members; NULL: it is none. */
bool mooi_frame_read(struct mooi_frame *frame, struct mooi_roll *roll,
                     const uint8_t *bytes, size_t length);
/* Copy the part that is used. */
void mooi_roll_copy(struct mooi_roll *to, const struct mooi_roll *from);

#endif
