// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"io/fs"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
)

// Five pods with 1,000 missing optional config maps each take no watch from another pod, and send few requests.
func TestPodWatchesAtMostItsShareOfObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, ObjectsOptions{}, true)
		v := w.Volumes()
		var pods []*corev1.Pod
		for p := range 5 {
			many := pod(fmt.Sprint("many", p), corev1.PodSpec{})
			for i := range 1000 {
				many.Spec.Volumes = append(many.Spec.Volumes, podWithVolume(fmt.Sprintf("absent-%d-%d", p, i)).Spec.Volumes...)
			}
			pods = append(pods, many)
		}
		good := podWithVolume("good")
		good.Namespace = "other"
		config := configMap("good", "1")
		config.Namespace = "other"
		require.NoError(t, w.server.Put(config))
		readAll := func() {
			t.Helper()
			var group sync.WaitGroup
			for _, pod := range pods {
				group.Go(func() {
					for i := range pod.Spec.Volumes {
						_, err := v.ConfigMap(t.Context(), "shop", pod.Spec.Volumes[i].ConfigMap.Name)
						for ; isReadBudgetError(err); _, err = v.ConfigMap(t.Context(), "shop", pod.Spec.Volumes[i].ConfigMap.Name) {
							time.Sleep(time.Second)
						}
						assert.ErrorIs(t, err, fs.ErrNotExist)
					}
				})
			}
			group.Wait()
		}
		readAll() // before the pods are listed
		synctest.Wait()
		require.LessOrEqual(t, w.server.OpenWatches("configmaps"), maxPodWatches)
		w.Retain(append(pods, good))
		w.server.ForgetRequests()
		for range 10 {
			time.Sleep(time.Minute)
			readAll()
			o, err := v.ConfigMap(t.Context(), "other", "good")
			require.NoError(t, err)
			require.Equal(t, "1", o.Data["k"])
		}
		synctest.Wait()
		require.Equal(t, 5*maxPodWatches+1, w.server.OpenWatches("configmaps"))
		require.Less(t, w.server.CountRequests(apiservertest.Match{Verb: "get", Resource: "configmaps"}), 25_000, "fewer than half of the 50,000 reads send a request")

		config = configMap("absent-4-999", "1")
		require.NoError(t, w.server.Put(config))
		time.Sleep(9 * time.Minute)
		o, err := v.ConfigMap(t.Context(), "shop", "absent-4-999")
		require.NoError(t, err)
		require.Equal(t, "1", o.Data["k"])
	})
}
