// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package mailbox_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/internal/lifecycle/mailbox"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// noted reports whether a note is there, and takes it.
func noted(notes <-chan struct{}) bool {
	select {
	case <-notes:
		return true
	default:
		return false
	}
}

// deletedPod returns a pod that is deleted, with a grace period in seconds.
func deletedPod(seconds int64) *corev1.Pod {
	pod := podtest.Pod("a")
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &metav1.Time{Time: time.Unix(1, 0)}, &seconds
	return pod
}

func TestUpdateSaysWhatHasChanged(t *testing.T) {
	pod := podtest.Pod("a")
	m := mailbox.New(pod)
	m.Update(pod, false)
	require.False(t, noted(m.Notes) || noted(m.Echo), "the same object")

	echo := pod.DeepCopy()
	echo.Status.Phase = corev1.PodRunning
	m.Update(echo, false)
	require.True(t, noted(m.Echo))
	require.False(t, noted(m.Notes), "its status alone")

	failed := echo.DeepCopy()
	failed.Status.Phase = corev1.PodFailed
	m.Update(failed, false)
	require.True(t, noted(m.Notes), "somebody says that it has failed")

	other := failed.DeepCopy()
	other.Spec.Containers[0].Image = "other"
	m.Update(other, true)
	require.True(t, noted(m.Notes))
	now, deleted := m.Wanted()
	require.Same(t, other, now)
	require.False(t, deleted)
}

// A pod that is deleted gets less time, never more.
func TestGraceOnlyShrinks(t *testing.T) {
	m := mailbox.New(podtest.Pod("a"))
	for _, step := range []struct{ given, want int64 }{{20, 20}, {40, 20}, {10, 10}, {20, 10}} {
		m.Update(deletedPod(step.given), false)
		pod, _ := m.Wanted()
		assert.Equal(t, step.want, *pod.DeletionGracePeriodSeconds)
	}
}

// Work ends when what is wanted has made it pointless: a start at a deletion or an eviction, a stop only where there is less
// time for it.
func TestWorkThatHasBecomePointless(t *testing.T) {
	evict := func(grace time.Duration) func(*mailbox.Mailbox) {
		return func(m *mailbox.Mailbox) { m.Evict(podstatus.Eviction{Reason: "Evicted", Grace: grace}) }
	}
	remove := func(m *mailbox.Mailbox) { m.Delete() }
	terminate := func(m *mailbox.Mailbox) { m.Update(deletedPod(30), false) }
	tests := map[string]struct {
		stops bool
		does  func(*mailbox.Mailbox)
		ends  bool
	}{
		"a start, and nobody wants the pod":  {false, remove, true},
		"a stop, and nobody wants the pod":   {true, remove, false},
		"a start, and the pod is deleted":    {false, terminate, true},
		"a start, and the pod is evicted":    {false, evict(0), true},
		"a stop, and the pod is evicted":     {true, evict(0), false},
		"a stop, and there is less time now": {true, evict(time.Second), true},
		"a start, and nothing has changed":   {false, func(*mailbox.Mailbox) {}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := mailbox.New(podtest.Pod("a"))
			work, begun := m.Begin(t.Context())
			m.SetStops(tt.stops)
			tt.does(m)
			assert.Equal(t, tt.ends, work.Err() != nil)
			begun.End()
			assert.Error(t, work.Err())
		})
	}
}

// Whoever evicts hears when the pod is down, and not before the eviction was taken up.
func TestEvictionIsSettled(t *testing.T) {
	m := mailbox.New(podtest.Pod("a"))
	m.Settle()
	first := m.Evict(podstatus.Eviction{Reason: "Evicted"})
	require.True(t, m.EvictionAsked())
	m.Settle()
	require.False(t, noted(first), "the pod was down before: not for this eviction")
	require.Equal(t, "Evicted", m.TakeEviction().Reason)
	require.Nil(t, m.TakeEviction())
	second := m.Evict(podstatus.Eviction{Reason: "Preempting", Grace: time.Second})
	require.Equal(t, "Preempting", m.TakeEviction().Reason)
	m.Settle()
	<-first
	<-second
	require.False(t, m.EvictionAsked())

	third := m.Evict(podstatus.Eviction{Reason: "Evicted"})
	m.End()
	<-third
	<-m.Evict(podstatus.Eviction{Reason: "Evicted"})
}

// Whoever has what a pod left in the runtime removed hears when it is gone, and those who ask while it is going hear the same.
func TestTrimIsAnswered(t *testing.T) {
	m := mailbox.New(podtest.Pod("a"))
	m.Trimmed() // nobody has asked
	require.False(t, m.TrimAsked())
	first, second := m.Trim(), m.Trim()
	require.True(t, noted(m.Notes))
	require.True(t, m.TrimAsked())
	require.False(t, noted(first))
	m.Trimmed()
	<-first
	<-second
	require.False(t, m.TrimAsked())

	third := m.Trim()
	m.End()
	<-third
	<-m.Trim()
}

// The deletion of a pod is revoked only if its source lists the unchanged pod again, and still does.
func TestRestartRevokesADeletion(t *testing.T) {
	pod := podtest.Pod("a")
	m := mailbox.New(pod)
	require.False(t, m.Restart(), "it is not deleted")
	m.Delete()
	require.True(t, noted(m.Notes))
	require.False(t, m.ListedAgain() || m.Restart())

	changed := pod.DeepCopy()
	changed.Labels = map[string]string{"version": "2"}
	m.Update(changed, false)
	require.False(t, m.ListedAgain(), "another pod")

	again := pod.DeepCopy()
	again.Annotations = map[string]string{"kubernetes.io/config.seen": "2026-05-04T03:02:01Z"}
	m.Update(again, false)
	require.True(t, m.ListedAgain())
	m.Delete()
	require.True(t, noted(m.Notes))
	require.False(t, m.ListedAgain() || m.Restart(), "it is deleted again")

	m.Update(again, false)
	require.True(t, m.Restart())
	wanted, deleted := m.Wanted()
	require.Same(t, again, wanted)
	require.False(t, deleted)
}
