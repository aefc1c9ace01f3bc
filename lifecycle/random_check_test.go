// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/lifecycletest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podview"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// checker checks each call and each status against the desired pods and the previous state, across restarts of the agent.
type checker struct {
	t   *testing.T
	rt  *critest.Runtime
	api bool // an API server lists the pods and stores their statuses; false: manifests

	mu         sync.Mutex // guards the fields below; not held during calls to the runtime
	records    map[string]*podRecord
	passed     map[string]bool // commands that succeeded inside a container: UID/name/attempt/command
	volumes    lifecycletest.Resources
	devices    fakeDevices
	lateStarts map[string]bool // containers that started after the agent had given up the call, and pods whose sandbox did
}

// podRecord is the recorded state of a pod.
type podRecord struct {
	pod                 *corev1.Pod
	terminationExpected bool      // the pod was rejected or evicted, or a rejection or eviction was attempted
	deleted             time.Time // when the agent got the deletion; zero: not deleted
	dropped             time.Time // when its source dropped the pod; zero: still listed
	relisted            bool      // the pod was removed and is listed again
	agentStarted        bool      // an agent has started since the last status
	phase               corev1.PodPhase
	status              *corev1.PodStatus
	server              corev1.PodStatus    // the status in the API server
	restarts            map[string]int32    // by container
	instances           map[string][]string // instances of a container in a sandbox and restart-all generation
}

func newChecker(t *testing.T, api bool) *checker {
	return &checker{t: t, api: api, records: map[string]*podRecord{}, passed: map[string]bool{}, lateStarts: map[string]bool{}}
}

// recordDesired records the pods that the agent gets.
func (w *checker) recordDesired(pods []*corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	desired := map[string]bool{}
	for _, pod := range pods {
		uid := string(pod.UID)
		desired[uid] = true
		r := w.records[uid]
		if r == nil {
			r = &podRecord{restarts: map[string]int32{}, instances: map[string][]string{}}
			w.records[uid] = r
		}
		r.relisted = r.relisted || !r.dropped.IsZero()
		r.pod, r.dropped = pod, time.Time{}
		if pod.DeletionTimestamp != nil && r.deleted.IsZero() {
			r.deleted = now
		}
	}
	for uid, r := range w.records {
		if !desired[uid] && r.dropped.IsZero() {
			r.dropped = now
		}
	}
}

// recordRemoved records that a pod is removed: if it is listed again it starts from scratch.
func (w *checker) recordRemoved(pod cri.PodIdentity) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r := w.records[pod.UID]; r != nil {
		r.reset()
	}
}

// reset resets the state of the pod.
func (r *podRecord) reset() {
	*r = podRecord{pod: r.pod, deleted: r.deleted, dropped: r.dropped, restarts: map[string]int32{}, instances: map[string][]string{}}
}

// addStatuses sets the last published status of pods of an API server, which other programs may have changed.
func (w *checker) addStatuses(pods map[string]*corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, pod := range pods {
		if r := w.records[string(pod.UID)]; w.api && r != nil && r.status != nil {
			pod = pod.DeepCopy()
			r.status.DeepCopyInto(&pod.Status)
			pods[name] = pod
		}
	}
}

// recordSuccess records a successful command of a hook or a probe.
func (w *checker) recordSuccess(life, command string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.passed[life+"/"+command] = true
}

func (w *checker) hasPassed(passed string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.passed[passed]
}

func (w *checker) list() cri.Snapshot {
	snap, err := w.rt.List(w.t.Context())
	require.NoError(w.t, err)
	return snap
}

// startedLate reports whether a container started after the agent had given up the call.
func (w *checker) startedLate(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lateStarts[id]
}

// checkRequest checks that a call of the agent is allowed for the desired pods. The call may take effect later, or never.
func (w *checker) checkRequest(op, id string) {
	if op != "StartContainer" || w.t.Context().Err() != nil {
		return
	}
	c, ok := w.rt.Container(id)
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.records[c.PodUID]
	if !ok || c.State != cri.ContainerCreated || !assert.NotNil(w.t, r, "%s starts, but no source ever listed its pod", c.ID) {
		return
	}
	now := time.Now()
	assert.True(w.t, r.dropped.IsZero() || r.dropped.Equal(now), "%s starts, but no source lists its pod", c.ID)
	assert.True(w.t, r.deleted.IsZero() || r.deleted.Equal(now), "%s starts, but its pod is deleted", c.ID)
	assert.True(w.t, podtest.SpecNames(r.pod)[c.Name], "%s starts, but the pod has no such container", c.ID)
	over := r.status != nil && terminal(r.phase) && r.status.Reason != podstatus.ReasonDeadlineExceeded // the deadline may expire during the call
	assert.False(w.t, over, "%s starts in a pod of phase %s", c.ID, r.phase)
}

