// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podset_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/internal/lifecycle/podset"
)

// Accept passes the previous pod with this UID to judge, which may return another pod.
func TestAcceptCallsJudgeWithPreviousPod(t *testing.T) {
	a, b := newPod("a"), newPod("b")
	before := podset.Accepted{Set: podset.Set{Source: "file", Pods: []*corev1.Pod{a, b}}}
	changed, added, bad := newPod("a/changed"), newPod("c"), newPod("d")
	asked := map[*corev1.Pod]*corev1.Pod{}
	invalid := errors.New("invalid")
	next, refusals := podset.Accept(before, podset.Set{Source: "file", Pods: []*corev1.Pod{changed, added, bad}, Incomplete: true},
		func(old, pod *corev1.Pod) (*corev1.Pod, error) {
			asked[pod] = old
			switch pod {
			case changed:
				return old, invalid
			case bad:
				return nil, invalid
			}
			return pod, nil
		})
	assert.Equal(t, map[*corev1.Pod]*corev1.Pod{changed: a, added: nil, bad: nil}, asked)
	assert.Equal(t, podset.Accepted{
		Set:     podset.Set{Source: "file", Pods: []*corev1.Pod{a, added}, Incomplete: true},
		Refused: []podset.Refusal{{Pod: bad, Err: invalid}},
	}, next)
	assert.Equal(t, []podset.Refusal{{Pod: changed, Err: invalid}, {Pod: bad, Err: invalid}}, refusals)
	assert.Equal(t, []*corev1.Pod{a, b}, before.Pods, "Accept does not modify the previous set")
}

// A UID may equal the name of another pod.
func TestAcceptUIDEqualToNameOfOtherPod(t *testing.T) {
	odd, b := newPod("x"), newPod("b")
	odd.UID = "default/b"
	next, refusals := podset.Accept(podset.Accepted{}, podset.Set{Pods: []*corev1.Pod{odd, b}},
		func(_, pod *corev1.Pod) (*corev1.Pod, error) { return pod, nil })
	require.Empty(t, refusals)
	assert.Len(t, next.Pods, 2)
}

// A refused new pod is kept as refused until it is deleted. After that its containers are orphaned.
func TestAcceptDropsRefusedPodOnceDeleted(t *testing.T) {
	pod, deleted := newPod("a"), newPod("b")
	deleted.DeletionTimestamp = new(metav1.Now())
	next, refusals := podset.Accept(podset.Accepted{}, podset.Set{Pods: []*corev1.Pod{pod, deleted}},
		func(_, _ *corev1.Pod) (*corev1.Pod, error) { return nil, errors.New("invalid") })
	assert.Len(t, refusals, 2)
	require.Len(t, next.Refused, 1)
	assert.Same(t, pod, next.Refused[0].Pod)
	assert.Empty(t, next.Pods)
}

func TestEmptyMergeIsComplete(t *testing.T) {
	m := podset.EmptyMerge()
	assert.True(t, m.IsComplete())
	assert.Nil(t, m.Pod("a"))
	assert.Empty(t, m.SourceOf("a"))
	assert.False(t, m.IsRefused("a"))
	for pod := range m.Pods() {
		t.Error(pod)
	}
}

func TestNewMergeIsIncomplete(t *testing.T) {
	for _, m := range []*podset.Merge{podset.NewMerge(), podset.NewMerge("file")} {
		assert.False(t, m.IsComplete())
		_, reported := m.LastSet("file")
		assert.False(t, reported)
		assert.False(t, m.IsContested("file"))
	}
}
