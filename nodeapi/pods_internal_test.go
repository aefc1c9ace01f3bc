// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func pods(n int) (all []*corev1.Pod) {
	for i := range n {
		all = append(all, &corev1.Pod{
			TypeMeta:   metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"},
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("<%d>", i), Labels: map[string]string{"app": "web"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "i"}}},
		})
	}
	return all
}

// The list equals an encoded v1.PodList, with any number of cached pods.
func TestEncodedPodListEqualsPodList(t *testing.T) {
	all := pods(4)
	var e podEncoder
	for _, listed := range [][]*corev1.Pod{nil, all[:1], all[:3], all[1:], {all[3], all[0], all[3]}, all[:3], {}} {
		list := corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}}
		for _, p := range listed {
			list.Items = append(list.Items, *p)
			list.Items[len(list.Items)-1].TypeMeta = metav1.TypeMeta{}
		}
		want, err := json.Marshal(&list)
		require.NoError(t, err)
		got, err := e.encodeList(listed)
		require.NoError(t, err)
		assert.Equal(t, string(want)+"\n", string(got))
	}
	assert.Equal(t, "Pod", all[0].Kind, "listed pods are not modified")
}

// A pod is encoded once. Pods that are not listed any more are dropped, and all pods are dropped a while after the last request.
func TestEncodedPodsAreCachedWhileListed(t *testing.T) {
	all := pods(2)
	var e podEncoder
	list := func(pods []*corev1.Pod) {
		_, err := e.encodeList(pods)
		require.NoError(t, err)
	}
	list(all)
	first := &e.cached[all[1]][0]
	list(all[1:])
	assert.Same(t, first, &e.cached[all[1]][0])
	assert.Len(t, e.cached, 1)
	require.True(t, e.expiry.Stop(), "a timer drops the cached pods")
	e.dropCache()
	list(all)
	assert.NotSame(t, first, &e.cached[all[1]][0])
	assert.True(t, e.expiry.Stop(), "the next request starts the timer again")
}

func BenchmarkPods(b *testing.B) {
	all := pods(100)
	for _, kept := range []bool{false, true} {
		b.Run(fmt.Sprintf("kept=%v", kept), func(b *testing.B) {
			var e podEncoder
			for b.Loop() {
				if !kept {
					e.cached = nil
				}
				if _, err := e.encodeList(all); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A pod has an unchanged pointer until its spec or status changes; a served pod is never modified.
func TestPodsWithStatusKeepsPointerOfUnchangedPod(t *testing.T) {
	type state struct {
		pod    *corev1.Pod
		status *corev1.PodStatus
	}
	all := pods(2)
	all[1].Status.Message = "its own"
	states := []state{{all[0], &corev1.PodStatus{Phase: corev1.PodPending}}, {all[1], nil}, {nil, &corev1.PodStatus{}}}
	p := PodsWithStatus(func(yield func(*corev1.Pod, *corev1.PodStatus) bool) {
		for _, s := range states {
			if !yield(s.pod, s.status) {
				return
			}
		}
	})
	first, second := p.Pods(), p.Pods()
	require.Len(t, first, 2)
	assert.Equal(t, corev1.PodPending, first[0].Status.Phase)
	assert.Equal(t, "its own", first[1].Status.Message)
	assert.Same(t, first[0], second[0])
	assert.Same(t, first[1], second[1])

	states[0].status = &corev1.PodStatus{Phase: corev1.PodRunning}
	states[1].pod = pods(1)[0]
	third := p.Pods()
	assert.Equal(t, corev1.PodRunning, third[0].Status.Phase)
	assert.Empty(t, third[1].Status.Message)
	assert.Equal(t, corev1.PodPending, first[0].Status.Phase, "a served pod is not modified")
	assert.Empty(t, all[0].Status.Phase, "the spec of the source is not modified")

	states = nil
	assert.Empty(t, p.Pods())
}
