// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// A library that User Mode Linux is loaded with (LD_PRELOAD). Linux 6.1 as a program keeps the extended registers of
// its processes in a buffer that is smaller than those of a CPU with AMX, and the kernel below refuses to set them
// from less than it gave (EFAULT). Here ptrace reads and writes them whole, and User Mode Linux sees the part that it
// has room for: it never uses the rest, so that zeros there are right.
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

// From linux/ptrace.h and linux/elf.h, which do not go together with the headers of libc.
enum { PEEKTEXT = 1, PEEKUSER = 3, GETREGSET = 0x4204, SETREGSET = 0x4205, X86_XSTATE = 0x202 };

static size_t full; // size of the registers, once read

static long xstate(long request, long pid, struct iovec *user) {
	static __thread char buffer[16384] __attribute__((aligned(64)));
	struct iovec whole = {buffer, sizeof buffer};
	if (request == GETREGSET) {
		if (syscall(SYS_ptrace, request, pid, (long)X86_XSTATE, &whole) < 0)
			return -1;
		full = whole.iov_len;
		if (user->iov_len > full)
			user->iov_len = full;
		memcpy(user->iov_base, buffer, user->iov_len);
		return 0;
	}
	if (full == 0)
		full = user->iov_len;
	size_t known = user->iov_len < full ? user->iov_len : full;
	memcpy(buffer, user->iov_base, known);
	memset(buffer + known, 0, sizeof buffer - known);
	whole.iov_len = full;
	return syscall(SYS_ptrace, request, pid, (long)X86_XSTATE, &whole) < 0 ? -1 : 0;
}

void clock_before_ptrace(int request, pid_t pid); // in clock.c

long ptrace(int request, ...) {
	va_list args;
	va_start(args, request);
	long pid = va_arg(args, int);
	void *addr = va_arg(args, void *), *data = va_arg(args, void *);
	va_end(args);
	if ((request == GETREGSET || request == SETREGSET) && (long)addr == X86_XSTATE)
		return xstate(request, pid, data);
	if (request >= PEEKTEXT && request <= PEEKUSER) { // libc returns what the kernel stores
		long word;
		if (syscall(SYS_ptrace, (long)request, pid, addr, &word) < 0)
			return -1;
		errno = 0;
		return word;
	}
	clock_before_ptrace(request, (pid_t)pid);
	return syscall(SYS_ptrace, (long)request, pid, addr, data) < 0 ? -1 : 0;
}
