// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package critest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/cri"
)

func containerLifecycle(t *testCase) {
	s := t.newPodConfig()
	sandbox := t.runSandbox(s)
	id := t.createContainer(sandbox, s, t.newContainerConfig(s, "main", exitsOnTERM(0)))
	c := t.containerStatus(id)
	t.Hold(c.State == cri.ContainerCreated, ruleStates, "a container that was just created is %v", c.State)
	t.Hold(c.StartedAt.IsZero(), ruleStartedAt, "a created container has StartedAt %v", c.StartedAt)
	t.Hold(c.FinishedAt.IsZero(), ruleFinishedAt, "a created container has FinishedAt %v", c.FinishedAt)

	t.Succeed(t.rt.StartContainer(t.ctx, id), ruleStart, "StartContainer")
	c = t.containerStatus(id)
	t.Hold(c.State == cri.ContainerRunning, ruleStart, "a container that was just started is %v", c.State)
	t.Hold(!c.StartedAt.Before(c.CreatedAt), ruleStartedAt, "started at %v, before it was created at %v", c.StartedAt, c.CreatedAt)
	t.Hold(c.FinishedAt.IsZero(), ruleFinishedAt, "a running container has FinishedAt %v", c.FinishedAt)

	t.Succeed(t.rt.StopContainer(t.ctx, id, 0), ruleStop, "StopContainer")
	c = t.containerStatus(id)
	t.Hold(c.State == cri.ContainerExited, ruleStop, "StopContainer has returned and the container is %v", c.State)
	t.Hold(!c.FinishedAt.Before(c.StartedAt), ruleFinishedAt, "finished at %v, before it started at %v", c.FinishedAt, c.StartedAt)
	t.Hold(!c.FinishedAt.After(time.Now()), ruleFinishedAt, "finished at %v, which is in the future", c.FinishedAt)

	for range 2 {
		t.Succeed(t.rt.RemoveContainer(t.ctx, id), ruleRemoveGone, "RemoveContainer")
		_, ok := t.findContainer(id)
		t.Hold(!ok, ruleRemove, "List shows a container that was removed")
	}
	t.Succeed(t.rt.StopContainer(t.ctx, id, time.Second), ruleStopGone, "StopContainer of a removed container")
}

func containerAttempts(t *testCase) {
	s := t.newPodConfig()
	sandbox := t.runSandbox(s)
	cfg := t.newContainerConfig(s, "main", exitsAfter(0, 1))
	t.awaitExit(t.startContainer(sandbox, s, cfg))
	cfg.Attempt = 1
	t.awaitExit(t.startContainer(sandbox, s, cfg))
	seen := map[uint32]bool{}
	for _, c := range t.listPod(s.Pod.UID).Containers {
		seen[c.Attempt] = true
	}
	t.Hold(len(seen) == 2 && seen[0] && seen[1], ruleList, "List shows the attempts %v of a container that has 0 and 1", seen)
}

func containerName(t *testCase) {
	s := t.newPodConfig()
	sandbox := t.runSandbox(s)
	cfg := t.newContainerConfig(s, "main", exitsAfter(0, 0))
	id := t.startContainer(sandbox, s, cfg)
	t.awaitExit(id)
	other, err := t.tryCreateContainer(sandbox, s, cfg)
	t.requireNameTaken(other, id, err, "CreateContainer of the same attempt, which has exited")
	t.Succeed(t.rt.RemoveContainer(t.ctx, id), ruleRemove, "RemoveContainer")
	again := t.createContainer(sandbox, s, cfg)
	t.Hold(again != id, ruleCreate, "a new container has the ID of a removed one")
}

