/* SPDX-License-Identifier: MIT */
/*
 * check.h: the harness of the C tests. A test is a function; CHECK ends the
 * program with the place and what was not so. The library reports, tests exit.
 */
#ifndef CHECK_H
#define CHECK_H

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "watch.h"

#ifndef ALARM_S
/* For one test. It is there for hangs only: under a sanitizer, on a machine with
 * other things to do, a test takes ten times as long as alone. */
#define ALARM_S 300
#endif

#define CHECK(condition)                                                       \
    do {                                                                       \
        if (!(condition)) {                                                    \
            fprintf(stderr, "%s:%d: not so: %s (errno %d)\n", __FILE__,        \
                    __LINE__, #condition, errno);                              \
            exit(1);                                                           \
        }                                                                      \
    } while (0)

#define RUN(test)                                                              \
    do {                                                                       \
        alarm(ALARM_S); /* a hang is a failure */                              \
        test();                                                                \
        alarm(0);                                                              \
        printf("ok %s\n", #test);                                              \
        fflush(stdout);                                                        \
    } while (0)

/* Wait for a condition that another process brings about; it is looked at
 * again and again, for at most a minute. */
#define CHECK_SOON(condition)                                                  \
    do {                                                                       \
        int left_ = 60000;                                                     \
        while (!(condition) && left_--)                                        \
            usleep(1000);                                                      \
        CHECK(condition);                                                      \
    } while (0)

/* A crash says so, in a child as well: it is no flake (run.sh). Sanitizers have
 * handlers of their own. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) &&         \
    !defined(FUZZER)
static void say_crashed(int number)
{
    char text[] = "crashed: signal 00\n";

    text[16] = (char)('0' + number / 10);
    text[17] = (char)('0' + number % 10);
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0)
        return; /* it dies all the same: the handler is gone */
}

__attribute__((constructor)) static void watch_crashes(void)
{
    static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    struct sigaction action = {.sa_handler = say_crashed,
                               .sa_flags = (int)SA_RESETHAND};

    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        sigaction(signals[i], &action, NULL);
}
#endif

/* The number of entries of a directory: in /proc, of descriptors and threads. */
static inline int entries(const char *path)
{
    DIR *directory = opendir(path);
    int count = 0;

    CHECK(directory);
    while (readdir(directory))
        count++;
    closedir(directory);
    return count;
}

/* A directory made by mkdtemp, with all that is in it. */
static inline void remove_directory(const char *path)
{
    char command[160];

    CHECK(snprintf(command, sizeof command, "rm -rf %s", path) <
          (int)sizeof command);
    CHECK(system(command) == 0);
}

#endif
