// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package prom

import (
	"sync"

	"github.com/seed81659283/nodeagent/probe"
)

// podName has the namespace and name of a pod, which are labels of probe metrics.
type podName struct{ namespace, name string }

// podTable has the last known spec and status of each pod, and the pod name of each probe.
type podTable struct {
	mu     sync.Mutex // guards the fields below
	pods   map[string]*podRecord
	probes map[probe.Key]podName
}

func newPodTable() *podTable {
	return &podTable{pods: map[string]*podRecord{}, probes: map[probe.Key]podName{}}
}

// updatePod calls update with the record of the pod, which it creates if needed. The table is locked during the call.
func (t *podTable) updatePod(uid string, update func(*podRecord)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.pods[uid]
	if r == nil {
		r = &podRecord{}
		t.pods[uid] = r
	}
	update(r)
}

// updateKnownPod calls update with the record of a pod. If the pod has no record, it does nothing. The table is locked
// during the call.
func (t *podTable) updateKnownPod(uid string, update func(*podRecord)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := t.pods[uid]; r != nil {
		update(r)
	}
}

// removePod removes the record of a pod that the agent no longer manages.
func (t *podTable) removePod(uid string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.pods, uid)
}

// nameForProbe returns the pod name in the metrics of a probe: at first the recorded name or that of lookup, later the same
// name.
func (t *podTable) nameForProbe(key probe.Key, lookup func() podName) podName {
	t.mu.Lock()
	name, known := t.probes[key]
	if r := t.pods[key.PodUID]; !known && r != nil && r.name != (podName{}) {
		name, known = r.name, true
		t.probes[key] = name
	}
	t.mu.Unlock()
	if known {
		return name
	}
	name = lookup() // without a lock
	t.mu.Lock()
	defer t.mu.Unlock()
	t.probes[key] = name
	return name
}

// removeProbe removes an ended probe, and returns the pod name in its metrics, for removing its series.
func (t *podTable) removeProbe(key probe.Key) podName {
	t.mu.Lock()
	defer t.mu.Unlock()
	name := t.probes[key]
	delete(t.probes, key)
	return name
}
