// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/component-helpers/apimachinery/lease"
	kubeletutil "k8s.io/kubernetes/pkg/kubelet/util"
	"k8s.io/utils/clock"

	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/nodestatus/heartbeat"
)

// leaseInput has the responses of an API server to the requests for a lease, in order. All later requests succeed.
type leaseInput struct {
	Answers []string
	Exists  bool // the lease exists
	Owned   bool // a Node owns the lease
}

// leaseRequests is the number of compared requests.
const leaseRequests = 14

// Both sides send the same lease requests after the same delays, also when requests fail.
func TestLeaseRequests(t *testing.T) {
	conformance.Comparison[leaseInput, []string]{
		Make: newLeaseInput,
		Kubelet: func(in leaseInput) []string {
			return leaseTrace(t, in, func(ctx context.Context, config *rest.Config) error {
				config.QPS = -1 // like the kubelet's heartbeat client
				client, err := kubernetes.NewForConfig(config)
				if err != nil {
					return err
				}
				lease.NewController(clock.RealClock{}, client, "n", 40, nil, 10*time.Second, "n", corev1.NamespaceNodeLease,
					kubeletutil.SetNodeOwnerFunc(ctx, client, "n")).Run(ctx)
				return nil
			})
		},
		Ours: func(in leaseInput) []string {
			return leaseTrace(t, in, func(ctx context.Context, config *rest.Config) error {
				l, err := heartbeat.NewLease(config, heartbeat.LeaseOptions{NodeName: "n"})
				if err != nil {
					return err
				}
				return l.Run(ctx)
			})
		},
		Exceptions: []conformance.Exception[leaseInput, []string]{{
			Name: "a lease that is gone", Reason: "after an update that returns not found the lease is created; the kubelet tries four more updates",
			When: func(in leaseInput) bool { return slices.Contains(in.Answers, "gone") },
		}, {
			Name: "a lease that is created in the middle", Reason: "a lease that was just created needs no update",
			When: func(in leaseInput) bool {
				conflict := slices.Index(in.Answers, "conflict")
				return conflict >= 0 && slices.Contains(in.Answers[conflict:], "missing")
			},
		}, {
			Name: "the UID of the Node", Reason: "the UID is read once per round; the kubelet reads it before each update of a lease without owner, even if there is no Node",
			When: func(in leaseInput) bool { return in.Exists && !in.Owned },
		}},
	}.Run(t, flags.AtMost(leaseInputs))
}

// leaseInputs is the maximum number of inputs. Each needs a new client for both sides, and minutes of virtual time.
const leaseInputs = 5_000

func newLeaseInput(c *conformance.Choices) leaseInput {
	in := leaseInput{Exists: !c.OneIn(3), Owned: !c.OneIn(3)}
	for range c.Int(13) {
		switch answer := []string{"ok", "refused", "cut", "conflict"}[c.Int(4)]; {
		case c.OneIn(40):
			in.Answers = append(in.Answers, "gone")
		case c.OneIn(40):
			in.Answers = append(in.Answers, "missing")
		case c.OneIn(40):
			in.Answers = append(in.Answers, "no node")
		default:
			in.Answers = append(in.Answers, answer)
		}
	}
	return in
}

// leaseTrace runs run, which renews a lease, until it has sent leaseRequests requests.
func leaseTrace(t *testing.T, in leaseInput, run func(context.Context, *rest.Config) error) (trace []string) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		server := &leaseServer{in: in, begin: time.Now(), last: time.Now(), enough: cancel}
		if in.Exists {
			server.lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n", Namespace: corev1.NamespaceNodeLease, ResourceVersion: "1"}}
			if in.Owned {
				server.lease.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n", UID: "owner"}}
			}
		}
		if err := run(ctx, &rest.Config{Host: "http://server", Transport: server}); err != nil {
			t.Error(err)
		}
		cancel()
		server.mu.Lock()
		defer server.mu.Unlock()
		trace = server.trace
	})
	return trace
}

