// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/statuspatch"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
	"github.com/seed81659283/nodeagent/qos"
)

// checkStatus checks a published status. It may show the instance before that of the previous status only for a container that waits, and whose
// newer instance was removed: the status is that of the newest instance which the runtime still has, as in the kubelet.
func (w *checker) checkStatus(pod *corev1.Pod, st *corev1.PodStatus) {
	for _, b := range w.checkFields(pod, st) {
		_, exists := w.rt.Container(b.newer)
		assert.True(w.t, b.waits && !exists, "status of %s", b.text)
	}
}

// backwardStatus is a container status that shows an older instance than the previous status.
type backwardStatus struct {
	newer string // ID of the instance in the previous status, without the name of the runtime
	waits bool   // the container waits
	text  string
}

// checkFields checks a published status, and returns the statuses of containers that go back to an older instance.
func (w *checker) checkFields(pod *corev1.Pod, st *corev1.PodStatus) (backward []backwardStatus) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.records[string(pod.UID)]
	statuses := slices.Concat(st.InitContainerStatuses, st.ContainerStatuses, st.EphemeralContainerStatuses)
	anew := r.relisted && (terminal(r.phase) || slices.ContainsFunc(statuses, func(cs corev1.ContainerStatus) bool {
		return cs.RestartCount < r.restarts[cs.Name] || waitsAfterUnseenExit(&r.server, &cs)
	}))
	ended := r.relisted && r.agentStarted && terminal(r.phase) // the phase is from the previous agent
	if qos.IsStatic(pod) && r.status != nil && (!terminal(st.Phase) && (podstatus.IsRejected(r.status) || anew) || ended) {
		expected := r.terminationExpected && terminal(st.Phase) // the record of the previous agent may still have the eviction
		r.reset()                                               // a restarted agent admits a rejected static pod again, and has no record of a removed pod
		r.terminationExpected = expected
	}
	r.agentStarted = false
	assert.True(w.t, !terminal(r.phase) || st.Phase == r.phase, "pod %s leaves terminal phase %s for %s", pod.UID, r.phase, st.Phase)
	r.phase, r.status = st.Phase, st
	former := r.server
	w.mergeServerStatus(r, pod, st)
	for _, cs := range statuses {
		if newer, back := goesBack(&former, &cs); back {
			text := fmt.Sprintf("%s/%s is that of the previous instance: %s after %s", pod.UID, cs.Name, podtest.Describe(*st), podtest.Describe(former))
			backward = append(backward, backwardStatus{newer: newer, waits: cs.State.Waiting != nil, text: text})
		}
		assert.GreaterOrEqual(w.t, cs.RestartCount, r.restarts[cs.Name], "restart count of %s/%s decreases", pod.UID, cs.Name)
		r.restarts[cs.Name] = cs.RestartCount
		spec := podtest.Find(slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers), cs.Name)
		if spec == nil {
			continue
		}
		life := instanceName(string(pod.UID), cs.Name, cs.ContainerID)
		assert.True(w.t, !cs.Ready || spec.ReadinessProbe == nil || w.passed[life+"/ready"], "%s is ready without a successful readiness probe", life)
		ends := !r.dropped.IsZero() || !r.deleted.IsZero() || r.relisted // a static pod that is listed again terminates before it is restarted
		assert.True(w.t, !*cs.Started || ends || spec.StartupProbe == nil || w.passed[life+"/started"], "%s has started without a successful startup probe", life)
	}
	return backward
}

// mergeServerStatus merges a status into the status in the API server. No container leaves a terminated state without a
// restart, except that a completed init container may run again in a new sandbox.
func (w *checker) mergeServerStatus(r *podRecord, pod *corev1.Pod, st *corev1.PodStatus) {
	at := *pod
	at.Status = r.server
	next, err := statuspatch.Next(&at, st, false, time.Now())
	if e, ok := errors.AsType[*statuspatch.TransitionError](err); !ok || !e.Init || e.ExitCode != 0 {
		assert.NoError(w.t, err, "%s after %s", podtest.Describe(*st), podtest.Describe(r.server))
	}
	r.server = next.Status
}

// waitsAfterUnseenExit reports whether a waiting container was terminated in the previous status because its pod terminated
// before the container had run.
func waitsAfterUnseenExit(former *corev1.PodStatus, cs *corev1.ContainerStatus) bool {
	was := podstatus.FindContainer(slices.Concat(former.InitContainerStatuses, former.ContainerStatuses), cs.Name)
	return was != nil && was.State.Terminated != nil && was.State.Terminated.ContainerID == "" && cs.State.Waiting != nil
}

// goesBack reports whether the status of a container is that of the instance before the terminated one in the previous status. newer is the ID of
// that terminated instance, without the name of the runtime.
func goesBack(former *corev1.PodStatus, cs *corev1.ContainerStatus) (newer string, back bool) {
	was := podstatus.FindContainer(slices.Concat(former.InitContainerStatuses, former.ContainerStatuses), cs.Name)
	back = was != nil && was.State.Terminated != nil && was.LastTerminationState.Terminated != nil && cs.ContainerID != "" && cs.ContainerID != was.ContainerID &&
		cs.ContainerID == was.LastTerminationState.Terminated.ContainerID
	if back {
		_, newer, _ = strings.Cut(was.ContainerID, "://")
	}
	return newer, back
}