func containerUnknown(t *testCase) {
	t.Succeed(t.rt.StopContainer(t.ctx, unknownID, time.Second), ruleStopGone, "StopContainer of an unknown ID")
	t.Succeed(t.rt.RemoveContainer(t.ctx, unknownID), ruleRemoveGone, "RemoveContainer of an unknown ID")
	t.requireError(t.rt.StartContainer(t.ctx, unknownID), cri.ErrNotFound, ruleNotFound, "StartContainer of an unknown ID")
	if i, ok := t.rt.(cri.Inspector); ok {
		_, err := i.ContainerStatus(t.ctx, unknownID)
		t.requireError(err, cri.ErrNotFound, ruleStatus, "ContainerStatus of an unknown ID")
	}
}

func containerStartsOnce(t *testCase) {
	id := t.startInNewPod(exitsOnTERM(0))
	t.Hold(t.rt.StartContainer(t.ctx, id) != nil, ruleStart, "StartContainer of a running container succeeds")
	t.Succeed(t.rt.StopContainer(t.ctx, id, 0), ruleStop, "StopContainer")
	t.Hold(t.rt.StartContainer(t.ctx, id) != nil, ruleStart, "StartContainer of an exited container succeeds")
	c := t.containerStatus(id)
	t.Hold(c.State == cri.ContainerExited, ruleStates, "an exited container is %v after StartContainer", c.State)
}

func containerExitCodes(t *testCase) {
	s := t.newPodConfig()
	sandbox := t.runSandbox(s)
	want := map[string]int32{}
	for name, code := range map[string]int{"zero": 0, "one": 1, "big": 200} {
		want[t.startContainer(sandbox, s, t.newContainerConfig(s, name, exitsAfter(500*time.Millisecond, code)))] = int32(code)
	}
	for id, code := range want {
		c := t.awaitExit(id)
		t.Hold(c.ExitCode == code, ruleExitCode, "a container that exited with %d shows %d", code, c.ExitCode)
		t.Hold(c.Reason != "" && !strings.Contains(c.Reason, " "), ruleReason, "after exit code %d the reason is %q", code, c.Reason)
		t.Hold(!c.FinishedAt.Before(c.StartedAt), ruleFinishedAt, "finished at %v, before it started at %v", c.FinishedAt, c.StartedAt)
	}
}

func containerSignals(t *testCase) {
	s := t.newPodConfig()
	s.Security.Namespaces.PID = cri.NamespaceNode
	sandbox := t.runSandbox(s)
	for name, signal := range map[string]int{"kill": 9, "term": 15} {
		cfg := t.newContainerConfig(s, name, killsItself(signal))
		cfg.Security.Namespaces.PID = cri.NamespaceNode
		c := t.awaitExit(t.startContainer(sandbox, s, cfg))
		t.Hold(c.ExitCode == int32(128+signal), ruleExitCode, "a container ended by signal %d shows exit code %d", signal, c.ExitCode)
	}
}

func containerCannotStart(t *testCase) {
	s := t.newPodConfig()
	sandbox := t.runSandbox(s)
	cfg := t.newContainerConfig(s, "main", exitsOnTERM(0))
	cfg.Command[0] = noProgram
	id, err := t.tryCreateContainer(sandbox, s, cfg)
	if err != nil {
		return // failed already at creation, which is allowed
	}
	t.Hold(t.rt.StartContainer(t.ctx, id) != nil, ruleStart, "StartContainer of a program that does not exist succeeds")
	c := t.containerStatus(id)
	t.Hold(c.State == cri.ContainerExited && c.ExitCode != 0, ruleStates,
		"a container that could not start is %v with exit code %d, want exited and not 0", c.State, c.ExitCode)
}

func containerStop(t *testCase) {
	id := t.startInNewPod(exitsOnTERM(7))
	begin := time.Now()
	t.Succeed(t.rt.StopContainer(t.ctx, id, time.Minute), ruleStop, "StopContainer")
	t.Hold(time.Since(begin) < slack, ruleStop, "StopContainer took %v with a program that exits on SIGTERM", time.Since(begin))
	c := t.containerStatus(id)
	t.Hold(c.State == cri.ContainerExited, ruleStop, "StopContainer has returned and the container is %v", c.State)
	t.Hold(c.ExitCode == 7, ruleExitCode, "a program that exits with 7 on SIGTERM shows %d", c.ExitCode)
	t.Succeed(t.rt.StopContainer(t.ctx, id, time.Minute), ruleStopGone, "StopContainer of an exited container")
}

