// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// The clock of User Mode Linux without the time that other programs of this machine take from it, if UML_CLOCK=own is
// set: a process inside then gets as much CPU time per second as on an idle machine.
//
// Linux as a program has one CPU. At any time either its own thread runs, or, between a resuming ptrace and the next
// waitpid, the process of a program inside. The thread's waits for a CPU are the second number in its schedstat. The
// process never sleeps in between: if it has used less CPU time than has passed, it has waited.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

// From linux/ptrace.h.
enum { CONT = 7, SINGLESTEP = 9, SYSCALL = 24, SYSEMU = 31, SYSEMU_SINGLESTEP = 32 };

enum {
	POLL = 200000,   // nanoseconds after which the times of the thread are read again
	LEAST = 1000000, // of a timer: the clock may stand still when it is due, and a shorter timer would take the CPU from the process
};

static int schedstat = -1;      // of the thread; -1: the clock is that of the machine
static __thread int is_thread;
static int64_t ran, waited;     // by the thread, at the last read
static int64_t polled;          // time of that read
static int64_t stolen;          // time that was taken from both
static int64_t shown;           // last time that was returned
static pid_t active;            // process that runs; zero: none
static int64_t resumed;         // when it was resumed
static int64_t before;          // its CPU time then
static int64_t thread_before;   // CPU time and waits of the thread then, at most POLL old

static struct { pid_t pid; int64_t used; } last[4096]; // CPU time of processes at their last stop

static int64_t nanoseconds(const struct timespec *t) { return t->tv_sec * 1000000000L + t->tv_nsec; }

// The time of a clock of this machine, or -1.
static int64_t read_clock(clockid_t clock) {
	struct timespec t;
	return syscall(SYS_clock_gettime, (long)clock, &t) < 0 ? -1 : nanoseconds(&t);
}

// next returns the function of libc with a name.
static void *next(const char *name) { return dlsym(RTLD_NEXT, name); }

// libc_gettime is the function of libc, which needs no system call for the clock of this machine.
static int libc_gettime(clockid_t clock, struct timespec *t) {
	static int (*function)(clockid_t, struct timespec *);
	if (!function)
		function = (int (*)(clockid_t, struct timespec *))next("clock_gettime");
	return function(clock, t);
}

static int64_t now(void) {
	struct timespec t;
	libc_gettime(CLOCK_MONOTONIC, &t);
	return nanoseconds(&t);
}

// The CPU time of a process, or -1. See CPUCLOCK_SCHED in linux/posix-timers.h.
static int64_t cpu_time(pid_t pid) { return read_clock((~(clockid_t)pid << 3) | 2); }

// poll_thread reads the times of the thread, and adds its waits since the last read.
static void poll_thread(int64_t at) {
	char text[128];
	ssize_t n = pread(schedstat, text, sizeof text - 1, 0);
	polled = at;
	if (n <= 0)
		return;
	text[n] = 0;
	char *end;
	ran = strtoll(text, &end, 10);
	int64_t all = strtoll(end, NULL, 10);
	stolen += all - waited;
	waited = all;
}

__attribute__((constructor)) static void start(void) {
	const char *kind = getenv("UML_CLOCK");
	if (!kind || strcmp(kind, "own") != 0)
		return;
	schedstat = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
	if (schedstat < 0)
		return;
	is_thread = 1;
	poll_thread(now());
	stolen = 0;
}

// process_wait returns how long the active process has waited for a CPU since it was resumed, without the times in which the thread ran or waited. The
// times of the thread were read just now.
static int64_t process_wait(int64_t at, int64_t used) {
	int64_t wait = (at - resumed) - (used - before) - (ran + waited - thread_before);
	return wait > 0 ? wait : 0;
}

// clock_before_ptrace is called before a ptrace of a process, and clock_after_wait after a wait that returned it.
void clock_before_ptrace(int request, pid_t pid) {
	if (!is_thread || (request != CONT && request != SINGLESTEP && request != SYSCALL && request != SYSEMU && request != SYSEMU_SINGLESTEP))
		return;
	int64_t at = now();
	if (at - polled > POLL)
		poll_thread(at);
	int i = pid & 4095;
	if (last[i].pid != pid) {
		last[i].pid = pid;
		last[i].used = cpu_time(pid);
	}
	active = last[i].used >= 0 ? pid : 0;
	before = last[i].used;
	thread_before = ran + waited;
	resumed = at;
}

static void clock_after_wait(pid_t pid) {
	if (!is_thread || pid <= 0 || pid != active)
		return;
	int64_t at = now(), used = cpu_time(pid);
	poll_thread(at);
	active = 0;
	if (used < 0) { // it has exited
		last[pid & 4095].pid = 0;
		return;
	}
	last[pid & 4095].used = used;
	stolen += process_wait(at, used);
}

pid_t waitpid(pid_t pid, int *status, int options) {
	static pid_t (*function)(pid_t, int *, int);
	if (!function)
		function = (pid_t(*)(pid_t, int *, int))next("waitpid");
	pid_t got = function(pid, status, options);
	clock_after_wait(got);
	return got;
}

int clock_gettime(clockid_t clock, struct timespec *t) {
	if (clock != CLOCK_MONOTONIC || !is_thread)
		return libc_gettime(clock, t);
	int64_t at = now(), pending = 0;
	if (active || at - polled > POLL)
		poll_thread(at);
	if (active)
		pending = process_wait(at, cpu_time(active));
	int64_t own = at - stolen - pending;
	if (own < shown)
		own = shown;
	shown = own;
	t->tv_sec = own / 1000000000L;
	t->tv_nsec = own % 1000000000L;
	return 0;
}

int timer_settime(timer_t timer, int flags, const struct itimerspec *value, struct itimerspec *old) {
	static int (*libc_settime)(timer_t, int, const struct itimerspec *, struct itimerspec *);
	if (!libc_settime)
		libc_settime = (int (*)(timer_t, int, const struct itimerspec *, struct itimerspec *))next("timer_settime");
	struct itimerspec longer = *value;
	int64_t in = nanoseconds(&value->it_value);
	if (is_thread && flags == 0 && in > 0 && in < LEAST)
		longer.it_value.tv_nsec = LEAST;
	return libc_settime(timer, flags, &longer, old);
}
