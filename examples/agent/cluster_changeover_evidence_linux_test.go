// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/controlplane"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// changeLog is the evidence of a test that changes the program of a node: the events of the runtime about containers, and the changes of the statuses
// of pods that the API server reports.
type changeLog struct {
	mu     sync.Mutex // guards the fields below
	lines  []string
	starts map[string][]start // by "POD CONTAINER": the started containers
	// created has the time of the creation of each container, by ID.
	created map[string]time.Time
	// standing has the last summary of each pod that must not change. A change is a violation, unless normal returns true.
	standing   map[string]string
	normal     func(pod, before, after string) bool
	containers map[string]string // by ID: "POD CONTAINER" of the containers that must neither start nor stop
	violations []string
}

// start is a start of a container.
type start struct {
	id      string
	created time.Time // zero: unknown
	at      time.Time // of the event of the runtime
}

// startChangeLog records the events of the runtime and of the API server until the test ends.
func startChangeLog(t *testing.T, n *node, client *controlplane.Client) *changeLog {
	l := &changeLog{starts: map[string][]start{}, created: map[string]time.Time{}}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	t.Cleanup(func() { cancel(); wg.Wait() })
	follow := func(watch func() error) {
		wg.Go(func() {
			for ctx.Err() == nil {
				_ = watch() // each stream may break at any time
				select {
				case <-ctx.Done():
				case <-time.After(100 * time.Millisecond):
				}
			}
		})
	}
	follow(func() error { return n.client.StreamEvents(ctx, l.recordContainer) })
	follow(func() error { return client.Watch(ctx, pathPods+"?timeoutSeconds=3600", l.recordPod) })
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("events of containers and statuses of pods:\n%s", l.text())
		}
	})
	return l
}

func (l *changeLog) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, "\n")
}

// add adds a line to the log. The caller holds l.mu.
func (l *changeLog) add(format string, args ...any) {
	l.lines = append(l.lines, time.Now().UTC().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// note adds a line of the test to the log.
func (l *changeLog) note(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.add("--- "+format, args...)
}

// recordContainer records an event of the runtime.
func (l *changeLog) recordContainer(e cri.Event) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	name := e.Pod.Name + " sandbox"
	for _, c := range e.Pod.Containers {
		if c.ID == e.ID {
			name = fmt.Sprintf("%s %s", e.Pod.Name, c.Name)
		}
	}
	if kept := l.containers[e.ID]; kept != "" {
		name = kept
		l.violations = append(l.violations, fmt.Sprintf("container %s of %s %s", e.ID, kept, e.Type))
	}
	l.add("runtime: %s %s %s at %s", name, e.ID, e.Type, e.Time.UTC().Format("15:04:05.000"))
	known := slices.ContainsFunc(l.starts[name], func(s start) bool { return s.id == e.ID })
	switch {
	case e.Type == cri.EventCreated:
		l.created[e.ID] = e.Time
	case e.Type == cri.EventStarted && !known:
		l.starts[name] = append(l.starts[name], start{e.ID, l.created[e.ID], e.Time})
	}
	return nil
}

// recordPod records a version of a pod, if its containers or its readiness have changed.
func (l *changeLog) recordPod(e controlplane.Event) error {
	var pod corev1.Pod
	if err := json.Unmarshal(e.Object, &pod); err != nil || pod.Name == "" {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	summary := summarizePod(&pod)
	if e.Type == "DELETED" {
		summary = "deleted"
	}
	l.add("status: %s %s", pod.Name, summary)
	kept, is := l.standing[pod.Name]
	switch {
	case !is || kept == summary:
	case l.normal != nil && l.normal(pod.Name, kept, summary):
		l.standing[pod.Name] = summary
	default:
		l.violations = append(l.violations, fmt.Sprintf("pod %s was\n%s\nand is\n%s", pod.Name, kept, summary))
	}
	return nil
}

// summarizePod returns what a change of the program must not change: phase, address, conditions with their last transitions, and of each container the ID,
// the readiness, the restart count and the start time.
func summarizePod(pod *corev1.Pod) string {
	lines := []string{fmt.Sprintf("%s %s", pod.Status.Phase, pod.Status.PodIP)}
	for _, kind := range []corev1.PodConditionType{corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		if c := podstatus.FindCondition(pod.Status.Conditions, kind); c != nil {
			lines = append(lines, fmt.Sprintf("%s=%s since %s", kind, c.Status, c.LastTransitionTime.UTC().Format("15:04:05")))
		}
	}
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		started := "never"
		switch {
		case c.State.Running != nil:
			started = "running since " + c.State.Running.StartedAt.UTC().Format("15:04:05")
		case c.State.Terminated != nil:
			started = fmt.Sprintf("exited %d", c.State.Terminated.ExitCode)
		}
		lines = append(lines, fmt.Sprintf("%s %s ready=%t restarts=%d %s", c.Name, c.ContainerID, c.Ready, c.RestartCount, started))
	}
	return strings.Join(lines, "; ")
}

// setNormal replaces the function that returns true for changes of standing pods that are no violations; nil: each change is one.
func (l *changeLog) setNormal(normal func(pod, before, after string) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.normal = normal
}

// The parts of the summaries of some standing pods that a kubelet changes when it starts, also after a kubelet.
var (
	transitions = regexp.MustCompile(` since [\d:]+;`)
	completedIP = regexp.MustCompile(`^Succeeded \S*`)
)

// isNormalForKubelet reports whether each kubelet that starts changes the status of a standing pod in this way. It computes the conditions of static pods
// without their mirror pods, so that these have new times. It forgets the address of a completed pod.
func isNormalForKubelet(pod, before, after string) bool {
	changing := map[string]*regexp.Regexp{"static": transitions, "job": completedIP}
	kind, _, _ := strings.Cut(pod, "-")
	part := changing[kind]
	return part != nil && part.ReplaceAllString(before, "") == part.ReplaceAllString(after, "")
}

// keep declares pods and containers as standing: from now on each change is a violation. containers are by ID.
func (l *changeLog) keep(pods []corev1.Pod, containers map[string]string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.standing, l.containers = map[string]string{}, containers
	for i := range pods {
		l.standing[pods[i].Name] = summarizePod(&pods[i])
		l.add("standing: %s %s", pods[i].Name, l.standing[pods[i].Name])
	}
}

// release ends the checks of keep.
func (l *changeLog) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.standing, l.containers = nil, nil
}

