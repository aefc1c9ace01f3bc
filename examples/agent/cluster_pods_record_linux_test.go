// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/controlplane"
)

// podVersion is a version of a Pod object as a watch of the API server reports it.
type podVersion struct {
	deleted bool // the last version of a deleted object
	pod     corev1.Pod
}

// podHistory has the versions of the pods of one name, in the order in which the API server stored them, and their events.
type podHistory struct {
	versions []podVersion
	events   []corev1.Event
}

// last returns the newest version. ok is false if there is no object.
func (h podHistory) last() (pod corev1.Pod, ok bool) {
	if len(h.versions) == 0 {
		return pod, false
	}
	v := h.versions[len(h.versions)-1]
	return v.pod, !v.deleted
}

// podKey is the namespace and the name of a pod.
type podKey struct{ namespace, name string }

// podRecorder records every version of every pod of a cluster, and every event about a pod.
type podRecorder struct {
	mu        sync.Mutex
	histories map[podKey]*podHistory
}

// startRecorder starts a recorder, which stops with the test.
func startRecorder(t *testing.T, client *controlplane.Client) *podRecorder {
	t.Helper()
	r := &podRecorder{histories: map[podKey]*podHistory{}}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	t.Cleanup(func() { cancel(); wg.Wait() })
	for path, record := range map[string]func(controlplane.Event) error{"/api/v1/pods": r.recordPod, "/api/v1/events": r.recordEvent} {
		wg.Go(func() {
			for ctx.Err() == nil {
				_ = client.Watch(ctx, path+"?timeoutSeconds=3600", record) // the API server may close a watch at any time
				select {
				case <-ctx.Done():
				case <-time.After(100 * time.Millisecond):
				}
			}
		})
	}
	return r
}

// recordPod records a version of a pod, unless it is recorded already.
func (r *podRecorder) recordPod(e controlplane.Event) error {
	v := podVersion{deleted: e.Type == "DELETED"}
	if err := json.Unmarshal(e.Object, &v.pod); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.history(podKey{v.pod.Namespace, v.pod.Name})
	if !slices.ContainsFunc(h.versions, func(old podVersion) bool {
		return old.pod.ResourceVersion == v.pod.ResourceVersion && old.deleted == v.deleted
	}) {
		h.versions = append(h.versions, v)
	}
	return nil
}

// recordEvent records an event about a pod.
func (r *podRecorder) recordEvent(e controlplane.Event) error {
	var event corev1.Event
	if err := json.Unmarshal(e.Object, &event); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if event.InvolvedObject.Kind == "Pod" && e.Type != "DELETED" {
		h := r.history(podKey{event.InvolvedObject.Namespace, event.InvolvedObject.Name})
		h.events = append(h.events, event)
	}
	return nil
}

// history returns the history of a pod. r.mu is held.
func (r *podRecorder) history(key podKey) *podHistory {
	if r.histories[key] == nil {
		r.histories[key] = &podHistory{}
	}
	return r.histories[key]
}

// snapshot returns a copy of the history of a pod.
func (r *podRecorder) snapshot(key podKey) podHistory {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.history(key)
	return podHistory{slices.Clone(h.versions), slices.Clone(h.events)}
}

// The API server may report a version twice, and events of other objects: both leave the history unchanged.
func TestPodRecorder(t *testing.T) {
	r := &podRecorder{histories: map[podKey]*podHistory{}}
	event := func(kind, text string) controlplane.Event {
		return controlplane.Event{Type: kind, Object: json.RawMessage(text)}
	}
	for _, e := range []controlplane.Event{
		event("ADDED", `{"metadata":{"namespace":"a","name":"p","resourceVersion":"1"}}`),
		event("ADDED", `{"metadata":{"namespace":"a","name":"p","resourceVersion":"1"}}`),
		event("DELETED", `{"metadata":{"namespace":"a","name":"p","resourceVersion":"2"}}`),
	} {
		require.NoError(t, r.recordPod(e))
	}
	require.NoError(t, r.recordEvent(event("ADDED", `{"reason":"R","involvedObject":{"kind":"Pod","namespace":"a","name":"p"}}`)))
	require.NoError(t, r.recordEvent(event("ADDED", `{"reason":"R","involvedObject":{"kind":"Node","name":"p"}}`)))
	h := r.snapshot(podKey{"a", "p"})
	require.Len(t, h.versions, 2)
	require.Len(t, h.events, 1)
	_, ok := h.last()
	require.False(t, ok)
	require.Error(t, r.recordPod(event("ADDED", `{`)))
	require.Error(t, r.recordEvent(event("ADDED", `{`)))
}
