// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
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
		Now: time.Now(), Previous: previous, Held: w.holding(), Messages: w.lastWords(ctx, observed), HostIPs: w.r.opts.Spec.HostIPs,
		Terminal: ending || pod.DeletionTimestamp != nil, Starting: w.starting, Probes: w.probeResults(), Resizing: resizing,
	})
	same := w.status != nil && reflect.DeepEqual(*w.status, st)
	w.status = &st
	if told := (told{pod, ending}); !same || told != w.told {
		w.syncProbes(pod, &st, ending)
		w.told = told
	}
	if same {
		return
	}
	if !ending {
		w.note(func(now *record) { now.Status = &st; w.resize.put(now) }) // before anybody else hears of it
	}
	w.mu.Lock()
	w.ended = terminal(st.Phase)
	w.mu.Unlock()
	if hook := w.r.opts.Hooks.Status; hook != nil {
		hook(pod, &st)
	}
	w.emitChanges(previous, &st)
}
