// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package prom

import (
	"sync"

	"github.com/seed81659283/nodeagent/probe"
)

// podName is what series say of a pod.
type podName struct{ namespace, name string }

// podTable is what is remembered of pods between two calls of hooks. What is of a pod goes with it.
type podTable struct {
	mu     sync.Mutex // guards all below
	pods   map[string]*podRecord
	probes map[probe.Key]podName
}

func newPodTable() *podTable {
	return &podTable{pods: map[string]*podRecord{}, probes: map[probe.Key]podName{}}
}

// record calls f with what is known of a pod, which is made when needed.
func (t *podTable) updatePod(uid string, f func(*podRecord)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.pods[uid]
	if r == nil {
		r = &podRecord{}
		t.pods[uid] = r
	}
	f(r)
}

// look calls f with what is known of a pod, if anything is.
func (t *podTable) updateKnownPod(uid string, f func(*podRecord)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := t.pods[uid]; r != nil {
		f(r)
	}
}

// forget forgets a pod.
func (t *podTable) removePod(uid string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.pods, uid)
}

// probeName returns the name of the pod of a probe: as it was the first time, or as the table has it, or as lookup says.
func (t *podTable) nameForProbe(k probe.Key, lookup func() podName) podName {
	t.mu.Lock()
	name, known := t.probes[k]
	if r := t.pods[k.PodUID]; !known && r != nil && r.name != (podName{}) {
		name, known = r.name, true
		t.probes[k] = name
	}
	t.mu.Unlock()
	if known {
		return name
	}
	name = lookup() // with no lock held
	t.mu.Lock()
	defer t.mu.Unlock()
	t.probes[k] = name
	return name
}

// forgetProbe forgets a probe, and returns the name that its series have.
func (t *podTable) removeProbe(k probe.Key) podName {
	t.mu.Lock()
	defer t.mu.Unlock()
	name := t.probes[k]
	delete(t.probes, k)
	return name
}
