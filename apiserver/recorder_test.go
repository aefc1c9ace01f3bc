// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/apiserver"
	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/kubeapi"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podevents"
)

// runWithRecorder runs a test with a Recorder in virtual time.
func runWithRecorder(t *testing.T, o apiserver.RecorderOptions, test func(t *testing.T, server *apiservertest.Server, r *apiserver.Recorder)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := apiservertest.NewServer(apiservertest.Options{})
		defer server.Close()
		source, err := apiserver.New(server.Config(), apiserver.Options{NodeName: "n1"})
		require.NoError(t, err)
		o.Rand = func() float64 { return 0.5 }
		recorder := source.Recorder(o)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		wg.Go(func() { assert.NoError(t, recorder.Run(ctx)) })
		test(t, server, recorder)
	})
}

func events(server *apiservertest.Server) []*corev1.Event {
	return apiservertest.List[*corev1.Event](server)
}

var web = cri.PodIdentity{UID: "u1", Namespace: "shop", Name: "web"}

func TestRecorderSendsEventsOfPodsAndNode(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "setup"}}, Containers: []corev1.Container{{Name: "main"}},
		EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug"}}},
	}}
	pod.ResourceVersion = "7"
	o := apiserver.RecorderOptions{
		Pod: func(uid string) *corev1.Pod {
			if uid == "u1" {
				return pod
			}
			return nil
		},
		NodeUID: func() types.UID { return "node-uid" },
	}
	runWithRecorder(t, o, func(t *testing.T, server *apiservertest.Server, r *apiserver.Recorder) {
		for path, container := range map[string]string{
			"spec.containers{main}": "main", "spec.initContainers{setup}": "setup", "spec.ephemeralContainers{debug}": "debug",
			"spec.containers{other}": "other", "": "",
		} {
			r.PodEvent(web, podevents.Event{Type: corev1.EventTypeNormal, Reason: "Started", Message: "of " + container, Container: container})
			synctest.Wait()
			all := events(server)
			e := all[len(all)-1]
			assert.Equal(t, path, e.InvolvedObject.FieldPath)
			assert.Equal(t, corev1.EventSource{Component: "kubelet", Host: "n1"}, e.Source)
			assert.Equal(t, "shop", e.Namespace)
			assert.Equal(t, types.UID("u1"), e.InvolvedObject.UID)
			assert.Equal(t, "7", e.InvolvedObject.ResourceVersion)
			assert.Equal(t, "of "+container, e.Message)
			assert.EqualValues(t, 1, e.Count)
			require.NoError(t, server.Remove(e))
		}
		annotations := map[string]string{"starved_resource": "memory"}
		r.AnnotatedPodEvent(web, podevents.Event{Type: corev1.EventTypeWarning, Reason: "Evicted", Message: "it was"}, annotations)
		annotations["starved_resource"] = "changed by the caller"
		synctest.Wait()
		evicted := events(server)[0]
		assert.Equal(t, map[string]string{"starved_resource": "memory"}, evicted.Annotations)
		require.NoError(t, server.Remove(evicted))
		r.NodeEvent(corev1.EventTypeWarning, "Rebooted", "it did")
		synctest.Wait()
		e := events(server)[0]
		assert.Equal(t, corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: "n1", UID: "node-uid"}, e.InvolvedObject)
		assert.Equal(t, "default", e.Namespace)
		assert.Equal(t, apiserver.RecorderStats{Recorded: 7, Sent: 7}, r.Stats())
	})
}

func TestRepeatedEventsAreCounted(t *testing.T) {
	runWithRecorder(t, apiserver.RecorderOptions{}, func(t *testing.T, server *apiservertest.Server, r *apiserver.Recorder) {
		backOff := podevents.Event{Type: corev1.EventTypeWarning, Reason: "BackOff", Message: "back-off", Container: "main"}
		for range 3 {
			r.PodEvent(web, backOff)
			time.Sleep(time.Minute)
		}
		all := events(server)
		require.Len(t, all, 1)
		assert.EqualValues(t, 3, all[0].Count)
		assert.Equal(t, 2*time.Minute, all[0].LastTimestamp.Sub(all[0].FirstTimestamp.Time))

		require.NoError(t, server.Remove(all[0])) // as the API server removes events after an hour
		r.PodEvent(web, backOff)
		synctest.Wait()
		require.Len(t, events(server), 1)
		assert.EqualValues(t, 4, events(server)[0].Count)
	})
}

