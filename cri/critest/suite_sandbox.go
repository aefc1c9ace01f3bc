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

// unknownID is a well-formed ID that no object has.
const unknownID = "c0ffee0000000000000000000000000000000000000000000000000000c0ffee"

func sandboxLifecycle(t *testCase) {
	s := t.newPodConfig()
	before := time.Now()
	id := t.runSandbox(s)
	sb := t.sandboxStatus(s, id)
	t.Hold(sb.State == cri.SandboxReady, ruleRunSandbox, "a sandbox that was just run is %v", sb.State)
	t.Hold(!sb.CreatedAt.Before(before.Add(-time.Second)) && !sb.CreatedAt.After(time.Now()), ruleRunSandbox,
		"CreatedAt is %v, want a time between %v and %v", sb.CreatedAt, before, time.Now())

	for range 2 {
		t.Succeed(t.rt.StopSandbox(t.ctx, id), ruleStopSandboxGone, "StopSandbox")
		t.awaitNotReady(s, id)
	}
	for range 2 {
		t.Succeed(t.rt.RemoveSandbox(t.ctx, id), ruleRemoveGone, "RemoveSandbox")
		t.Hold(len(t.listPod(s.Pod.UID).Sandboxes) == 0, ruleRemoveSandbox, "List shows a sandbox that was removed")
	}
	t.Succeed(t.rt.StopSandbox(t.ctx, id), ruleStopSandboxGone, "StopSandbox of a removed sandbox")
}

