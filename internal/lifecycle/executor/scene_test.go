// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/containers"
	"github.com/seed81659283/nodeagent/internal/lifecycle/executor"
	"github.com/seed81659283/nodeagent/internal/lifecycle/poddir"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/startslots"
	"github.com/seed81659283/nodeagent/lifecycle/plan"
	"github.com/seed81659283/nodeagent/lifecycle/podevents"
)

// scene is the pod "a" on a node with an in-memory runtime, and its executor. It records the calls of the executor with the time
// since the start of the sync, and its events. It must run in a synctest bubble.
type scene struct {
	t        *testing.T
	rt       *critest.Runtime
	node     executor.Node
	record   *poddir.Recorder
	reporter *executor.Reporter
	x        *executor.Executor
	pod      *corev1.Pod

	mu     sync.Mutex // guards the fields below
	began  time.Time
	calls  []string
	events []podevents.Event
	broken map[string]error // injected errors, by call
}

// setting configures a scene. The zero value is a node on which every call succeeds at once.
type setting struct {
	scripts map[string]critest.Script                // behaviour of containers, by name
	node    func(n *executor.Node)                   // modifies the node
	latency func(op string) time.Duration            // duration of a call
	usage   func(c cri.Container) cri.ContainerStats // resource usage of containers
}

// newScene returns a scene before any call.
func newScene(t *testing.T, pod *corev1.Pod, o setting) *scene {
	s := &scene{
		t: t, pod: pod, began: time.Now(), broken: map[string]error{},
		rt: critest.New(critest.Options{Script: critest.ByName(o.scripts), Usage: o.usage}),
	}
	via := &critest.Interceptor{Runtime: critest.SummaryRuntime{Runtime: s.rt}, Around: s.interceptCall}
	if o.latency != nil {
		via.Latency = func(op, _ string) time.Duration { return o.latency(op) }
	}
	s.node = executor.Node{
		Runtime: recordingRuntime{via, s}, Slots: startslots.New(1), StartSlotTimeout: 10 * time.Second, Logger: slog.New(slog.DiscardHandler),
		MarkOwner: func(labels map[string]string) { labels["owner"] = "this agent" },
		Event: func(_ cri.PodIdentity, e podevents.Event) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.events = append(s.events, e)
		},
	}
	if o.node != nil {
		o.node(&s.node)
	}
	s.createExecutor()
	return s
}

// createExecutor creates a new executor for the pod, as a restarted agent does.
func (s *scene) createExecutor() {
	id := cri.PodIdentity{UID: "uid-a", Name: "a", Namespace: "default"}
	s.record = poddir.NewRecorder(poddir.DirOf(s.node.PodRoot, id.UID), "default/a")
	require.NoError(s.t, s.record.Load())
	s.reporter = executor.NewReporter(s.node.DetectFeatures(), id)
	s.x = executor.New(s.reporter, s.record)
}

// recordingRuntime is the runtime of the executor. It records the calls.
type recordingRuntime struct {
	*critest.Interceptor
	s *scene
}

// CreateContainer records the call with the container name, and calls the runtime.
func (w recordingRuntime) CreateContainer(ctx context.Context, id string, c *cri.ContainerConfig, sb *cri.SandboxConfig) (string, error) {
	w.s.recordCall("CreateContainer " + c.Name)
	if err := w.s.fault("CreateContainer " + c.Name); err != nil {
		return "", err
	}
	return w.Interceptor.CreateContainer(ctx, id, c, sb)
}

// StopContainer records the call with its grace period, and calls the runtime.
func (w recordingRuntime) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	w.s.recordCall(fmt.Sprint("StopContainer ", id, " ", grace))
	return w.Interceptor.StopContainer(ctx, id, grace)
}

// interceptCall records a call to the runtime, and returns the error that setFault has set for it.
func (s *scene) interceptCall(ctx context.Context, op, id string, call func(context.Context) error) error {
	switch op {
	case "CreateContainer", "StopContainer", "PodSandboxStatus", "ListContainerStats":
	default:
		s.recordCall(op + " " + id)
	}
	if err := s.fault(op); err != nil {
		return err
	}
	return call(ctx)
}

// recordCall records a call.
func (s *scene) recordCall(call string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, fmt.Sprint(time.Since(s.began), " ", call))
}

// setFault makes a call fail with err. If err is nil, the call succeeds again.
func (s *scene) setFault(call string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken[call] = err
}

func (s *scene) fault(call string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.broken[call]
}

// observed returns the pod as the runtime lists it.
func (s *scene) observed() cri.Pod {
	p, err := s.rt.ListPod(context.Background(), "uid-a")
	require.NoError(s.t, err)
	return p
}

