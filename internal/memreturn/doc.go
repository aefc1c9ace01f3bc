// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package memreturn keeps the memory of a Go process small: it returns the memory of an idle process to the operating system, and has the
// garbage collector of a busy one respect the memory limit of its cgroup.
//
// A node agent that has started a hundred pods, or has listed the pods of its node again, often has nothing to do for hours. The Go
// runtime keeps the heap of the burst, and the kernel keeps the pages of the program that the burst has used. [Run] detects that the
// process has become idle, returns both, and keeps the heap small until the process is busy again. [LimitToCgroup] is called once, at the
// start.
package memreturn
