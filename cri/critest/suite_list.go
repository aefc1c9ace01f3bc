// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package critest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/cri"
)

func listFields(t *testCase) {
	s := t.newPodConfig()
	sandbox := t.runSandbox(s)
	cfg := t.newContainerConfig(s, "main", exitsOnTERM(0))
	id := t.createContainer(sandbox, s, cfg)

	before := time.Now()
	snap, err := t.rt.List(t.ctx)
	t.Succeed(err, ruleList, "List")
	t.Hold(!snap.Time.Before(before) && !snap.Time.After(time.Now()), ruleListTime,
		"Snapshot.Time is %v, want it between %v and %v", snap.Time, before, time.Now())

	pod := snap.Pod(s.Pod.UID)
	t.Hold(len(pod.Sandboxes) == 1 && len(pod.Containers) == 1, ruleList,
		"List shows %d sandboxes and %d containers of a pod that has 1 and 1", len(pod.Sandboxes), len(pod.Containers))
	sb, c := pod.Sandboxes[0], pod.Containers[0]
	t.Hold(sb.ID == sandbox && sb.Pod == s.Pod, ruleList, "the sandbox is %s of pod %v, want %s of %v", sb.ID, sb.Pod, sandbox, s.Pod)
	t.requireEntries("labels of the sandbox", sb.Labels, s.Labels)
	t.requireEntries("annotations of the sandbox", sb.Annotations, s.Annotations)

	t.Hold(c.ID == id && c.SandboxID == sandbox && c.PodUID == s.Pod.UID && c.Name == "main", ruleList,
		"the container is %s %q in sandbox %s of pod %s", c.ID, c.Name, c.SandboxID, c.PodUID)
	t.requireEntries("labels of the container", c.Labels, cfg.Labels)
	t.requireEntries("annotations of the container", c.Annotations, cfg.Annotations)
	t.Hold(c.Image.Image == t.f.Image, ruleList, "the container's image is %q, want %q as asked for", c.Image.Image, t.f.Image)
	t.Hold(t.f.Image == "" || c.ImageRef != "", ruleList, "the container has no ImageRef")
}

// requireEntries fails the test unless the map got contains all entries of want. The failure calls the map subject.
func (t *testCase) requireEntries(subject string, got, want map[string]string) {
	t.Helper()
	for key, value := range want {
		t.Hold(got[key] == value, ruleList, "%s: %s is %q, want %q", subject, key, got[key], value)
	}
}

func listPod(t *testCase) {
	lister, ok := t.rt.(cri.PodLister)
	if !ok {
		t.Skip("the runtime is no cri.PodLister")
	}
	s := t.newPodConfig()
	sandbox := t.runSandbox(s)
	t.createContainer(sandbox, s, t.newContainerConfig(s, "created", exitsOnTERM(0)))
	t.startContainer(sandbox, s, t.newContainerConfig(s, "running", exitsOnTERM(0)))
	other := t.newPodConfig()
	t.runSandbox(other)

	pod, err := lister.ListPod(t.ctx, s.Pod.UID)
	t.Succeed(err, ruleListPod, "ListPod")
	t.Hold(pod.PodIdentity == s.Pod, ruleListPod, "ListPod returns pod %v, want %v", pod.PodIdentity, s.Pod)
	got, want := describePod(pod), describePod(t.listPod(s.Pod.UID))
	t.Hold(got == want, ruleListPod, "ListPod returns %s, List %s", got, want)

	pod, err = lister.ListPod(t.ctx, unknownID)
	t.Succeed(err, ruleListPodNil, "ListPod of an unknown pod")
	t.Hold(len(pod.Sandboxes)+len(pod.Containers) == 0, ruleListPodNil, "ListPod of an unknown pod returns %s", describePod(pod))
}

func listReopened(t *testCase) {
	if t.f.Reopen == nil {
		t.Skip("Fixture.Reopen is nil")
	}
	s := t.newPodConfig()
	sandbox := t.runSandbox(s)
	t.createContainer(sandbox, s, t.newContainerConfig(s, "created", exitsOnTERM(0)))
	running := t.startContainer(sandbox, s, t.newContainerConfig(s, "running", exitsOnTERM(7)))
	t.awaitExit(t.startContainer(sandbox, s, t.newContainerConfig(s, "exited", exitsAfter(0, 3))))
	want := describePod(t.listPod(s.Pod.UID))

	t.reopenRuntime()
	got := describePod(t.listPod(s.Pod.UID))
	t.Hold(got == want, ruleList, "after the runtime was reopened List shows %s, before %s", got, want)
	t.Succeed(t.rt.StopContainer(t.ctx, running, time.Minute), ruleStop, "StopContainer after the runtime was reopened")
	c := t.containerStatus(running)
	t.Hold(c.ExitCode == 7, ruleExitCode, "a program that exits with 7 on SIGTERM shows %d", c.ExitCode)
}

func listManyAtOnce(t *testCase) {
	const pods = 20
	errs := make([]error, pods)
	var wg sync.WaitGroup
	for i := range errs {
		s := t.newPodConfig()
		wg.Go(func() {
			if err := t.runPodLifecycle(s); err != nil {
				errs[i] = fmt.Errorf("pod %d of %d: %w", i+1, pods, err)
			}
		})
	}
	wg.Wait()
	t.Succeed(errors.Join(errs...), ruleConcurrent, "pods made and removed at the same time")
}

// runPodLifecycle creates, starts, stops and removes a pod. It returns errors, because it runs in its own goroutine.
func (t *testCase) runPodLifecycle(config *cri.SandboxConfig) error {
	sandbox, err := t.tryRunSandbox(config)
	if err != nil {
		return err
	}
	id, err := t.tryCreateContainer(sandbox, config, t.newContainerConfig(config, "main", ignoresTERM()))
	if err != nil {
		return err
	}
	if err := t.rt.StartContainer(t.ctx, id); err != nil {
		return err
	}
	snap, err := t.rt.List(t.ctx)
	if err != nil {
		return err
	}
	pod := snap.Pod(config.Pod.UID)
	if len(pod.Sandboxes) != 1 || len(pod.Containers) != 1 || pod.Containers[0].State != cri.ContainerRunning {
		return fmt.Errorf("List shows %s, want a ready sandbox and a running container", describePod(pod))
	}
	if err := t.rt.StopContainer(t.ctx, id, 0); err != nil {
		return err
	}
	return t.rt.RemoveSandbox(t.ctx, sandbox)
}

// describePod returns a text that lists the sandboxes and containers of a pod, sorted by ID.
func describePod(pod cri.Pod) string {
	var all []string
	for _, sb := range pod.Sandboxes {
		all = append(all, fmt.Sprintf("%.12s(attempt %d %v)", sb.ID, sb.Attempt, sb.State))
	}
	for _, c := range pod.Containers {
		all = append(all, fmt.Sprintf("%.12s(%s attempt %d %v)", c.ID, c.Name, c.Attempt, c.State))
	}
	slices.Sort(all)
	return formatList(all)
}

func formatList(s []string) string { return "[" + strings.Join(s, ", ") + "]" }