// execute executes the actions and resets the start of the recorded times.
func (s *scene) execute(ctx context.Context, a plan.Actions) error {
	observed := s.observed()
	s.mu.Lock()
	s.began, s.calls, s.events = time.Now(), nil, nil
	s.mu.Unlock()
	s.x.StartSync(nil)
	return s.x.Execute(ctx, s.pod, observed, &a)
}

// startActions returns actions that start these containers in a new sandbox.
func (s *scene) startActions(names ...string) plan.Actions {
	a := plan.Actions{Sandbox: &plan.Sandbox{PodStarted: time.Now()}}
	for _, name := range names {
		a.Start = append(a.Start, plan.Start{Container: containers.Named(&s.pod.Spec, name)})
	}
	return a
}

// startContainers starts these containers in a new sandbox.
func (s *scene) startContainers(names ...string) {
	s.t.Helper()
	require.NoError(s.t, s.execute(context.Background(), s.startActions(names...)))
	for _, name := range names {
		require.Equal(s.t, cri.ContainerRunning, s.state(name))
	}
}

// state returns the state of the newest instance of the container with this name.
func (s *scene) state(name string) cri.ContainerState {
	s.t.Helper()
	c, ok := s.rt.Container("a/" + name)
	require.True(s.t, ok, "container %s exists", name)
	return c.State
}

// requireCalls fails unless these are all calls since the start of the sync, each with time, name and object.
func (s *scene) requireCalls(want ...string) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Equal(s.t, want, s.calls)
}

// called reports whether a call was made since the start of the sync.
func (s *scene) called(call string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.calls, func(line string) bool { return strings.HasSuffix(line, " "+call) })
}

// requireEvents fails unless these are all events since the start of the sync: reason ("!" for a warning), container, ID and
// attempt.
func (s *scene) requireEvents(want ...string) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	var got []string
	for _, e := range s.events {
		got = append(got, describeEvent(e))
	}
	require.Equal(s.t, want, got)
}

func describeEvent(e podevents.Event) string {
	words := []string{e.Reason}
	if e.Type == corev1.EventTypeWarning {
		words[0] += "!"
	}
	if e.Container != "" {
		words = append(words, e.Container)
	}
	if e.ContainerID != "" {
		words = append(words, e.ContainerID)
	}
	if e.Attempt > 0 {
		words = append(words, fmt.Sprint("attempt ", e.Attempt))
	}
	if e.ExitCode != nil {
		words = append(words, fmt.Sprint("exit code ", *e.ExitCode))
	}
	return strings.Join(words, " ")
}

// requireWaiting fails unless these are all waiting reasons, "name: Reason: message" each, where "..." matches any message.
func (s *scene) requireWaiting(want ...string) {
	s.t.Helper()
	var got []string
	for name, w := range s.x.WaitingReasons.Get() {
		require.NotEmpty(s.t, w.Message)
		line := name + ": " + w.Reason + ": "
		if slices.Contains(want, line+"...") {
			w.Message = "..."
		}
		got = append(got, line+w.Message)
	}
	slices.Sort(got)
	require.Equal(s.t, want, got)
}

// newKill returns a plan.Kill for a container of the first sandbox. The container is stopped after the containers named in
// after.
func newKill(name string, grace time.Duration, after ...string) plan.Kill {
	return plan.Kill{ID: "uid-a-" + name + "-0", Name: name, Grace: grace, Reason: "it is to be stopped", WaitFor: after}
}

// podWithHooks returns the pod "a" with these hooks in each container.
func podWithHooks(hooks corev1.Lifecycle, names ...string) *corev1.Pod {
	pod := podtest.Pod("a", names...)
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].Lifecycle = &hooks
	}
	return pod
}

// execTaking returns a command that runs for d and exits with code, or returns earlier if its context ends.
func execTaking(d time.Duration, code int) critest.ExecFunc {
	return func(ctx context.Context, _ []string) (cri.ExecResult, error) {
		select {
		case <-time.After(d):
			return cri.ExecResult{ExitCode: code, Stderr: []byte("said nothing good")}, nil
		case <-ctx.Done():
			return cri.ExecResult{}, ctx.Err()
		}
	}
}

// requireCallsOf checks calls as requireCalls does, but ignores the order of calls at equal times.
func (s *scene) requireCallsOf(want []string) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	at := func(line string) string { at, _, _ := strings.Cut(line, " "); return at }
	sorted := func(lines []string) []string {
		lines = slices.Clone(lines)
		for i := 0; i < len(lines); {
			end := i
			for end < len(lines) && at(lines[end]) == at(lines[i]) {
				end++
			}
			slices.Sort(lines[i:end])
			i = end
		}
		return lines
	}
	require.Equal(s.t, sorted(want), sorted(s.calls))
}
