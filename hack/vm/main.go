// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command vm runs a program as root in a throw-away kernel with cgroup v2, on the files of this machine, which are
// read-only for it. It is for the tests of this project, and no protection against hostile programs. The scripts uml
// and qemu in its directory build and run it:
//
//	hack/vm/uml COMMAND [ARG...]                            # any command
//	go test -count=1 -exec "$PWD/hack/vm/uml" ./cgroups/... # any test
//
// Arguments, environment, working directory, standard output, standard error and exit status pass through; standard
// input is empty. The status is 128+N after a command killed by signal N, 124 for a VM that exceeds VM_TIMEOUT,
// and 125 for a VM that fails, after the end of its console.
//
// # Two kernels
//
// uml is Debian's User Mode Linux: it boots in about a second, with one CPU and the controllers cpu, io, memory
// and pids. Its scheduler has ticks of 10 ms, and charges CPU time in nanoseconds (xstate/sched.c). It has no PSI, cpuset,
// hugetlb or nftables, and runs no binary built with -race. qemu is Debian's stock
// kernel under software emulation: it has all of these, boots in seconds, and is five to ten times slower after that.
//
// # Inside
//
// The root is an overlay in memory over this machine's files. /sys/fs/cgroup is cgroup v2 with every controller
// enabled for children. /vm is a plain tmpfs that can carry the upper directory of another overlay, with TMPDIR in
// it. The directories of labs and of CNI are initially empty. IN_TEST_VM=1 is set.
//
// # Environment
//
//	VM_MEM=1024      memory in MiB
//	VM_CPUS=2        number of CPUs (qemu)
//	VM_MACHINE=TEXT  sockets, NUMA nodes, cores and memory, instead of VM_CPUS and VM_MEM (qemu); see below
//	VM_TIMEOUT=600   seconds from boot to the end, of the clock of this machine
//	VM_CLOCK=own     a clock that stands still while other programs of this machine have the CPU of the VM (uml); default: host
//	VM_RW=DIR:DIR    directories of this machine that can be written to
//
// VM_MACHINE="2 sockets 2 nodes 4 cores 2 threads 512 MiB" has 2 sockets and 2 NUMA nodes in total, 4 cores in each socket, 2 threads in each
// core, and 512 MiB in each node.
//
// The directories into which go test writes coverage and profiles are always writable.
//
// # On this machine
//
// It needs root, Debian on amd64, and on first use the network: the kernel of a Debian package is unpacked into
// .lab/vm, and missing tools are installed. A kernel in .lab/vm is used until `make clean`, also when Debian has a
// newer one. The files and mounts of a VM are in memory and in its own namespaces: the kernel removes them when this
// process exits for any reason. Any number of VMs can run at the same time.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
)

// Exit statuses of this program, as those of timeout(1), env(1) and the shell.
const (
	statusTimeout    = 124
	statusBroken     = 125
	statusCannotRun  = 126
	statusNotFound   = 127
	statusSignalBase = 128
)

func main() {
	// The kernel of a VM starts this program as its first process.
	if os.Getpid() == 1 && os.Args[0] == "/init" {
		guestMain()
	}
	// Mount namespaces and the signal at the death of a parent belong to a thread: all code that needs them runs on this
	// one.
	runtime.LockOSThread()
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: hack/vm/uml|qemu COMMAND [ARG...]")
		os.Exit(statusBroken)
	}
	status, err := run(os.Args[1], os.Args[2:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "vm:", err)
	}
	os.Exit(status)
}

// interrupted is the cancellation cause after a signal.
type interrupted struct{ signal syscall.Signal }

func (i interrupted) Error() string { return "ended by signal: " + i.signal.String() }

// run runs a command in a VM and returns the exit status of this process. err is set if there is a message to print.
func run(kind string, args []string) (status int, err error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	go func() { // released at the exit of the process
		caught, _ := (<-signals).(syscall.Signal)
		cancel(interrupted{caught})
	}()

	status, err = runVM(ctx, kind, args)
	if cause, ok := errors.AsType[interrupted](context.Cause(ctx)); ok {
		return statusSignalBase + int(cause.signal), nil
	}
	return status, err
}

func runVM(ctx context.Context, kind string, args []string) (status int, err error) {
	if os.Geteuid() != 0 {
		return statusBroken, errors.New("needs root, to make namespaces and mounts")
	}
	exe, err := os.Executable()
	if err != nil {
		return statusBroken, err
	}
	cache := filepath.Dir(exe) // the scripts build this program into .lab/vm
	o, err := optionsFromEnv(kind)
	if err != nil {
		return statusBroken, err
	}
	k, err := prepareKernel(ctx, cache, kind)
	if err != nil {
		return statusBroken, err
	}
	j, err := newJob(k, cache, args)
	if err != nil {
		return statusBroken, err
	}
	m, err := newMachine(k, filepath.Join(cache, "job"), j, o)
	if err != nil {
		return statusBroken, err
	}
	return m.run(ctx)
}
