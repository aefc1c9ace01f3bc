// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/hack/bench/internal/wait"
	"github.com/seed81659283/nodeagent/internal/controlplane"
)

// watcher records when a watch of the API server reported each state.
type watcher struct {
	mu      sync.Mutex             // guards the fields below
	now     map[string]*corev1.Pod // current pods
	running map[string]time.Time   // by pod name: first status with phase Running
	died    map[string]time.Time   // by container ID with its scheme: first status with its termination
}

func newWatcher() *watcher {
	return &watcher{now: map[string]*corev1.Pod{}, running: map[string]time.Time{}, died: map[string]time.Time{}}
}

// run watches the pods of a namespace until ctx ends. If the API server closes the watch, it continues from the last event.
func (w *watcher) run(ctx context.Context, client *controlplane.Client, namespace string) error {
	for version := ""; ; {
		err := client.Watch(ctx, "/api/v1/namespaces/"+namespace+"/pods?resourceVersion="+version, func(e controlplane.Event) error {
			at := time.Now()
			var pod corev1.Pod
			if err := json.Unmarshal(e.Object, &pod); err != nil {
				return err
			}
			if e.Type == "ERROR" {
				return fmt.Errorf("watch pods: %s", e.Object)
			}
			version = pod.ResourceVersion
			w.recordEvent(e.Type, &pod, at)
			return nil
		})
		if !errors.Is(err, io.EOF) {
			return err
		}
		if err := wait.Sleep(ctx, 20*time.Millisecond); err != nil {
			return nil //nolint:nilerr // It is the end that was asked for.
		}
	}
}

// recordEvent records an event.
func (w *watcher) recordEvent(kind string, pod *corev1.Pod, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now[pod.Name] = pod
	if kind == "DELETED" {
		delete(w.now, pod.Name)
	}
	if _, known := w.running[pod.Name]; !known && pod.Status.Phase == corev1.PodRunning {
		w.running[pod.Name] = at
	}
	for _, c := range pod.Status.ContainerStatuses {
		for _, state := range []corev1.ContainerState{c.State, c.LastTerminationState} {
			if state.Terminated != nil && w.died[state.Terminated.ContainerID].IsZero() {
				w.died[state.Terminated.ContainerID] = at
			}
		}
	}
}

// await waits until check returns true. check is called with the watcher locked.
func (w *watcher) await(ctx context.Context, limit time.Duration, what string, alive func() error, check func() bool) error {
	for deadline := time.Now().Add(limit); ; {
		w.mu.Lock()
		done := check()
		w.mu.Unlock()
		if done {
			return nil
		}
		if err := alive(); err != nil {
			return fmt.Errorf("wait until %s: %w", what, err)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("wait until %s: not within %v", what, limit)
		}
		if err := wait.Sleep(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}