// checkEffect checks a call that is about to take effect.
func (w *checker) checkEffect(op, id string) {
	if op == "ExecSync" || op == "StopContainer" || w.t.Context().Err() != nil {
		return
	}
	snap, _ := w.rt.List(w.t.Context())
	w.mu.Lock()
	defer w.mu.Unlock()
	live := func(c cri.Container) bool {
		return c.State == cri.ContainerRunning && c.SandboxID == id && !w.lateStarts[c.ID]
	}
	switch op {
	case "RunPodSandbox":
		w.requireAlone(&snap, id)
	case "StopPodSandbox", "RemovePodSandbox":
		i := slices.IndexFunc(snap.Containers, live)
		assert.Negative(w.t, i, "%s %s while a container runs in it", op, id)
	case "RemoveContainer":
		i := slices.IndexFunc(snap.Containers, func(c cri.Container) bool { return c.ID == id && c.State == cri.ContainerRunning })
		assert.Negative(w.t, i, "%s %s while it runs", op, id)
	case "StartContainer":
		i := slices.IndexFunc(snap.Containers, func(c cri.Container) bool { return c.ID == id })
		if i >= 0 && snap.Containers[i].State == cri.ContainerCreated {
			w.checkStart(&snap, &snap.Containers[i])
		}
	}
}

// recordLate records a call that takes effect after the agent has given it up.
func (w *checker) recordLate(op, id string) {
	if op == "RunPodSandbox" {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.lateStarts[id] = true
	}
	if op != "StartContainer" {
		return
	}
	c, ok := w.rt.Container(id)
	w.mu.Lock()
	defer w.mu.Unlock()
	if ok && c.State == cri.ContainerCreated {
		w.lateStarts[id] = true
		w.records[c.PodUID].addInstance(&c)
	}
}

// addInstance records a container instance.
func (r *podRecord) addInstance(c *cri.Container) {
	here := instanceKey(c, c.Name)
	r.instances[here] = append(r.instances[here], instanceName(c.PodUID, c.Name, c.ID))
}

// checkStart checks a container that is about to run.
func (w *checker) checkStart(snap *cri.Snapshot, c *cri.Container) {
	r := w.records[c.PodUID]
	if !assert.NotNil(w.t, r, "%s starts, but no source ever listed its pod", c.ID) {
		return
	}
	w.requireAlone(snap, c.PodUID)
	assert.Contains(w.t, w.volumes.PreparedPods(), c.PodUID, "%s starts without its volumes", c.ID)
	assert.Contains(w.t, w.devices.reservedPods(), c.PodUID, "%s starts without its devices", c.ID)
	for i := range snap.Containers {
		o := &snap.Containers[i]
		twin := o.PodUID == c.PodUID && o.Name == c.Name && o.State == cri.ContainerRunning
		assert.False(w.t, twin, "%s starts beside %s", c.ID, o.ID)
	}
	w.checkRestart(snap, r, c)
	if podtest.Find(r.pod.Spec.Containers, c.Name) != nil {
		w.checkInitialized(snap, r, c)
	}
	r.addInstance(c)
}

// requireAlone requires that no container runs of another pod with the name of this pod, such as a previous version of its
// manifest.
func (w *checker) requireAlone(snap *cri.Snapshot, uid string) {
	name := w.records[uid].pod.Name
	for i := range snap.Containers {
		c := &snap.Containers[i]
		other := c.PodUID != uid && c.Labels[cri.LabelPodName] == name && c.State == cri.ContainerRunning
		assert.False(w.t, other && !w.lateStarts[c.ID], "pod %s starts beside %s, which has the same name", uid, c.ID)
	}
	for i := range snap.Sandboxes {
		s := &snap.Sandboxes[i]
		other := s.Pod.UID != uid && s.Pod.Name == name && s.State == cri.SandboxReady
		assert.False(w.t, other && !w.lateStarts[s.Pod.UID], "pod %s starts beside sandbox %s, which has the same name", uid, s.ID)
	}
}

