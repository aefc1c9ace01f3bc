// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/sleep"
	"github.com/seed81659283/nodeagent/nodetest/machine"
)

// Fault describes runtime calls that go wrong. The first fault that matches a call applies.
type Fault struct {
	// Op is the CRI name of the calls, such as "StartContainer", or "List" or "ListPod". Empty: all calls.
	Op string
	// Times is the number of calls that go wrong. Zero: all calls until the fault is removed.
	Times int

	Delay time.Duration // before the call, or before its error
	Hang  bool          // the call returns when its context ends
	Err   error         // the error of the call, which has no effect; nil: the call is made
}

// Inject applies the fault f to all runtime calls that match it, until remove is called. To inject faults into requests to
// the API server, use [apiservertest.Server.Inject].
func (n *Node) Inject(f Fault) (remove func()) { return n.faults.addFault(f) }

// faults are the injected faults of a node.
type faults struct {
	mu   sync.Mutex
	list []*Fault
}

// addFault adds a fault. remove removes it.
func (l *faults) addFault(f Fault) (remove func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	added := &f
	l.list = append(l.list, added)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.list = slices.DeleteFunc(l.list, func(o *Fault) bool { return o == added })
	}
}

// takeFault returns the first fault that matches the call op, or nil if there is none. It removes the fault after the number
// of calls in its field Times.
func (l *faults) takeFault(op string) *Fault {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, f := range l.list {
		if f.Op != "" && f.Op != op {
			continue
		}
		if f.Times == 1 {
			l.list = slices.Delete(l.list, i, i+1)
		} else if f.Times > 1 {
			f.Times--
		}
		return f
	}
	return nil
}

// applyFault applies the matching injected fault: it delays the call, and then blocks until ctx ends or returns the fault's
// error. Without such a fault, it returns the result of Options.Fault.
func (n *Node) applyFault(ctx context.Context, op, id string) error {
	if f := n.faults.takeFault(op); f != nil {
		if err := sleep.For(ctx, f.Delay); err != nil {
			return err
		}
		if f.Hang {
			return critest.Hang(ctx)
		}
		if f.Err != nil {
			return f.Err
		}
	}
	return n.options.Fault(ctx, op, id)
}

// CutNetwork makes the API server in memory unavailable if cut is true, and available again if cut is false. All nodes that
// share the API server are affected.
func (n *Node) CutNetwork(cut bool) error {
	if err := n.requireServer("CutNetwork"); err != nil {
		return err
	}
	n.api.SetUnavailable(cut)
	return nil
}

// FillDisk fills a disk of the machine with files of the given total size, which belong to no pod. A later call replaces the
// files; zero removes them.
func (n *Node) FillDisk(disk machine.DiskName, bytes int64) { fillDisk(n.kernel, disk, bytes) }

// fillDisk writes files of this size that belong to no pod.
func fillDisk(k *kernel, disk machine.DiskName, bytes int64) {
	k.advance()
	k.machine.WriteFiles(machine.Files{Disk: disk, Owner: "system", Directory: "fill", Bytes: bytes, Inodes: min(bytes, 1)})
}

// RestartAgent stops the agent, waits for the duration down and starts a new agent. Containers keep running.
func (n *Node) RestartAgent(down time.Duration) error {
	if err := n.stopAgent(); err != nil {
		return err
	}
	n.Advance(down)
	return n.startAgent(n.ctx)
}

// Reboot stops the agent and kills all containers. It waits for the duration down and starts a new agent, which observes a
// new boot ID.
func (n *Node) Reboot(down time.Duration) error {
	if err := n.stopAgent(); err != nil {
		return err
	}
	list, err := n.runtime.runtime.List(n.ctx)
	if err != nil {
		return err
	}
	for i := range list.Containers {
		_ = n.runtime.runtime.Kill(list.Containers[i].ID, 255) // fails for a container that does not run
	}
	for i := range list.Sandboxes {
		err = errors.Join(err, n.runtime.runtime.Kill(list.Sandboxes[i].ID, 255))
	}
	n.Advance(down)
	n.boots++
	return errors.Join(err, n.startAgent(n.ctx))
}
