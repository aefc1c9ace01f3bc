// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"cmp"
	"context"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
)

// publish tells the hook, and the probes, a status that differs from the last one.
func (w *worker) publish(ctx context.Context, pod *corev1.Pod, observed cri.Pod, ending bool) {
	if pod == nil {
		return
	}
	resizing := w.resizing(pod, observed, ending)
	previous := w.status
	if previous == nil {
		previous = w.record.get().Status
	}
	if previous == nil {
		previous = &pod.Status
	}
	st := Status(resizing.Pod, observed, StatusInput{
		Now: time.Now(), Previous: previous, Runtime: w.r.name, Held: w.holding(), Messages: w.lastWords(ctx, observed), HostIPs: w.r.opts.Spec.HostIPs,
		Terminal: ending || pod.DeletionTimestamp != nil, Starting: w.starting, Probes: w.probeResults(), Resizing: resizing,
	})
	if terminal(st.Phase) && !w.starting && down(observed) {
		endUnseen(&st)
	}
	shown := withhold(pod, observed, st, cmp.Or(w.phase, previous.Phase))
	same := w.status != nil && w.phase == shown.Phase && reflect.DeepEqual(*w.status, st)
	w.status, w.phase = &st, shown.Phase
	if told := (told{pod, ending}); !same || told != w.told {
		w.syncProbes(pod, &st, ending)
		w.told = told
	}
	if same {
		if !w.record.isSaved() {
			w.note(func(*record) {})
		}
		return
	}
	if !ending {
		w.note(func(now *record) { now.Status = &shown; w.resize.put(now) }) // before anybody else hears of it
	}
	w.mu.Lock()
	w.ended = terminal(shown.Phase)
	w.mu.Unlock()
	if hook := w.r.opts.Hooks.Status; hook != nil {
		hook(pod, &shown)
	}
	w.emitChanges(previous, &st)
}

// republish publishes how the pod is now, and does nothing about it.
func (w *worker) republish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, observeTimeout)
	defer cancel()
	observed, err := w.read(ctx, time.Time{})
	if err != nil || w.status == nil {
		return // whoever does something about it publishes then
	}
	w.mu.Lock()
	pod, ending := w.pod, w.ending
	w.mu.Unlock()
	w.publish(ctx, pod, observed, ending)
}

// withhold returns a status as others are to see it, who were told a phase before. By a final phase they take it that
// nothing of the pod is in use any more, so they are not told while something of it is up. Source: mergePodStatus in
// pkg/kubelet/status/status_manager.go.
func withhold(pod *corev1.Pod, observed cri.Pod, st corev1.PodStatus, before corev1.PodPhase) corev1.PodStatus {
	if terminal(st.Phase) && !terminal(pod.Status.Phase) && !terminal(before) && !down(observed) {
		st.Phase, st.Reason, st.Message = cmp.Or(before, corev1.PodPending), "", ""
	}
	return st
}
