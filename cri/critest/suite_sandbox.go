// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package critest

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/seed81659283/nodeagent/cri"
)

// unknownID has the form of an ID and belongs to nothing.
const unknownID = "c0ffee0000000000000000000000000000000000000000000000000000c0ffee"

func sandboxLifecycle(t *trial) {
	s := t.pod()
	before := time.Now()
	id := t.run(s)
	sb := t.sandbox(s, id)
	t.Hold(sb.State == cri.SandboxReady, ruleRunSandbox, "a sandbox that was just run is %v", sb.State)
	t.Hold(!sb.CreatedAt.Before(before.Add(-time.Second)) && !sb.CreatedAt.After(time.Now()), ruleRunSandbox,
		"CreatedAt is %v, want a time between %v and %v", sb.CreatedAt, before, time.Now())

	for range 2 {
		t.Succeed(t.rt.StopSandbox(t.ctx, id), ruleStopSandboxGone, "StopSandbox")
		t.awaitNotReady(s, id)
	}
	for range 2 {
		t.Succeed(t.rt.RemoveSandbox(t.ctx, id), ruleRemoveGone, "RemoveSandbox")
		t.Hold(len(t.list(s.Pod.UID).Sandboxes) == 0, ruleRemoveSandbox, "List shows a sandbox that was removed")
	}
	t.Succeed(t.rt.StopSandbox(t.ctx, id), ruleStopSandboxGone, "StopSandbox of a removed sandbox")
}

func sandboxAttempts(t *trial) {
	s := t.pod()
	first := t.run(s)
	t.Succeed(t.rt.StopSandbox(t.ctx, first), ruleStopSandbox, "StopSandbox")
	t.awaitNotReady(s, first)
	s.Attempt = 1
	second := t.run(s)
	t.Hold(first != second, ruleRunSandbox, "two sandboxes have the ID %s", first)

	sandboxes := t.list(s.Pod.UID).Sandboxes
	t.Hold(len(sandboxes) == 2, ruleList, "List shows %d sandboxes of a pod that has 2", len(sandboxes))
	for _, sb := range sandboxes {
		attempt, state := uint32(0), cri.SandboxNotReady
		if sb.ID == second {
			attempt, state = 1, cri.SandboxReady
		}
		t.Hold(sb.Attempt == attempt && sb.State == state, ruleList,
			"sandbox %s is attempt %d and %v, want %d and %v", sb.ID, sb.Attempt, sb.State, attempt, state)
	}
}

func sandboxName(t *trial) {
	s := t.pod()
	id := t.run(s)
	other, err := t.tryRun(s)
	t.taken(other, id, err, "RunSandbox of the same attempt")
	t.Succeed(t.rt.StopSandbox(t.ctx, id), ruleStopSandbox, "StopSandbox")
	other, err = t.tryRun(s)
	t.taken(other, id, err, "RunSandbox of the same attempt, which is stopped")
	t.Succeed(t.rt.RemoveSandbox(t.ctx, id), ruleRemoveSandbox, "RemoveSandbox")
	again := t.run(s)
	t.Hold(again != id, ruleRunSandbox, "a new sandbox has the ID of a removed one")
}

// taken checks the answer of a call that asked for a name which the object id has.
func (t *trial) taken(got, id string, err error, what string) {
	t.Helper()
	if err == nil {
		t.Hold(got == id, ruleExists, "%s returns %s, want an error or %s, which has the name", what, got, id)
		return
	}
	t.fail(err, cri.ErrAlreadyExists, ruleExists, what)
}

func sandboxAddress(t *trial) {
	host := t.pod()
	host.Hostname, host.Security.Namespaces.Network = "", cri.NamespaceNode
	ips := t.sandbox(host, t.run(host)).IPs
	t.Hold(len(ips) == 0, ruleIPs, "a sandbox on the host's network has the addresses %q", ips)
	if !t.f.IsolatedNetwork {
		return
	}

	seen := map[string]bool{}
	for range 2 {
		s := t.pod()
		ips := t.sandbox(s, t.run(s)).IPs
		t.Hold(len(ips) > 0, ruleIPs, "a sandbox with a network of its own has no address")
		for _, ip := range ips {
			_, err := netip.ParseAddr(ip)
			t.Hold(err == nil, ruleIPs, "address %q: %v", ip, err)
			t.Hold(!seen[ip], ruleIPs, "two sandboxes have the address %s", ip)
			seen[ip] = true
		}
	}
}

