// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
)

func TestReadBudgetReservesReads(t *testing.T) {
	var b readBudget
	now := time.Unix(1000, 0)
	take := func(most time.Duration) (time.Duration, bool) { return b.reserveRead(now, most) }
	for range podReadBurst {
		wait, ok := take(0)
		require.True(t, ok)
		require.Zero(t, wait)
	}
	_, ok := take(podReadInterval - 1)
	require.False(t, ok)
	for i := range 3 {
		wait, ok := take(time.Second)
		require.True(t, ok)
		require.Equal(t, time.Duration(i+1)*podReadInterval, wait)
	}
	require.False(t, b.isFull(now))
	now = now.Add(podReadInterval * (podReadBurst + 3))
	require.True(t, b.isFull(now))
	wait, ok := take(0)
	require.True(t, ok)
	require.Zero(t, wait)
}

// manyMaps returns a pod with volumes of config maps on the server.
func manyMaps(t *testing.T, w *world, name string, count int) *corev1.Pod {
	t.Helper()
	p := pod(name, corev1.PodSpec{})
	for i := range count {
		object := fmt.Sprintf("%s-%d", name, i)
		require.NoError(t, w.server.Put(configMap(object, "1")))
		p.Spec.Volumes = append(p.Spec.Volumes, podWithVolume(object).Spec.Volumes...)
	}
	return p
}

// Existing config maps without a watch are read at each refresh of a volume. Those of one pod must use up neither the requests of
// the node nor those of another pod in the same namespace.
func TestDirectReadsOfPodHaveRateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, ObjectsOptions{}, true)
		v := w.Volumes()
		const minutes = 5
		many, good := manyMaps(t, w, "many", 600), manyMaps(t, w, "good", maxPodWatches+50)
		w.Retain([]*corev1.Pod{many, good})
		stop := make(chan struct{})
		var group sync.WaitGroup
		var next, read, refused atomic.Int64
		for range 16 { // as many goroutines as package volume runs steps
			group.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					o := many.Spec.Volumes[int(next.Add(1))%len(many.Spec.Volumes)].ConfigMap.Name
					_, err := v.ConfigMap(t.Context(), "shop", o)
					if isReadBudgetError(err) {
						assert.False(t, isUnavailable(err), "the error is not that of an unavailable API server")
						refused.Add(1)
						time.Sleep(50 * time.Millisecond)
						continue
					}
					assert.NoError(t, err)
					read.Add(1)
					time.Sleep(50 * time.Millisecond) // reads of a watched config map send no request
				}
			})
		}
		time.Sleep(time.Minute)
		w.server.ForgetRequests()
		for range minutes {
			began := time.Now()
			for i := range good.Spec.Volumes {
				_, err := v.ConfigMap(t.Context(), "shop", good.Spec.Volumes[i].ConfigMap.Name)
				require.NoError(t, err)
			}
			require.Less(t, time.Since(began), 5*time.Second)
			time.Sleep(time.Minute - time.Since(began))
		}
		requests := w.server.CountRequests(apiservertest.Match{Verb: "get", Resource: "configmaps"})
		close(stop)
		group.Wait()
		t.Logf("%d requests, %d reads, %d refused", requests, read.Load(), refused.Load())
		require.LessOrEqual(t, requests, minutes*(60*int(time.Second/podReadInterval)+50)+podReadBurst)
		require.Positive(t, refused.Load())
	})
}

// A volume may contain more objects than the budget permits at once: they are read one after another.
func TestDirectReadsInSuccessionWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, ObjectsOptions{}, true)
		many := manyMaps(t, w, "many", 300)
		w.Retain([]*corev1.Pod{many})
		began := time.Now()
		for i := range many.Spec.Volumes {
			_, err := w.Volumes().ConfigMap(t.Context(), "shop", many.Spec.Volumes[i].ConfigMap.Name)
			require.NoError(t, err)
		}
		require.Less(t, time.Since(began), 30*time.Second)
	})
}
