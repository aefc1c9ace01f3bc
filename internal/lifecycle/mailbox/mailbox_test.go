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

// hasSignal reports whether notes has a signal or is closed, and receives the signal.
func hasSignal(notes <-chan struct{}) bool {
	select {
	case <-notes:
		return true
	default:
		return false
	}
}

// deletedPod returns a deleted pod with a grace period in seconds.
func deletedPod(seconds int64) *corev1.Pod {
	pod := podtest.Pod("a")
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &metav1.Time{Time: time.Unix(1, 0)}, &seconds
	return pod
}

func TestUpdateSignalsChangedOrStatusEcho(t *testing.T) {
	pod := podtest.Pod("a")
	m := mailbox.New(pod)
	m.Update(pod, false)
	require.False(t, hasSignal(m.Changed) || hasSignal(m.StatusEcho), "the unchanged pod object signals nothing")

	echo := pod.DeepCopy()
	echo.Status.Phase = corev1.PodRunning
	m.Update(echo, false)
	require.True(t, hasSignal(m.StatusEcho))
	require.False(t, hasSignal(m.Changed), "a new status does not signal Changed")

	failed := echo.DeepCopy()
	failed.Status.Phase = corev1.PodFailed
	m.Update(failed, false)
	require.True(t, hasSignal(m.Changed), "a terminal phase that another client has written signals Changed")

	other := failed.DeepCopy()
	other.Spec.Containers[0].Image = "other"
	m.Update(other, true)
	require.True(t, hasSignal(m.Changed))
	now, deleted := m.Desired()
	require.Same(t, other, now)
	require.False(t, deleted)
}

// The grace period of a deleted pod never grows.
func TestUpdateNeverExtendsGracePeriod(t *testing.T) {
	m := mailbox.New(podtest.Pod("a"))
	for _, step := range []struct{ given, want int64 }{{20, 20}, {40, 20}, {10, 10}, {20, 10}} {
		m.Update(deletedPod(step.given), false)
		pod, _ := m.Desired()
		assert.Equal(t, step.want, *pod.DeletionGracePeriodSeconds)
	}
}

// A deletion or eviction cancels a start. It cancels a stop only if the grace period becomes shorter.
func TestWorkCancelledByDeletionAndEviction(t *testing.T) {
	evict := func(grace time.Duration) func(*mailbox.Mailbox) {
		return func(m *mailbox.Mailbox) { m.Evict(podstatus.Eviction{Reason: "Evicted", Grace: grace}) }
	}
	remove := func(m *mailbox.Mailbox) { m.Delete() }
	terminate := func(m *mailbox.Mailbox) { m.Update(deletedPod(30), false) }
	tests := map[string]struct {
		stopping  bool
		change    func(*mailbox.Mailbox)
		cancelled bool
	}{
		"start, no source lists the pod": {false, remove, true},
		"stop, no source lists the pod":  {true, remove, false},
		"start, pod deleted":             {false, terminate, true},
		"start, pod evicted":             {false, evict(0), true},
		"stop, pod evicted":              {true, evict(0), false},
		"stop, shorter grace period":     {true, evict(time.Second), true},
		"stop, longer grace period":      {true, evict(time.Hour), false},
		"start, no change":               {false, func(*mailbox.Mailbox) {}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := mailbox.New(podtest.Pod("a"))
			work, begun := m.StartWork(t.Context())
			m.SetStopping(tt.stopping)
			tt.change(m)
			assert.Equal(t, tt.cancelled, work.Err() != nil)
			begun.End()
			assert.Error(t, work.Err())
		})
	}
}

// The channel that Evict returns closes when the pod is evicted, but not before the worker has accepted the eviction.
func TestEvictChannelClosedByNotifyEvicted(t *testing.T) {
	m := mailbox.New(podtest.Pod("a"))
	m.NotifyEvicted()
	first := m.Evict(podstatus.Eviction{Reason: "Evicted"})
	require.True(t, m.HasNewEviction())
	m.NotifyEvicted()
	require.False(t, hasSignal(first), "NotifyEvicted before AcceptEviction belongs to an earlier eviction")
	require.Equal(t, "Evicted", m.AcceptEviction().Reason)
	require.Nil(t, m.AcceptEviction())
	second := m.Evict(podstatus.Eviction{Reason: "Preempting", Grace: time.Second})
	require.Equal(t, "Preempting", m.AcceptEviction().Reason)
	m.NotifyEvicted()
	<-first
	<-second
	require.False(t, m.HasNewEviction())

	third := m.Evict(podstatus.Eviction{Reason: "Evicted"})
	m.NotifyRemoved()
	<-third
	<-m.Evict(podstatus.Eviction{Reason: "Evicted"})
}

