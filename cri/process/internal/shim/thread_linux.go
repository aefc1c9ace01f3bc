// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// thread is the one thread of the shim that forks what the container runs. It is in the namespaces and, with cgroup v1, in
// the cgroups of the container; the others are on the host, where the records and the log are. The kernel kills what it
// forked when it ends, which it does only with the shim.
type thread struct {
	calls chan func()
	quit  chan struct{}
	tid   int
}

// newThread starts the thread. It is not the first of the process, which the kernel takes for the process as a whole: the
// memory of the shim must not count for the container.
func newThread() *thread {
	t := &thread{calls: make(chan func()), quit: make(chan struct{})}
	ready := make(chan struct{})
	go t.run(ready)
	<-ready
	return t
}

func (t *thread) run(ready chan struct{}) {
	runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine
	if unix.Gettid() == os.Getpid() {
		go t.run(ready) // cannot be here
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

// do calls a function on the thread and waits for it. It is not called after end.
func (t *thread) do(call func()) {
	done := make(chan struct{})
	t.calls <- func() {
		defer close(done)
		call()
	}
	<-done
}

// end ends the thread, and what it forked that still runs. It does not wait.
func (t *thread) end() { close(t.quit) }
