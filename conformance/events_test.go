// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/internal/correlator"
)

func TestEventCorrelation(t *testing.T) { correlations.Run(t, flags.AtMost(100_000)) }
func FuzzEventCorrelation(f *testing.F) { fuzz(f, correlations) }

// timedEvent is an event, and the time since the previous event.
type timedEvent struct {
	Event *corev1.Event
	After time.Duration
}

// correlations compares the API requests that a series of events causes.
var correlations = conformance.Comparison[[]timedEvent, []string]{
	Make: makeEvents,
	Kubelet: func(in []timedEvent) (out []string) {
		clock := testingclock.NewFakePassiveClock(eventsBegin)
		c := record.NewEventCorrelator(clock)
		for _, h := range in {
			clock.SetTime(clock.Now().Add(h.After))
			result, err := c.EventCorrelate(eventAt(h.Event, clock.Now()))
			switch {
			case err != nil:
				out = append(out, err.Error())
			case result.Skip:
				out = append(out, "skipped")
			default:
				out = append(out, describeRequest(result.Event, result.Patch))
				c.UpdateState(result.Event)
			}
		}
		return out
	},
	Ours: func(in []timedEvent) (out []string) {
		c, now := correlator.New(), eventsBegin
		for _, h := range in {
			now = now.Add(h.After)
			if result := c.Correlate(eventAt(h.Event, now), now); result.Skip {
				out = append(out, "skipped")
			} else {
				out = append(out, describeRequest(result.Event, result.Patch))
			}
		}
		return out
	},
	Exceptions: []conformance.Exception[[]timedEvent, []string]{{
		Name:   "known message after the tenth",
		Reason: "after ten messages, each of the first nine is still recorded as its own event; client-go forgets one of them at random",
		When: func(in []timedEvent) bool {
			seen, repeated := map[string]bool{}, false
			for _, h := range in {
				repeated = repeated || seen[h.Event.Message]
				seen[h.Event.Message] = true
			}
			return repeated && len(seen) >= correlator.SimilarMessages
		},
	}},
}

var eventsBegin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// eventAt returns e with the name and the times that a recorder sets at now.
func eventAt(e *corev1.Event, now time.Time) *corev1.Event {
	out := e.DeepCopy()
	out.Name = fmt.Sprintf("%s.%x", e.InvolvedObject.Name, now.UnixNano())
	out.FirstTimestamp, out.LastTimestamp = metav1.NewTime(now), metav1.NewTime(now)
	return out
}

// describeRequest describes the request to the API server.
func describeRequest(e *corev1.Event, patch []byte) string {
	if patch != nil {
		return "patch " + e.Name + " " + string(patch)
	}
	return "create " + string(jsonOf(e))
}

// makeEvents returns events of a few pods. Most inputs either repeat messages, or have a new one in each event.
func makeEvents(c *conformance.Choices) (out []timedEvent) {
	repeats := conformance.Pick(c, 1, 1, 1, 0, 0, 0, 8) // one in repeats events repeats a message; 0: none
	for i := range 5 + c.Int(30) {
		message := fmt.Sprint("message ", i)
		if repeats > 0 && c.OneIn(repeats) {
			message = fmt.Sprint("message ", c.Int(4))
		}
		pod := conformance.Pick(c, "web", "web", "web", "db")
		out = append(out, timedEvent{
			After: time.Duration(conformance.Pick(c, 0, 1, 1, 30, 299, 300, 301, 599, 600, 601)) * time.Second * time.Duration(conformance.Pick(c, 0, 0, 1)),
			Event: &corev1.Event{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default"},
				InvolvedObject: corev1.ObjectReference{
					Kind: "Pod", APIVersion: "v1", Namespace: "default", Name: pod, UID: types.UID(pod),
					FieldPath: conformance.Pick(c, "", "", "spec.containers{main}"),
				},
				Type:    conformance.Pick(c, corev1.EventTypeWarning, corev1.EventTypeWarning, corev1.EventTypeNormal),
				Reason:  conformance.Pick(c, "Failed", "Failed", "Failed", "BackOff"),
				Message: message, Count: 1, Source: corev1.EventSource{Component: "kubelet", Host: strings.Repeat("n", c.Int(2))},
				ReportingController: "kubelet", ReportingInstance: "n1",
			},
		})
		if repeats > 1 { // one pod and reason, without pauses, so that there are ten messages
			h := &out[len(out)-1]
			h.After, h.Event.InvolvedObject.Name, h.Event.InvolvedObject.UID = 0, "web", "web"
			h.Event.Type, h.Event.Reason, h.Event.Source.Host = corev1.EventTypeWarning, "Failed", ""
		}
	}
	return out
}