// stopSandboxTime is the deadline of a StopSandbox that finds containers running.
const stopSandboxTime = 3 * time.Second

func sandboxStopKills(t *trial) {
	s := t.pod()
	id := t.run(s)
	done := t.start(id, s, t.container(s, "done", exits(0, 3)))
	t.await(done)
	running := []string{
		t.start(id, s, t.container(s, "polite", forever(0))),
		t.start(id, s, t.container(s, "stubborn", stubborn())),
	}
	begin := time.Now()
	limited, cancel := context.WithTimeout(t.ctx, stopSandboxTime)
	defer cancel()
	err := t.rt.StopSandbox(limited, id)
	if errors.Is(err, context.DeadlineExceeded) { // it gave the containers that time, and may have killed them
		err = t.rt.StopSandbox(t.ctx, id)
	}
	t.Succeed(err, ruleStopSandbox, "StopSandbox")
	t.Hold(time.Since(begin) < stopSandboxTime+slack, ruleStopSandbox, "StopSandbox with a deadline of %v took %v", stopSandboxTime, time.Since(begin))
	for _, c := range running {
		c := t.await(c)
		asked := c.Name == "polite" && c.ExitCode == 0 // by the stop signal, before it was killed
		t.Hold(c.ExitCode == codeKilled || asked, ruleExitCode, "container %s exited with %d, want %d", c.Name, c.ExitCode, codeKilled)
	}
	c := t.status(done)
	t.Hold(c.ExitCode == 3, ruleExitCode, "a container that had exited with 3 now shows %d", c.ExitCode)
}

func sandboxRemoveRemoves(t *trial) {
	s := t.pod()
	id := t.run(s)
	t.create(id, s, t.container(s, "created", forever(0)))
	t.start(id, s, t.container(s, "running", stubborn()))
	t.await(t.start(id, s, t.container(s, "exited", exits(0, 0))))

	t.Succeed(t.rt.RemoveSandbox(t.ctx, id), ruleRemoveSandbox, "RemoveSandbox that was not stopped")
	pod := t.list(s.Pod.UID)
	t.Hold(len(pod.Sandboxes)+len(pod.Containers) == 0, ruleRemoveSandbox,
		"List still shows %d sandboxes and %d containers", len(pod.Sandboxes), len(pod.Containers))
}

func sandboxUnknown(t *trial) {
	t.Succeed(t.rt.StopSandbox(t.ctx, unknownID), ruleStopSandboxGone, "StopSandbox of an unknown ID")
	t.Succeed(t.rt.RemoveSandbox(t.ctx, unknownID), ruleRemoveGone, "RemoveSandbox of an unknown ID")
	s := t.pod()
	_, err := t.tryCreate(unknownID, s, t.container(s, "main", forever(0)))
	t.fail(err, cri.ErrNotFound, ruleNotFound, "CreateContainer in an unknown sandbox")
	if i, ok := t.rt.(cri.Inspector); ok {
		_, err := i.SandboxStatus(t.ctx, unknownID)
		t.fail(err, cri.ErrNotFound, ruleStatus, "SandboxStatus of an unknown ID")
	}
}

func sandboxStopped(t *trial) {
	s := t.pod()
	sandbox := t.run(s)
	id := t.create(sandbox, s, t.container(s, "early", forever(0)))
	t.Succeed(t.rt.StopSandbox(t.ctx, sandbox), ruleStopSandbox, "StopSandbox")
	t.awaitNotReady(s, sandbox)
	err := t.rt.StartContainer(t.ctx, id)
	t.Hold(err != nil, ruleSandboxState, "StartContainer in a stopped sandbox succeeds")

	if id, err = t.tryCreate(sandbox, s, t.container(s, "late", forever(0))); err == nil {
		err = t.rt.StartContainer(t.ctx, id)
	}
	t.Hold(err != nil, ruleSandboxState, "CreateContainer and StartContainer in a stopped sandbox succeed")
}

// awaitNotReady waits until a stopped sandbox says so.
func (t *trial) awaitNotReady(s *cri.SandboxConfig, id string) {
	t.Helper()
	t.Until(ruleStopSandbox, func() (bool, string) {
		state := t.sandbox(s, id).State
		return state == cri.SandboxNotReady, "a stopped sandbox is " + state.String()
	})
}