// Two evictions that the worker has not accepted become one: the first reason and the shorter grace period apply, and a final eviction
// replaces a temporary one. Grace period zero is that of the pod, 30 s.
func TestEvictMergesPendingEvictions(t *testing.T) {
	eviction := func(reason string, grace time.Duration, temporary bool) podstatus.Eviction {
		return podstatus.Eviction{Reason: reason, Grace: grace, Temporary: temporary}
	}
	for name, tt := range map[string]struct{ first, second, want podstatus.Eviction }{
		"second is shorter":               {eviction("A", 20*time.Second, false), eviction("B", 5*time.Second, false), eviction("A", 5*time.Second, false)},
		"second is longer":                {eviction("A", 5*time.Second, false), eviction("B", 20*time.Second, false), eviction("A", 5*time.Second, false)},
		"second is longer than the pod's": {eviction("A", 0, false), eviction("B", 5*time.Minute, false), eviction("A", 0, false)},
		"pod's is shorter":                {eviction("A", 5*time.Minute, false), eviction("B", 0, false), eviction("A", 0, false)},
		"final after temporary":           {eviction("A", 0, true), eviction("B", 0, false), eviction("B", 0, false)},
		"temporary after final, shorter":  {eviction("A", 0, false), eviction("B", 5*time.Second, true), eviction("A", 5*time.Second, false)},
		"final after temporary, longer":   {eviction("A", 5*time.Second, true), eviction("B", 20*time.Second, false), eviction("B", 5*time.Second, false)},
	} {
		t.Run(name, func(t *testing.T) {
			pod := podtest.Pod("a")
			pod.Spec.TerminationGracePeriodSeconds = new(int64(30))
			m := mailbox.New(pod)
			m.Evict(tt.first)
			m.Evict(tt.second)
			assert.Equal(t, &tt.want, m.AcceptEviction())
		})
	}
}

// A pod that is not always restarted cannot be evicted temporarily: both evictions are final, and the first reason applies.
func TestEvictOfPodThatIsNotRestartedIsFinal(t *testing.T) {
	pod := podtest.Pod("a")
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	m := mailbox.New(pod)
	m.Evict(podstatus.Eviction{Reason: "A", Temporary: true})
	m.Evict(podstatus.Eviction{Reason: "B"})
	assert.Equal(t, "A", m.AcceptEviction().Reason)
}

// All channels that RequestRuntimeCleanup returns close at once.
func TestRuntimeCleanupChannelClosedByNotify(t *testing.T) {
	m := mailbox.New(podtest.Pod("a"))
	m.NotifyRuntimeClean() // without a request
	require.False(t, m.IsRuntimeCleanupRequested())
	first, second := m.RequestRuntimeCleanup(), m.RequestRuntimeCleanup()
	require.True(t, hasSignal(m.Changed))
	require.True(t, m.IsRuntimeCleanupRequested())
	require.False(t, hasSignal(first))
	m.NotifyRuntimeClean()
	<-first
	<-second
	require.False(t, m.IsRuntimeCleanupRequested())

	third := m.RequestRuntimeCleanup()
	m.NotifyRemoved()
	<-third
	<-m.RequestRuntimeCleanup()
}

// A deletion is revoked only if the source lists the unchanged pod again.
func TestRevokeDeletionNeedsRelistedPod(t *testing.T) {
	pod := podtest.Pod("a")
	m := mailbox.New(pod)
	require.False(t, m.RevokeDeletion(), "a pod that is not deleted has no deletion to revoke")
	m.Delete()
	require.True(t, hasSignal(m.Changed))
	require.False(t, m.IsRelisted() || m.RevokeDeletion())

	changed := pod.DeepCopy()
	changed.Labels = map[string]string{"version": "2"}
	m.Update(changed, false)
	require.False(t, m.IsRelisted(), "a changed pod is not relisted")

	again := pod.DeepCopy()
	again.Annotations = map[string]string{"kubernetes.io/config.seen": "2026-05-04T03:02:01Z"}
	m.Update(again, false)
	require.True(t, m.IsRelisted())
	m.Delete()
	require.True(t, hasSignal(m.Changed))
	require.False(t, m.IsRelisted() || m.RevokeDeletion(), "a second deletion resets the relisting")

	m.Update(again, false)
	require.True(t, m.RevokeDeletion())
	wanted, deleted := m.Desired()
	require.Same(t, again, wanted)
	require.False(t, deleted)
}
