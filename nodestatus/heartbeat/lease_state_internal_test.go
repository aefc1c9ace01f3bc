// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package heartbeat

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// leaseScript has the responses to the requests of a round as words: ok, missing, conflict, refused, or cut for no response.
// The last word is the response to all further requests.
type leaseScript struct {
	state  leaseState
	words  []string
	now    time.Time
	stored *coordinationv1.Lease
	said   []string
}

func newLeaseScript() *leaseScript {
	return &leaseScript{state: leaseState{name: "n", seconds: 40}, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
}

// round runs a round and returns its requests.
func (s *leaseScript) round(t *testing.T, words string) string {
	t.Helper()
	s.words, s.said = strings.Fields(words), nil
	step := s.state.startRound(s.now)
	for range 100 {
		if step.foreignLease != nil {
			s.said = append(s.said, "foreign")
		}
		if step.verb == leaseDone {
			if step.renewed {
				s.said = append(s.said, "renewed")
			}
			return strings.Join(s.said, ", ")
		}
		s.record(step)
		s.now = s.now.Add(step.delay + time.Millisecond)
		lease, uid, err := s.answer(t, step)
		step = s.state.handleResponse(s.now, lease, uid, err)
	}
	return strings.Join(s.said, ", ") + " and so on"
}

func (s *leaseScript) record(step leaseStep) {
	text := string(step.verb)
	if step.delay > 0 {
		text = fmt.Sprintf("%s after %s", text, step.delay)
	}
	if step.reconnect {
		text += " anew"
	}
	s.said = append(s.said, text)
}

func (s *leaseScript) answer(t *testing.T, step leaseStep) (*coordinationv1.Lease, types.UID, error) {
	word := s.words[0]
	if len(s.words) > 1 {
		s.words = s.words[1:]
	}
	of := schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	switch word {
	case "missing":
		return nil, "", apierrors.NewNotFound(of, "n")
	case "conflict":
		return nil, "", apierrors.NewConflict(of, "n", errors.New("another version"))
	case "refused":
		return nil, "", apierrors.NewInternalError(errors.New("no leader"))
	case "cut":
		return nil, "", errors.New("EOF")
	}
	require.Equal(t, "ok", word)
	switch step.verb {
	case leaseGetNode:
		return nil, "uid", nil
	case leaseGet:
		if s.stored == nil {
			s.stored = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n", OwnerReferences: []metav1.OwnerReference{{UID: "uid"}}}}
		}
		return s.stored, "", nil
	}
	require.Equal(t, int32(40), *step.lease.Spec.LeaseDurationSeconds)
	require.Equal(t, types.UID("uid"), step.lease.OwnerReferences[0].UID)
	s.stored = step.lease
	return step.lease, "", nil
}

// The numbers of attempts and the delays are as in component-helpers; see the edge cases of its controller_test.go.
func TestLeaseRequests(t *testing.T) {
	five := func(s string) string { return strings.TrimSuffix(strings.Repeat(s+", ", 5), ", ") }
	for name, test := range map[string]struct {
		known bool // the lease was written in a previous round
		words string
		want  string
	}{
		"lease of a previous agent":     {false, "ok", "get, update, renewed"},
		"no lease":                      {false, "missing ok", "get, get node, create, renewed"},
		"no lease and no node":          {false, "missing missing", "get, get node"},
		"no lease, node cannot be read": {false, "missing refused", "get, get node"},
		"known":                         {true, "ok", "update, renewed"},
		"known, conflict":               {true, "conflict ok", "update, get, update, renewed"},
		"known, four conflicts":         {true, "conflict ok conflict ok conflict ok conflict ok ok", "update, get, update, get, update, get, update, get, update, renewed"},
		"known, lease removed":          {true, "missing missing ok", "update, get, get node, create, renewed"},
		"known, lease and node removed": {true, "missing missing missing", "update, get, get node"},
		"server error":                  {true, "refused ok", "update, update, renewed"},
		"two server errors":             {true, "refused refused ok", "update, update, update anew, renewed"},
		"connection cut":                {true, "cut ok", "update, update anew, renewed"},
		"permanent error": {
			true, "refused refused refused refused refused ok refused",
			"update, update, update anew, update anew, update anew, get anew, update, update, update anew, update anew, update anew",
		},
		"lease cannot be read": {
			false, "refused cut refused refused refused refused refused ok",
			"get, get after 200ms, get after 400ms anew, get after 800ms, get after 1.6s, get after 3.2s, get after 6.4s, get after 7s, update, renewed",
		},
		"created by another client first": {
			false, "missing ok conflict ok", "get, get node, create, get after 200ms, update, renewed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newLeaseScript()
			if test.known {
				require.Equal(t, "get, update, renewed", s.round(t, "ok"))
			}
			assert.Equal(t, test.want, s.round(t, test.words))
		})
	}
	t.Run("permanent conflict", func(t *testing.T) {
		s := newLeaseScript()
		s.round(t, "ok")
		got := s.round(t, strings.Repeat("conflict ok ", 5)+"ok "+strings.Repeat("conflict ok ", 5))
		assert.Equal(t, five("update, get")+", get, "+five("update, get"), got, "10 updates and 11 reads, as in the kubelet")
	})
}

