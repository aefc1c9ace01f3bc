// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podevict_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/eviction/podevict"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podevents"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// activePods holds the pods of a node and records their evictions.
type activePods struct {
	podevict.Pods

	active  []*corev1.Pod
	evicted []string // UIDs
	why     podstatus.Eviction
	fails   error // result of each eviction
}

func (p *activePods) Active() ([]*corev1.Pod, bool) { return p.active, true }

func (p *activePods) Evict(_ context.Context, uid string, e podstatus.Eviction) error {
	p.evicted, p.why = append(p.evicted, uid), e
	return p.fails
}

// twoCPUs returns a node with two CPUs in zone a.
func twoCPUs() *corev1.Node {
	n := &corev1.Node{Status: corev1.NodeStatus{Allocatable: list("pods", "10", "cpu", "2", "memory", "1Gi")}}
	n.Name, n.Labels = "n1", map[string]string{"zone": "a"}
	return n
}

// critical returns a critical pod that requests cpu and may preempt other pods.
func critical(cpu string) *corev1.Pod {
	p := pod("critical", list("cpu", cpu), nil)
	p.Spec.Priority = new(int32(2e9))
	return p
}

func TestPreemptorAdmitsOrRejectsOrPreempts(t *testing.T) {
	elsewhere := critical("2")
	elsewhere.Spec.NodeSelector = map[string]string{"zone": "b"}
	one, other := pod("one", list("cpu", "1"), nil), pod("other", list("cpu", "500m"), nil)
	important := critical("1")
	important.UID = "important"
	for _, test := range []struct {
		name    string
		pod     *corev1.Pod
		others  []*corev1.Pod
		err     string // empty: the pod is admitted
		evicted []string
	}{
		{"pod that fits is admitted", pod("web", list("cpu", "500m"), nil), []*corev1.Pod{one, other}, "", nil},
		{
			"pod that does not fit is rejected", pod("web", list("cpu", "1"), nil),
			[]*corev1.Pod{one, other},
			"OutOfcpu: Node didn't have enough resource: cpu, requested: 1000, used: 1500, capacity: 2000", nil,
		},
		{"critical pod evicts as few pods as possible", critical("1"), []*corev1.Pod{one, other}, "", []string{"other"}},
		{"critical pod evicts all pods if it needs their resources", critical("2"), []*corev1.Pod{one, other}, "", []string{"one", "other"}},
		{
			"critical pod evicts no pod if evictions do not suffice", critical("2"),
			[]*corev1.Pod{one, important},
			"UnexpectedAdmissionError: Unexpected error while attempting to recover from admission failure: preempt pods for default/critical: all that may go leave", nil,
		},
		{
			"critical pod for another zone evicts no pod", elsewhere,
			[]*corev1.Pod{one, other},
			"NodeAffinity: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector", nil,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			pods := &activePods{}
			p, err := podevict.NewPreemptor(podevict.PreemptorOptions{Node: twoCPUs, Pods: pods})
			require.NoError(t, err)
			err = p.Admit(t.Context(), test.pod, test.others)
			require.ElementsMatch(t, test.evicted, pods.evicted)
			if test.err == "" {
				require.NoError(t, err)
				return
			}
			rejection, ok := errors.AsType[*podstatus.Rejection](err)
			require.True(t, ok, "without a rejection, Admit of the pod would be retried: %v", err)
			require.Contains(t, rejection.Error(), test.err)
		})
	}
}

func TestPreemptorReportsPodsThatItEvicts(t *testing.T) {
	pods := &activePods{}
	var events, resources []string
	p, err := podevict.NewPreemptor(podevict.PreemptorOptions{
		Node: twoCPUs, Pods: pods,
		Event: func(pod cri.PodIdentity, e podevents.Event) {
			events = append(events, pod.Namespace+"/"+pod.Name+" "+pod.UID+" "+e.Type+" "+e.Reason+" "+e.Message)
		},
		Preempted: func(resource string) { resources = append(resources, resource) },
	})
	require.NoError(t, err)
	require.NoError(t, p.Admit(t.Context(), critical("2"), []*corev1.Pod{pod("web", list("cpu", "1"), nil)}))
	require.Equal(t, []string{"default/web web Warning Preempting Preempted in order to admit critical pod"}, events)
	require.Equal(t, []string{"cpu"}, resources)
	require.Equal(t, "Preempting", pods.why.Reason)
	require.Equal(t, corev1.DisruptionTarget, pods.why.Conditions[0].Type)
}

// The evicted pods do not terminate, so their resources are still in use. lifecycle calls Admit again later.
func TestPreemptorOfPodThatDoesNotTerminateReturnsErrorThatIsNoRejection(t *testing.T) {
	pods := &activePods{fails: context.DeadlineExceeded}
	p, err := podevict.NewPreemptor(podevict.PreemptorOptions{Node: twoCPUs, Pods: pods})
	require.NoError(t, err)
	err = p.Admit(t.Context(), critical("2"), []*corev1.Pod{pod("a", list("cpu", "1"), nil), pod("b", list("cpu", "1"), nil)})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, rejected := errors.AsType[*podstatus.Rejection](err)
	require.False(t, rejected)
	require.ElementsMatch(t, []string{"a", "b"}, pods.evicted, "both pods are evicted although the first does not terminate")
}

// AdmitResize evicts no pod, not even for a critical pod: the resize waits.
func TestPreemptorOfResizeComparesWithOtherPods(t *testing.T) {
	pods := &activePods{active: []*corev1.Pod{critical("1"), pod("web", list("cpu", "1"), nil)}}
	p, err := podevict.NewPreemptor(podevict.PreemptorOptions{Node: twoCPUs, Pods: pods})
	require.NoError(t, err)
	require.NoError(t, p.AdmitResize(critical("1")), "the resized pod itself is not counted as another pod")
	rejection, ok := errors.AsType[*podstatus.Rejection](p.AdmitResize(critical("1001m")))
	require.True(t, ok)
	require.Equal(t, "OutOfcpu", rejection.StatusReason())
	require.Empty(t, pods.evicted)
}

// A Handle has no pods before the reconciler is created. The reconciler has the Preemptor among its options.
func TestPreemptorOfHandleBeforeSetHasNoPods(t *testing.T) {
	p, err := podevict.NewPreemptor(podevict.PreemptorOptions{Node: twoCPUs, Pods: &lifecycle.Handle{}})
	require.NoError(t, err)
	require.NoError(t, p.AdmitResize(critical("2")))
	err = p.Admit(t.Context(), critical("2"), []*corev1.Pod{pod("web", list("cpu", "1"), nil)})
	require.ErrorIs(t, err, cri.ErrNotFound, "without its victims the pod is not admitted")
}
