// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podtree

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// Follow has the tree ask these which pods there are, as [Pods] describes them. A tree that [New] has given Pods keeps those.
// A lifecycle.Reconciler calls it for the tree that it is made with, and it may be called at any time.
func (t *Tree) Follow(active func() (pods []*corev1.Pod, complete bool), mayRun func(uid string) bool) {
	if f, ok := t.pods.(*followed); ok {
		f.set(active, mayRun)
		t.Changed()
	}
}

// followed are the pods of whoever a tree follows. As long as it follows nobody, any pod may run.
type followed struct {
	mu     sync.Mutex // guards all below
	active func() ([]*corev1.Pod, bool)
	mayRun func(uid string) bool
}

var _ Pods = (*followed)(nil)

func (f *followed) set(active func() ([]*corev1.Pod, bool), mayRun func(uid string) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.active, f.mayRun = active, mayRun
}

func (f *followed) get() (active func() ([]*corev1.Pod, bool), mayRun func(uid string) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.active, f.mayRun
}

// Active returns the pods whose requests count.
func (f *followed) Active() (pods []*corev1.Pod, complete bool) {
	if active, _ := f.get(); active != nil {
		return active()
	}
	return nil, false
}

// MayRun reports whether anything of a pod runs or may be about to run.
func (f *followed) MayRun(uid string) bool {
	_, mayRun := f.get()
	return mayRun == nil || mayRun(uid)
}