// leaseServer is a transport that returns the responses of an input.
type leaseServer struct {
	in     leaseInput
	begin  time.Time
	enough func()

	mu    sync.Mutex // guards the fields below
	lease *coordinationv1.Lease
	last  time.Time
	trace []string
}

func (s *leaseServer) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.trace) >= leaseRequests {
		s.enough()
		return nil, context.Canceled
	}
	answer := "ok"
	if i := len(s.trace); i < len(s.in.Answers) {
		answer = s.in.Answers[i]
	}
	body, err := s.body(r)
	if err != nil {
		return nil, err
	}
	s.note(r, body)
	aboutNode := strings.Contains(r.URL.Path, "/nodes/")
	switch {
	case answer == "refused":
		return s.answer(500, &metav1.Status{Code: 500, Status: metav1.StatusFailure, Reason: metav1.StatusReasonInternalError})
	case answer == "cut":
		return nil, errors.New("no route to host")
	case answer == "no node" && aboutNode, answer == "missing" && r.Method == http.MethodGet && !aboutNode, answer == "gone" && r.Method == http.MethodPut:
		return s.answer(404, &metav1.Status{Code: 404, Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound})
	case answer == "conflict" && r.Method == http.MethodPut:
		return s.answer(409, &metav1.Status{Code: 409, Status: metav1.StatusFailure, Reason: metav1.StatusReasonConflict})
	case aboutNode:
		return s.answer(200, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "node"}})
	case body != nil:
		s.lease = body.DeepCopy()
		s.lease.ResourceVersion = fmt.Sprint(len(s.trace) + 1)
	case s.lease == nil:
		return s.answer(404, &metav1.Status{Code: 404, Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound})
	}
	return s.answer(200, s.lease)
}

// body returns the lease in the request, or nil.
func (s *leaseServer) body(r *http.Request) (*coordinationv1.Lease, error) {
	if r.Body == nil {
		return nil, nil
	}
	data, err := io.ReadAll(r.Body)
	if err != nil || len(data) == 0 {
		return nil, err
	}
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(data, nil, nil)
	if err != nil {
		return nil, err
	}
	sent, ok := object.(*coordinationv1.Lease)
	if !ok {
		return nil, fmt.Errorf("unexpected request body %T", object)
	}
	return sent, nil
}

// note adds a request to the trace, with the time since the previous request and the fields of the lease.
func (s *leaseServer) note(r *http.Request, body *coordinationv1.Lease) {
	wait := "at once"
	if d := time.Since(s.last); d > 9*time.Second {
		wait = "next round"
	} else if d > 0 {
		wait = "after " + d.String()
	}
	s.last = time.Now()
	line := fmt.Sprintf("%s: %s %s", wait, r.Method, r.URL.Path)
	if body != nil {
		holder, seconds := "", int32(0)
		if h := body.Spec.HolderIdentity; h != nil {
			holder = *h
		}
		if d := body.Spec.LeaseDurationSeconds; d != nil {
			seconds = *d
		}
		renewed := body.Spec.RenewTime != nil && body.Spec.RenewTime.Time.Equal(time.Now().Truncate(time.Microsecond))
		line += fmt.Sprintf(" version %q owners %+v holder %q seconds %d now %t", body.ResourceVersion, body.OwnerReferences, holder, seconds, renewed)
	}
	s.trace = append(s.trace, line)
}

// answer returns a response.
func (s *leaseServer) answer(code int, object runtime.Object) (*http.Response, error) {
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeJSON)
	groups := []runtime.GroupVersioner{corev1.SchemeGroupVersion, coordinationv1.SchemeGroupVersion}
	which := 0
	if _, is := object.(*coordinationv1.Lease); is {
		which = 1
	}
	data, err := runtime.Encode(scheme.Codecs.EncoderForVersion(info.Serializer, groups[which]), object)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: code, Status: http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(data)),
	}, nil
}