func sandboxAttempts(t *testCase) {
	s := t.newPodConfig()
	first := t.runSandbox(s)
	t.Succeed(t.rt.StopSandbox(t.ctx, first), ruleStopSandbox, "StopSandbox")
	t.awaitNotReady(s, first)
	s.Attempt = 1
	second := t.runSandbox(s)
	t.Hold(first != second, ruleRunSandbox, "two sandboxes have the ID %s", first)

	sandboxes := t.listPod(s.Pod.UID).Sandboxes
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

func sandboxName(t *testCase) {
	s := t.newPodConfig()
	id := t.runSandbox(s)
	other, err := t.tryRunSandbox(s)
	t.requireNameTaken(other, id, err, "RunSandbox of the same attempt")
	t.Succeed(t.rt.StopSandbox(t.ctx, id), ruleStopSandbox, "StopSandbox")
	other, err = t.tryRunSandbox(s)
	t.requireNameTaken(other, id, err, "RunSandbox of the same attempt, which is stopped")
	t.Succeed(t.rt.RemoveSandbox(t.ctx, id), ruleRemoveSandbox, "RemoveSandbox")
	again := t.runSandbox(s)
	t.Hold(again != id, ruleRunSandbox, "a new sandbox has the ID of a removed one")
}

// requireNameTaken fails the test unless a create call with a used name returned that object's ID or ErrAlreadyExists.
func (t *testCase) requireNameTaken(got, id string, err error, call string) {
	t.Helper()
	if err == nil {
		t.Hold(got == id, ruleExists, "%s returns %s, want an error or %s, which has the name", call, got, id)
		return
	}
	t.requireError(err, cri.ErrAlreadyExists, ruleExists, call)
}

func sandboxAddress(t *testCase) {
	host := t.newPodConfig()
	host.Hostname, host.Security.Namespaces.Network = "", cri.NamespaceNode
	ips := t.sandboxStatus(host, t.runSandbox(host)).IPs
	t.Hold(len(ips) == 0, ruleIPs, "a sandbox on the host's network has the addresses %q", ips)
	if !t.f.IsolatedNetwork {
		return
	}

	seen := map[string]bool{}
	for range 2 {
		s := t.newPodConfig()
		ips := t.sandboxStatus(s, t.runSandbox(s)).IPs
		t.Hold(len(ips) > 0, ruleIPs, "a sandbox with a network of its own has no address")
		for _, ip := range ips {
			_, err := netip.ParseAddr(ip)
			t.Hold(err == nil, ruleIPs, "address %q: %v", ip, err)
			t.Hold(!seen[ip], ruleIPs, "two sandboxes have the address %s", ip)
			seen[ip] = true
		}
	}
}

// stopSandboxTime is the deadline of a StopSandbox call while containers run.
const stopSandboxTime = 3 * time.Second

func sandboxStopKills(t *testCase) {
	s := t.newPodConfig()
	id := t.runSandbox(s)
	done := t.startContainer(id, s, t.newContainerConfig(s, "done", exitsAfter(0, 3)))
	t.awaitExit(done)
	running := []string{
		t.startContainer(id, s, t.newContainerConfig(s, "polite", exitsOnTERM(0))),
		t.startContainer(id, s, t.newContainerConfig(s, "stubborn", ignoresTERM())),
	}
	begin := time.Now()
	limited, cancel := context.WithTimeout(t.ctx, stopSandboxTime)
	defer cancel()
	err := t.rt.StopSandbox(limited, id)
	if errors.Is(err, context.DeadlineExceeded) { // the deadline was the containers' grace period, and may have passed before the kill
		err = t.rt.StopSandbox(t.ctx, id)
	}
	t.Succeed(err, ruleStopSandbox, "StopSandbox")
	t.Hold(time.Since(begin) < stopSandboxTime+slack, ruleStopSandbox, "StopSandbox with a deadline of %v took %v", stopSandboxTime, time.Since(begin))
	for _, c := range running {
		c := t.awaitExit(c)
		asked := c.Name == "polite" && c.ExitCode == 0 // exited on the stop signal, before the kill
		t.Hold(c.ExitCode == codeKilled || asked, ruleExitCode, "container %s exited with %d, want %d", c.Name, c.ExitCode, codeKilled)
	}
	c := t.containerStatus(done)
	t.Hold(c.ExitCode == 3, ruleExitCode, "a container that had exited with 3 now shows %d", c.ExitCode)
}

func sandboxRemoveRemoves(t *testCase) {
	s := t.newPodConfig()
	id := t.runSandbox(s)
	t.createContainer(id, s, t.newContainerConfig(s, "created", exitsOnTERM(0)))
	t.startContainer(id, s, t.newContainerConfig(s, "running", ignoresTERM()))
	t.awaitExit(t.startContainer(id, s, t.newContainerConfig(s, "exited", exitsAfter(0, 0))))

	t.Succeed(t.rt.RemoveSandbox(t.ctx, id), ruleRemoveSandbox, "RemoveSandbox that was not stopped")
	pod := t.listPod(s.Pod.UID)
	t.Hold(len(pod.Sandboxes)+len(pod.Containers) == 0, ruleRemoveSandbox,
		"List still shows %d sandboxes and %d containers", len(pod.Sandboxes), len(pod.Containers))
}

func sandboxUnknown(t *testCase) {
	t.Succeed(t.rt.StopSandbox(t.ctx, unknownID), ruleStopSandboxGone, "StopSandbox of an unknown ID")
	t.Succeed(t.rt.RemoveSandbox(t.ctx, unknownID), ruleRemoveGone, "RemoveSandbox of an unknown ID")
	s := t.newPodConfig()
	_, err := t.tryCreateContainer(unknownID, s, t.newContainerConfig(s, "main", exitsOnTERM(0)))
	t.requireError(err, cri.ErrNotFound, ruleNotFound, "CreateContainer in an unknown sandbox")
	if i, ok := t.rt.(cri.Inspector); ok {
		_, err := i.SandboxStatus(t.ctx, unknownID)
		t.requireError(err, cri.ErrNotFound, ruleStatus, "SandboxStatus of an unknown ID")
	}
}

func sandboxStopped(t *testCase) {
	s := t.newPodConfig()
	sandbox := t.runSandbox(s)
	id := t.createContainer(sandbox, s, t.newContainerConfig(s, "early", exitsOnTERM(0)))
	t.Succeed(t.rt.StopSandbox(t.ctx, sandbox), ruleStopSandbox, "StopSandbox")
	t.awaitNotReady(s, sandbox)
	err := t.rt.StartContainer(t.ctx, id)
	t.Hold(err != nil, ruleSandboxState, "StartContainer in a stopped sandbox succeeds")

	if id, err = t.tryCreateContainer(sandbox, s, t.newContainerConfig(s, "late", exitsOnTERM(0))); err == nil {
		err = t.rt.StartContainer(t.ctx, id)
	}
	t.Hold(err != nil, ruleSandboxState, "CreateContainer and StartContainer in a stopped sandbox succeed")
}

// awaitNotReady waits until the sandbox with this ID, in the pod of config, is reported as not ready.
func (t *testCase) awaitNotReady(config *cri.SandboxConfig, id string) {
	t.Helper()
	t.Until(ruleStopSandbox, func() (bool, string) {
		state := t.sandboxStatus(config, id).State
		return state == cri.SandboxNotReady, "a stopped sandbox is " + state.String()
	})
}