// A renewal by another agent is detected. A renewal by this agent with a lost response is not mistaken for it.
func TestForeignRenewalIsDetected(t *testing.T) {
	s := newLeaseScript()
	s.round(t, "ok")
	other := s.stored.DeepCopy()
	theirs := metav1.NewMicroTime(s.now.Add(3 * time.Second))
	other.Spec.RenewTime = &theirs
	s.stored = other
	require.Equal(t, "update, get, foreign, update, renewed", s.round(t, "conflict ok"))

	// The lease is written although the response is lost.
	step := s.state.startRound(s.now)
	s.stored = step.lease
	s.state.handleResponse(s.now, nil, "", errors.New("EOF"))
	require.Equal(t, "update, get, update, renewed", s.round(t, "conflict ok"))

	// Another client adds an annotation.
	edited := s.stored.DeepCopy()
	edited.Annotations = map[string]string{"a": "b"}
	s.stored = edited
	require.Equal(t, "update, get, update, renewed", s.round(t, "conflict ok"))
	require.Equal(t, "b", s.stored.Annotations["a"])

	// A restarted process does not know the renew times of the previous one.
	s.state = leaseState{name: "n", seconds: 40}
	require.Equal(t, "get, update, get, update, renewed", s.round(t, "ok conflict ok"))
}

func TestCreatedLeaseHasHolderDurationAndOwner(t *testing.T) {
	s := newLeaseScript()
	s.round(t, "missing ok")
	holder, seconds, renewed := "n", int32(40), metav1.NewMicroTime(s.now.Add(-time.Millisecond))
	assert.Equal(t, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name: "n", Namespace: corev1.NamespaceNodeLease,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n", UID: "uid"}},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &renewed},
	}, s.stored)

	// Holder and owner are kept, and only times change.
	s.stored.Spec.HolderIdentity = new(string)
	s.state.latest = s.stored
	s.round(t, "ok")
	assert.Empty(t, *s.stored.Spec.HolderIdentity)
}

// For every series of responses, a round ends unless the lease cannot be read. It sends at most as many requests as the
// kubelet.
func TestRenewalRoundSendsBoundedRequests(t *testing.T) {
	words := []string{"ok", "missing", "conflict", "refused", "cut"}
	for seed := range 3000 {
		s := newLeaseScript()
		script := make([]string, 0, 40)
		for n, rest := 0, seed*7919+1; n < 40; n, rest = n+1, rest*48271%2147483647 {
			script = append(script, words[rest%len(words)])
		}
		for range 3 {
			said := s.round(t, strings.Join(script, " ")+" ok")
			require.NotContains(t, said, "and so on", "%v", script)
			require.LessOrEqual(t, strings.Count(said, "update"), 10)
			require.Less(t, s.state.tries, maxHeartbeatTries+1)
			script = append(script[1:], script[0])
		}
	}
}
