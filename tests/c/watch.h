/* SPDX-License-Identifier: MIT */
/*
 * watch.h: what ThreadSanitizer is told.
 */
#ifndef WATCH_H
#define WATCH_H

/* A function of a test that fills its own memory, or compares it: under
 * ThreadSanitizer, telling of each byte takes most of a test's time. Memory that
 * is handed over is told at once: it was written by this thread, or is read by
 * it. */
#ifdef __SANITIZE_THREAD__
#define WATCHED 1
#define UNWATCHED __attribute__((no_sanitize_thread))
void __tsan_read_range(void *, unsigned long);
void __tsan_write_range(void *, unsigned long);
#define TELL_WRITTEN(memory, bytes) __tsan_write_range(memory, bytes)
#define TELL_READ(memory, bytes) __tsan_read_range(memory, bytes)
#else
#define WATCHED 0
#define UNWATCHED
#define TELL_WRITTEN(memory, bytes) ((void)(memory), (void)(bytes))
#define TELL_READ(memory, bytes) ((void)(memory), (void)(bytes))
#endif

#endif