// checkRestart requires that a container is restarted only if its restart policy, rules or probes allow it.
func (w *checker) checkRestart(snap *cri.Snapshot, r *podRecord, c *cri.Container) {
	var last *cri.Container
	for i := range snap.Containers {
		o := &snap.Containers[i]
		if o.PodUID == c.PodUID && o.Name == c.Name && o.ID != c.ID && !o.StartedAt.IsZero() && (last == nil || o.Attempt > last.Attempt) {
			last = o
		}
	}
	if last == nil || last.SandboxID != c.SandboxID || podview.GenerationOf(last) < podview.GenerationOf(c) || last.Image.UserSpecifiedImage != c.Image.UserSpecifiedImage {
		return
	}
	spec := podtest.Find(slices.Concat(r.pod.Spec.InitContainers, r.pod.Spec.Containers), c.Name)
	policy := r.pod.Spec.RestartPolicy
	if spec != nil && spec.RestartPolicy != nil {
		policy = corev1.RestartPolicy(*spec.RestartPolicy)
	}
	probed := spec != nil && (spec.LivenessProbe != nil || spec.StartupProbe != nil) && policy != corev1.RestartPolicyNever
	allowed := spec != nil && mayRestart(r.pod, spec, last.ExitCode) || probed // a failed probe stops the container regardless of its exit code
	assert.True(w.t, allowed, "%s starts although %s exited with %d", c.ID, last.ID, last.ExitCode)
}

// mayRestart reports whether an exited container may be restarted in its sandbox.
func mayRestart(pod *corev1.Pod, c *corev1.Container, code int32) bool {
	policy := string(pod.Spec.RestartPolicy)
	if c.RestartPolicy != nil {
		policy = string(*c.RestartPolicy)
	}
	for _, rule := range c.RestartPolicyRules {
		if slices.Contains(rule.ExitCodes.Values, code) {
			return true
		}
	}
	ends := podtest.Find(pod.Spec.InitContainers, c.Name) != nil && !podtest.IsSidecar(c)
	return policy == "Always" && !ends || policy != "Never" && code != 0
}

// checkInitialized requires that the init containers have completed before the first regular container of a sandbox and
// restart-all generation.
func (w *checker) checkInitialized(snap *cri.Snapshot, r *podRecord, c *cri.Container) {
	for i := range r.pod.Spec.Containers {
		if len(r.instances[instanceKey(c, r.pod.Spec.Containers[i].Name)]) > 0 {
			return
		}
	}
	for i := range r.pod.Spec.InitContainers {
		spec := &r.pod.Spec.InitContainers[i]
		passed := slices.ContainsFunc(snap.Containers, func(o cri.Container) bool {
			return instanceKey(&o, o.Name) == instanceKey(c, spec.Name) && o.State == cri.ContainerExited && o.ExitCode == 0
		})
		if podtest.IsSidecar(spec) {
			passed = slices.ContainsFunc(r.instances[instanceKey(c, spec.Name)], func(life string) bool {
				return spec.StartupProbe == nil || w.passed[life+"/started"]
			})
		}
		assert.True(w.t, passed, "%s starts before init container %s has succeeded", c.ID, spec.Name)
	}
}

// instanceKey returns the key of a named container in the sandbox and restart-all generation of c.
func instanceKey(c *cri.Container, name string) string {
	return fmt.Sprint(c.PodUID, "/", name, "/", c.SandboxID, "/", podview.GenerationOf(c))
}

// instanceName returns the name of a container instance as in the walker's commands. An ID of critest contains the attempt.
func instanceName(uid, name, id string) string {
	id = strings.TrimPrefix(id, "critest://") // IDs in statuses have this prefix
	attempt, _, _ := strings.Cut(strings.TrimPrefix(id, uid+"-"+name+"-"), "-")
	return uid + "/" + name + "/" + attempt
}

// requireNoTwins fails if a pod name has two running containers of one name, regardless of UIDs. A container that started
// late, after the agent had created its successor, is stopped by the next sync: it is ignored until the walk has converged.
func (w *checker) requireNoTwins(converged bool) {
	w.t.Helper()
	live := map[string]string{}
	snap := w.list()
	w.requireOwnIDs(&snap)
	for p := range snap.Pods() {
		for _, c := range p.Containers {
			if c.State == cri.ContainerRunning && (converged || !w.startedLate(c.ID)) {
				key := p.Name + "/" + c.Name
				require.Empty(w.t, live[key], "%s runs twice: %s and %s", key, live[key], c.ID)
				live[key] = c.ID
			}
		}
	}
}

