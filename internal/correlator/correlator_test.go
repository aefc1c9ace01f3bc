// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package correlator_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/internal/correlator"
)

var start = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// newEvent returns an event of a pod, as a recorder creates it.
func newEvent(pod, message string, at time.Time) *corev1.Event {
	t := metav1.Time{Time: at}
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: fmt.Sprintf("%s.%x", pod, at.UnixNano()), Namespace: "default"},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: pod, UID: types.UID(pod)},
		Type:           corev1.EventTypeWarning, Reason: "Failed", Message: message, Count: 1, FirstTimestamp: t, LastTimestamp: t,
	}
}

func TestRepeatedEventIsCounted(t *testing.T) {
	c := correlator.New()
	first := c.Correlate(newEvent("web", "x", start), start)
	assert.Nil(t, first.Patch)
	assert.EqualValues(t, 1, first.Event.Count)

	again := newEvent("web", "x", start.Add(time.Minute))
	second := c.Correlate(again, start.Add(time.Minute))
	assert.JSONEq(t, `{"count":2,"lastTimestamp":"2026-05-01T12:01:00Z","message":"x"}`, string(second.Patch))
	assert.Equal(t, first.Event.Name, second.Event.Name)
	assert.Equal(t, start, second.Event.FirstTimestamp.Time)
	assert.EqualValues(t, 1, again.Count, "Correlate does not modify its argument")

	other := c.Correlate(newEvent("db", "x", start), start)
	assert.Nil(t, other.Patch, "an event of another object is not combined")
}

func TestEventsAreCombinedFromTenthMessage(t *testing.T) {
	c := correlator.New()
	at := start
	for i := range 9 {
		r := c.Correlate(newEvent("web", fmt.Sprint("message ", i), at), at)
		assert.Nil(t, r.Patch)
		assert.NotContains(t, r.Event.Message, "combined")
		at = at.Add(5 * time.Minute)
	}
	tenth := c.Correlate(newEvent("web", "message 9", at), at)
	assert.Equal(t, "(combined from similar events): message 9", tenth.Event.Message)
	assert.EqualValues(t, 1, tenth.Event.Count)
	assert.Nil(t, tenth.Patch)
	more := c.Correlate(newEvent("web", "message 10", at), at)
	assert.Equal(t, tenth.Event.Name, more.Event.Name)
	assert.Contains(t, string(more.Patch), `"count":2`)
	assert.Contains(t, string(more.Patch), "similar events): message 10")
	known := c.Correlate(newEvent("web", "message 3", at), at)
	assert.Contains(t, string(known.Patch), `"count":2`)
	assert.Contains(t, string(known.Patch), `"message":"message 3"`)

	at = at.Add(correlator.SimilarWithin + time.Nanosecond)
	assert.Equal(t, "message 11", c.Correlate(newEvent("web", "message 11", at), at).Event.Message, "a group without recent events starts again")
}

func TestEventsOfObjectAreLimited(t *testing.T) {
	c := correlator.New()
	send := func(kind, pod string, at time.Time) bool {
		e := newEvent(pod, "x", at)
		e.Type = kind
		return !c.Correlate(e, at).Skip
	}
	for range correlator.Burst {
		require.True(t, send(corev1.EventTypeWarning, "web", start))
	}
	assert.False(t, send(corev1.EventTypeWarning, "web", start))
	assert.True(t, send(corev1.EventTypeNormal, "web", start), "events of another type have their own limit")
	assert.True(t, send(corev1.EventTypeWarning, "db", start), "events of another object have their own limit")
	assert.False(t, send(corev1.EventTypeWarning, "web", start.Add(correlator.Refill-time.Second)))
	assert.True(t, send(corev1.EventTypeWarning, "web", start.Add(correlator.Refill)))
	assert.False(t, send(corev1.EventTypeWarning, "web", start.Add(correlator.Refill)))
	r := c.Correlate(newEvent("web", "x", start.Add(3*correlator.Refill)), start.Add(3*correlator.Refill))
	assert.EqualValues(t, correlator.Burst+5, r.Event.Count, "skipped events are counted")
}

// Events of many objects, or with long messages, do not use much memory: the oldest entries are removed.
func TestMemoryIsBounded(t *testing.T) {
	c := correlator.New()
	long := strings.Repeat("x", 1<<10)
	c.Correlate(newEvent("first", "x", start), start)
	for i := range correlator.Remembered {
		c.Correlate(newEvent(fmt.Sprint("pod-", i), long, start), start)
	}
	assert.Nil(t, c.Correlate(newEvent("first", "x", start), start).Patch, "the oldest event was removed")
	last := c.Correlate(newEvent(fmt.Sprint("pod-", correlator.Remembered-1), long, start), start)
	assert.Contains(t, string(last.Patch), `"count":2`)
}
