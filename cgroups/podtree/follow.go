// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podtree

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// Follow sets the functions from which the tree reads the pods, as a lifecycle.Reconciler does. active returns the pods
// whose requests count, and whether all sources have reported. mayRun reports whether the pod with this UID runs or may
// start. Follow has no effect if [New] was called with pods.
func (t *Tree) Follow(active func() (pods []*corev1.Pod, complete bool), mayRun func(uid string) bool) {
	if f, ok := t.pods.(*podSource); ok {
		f.setCallbacks(active, mayRun)
		t.Changed()
	}
}

// podSource holds the callbacks passed to Tree.Follow. Before Follow, MayRun returns true for every pod.
type podSource struct {
	mu     sync.Mutex // guards all below
	active func() ([]*corev1.Pod, bool)
	mayRun func(uid string) bool
}

var _ Pods = (*podSource)(nil)

func (f *podSource) setCallbacks(active func() ([]*corev1.Pod, bool), mayRun func(uid string) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.active, f.mayRun = active, mayRun
}

func (f *podSource) getCallbacks() (active func() ([]*corev1.Pod, bool), mayRun func(uid string) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.active, f.mayRun
}

// Active returns the pods whose requests count, and whether all pod sources have reported. Before [Tree.Follow], it returns
// no pods and false.
func (f *podSource) Active() (pods []*corev1.Pod, complete bool) {
	if active, _ := f.getCallbacks(); active != nil {
		return active()
	}
	return nil, false
}

// MayRun calls the function mayRun that Follow has set. Before Follow, it returns true, so that no cgroup is removed.
func (f *podSource) MayRun(uid string) bool {
	_, mayRun := f.getCallbacks()
	return mayRun == nil || mayRun(uid)
}