// takeViolations returns the violations so far.
func (l *changeLog) takeViolations() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.violations)
}

// startsOf returns the number of starts of each container of a pod, by container name.
func (l *changeLog) startsOf(pod string) map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	counts := map[string]int{}
	for name, starts := range l.starts {
		if of, container, _ := strings.Cut(name, " "); of == pod && container != "sandbox" {
			counts[container] = len(starts)
		}
	}
	return counts
}

// startsOfContainer returns the starts of a container, whose name is "POD CONTAINER".
func (l *changeLog) startsOfContainer(name string) []start {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.starts[name])
}

// klogError matches an error line of a kubelet, and has its file and its constant message as groups.
var klogError = regexp.MustCompile(`^E\d{4} [\d:.]+ +\d+ (\S+\.go):\d+\] ("(?:[^"\\]|\\.)*"|[^"]*)`)

// errorKinds returns the error lines of a kubelet, by source file and message without values.
func errorKinds(output string) map[string]string {
	kinds := map[string]string{}
	for line := range strings.Lines(output) {
		if m := klogError.FindStringSubmatch(line); m != nil {
			kinds[m[1]+" "+strings.TrimSpace(m[2])] = strings.TrimSpace(line)
		}
	}
	return kinds
}

// unexpectedErrors returns the error lines of a kubelet that neither a kubelet on a node of its own writes, nor isAllowed excepts.
func unexpectedErrors(output string, clean map[string]string, isAllowed func(line string) bool) (lines []string) {
	for line := range strings.Lines(output) {
		for kind, text := range errorKinds(line) {
			if clean[kind] == "" && !isAllowed(text) {
				lines = append(lines, text)
			}
		}
	}
	return lines
}

