// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/mounttest"
	"github.com/seed81659283/nodeagent/internal/podtest"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/pleg"
	"github.com/seed81659283/nodeagent/volume"
)

// podAgent is an agent on a runtime in memory, whose pods have volumes on disk.
type podAgent struct {
	t          *testing.T
	rt         *critest.Runtime
	volumes    *volume.Volumes
	reconciler *lifecycle.Reconciler

	mu       sync.Mutex // guards the fields below
	statuses map[string]*corev1.PodStatus
	removed  map[string]bool
}

func newPodAgent(t *testing.T, o volume.Options) *podAgent {
	w := &podAgent{t: t, rt: critest.New(critest.Options{}), statuses: map[string]*corev1.PodStatus{}, removed: map[string]bool{}}
	var err error
	w.volumes, err = volume.New(o)
	require.NoError(t, err)
	generator := pleg.New(w.rt, pleg.Options{})
	w.reconciler, err = lifecycle.New(w.rt, generator, lifecycle.Options{
		Owner: "test", Volumes: w.volumes,
		Hooks: lifecycle.Hooks{
			StatusChanged: func(pod *corev1.Pod, st *corev1.PodStatus) {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.statuses[pod.Name] = st
			},
			PodRemoved: func(pod cri.PodIdentity) {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.removed[pod.Name] = true
			},
		},
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for _, run := range []func(context.Context) error{generator.Run, w.volumes.Run, w.reconciler.Run} {
		wg.Go(func() { assert.NoError(t, run(ctx)) })
	}
	t.Cleanup(func() { cancel(); wg.Wait() })
	return w
}

func (w *podAgent) setPods(pods ...*corev1.Pod) {
	w.t.Helper()
	require.NoError(w.t, w.reconciler.Set(lifecycle.PodSet{Source: "test", Pods: pods}))
}

// await waits until condition returns true, and returns the elapsed time. After limit, the test fails with the given message.
func (w *podAgent) await(limit time.Duration, message string, condition func() bool) time.Duration {
	w.t.Helper()
	began := time.Now()
	require.Eventually(w.t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return condition()
	}, limit, time.Millisecond, message)
	return time.Since(began)
}

func (w *podAgent) allRunning(names ...string) func() bool {
	return func() bool {
		for _, name := range names {
			if st := w.statuses[name]; st == nil || st.Phase != corev1.PodRunning {
				return false
			}
		}
		return true
	}
}

// renamePod changes the name of p to name, and its UID to "uid-" plus name. It returns p.
func renamePod(p *corev1.Pod, name string) *corev1.Pod {
	p.Name, p.UID = name, types.UID("uid-"+name)
	return p
}

// The FUSE file system of one volume has no server. Fifty other pods start as fast as without it, and the pod is deleted in
// bounded time.
func TestHungServerDelaysOnlyItsPod(t *testing.T) {
	mounttest.Need(t)
	createPods := func(t *testing.T, dead string) time.Duration {
		m, err := newObjects()
		require.NoError(t, err)
		o := localOptions(t.TempDir(), m)
		o.StepTimeout = time.Second // less than the time in which a file system must respond
		w := newPodAgent(t, o)
		var pods []*corev1.Pod
		if dead != "" {
			for name, typ := range map[string]string{"typed": "type: Directory", "untyped": "type: ''"} {
				pods = append(pods, renamePod(podtest.Pod(t, "volumes: [{name: v, hostPath: {path: "+dead+", "+typ+"}}]",
					"{volumeMounts: [{name: v, mountPath: /v}]}"), name))
			}
			w.setPods(pods...)
			time.Sleep(200 * time.Millisecond) // the pods with the hung volume are the first
		}
		names := make([]string, 50)
		for i := range names {
			names[i] = fmt.Sprint("p", i)
			pods = append(pods, renamePod(podWithFiveVolumes(t, ""), names[i]))
		}
		w.setPods(pods...)
		took := w.await(time.Minute, "fifty pods run", w.allRunning(names...))
		none := func() {
			w.setPods()
			w.await(time.Minute, "all pods are removed", func() bool { return len(w.removed) == len(pods) })
		}
		if dead == "" {
			none()
			return took
		}
		w.await(time.Minute, "both pods are Pending with an error of their volume", func() bool {
			for _, name := range []string{"typed", "untyped"} {
				st := w.statuses[name]
				if st == nil || st.Phase != corev1.PodPending || w.volumes.WaitError("uid-"+name) == nil {
					return false
				}
			}
			return true
		})
		w.await(time.Minute, "the error names the unresponsive file system", func() bool {
			err := w.volumes.WaitError("uid-typed")
			return err != nil && strings.Contains(err.Error(), "the file system does not answer")
		})
		w.setPods(pods[2:]...)
		removed := w.await(time.Minute, "both pods are removed", func() bool { return w.removed["typed"] && w.removed["untyped"] })
		assert.Less(t, removed, 30*time.Second)
		require.NoDirExists(t, filepath.Join(o.Root, "uid-typed"))
		none()
		return took
	}
	alone := createPods(t, "")
	dead := filepath.Join(t.TempDir(), "dead")
	require.NoError(t, os.Mkdir(dead, 0o755))
	abort := mounttest.DeadFUSE(t, dead)
	beside := createPods(t, dead)
	abort()
	t.Logf("fifty pods run after %v, and with two hung pods after %v", alone, beside)
	assert.Less(t, beside, 2*alone+20*time.Second)
}
