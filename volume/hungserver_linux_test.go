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

	mu       sync.Mutex // guards what follows
	statuses map[string]*corev1.PodStatus
	gone     map[string]bool
}

func newPodAgent(t *testing.T, o volume.Options) *podAgent {
	w := &podAgent{t: t, rt: critest.New(critest.Options{}), statuses: map[string]*corev1.PodStatus{}, gone: map[string]bool{}}
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
				w.gone[pod.Name] = true
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

func (w *podAgent) set(pods ...*corev1.Pod) {
	w.t.Helper()
	require.NoError(w.t, w.reconciler.Set(lifecycle.PodSet{Source: "test", Pods: pods}))
}

// await waits until holds returns true, and returns the time that this took. The test fails with the text what after limit.
func (w *podAgent) await(limit time.Duration, what string, holds func() bool) time.Duration {
	w.t.Helper()
	began := time.Now()
	require.Eventually(w.t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return holds()
	}, limit, time.Millisecond, what)
	return time.Since(began)
}

func (w *podAgent) running(names ...string) func() bool {
	return func() bool {
		for _, name := range names {
			if st := w.statuses[name]; st == nil || st.Phase != corev1.PodRunning {
				return false
			}
		}
		return true
	}
}

// withName changes the name of p to name, and its UID to "uid-" plus name. It returns p.
func withName(p *corev1.Pod, name string) *corev1.Pod {
	p.Name, p.UID = name, types.UID("uid-"+name)
	return p
}

// The FUSE file system of one volume has no server. Fifty other pods start as fast as without it, and the pod is deleted in
// bounded time.
func TestHungServerDelaysOnlyItsPod(t *testing.T) {
	mounttest.Need(t)
	crowd := func(t *testing.T, dead string) time.Duration {
		m, err := newObjects()
		require.NoError(t, err)
		o := localOptions(t.TempDir(), m)
		o.StepTimeout = time.Second // less than a file system has to answer
		w := newPodAgent(t, o)
		var pods []*corev1.Pod
		if dead != "" {
			for name, typ := range map[string]string{"typed": "type: Directory", "untyped": "type: ''"} {
				pods = append(pods, withName(podtest.Pod(t, "volumes: [{name: v, hostPath: {path: "+dead+", "+typ+"}}]",
					"{volumeMounts: [{name: v, mountPath: /v}]}"), name))
			}
			w.set(pods...)
			time.Sleep(200 * time.Millisecond) // so that they are first
		}
		names := make([]string, 50)
		for i := range names {
			names[i] = fmt.Sprint("p", i)
			pods = append(pods, withName(podWithFiveVolumes(t, ""), names[i]))
		}
		w.set(pods...)
		took := w.await(time.Minute, "fifty pods run", w.running(names...))
		none := func() {
			w.set()
			w.await(time.Minute, "all are gone", func() bool { return len(w.gone) == len(pods) })
		}
		if dead == "" {
			none()
			return took
		}
		w.await(time.Minute, "the pods say why they wait", func() bool {
			for _, name := range []string{"typed", "untyped"} {
				st := w.statuses[name]
				if st == nil || st.Phase != corev1.PodPending || w.volumes.WaitError("uid-"+name) == nil {
					return false
				}
			}
			return true
		})
		w.await(time.Minute, "with the cause", func() bool {
			err := w.volumes.WaitError("uid-typed")
			return err != nil && strings.Contains(err.Error(), "the file system does not answer")
		})
		w.set(pods[2:]...)
		gone := w.await(time.Minute, "they go", func() bool { return w.gone["typed"] && w.gone["untyped"] })
		assert.Less(t, gone, 30*time.Second)
		require.NoDirExists(t, filepath.Join(o.Root, "uid-typed"))
		none()
		return took
	}
	alone := crowd(t, "")
	dead := filepath.Join(t.TempDir(), "dead")
	require.NoError(t, os.Mkdir(dead, 0o755))
	abort := mounttest.DeadFUSE(t, dead)
	beside := crowd(t, dead)
	abort()
	t.Logf("fifty pods run after %v, beside two that wait after %v", alone, beside)
	assert.Less(t, beside, 2*alone+20*time.Second)
}
