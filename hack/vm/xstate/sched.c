// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// The clock of the scheduler of User Mode Linux in nanoseconds. Linux 6.1 as a program has none of its own and counts ticks of 10 ms: a process that
// runs when a tick begins is charged the whole tick, and one that runs between two ticks is charged nothing, while cgroups with a CPU quota are
// throttled by these charges. Other machines have a clock in nanoseconds, so here sched_clock jumps to one.
#define _GNU_SOURCE
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

// sched_clock of kernel/sched/clock.c for 100 Hz: the ticks since boot times 10,000,000, as (jiffies - INITIAL_JIFFIES) * 10000000.
static const uint8_t begin[] = {0x48, 0xa1};                 // mov jiffies, %rax; eight bytes of its address follow
static const uint8_t end[] = {
	0x48, 0xba, 0x00, 0xb8, 0x64, 0xd9, 0xc5, 0x69, 0x67, 0xff, // mov -INITIAL_JIFFIES * 10000000, %rdx
	0x48, 0x69, 0xc0, 0x80, 0x96, 0x98, 0x00,                   // imul 10000000, %rax
	0x48, 0x01, 0xd0, 0xc3,                                     // add %rdx, %rax; ret
};
enum { ADDRESS = 8 };

// sched_nanoseconds returns the time since its first call. clock_gettime is that of clock.c.
static uint64_t sched_nanoseconds(void) {
	static uint64_t first;
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	uint64_t at = (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
	if (!first)
		first = at;
	return at - first;
}

// find returns sched_clock in a text, or NULL if there are none or several functions like it.
static uint8_t *find(uint8_t *text, size_t size) {
	uint8_t *found = NULL, *limit = text + size;
	for (uint8_t *at = text; (at = memmem(at, (size_t)(limit - at), end, sizeof end)); at++) {
		uint8_t *start = at - ADDRESS - sizeof begin;
		if (start < text || memcmp(start, begin, sizeof begin) != 0)
			continue;
		if (found)
			return NULL;
		found = start;
	}
	return found;
}

// replace makes the function at the address code jump to sched_nanoseconds. It returns -1 on failure.
static int replace(uint8_t *code) {
	uint8_t jump[12] = {0x48, 0xb8, [10] = 0xff, 0xe0}; // mov target, %rax; jmp *%rax
	uint64_t target = (uint64_t)sched_nanoseconds;
	memcpy(jump + 2, &target, sizeof target);
	uintptr_t size = (uintptr_t)sysconf(_SC_PAGESIZE), page = (uintptr_t)code & ~(size - 1);
	if (mprotect((void *)page, 2 * size, PROT_READ | PROT_WRITE | PROT_EXEC) < 0)
		return -1;
	memcpy(code, jump, sizeof jump);
	return mprotect((void *)page, 2 * size, PROT_READ | PROT_EXEC);
}

// patch is called for the program, which is the first of all objects.
static int patch(struct dl_phdr_info *info, size_t size, void *unused) {
	(void)size, (void)unused;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		if (p->p_type != PT_LOAD || (p->p_flags & (PF_X | PF_W)) != PF_X)
			continue;
		uint8_t *code = find((uint8_t *)(info->dlpi_addr + p->p_vaddr), p->p_filesz);
		if (code && replace(code) < 0)
			perror("vm: replace sched_clock");
	}
	return 1; // no other object
}

__attribute__((constructor)) static void start(void) { dl_iterate_phdr(patch, NULL); }