// requireOwnIDs fails if two pods have overlapping user ID ranges on the host. A sandbox that started late may have the
// range of another pod.
func (w *checker) requireOwnIDs(snap *cri.Snapshot) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	used := map[uint32]string{}
	for i := range snap.Sandboxes {
		s := &snap.Sandboxes[i]
		user := s.Namespaces.User
		if s.State != cri.SandboxReady || user == nil || user.Mode != cri.NamespacePod || w.lateStarts[s.Pod.UID] {
			continue
		}
		other := used[user.UIDs[0].HostID]
		require.True(w.t, other == "" || other == s.Pod.UID, "pods %s and %s have the same IDs on the host", other, s.Pod.UID)
		used[user.UIDs[0].HostID] = s.Pod.UID
	}
}

// probedAfter is the time after which a healthy container has passed its hook and its probes: the startup probe runs every 2 s,
// and then the readiness probe every 5 s.
const probedAfter = 8 * time.Second

// requireConverged requires that a pod has the state of its spec after the faults have stopped.
func (w *checker) requireConverged(pod *corev1.Pod, has cri.Pod) {
	w.t.Helper()
	w.mu.Lock()
	r := w.records[string(pod.UID)]
	w.mu.Unlock()
	details := podtest.LazyText(func() string {
		return fmt.Sprintf("pod %s %s\nhas%s\nstatus %s", pod.UID, podtest.JSON(pod.Spec), podtest.DescribeObserved(has), podtest.JSON(r.status))
	})
	live := map[string]*cri.Container{}
	for i := range has.Containers {
		if c := &has.Containers[i]; c.State == cri.ContainerRunning {
			live[c.Name] = c
		}
	}
	ready := 0
	for _, sb := range has.Sandboxes {
		if sb.State == cri.SandboxReady {
			ready++
		}
	}
	switch {
	case pod.DeletionTimestamp != nil:
		require.Empty(w.t, has.Sandboxes, details)
		require.Empty(w.t, has.Containers, details)
		return
	case terminal(r.phase):
		require.Empty(w.t, live, details)
		require.Zero(w.t, ready, details)
		require.True(w.t, mayTerminate(pod) || r.terminationExpected, "pod may not terminate: %s", details)
		return
	case isStuck(pod, has):
		return
	}
	require.Equal(w.t, corev1.PodRunning, r.phase, details)
	require.Equal(w.t, 1, ready, details)
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		require.Equal(w.t, podtest.IsSidecar(c), live[c.Name] != nil, "%s: %s", c.Name, details)
	}
	serves := 0
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		st := r.status.ContainerStatuses[slices.IndexFunc(r.status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Name == c.Name })]
		if l := live[c.Name]; l != nil {
			serves++
			require.Equal(w.t, c.Image, l.Image.UserSpecifiedImage, details)
			if time.Since(l.StartedAt) < probedAfter {
				continue
			}
			hooked := c.Lifecycle == nil || c.Lifecycle.PostStart == nil || w.hasPassed(instanceName(string(pod.UID), c.Name, l.ID)+"/hello")
			require.True(w.t, hooked, "%s runs, but its postStart hook has not run: %s", c.Name, details)
			require.True(w.t, st.Ready, "%s is not ready since %s, now %s: %s", c.Name, l.StartedAt, time.Now(), details)
			continue
		}
		if t := st.State.Terminated; t == nil || mayRestart(pod, c, t.ExitCode) {
			require.True(w.t, strings.HasPrefix(c.Name, "work"), "%s should run: %s", c.Name, details)
			serves++
		}
	}
	require.Positive(w.t, serves, "pod should have terminated: %s", details)
}

func terminal(p corev1.PodPhase) bool { return p == corev1.PodSucceeded || p == corev1.PodFailed }

// mayTerminate reports whether a pod can terminate without being deleted.
func mayTerminate(pod *corev1.Pod) bool {
	once := func(c corev1.Container) bool {
		return !mayRestart(pod, &c, 0) || !mayRestart(pod, &c, 1)
	}
	setup := func(c corev1.Container) bool { return !podtest.IsSidecar(&c) && !mayRestart(pod, &c, 1) }
	return pod.Spec.ActiveDeadlineSeconds != nil || slices.ContainsFunc(pod.Spec.InitContainers, setup) ||
		!slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return !once(c) })
}

// isStuck reports whether a pod with restart policy Never has lost its sandbox before all of its containers have run. As in
// the kubelet it gets no new sandbox, and never terminates.
func isStuck(pod *corev1.Pod, has cri.Pod) bool {
	return pod.Spec.RestartPolicy == corev1.RestartPolicyNever && len(has.Sandboxes) > 0 &&
		!slices.ContainsFunc(has.Sandboxes, func(s cri.Sandbox) bool { return s.State == cri.SandboxReady }) &&
		!slices.ContainsFunc(has.Containers, func(c cri.Container) bool { return c.State == cri.ContainerRunning })
}