func TestEventDoesNotBlock(t *testing.T) {
	var dropped []error
	o := apiserver.RecorderOptions{EventDropped: func(_ *corev1.Event, why error) { dropped = append(dropped, why) }}
	runWithRecorder(t, o, func(t *testing.T, server *apiservertest.Server, r *apiserver.Recorder) {
		remove := server.Hang("", "events")
		begin := time.Now()
		for i := range 1200 {
			r.PodEvent(cri.PodIdentity{UID: fmt.Sprint(i), Namespace: "shop", Name: fmt.Sprint("pod-", i)}, podevents.Event{Type: "Normal", Reason: "R"})
			if i == 0 {
				synctest.Wait() // the first event is being sent
			}
		}
		assert.Equal(t, begin, time.Now())
		stats := r.Stats()
		assert.Equal(t, 1000, stats.Queued)
		assert.EqualValues(t, 199, stats.Dropped)
		assert.True(t, errors.Is(dropped[0], apiserver.ErrQueueFull))
		remove()
		time.Sleep(time.Minute)
		assert.Len(t, events(server), 1001)
	})
}

func TestEventsAreRetriedWhileAPIServerIsUnavailable(t *testing.T) {
	var why error
	o := apiserver.RecorderOptions{EventDropped: func(_ *corev1.Event, err error) { why = err }}
	runWithRecorder(t, o, func(t *testing.T, server *apiservertest.Server, r *apiserver.Recorder) {
		defer server.Inject(apiservertest.Fault{Match: apiservertest.Match{Resource: "events"}, Disconnect: true, Times: 12})()
		r.PodEvent(web, podevents.Event{Type: "Normal", Reason: "Lost"})
		r.PodEvent(web, podevents.Event{Type: "Normal", Reason: "Late"})
		time.Sleep(100 * time.Second)
		assert.EqualValues(t, 0, r.Stats().Dropped)
		time.Sleep(10 * time.Second)
		assert.EqualValues(t, 1, r.Stats().Dropped, "an event is dropped after twelve attempts")
		assert.Error(t, why)
		require.Len(t, events(server), 1)
		assert.Equal(t, "Late", events(server)[0].Reason)
	})
}

// roundTripperFunc is an http.RoundTripper of a function.
type roundTripperFunc func(*http.Request) (*http.Response, error)

func (f roundTripperFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Before the bootstrap requests wait for a certificate, and time out. An approval may take an hour: no event is lost meanwhile.
func TestEventsWaitForClientCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := apiservertest.NewServer(apiservertest.Options{})
		defer server.Close()
		issued := time.Now().Add(time.Hour)
		requests := 0
		config := server.Config()
		config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripperFunc(func(r *http.Request) (*http.Response, error) {
				if requests++; time.Now().Before(issued) {
					<-r.Context().Done()
					return nil, fmt.Errorf("%w: %w", kubeapi.ErrNoCredentials, r.Context().Err())
				}
				return next.RoundTrip(r)
			})
		})
		source, err := apiserver.New(config, apiserver.Options{NodeName: "n1"})
		require.NoError(t, err)
		recorder := source.Recorder(apiserver.RecorderOptions{})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		recorder.NodeEvent(corev1.EventTypeNormal, "Starting", "Starting kubelet.")
		wg.Go(func() { assert.NoError(t, recorder.Run(ctx)) })
		time.Sleep(time.Hour + time.Minute)
		require.Len(t, events(server), 1)
		assert.Equal(t, "Starting", events(server)[0].Reason)
		assert.Less(t, requests, 400, "each request waits for 10 s")
	})
}