func TestErrorKinds(t *testing.T) {
	const text = `I1129 06:24:22.123456   12345 kubelet.go:1] "Fine"
E1129 06:24:22.123456   12345 kubelet.go:2345] "Error \"syncing\" pod" err="x" pod="a/b"
E1129 06:24:23.123456   12345 kubelet.go:2346] "Error \"syncing\" pod" err="y" pod="a/c"
E1129 06:24:24.123456       7 log.go:32] "Other"
E1129 06:24:24.123456       7 reflector.go:32] Failed to watch: closed
`
	require.Equal(t, []string{`kubelet.go "Error \"syncing\" pod"`, `log.go "Other"`, "reflector.go Failed to watch: closed"}, slices.Sorted(maps.Keys(errorKinds(text))))
	require.Equal(t, []string{`E1129 06:24:24.123456       7 log.go:32] "Other"`},
		unexpectedErrors(text, map[string]string{`kubelet.go "Error \"syncing\" pod"`: "x"}, func(line string) bool { return strings.HasSuffix(line, "watch: closed") }))
}

func TestIsNormalForKubelet(t *testing.T) {
	const before = "Running 10.1.0.2; Initialized=True since 11:10:32; ContainersReady=True since 11:10:33; Ready=True since 11:10:33; main containerd://1 ready=true restarts=0 running since 11:10:33"
	moved := strings.ReplaceAll(before, "=True since 11:10:3", "=True since 11:20:3")
	flipped := strings.NewReplacer("Ready=True since 11:10:33", "Ready=False since 11:20:33", "ready=true", "ready=false").Replace(before)
	for _, c := range []struct {
		pod, after string
		want       bool
	}{
		{"static-0-n1", moved, true},
		{"static-0-n1", flipped, false},
		{"static-0-n1", strings.ReplaceAll(before, "running since 11:10", "running since 11:20"), false},
		{"startup-0", flipped, false},
		{"config-0", moved, false},
	} {
		require.Equal(t, c.want, isNormalForKubelet(c.pod, before, c.after), "%s: %s", c.pod, c.after)
	}
	require.True(t, isNormalForKubelet("job-0", "Succeeded 10.1.0.3; a", "Succeeded ; a"))
	require.False(t, isNormalForKubelet("job-0", "Succeeded 10.1.0.3; a", "Failed ; a"))
}

// A changed status and a stopped container of a standing pod are violations; those of other pods are not.
func TestChangeLog(t *testing.T) {
	l := &changeLog{starts: map[string][]start{}, created: map[string]time.Time{}}
	event := func(kind cri.EventType, id string) {
		pod := cri.Pod{PodIdentity: cri.PodIdentity{Name: "web"}, Containers: []cri.Container{{ID: "c1", Name: "main"}, {ID: "c2", Name: "main"}}}
		require.NoError(t, l.recordContainer(cri.Event{Type: kind, ID: id, Pod: pod}))
	}
	status := func(name, ready string) {
		text := fmt.Sprintf(`{"metadata":{"name":%q},"status":{"phase":"Running","conditions":[{"type":"Ready","status":%q}]}}`, name, ready)
		require.NoError(t, l.recordPod(controlplane.Event{Type: "MODIFIED", Object: json.RawMessage(text)}))
	}
	event(cri.EventStarted, "c1")
	event(cri.EventStarted, "c1")
	event(cri.EventStarted, "sandbox")
	require.Equal(t, map[string]int{"main": 1}, l.startsOf("web"))
	var pod corev1.Pod
	require.NoError(t, json.Unmarshal([]byte(`{"metadata":{"name":"web"},"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`), &pod))
	l.keep([]corev1.Pod{pod}, map[string]string{"c1": "web main"})
	status("web", "True")
	status("other", "False")
	event(cri.EventStarted, "c2")
	require.Empty(t, l.takeViolations())
	require.Equal(t, map[string]int{"main": 2}, l.startsOf("web"))
	status("web", "False")
	event(cri.EventStopped, "c1")
	require.Len(t, l.takeViolations(), 2)
	l.setNormal(func(pod, _, after string) bool { return pod == "web" && strings.Contains(after, "Ready=False") })
	status("web", "False")
	require.Len(t, l.takeViolations(), 2, "the change is normal")
	status("web", "False")
	l.setNormal(nil)
	status("web", "False")
	require.Len(t, l.takeViolations(), 2, "the status did not change")
	l.release()
	status("web", "True")
	require.Len(t, l.takeViolations(), 2)
	require.Contains(t, l.text(), "web main c1 stopped")
}