func containerStopIgnored(t *testCase) {
	const grace = 1500 * time.Millisecond
	id := t.startInNewPod(ignoresTERM())
	begin := time.Now()
	t.Succeed(t.rt.StopContainer(t.ctx, id, grace), ruleStop, "StopContainer")
	took := time.Since(begin)
	t.Hold(took >= grace, ruleStopGrace, "killed after %v, with a grace of %v", took, grace)
	t.Hold(took < grace+slack, ruleStopGrace, "killed only after %v, with a grace of %v", took, grace)
	c := t.containerStatus(id)
	t.Hold(c.State == cri.ContainerExited, ruleStop, "StopContainer has returned and the container is %v", c.State)
	t.Hold(c.ExitCode == codeKilled, ruleExitCode, "a container killed after its grace shows exit code %d", c.ExitCode)
}

func containerStopAtOnce(t *testCase) {
	id := t.startInNewPod(exitsOnTERM(7))
	begin := time.Now()
	t.Succeed(t.rt.StopContainer(t.ctx, id, 0), ruleStopGrace, "StopContainer without grace")
	t.Hold(time.Since(begin) < slack, ruleStopGrace, "StopContainer without grace took %v", time.Since(begin))
	c := t.containerStatus(id)
	t.Hold(c.ExitCode == codeKilled, ruleStopGrace, "a container stopped without grace shows exit code %d, want %d", c.ExitCode, codeKilled)
}

func containerStopCutShort(t *testCase) {
	id := t.startInNewPod(ignoresTERM())
	ctx, cancel := context.WithTimeout(t.ctx, 500*time.Millisecond)
	defer cancel()
	begin := time.Now()
	err := t.rt.StopContainer(ctx, id, 5*time.Minute)
	t.Hold(errors.Is(err, context.DeadlineExceeded), ruleDeadline, "StopContainer whose ctx ended: error is %v", err)
	t.Hold(time.Since(begin) < slack, ruleDeadline, "StopContainer returned %v after it began, its ctx ended after 0.5s", time.Since(begin))
	c := t.containerStatus(id)
	t.Hold(c.State == cri.ContainerRunning, ruleStop, "a container is %v before its grace of 5m has passed", c.State)

	t.Succeed(t.rt.StopContainer(t.ctx, id, 0), ruleStopGrace, "StopContainer without grace, after one with grace was cut short")
	t.Hold(t.containerStatus(id).State == cri.ContainerExited, ruleStopGrace, "the container still runs")
}

func containerStopTwice(t *testCase) {
	id := t.startInNewPod(ignoresTERM())
	patient := make(chan error, 1)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { patient <- t.rt.StopContainer(t.ctx, id, 5*time.Minute) })
	time.Sleep(200 * time.Millisecond) // let it arrive first; the outcome is the same otherwise
	t.Succeed(t.rt.StopContainer(t.ctx, id, 0), ruleStopGrace, "StopContainer without grace, beside one with grace")
	select {
	case err := <-patient:
		t.Succeed(err, ruleStop, "StopContainer of a container that another one killed")
	case <-time.After(slack):
		t.Hold(false, ruleStop, "the container has exited and StopContainer has not returned %v later", slack)
	}
}

func containerRemoveRunning(t *testCase) {
	id := t.startInNewPod(ignoresTERM())
	t.Succeed(t.rt.RemoveContainer(t.ctx, id), ruleRemove, "RemoveContainer of a running container")
	_, ok := t.findContainer(id)
	t.Hold(!ok, ruleRemove, "List shows a container that was removed")
}
