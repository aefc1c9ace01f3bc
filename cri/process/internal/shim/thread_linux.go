// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// forkThread is the OS thread of the shim that forks the container's processes. It is in the namespaces and, with cgroup v1, in
// the cgroups of the container. The other threads stay on the host with the records and the log. The thread runs until the shim
// exits, because the kernel kills its children when it exits (PR_SET_PDEATHSIG).
type forkThread struct {
	calls chan func()
	quit  chan struct{}
	tid   int
}

// newThread starts a thread that forks processes.
func newThread() *forkThread {
	t := &forkThread{calls: make(chan func()), quit: make(chan struct{})}
	ready := make(chan struct{})
	// not the main thread, because the kernel would charge the memory of the whole shim to the cgroup of the main thread
	go t.runCalls(ready)
	<-ready
	return t
}

func (t *forkThread) runCalls(ready chan struct{}) {
	runtime.LockOSThread() // never unlocked: the thread exits with this goroutine
	if unix.Gettid() == os.Getpid() {
		go t.runCalls(ready) // the main thread cannot be used
		<-t.quit
		return
	}
	t.tid = unix.Gettid()
	close(ready)
	for {
		select {
		case call := <-t.calls:
			call()
		case <-t.quit:
			return
		}
	}
}

// runOnThread runs a function on the thread and waits until it returns. It must not be called after stopThread.
func (t *forkThread) runOnThread(call func()) {
	done := make(chan struct{})
	t.calls <- func() {
		defer close(done)
		call()
	}
	<-done
}

// stopThread stops the thread and does not wait. The kernel then kills the remaining children of the thread (PR_SET_PDEATHSIG).
func (t *forkThread) stopThread() { close(t.quit) }