func TestRejectedEventsAreDropped(t *testing.T) {
	runWithRecorder(t, apiserver.RecorderOptions{}, func(t *testing.T, server *apiservertest.Server, r *apiserver.Recorder) {
		remove := server.Fail("create", "events", 403)
		r.PodEvent(web, podevents.Event{Type: "Normal", Reason: "Refused"})
		synctest.Wait()
		remove()
		time.Sleep(time.Hour)
		assert.Empty(t, events(server), "a rejected event is not retried")
		assert.EqualValues(t, 1, r.Stats().Dropped)

		server.Inject(apiservertest.Fault{Match: apiservertest.Match{Resource: "events"}, LoseResponse: true, Times: 1})
		r.PodEvent(web, podevents.Event{Type: "Normal", Reason: "Stored", Message: "and the answer is lost"})
		time.Sleep(time.Minute)
		require.Len(t, events(server), 1)
		assert.EqualValues(t, 1, r.Stats().Sent)
	})
}

func TestTooManyEventsOfObjectAreSkipped(t *testing.T) {
	runWithRecorder(t, apiserver.RecorderOptions{}, func(t *testing.T, server *apiservertest.Server, r *apiserver.Recorder) {
		for i := range 100 {
			r.PodEvent(web, podevents.Event{Type: "Warning", Reason: "Failed", Message: fmt.Sprint("message ", i)})
			time.Sleep(time.Second)
		}
		all := events(server)
		assert.Len(t, all, 10, "nine events, and one that combines the remaining ones")
		assert.Equal(t, 25, server.CountRequests(apiservertest.Match{Resource: "events"}))
		assert.EqualValues(t, 75, r.Stats().Skipped)
	})
}

func TestPodRefusedRecordsErrorOnce(t *testing.T) {
	runWithRecorder(t, apiserver.RecorderOptions{}, func(t *testing.T, server *apiservertest.Server, r *apiserver.Recorder) {
		refused := &lifecycle.RefusedError{Pod: web, Source: apiserver.API, Err: errors.New("pod shop/web: spec.volumes[0].rbd: Forbidden: not supported")}
		for range 60 { // as with each call of Set
			r.PodRefused(refused)
			time.Sleep(time.Second)
		}
		all := events(server)
		require.Len(t, all, 1)
		assert.EqualValues(t, 1, all[0].Count)
		assert.Equal(t, "FailedValidation", all[0].Reason)
		assert.Equal(t, corev1.EventTypeWarning, all[0].Type)
		assert.Contains(t, all[0].Message, "spec.volumes[0].rbd")
		time.Sleep(5 * time.Minute)
		r.PodRefused(refused)
		other := *refused
		other.Err = errors.New("pod shop/web: spec.hostUsers: not supported")
		r.PodRefused(&other)
		synctest.Wait()
		all = events(server)
		require.Len(t, all, 2)
		assert.EqualValues(t, 3, all[0].Count+all[1].Count)
	})
}

// Object names and messages may have any length.
func TestLongNamesAndMessagesAreTruncated(t *testing.T) {
	runWithRecorder(t, apiserver.RecorderOptions{}, func(t *testing.T, server *apiservertest.Server, r *apiserver.Recorder) {
		long := cri.PodIdentity{UID: "u", Namespace: "shop", Name: strings.Repeat("a", 230) + "-" + strings.Repeat("b", 22)}
		r.PodEvent(long, podevents.Event{Type: "Normal", Reason: "R", Message: strings.Repeat("ü", 10_000)})
		r.PodEvent(long, podevents.Event{Type: "Normal", Reason: "R", Message: "a\xffb"})
		synctest.Wait()
		all := events(server)
		require.Len(t, all, 2)
		for _, e := range all {
			assert.LessOrEqual(t, len(e.Name), 253)
			assert.LessOrEqual(t, len(e.Message), 4096)
			assert.True(t, strings.HasSuffix(e.Message, "...") || e.Message == "a�b", e.Message)
		}
	})
}

func TestRecorderRunsOnce(t *testing.T) {
	runWithRecorder(t, apiserver.RecorderOptions{}, func(t *testing.T, _ *apiservertest.Server, r *apiserver.Recorder) {
		synctest.Wait()
		assert.Error(t, r.Run(context.Background())) //nolint:usetesting // It ends at once.
	})
}
