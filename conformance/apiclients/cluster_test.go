// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiclients_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"

	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
)

var everything = labels.Everything()

// runScheduler binds each pod without a node to the next node in turn, until ctx ends.
func runScheduler(ctx context.Context, c kubernetes.Interface) error {
	for next := 0; ctx.Err() == nil; {
		pods, err := c.CoreV1().Pods("").Watch(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", "").String()})
		if err != nil {
			return err
		}
		for event := range pods.ResultChan() {
			pod, ok := event.Object.(*corev1.Pod)
			if !ok || event.Type == "DELETED" || pod.DeletionTimestamp != nil {
				continue
			}
			nodes, err := c.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			node := nodes.Items[next%len(nodes.Items)].Name
			next++
			err = c.CoreV1().Pods(pod.Namespace).Bind(ctx, &corev1.Binding{
				ObjectMeta: metav1.ObjectMeta{Name: pod.Name, UID: pod.UID}, Target: corev1.ObjectReference{Kind: "Node", Name: node},
			}, metav1.CreateOptions{})
			if err != nil && !apierrors.IsConflict(err) {
				return err
			}
		}
	}
	return nil
}

func TestSchedulerBindsPods(t *testing.T) {
	runInMemoryAndOnListener(t, apiservertest.Options{}, func(f fixture) {
		require.NoError(f, f.server.Put(newNode("n1"), newNode("n2"), newNode("n3")))
		ctx, cancel := context.WithCancel(f.Context())
		ended := make(chan error, 1)
		go func() { ended <- runScheduler(ctx, f.clientset()) }()
		pods := f.clientset().CoreV1().Pods("default")
		for i := range 30 {
			_, err := pods.Create(ctx, newPod(fmt.Sprint("web-", i)), metav1.CreateOptions{})
			require.NoError(f, err)
			if i == 15 {
				f.server.DisconnectAll()
			}
		}
		count := func(node string) int {
			list, err := pods.List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
			require.NoError(f, err)
			return len(list.Items)
		}
		f.awaitCondition(func() bool { return count("") == 0 }, "all pods have a node")
		assert.Equal(f, []int{10, 10, 10}, []int{count("n1"), count("n2"), count("n3")})
		err := pods.Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "web-0"}, Target: corev1.ObjectReference{Name: "n2"}}, metav1.CreateOptions{})
		assert.True(f, apierrors.IsConflict(err), "%v", err)
		cancel()
		if err := <-ended; err != nil {
			require.ErrorIs(f, err, context.Canceled)
		}
	})
}

// newBudget returns a PodDisruptionBudget as the disruption controller has set its status.
func newBudget(allowed int32) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
		Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed, DesiredHealthy: 1, CurrentHealthy: 1 + allowed, ExpectedPods: 2},
	}
}

func newRunningPod(name string) *corev1.Pod {
	pod := newPod(name)
	pod.Spec.NodeName, pod.Status.Phase = "n1", corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	return pod
}

func TestEvictionRespectsTheDisruptionBudget(t *testing.T) {
	runInMemoryAndOnListener(t, apiservertest.Options{}, func(f fixture) {
		ctx, c := f.Context(), f.clientset()
		require.NoError(f, f.server.Put(newRunningPod("a"), newRunningPod("b"), newRunningPod("c"), newBudget(1)))
		evict := func(name string, options *metav1.DeleteOptions) error {
			return c.PolicyV1().Evictions("default").Evict(ctx, &policyv1.Eviction{
				ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}, DeleteOptions: options,
			})
		}
		assert.True(f, apierrors.IsNotFound(evict("unknown", nil)))
		require.NoError(f, evict("a", &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}))
		grace := int64(7)
		require.NoError(f, evict("a", &metav1.DeleteOptions{GracePeriodSeconds: &grace}))
		pod, err := c.CoreV1().Pods("default").Get(ctx, "a", metav1.GetOptions{})
		require.NoError(f, err)
		assert.EqualValues(f, 7, *pod.DeletionGracePeriodSeconds)
		assert.Equal(f, corev1.DisruptionTarget, pod.Status.Conditions[1].Type)
		budget, err := c.PolicyV1().PodDisruptionBudgets("default").Get(ctx, "web", metav1.GetOptions{})
		require.NoError(f, err)
		assert.Zero(f, budget.Status.DisruptionsAllowed)
		assert.Contains(f, budget.Status.DisruptedPods, "a")

		budget.Status.CurrentHealthy = 1
		_, err = c.PolicyV1().PodDisruptionBudgets("default").UpdateStatus(ctx, budget, metav1.UpdateOptions{})
		require.NoError(f, err)
		status := statusOf(f.T, evict("b", nil))
		assert.EqualValues(f, http.StatusTooManyRequests, status.Code)
		assert.Equal(f, metav1.StatusReasonTooManyRequests, status.Reason)
		assert.Equal(f, "Cannot evict pod as it would violate the pod's disruption budget.", status.Message)
		assert.Equal(f, []metav1.StatusCause{{
			Type: policyv1.DisruptionBudgetCause, Message: "The disruption budget web needs 1 healthy pods and has 1 currently",
		}}, status.Details.Causes)

		require.NoError(f, apiservertest.Change(f.server, "default", "c", func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed }))
		require.NoError(f, evict("c", nil), "a terminated pod needs no budget")
		_, err = c.CoreV1().Pods("default").Get(ctx, "c", metav1.GetOptions{})
		assert.True(f, apierrors.IsNotFound(err))
		second := newBudget(5)
		second.Name = "second"
		require.NoError(f, f.server.Put(second))
		assert.ErrorContains(f, evict("b", nil), "more than one PodDisruptionBudget")
	})
}

func TestLeaderElectionHasOneLeader(t *testing.T) {
	runInMemoryAndOnListener(t, apiservertest.Options{}, func(f fixture) {
		var leaders atomic.Int32
		var done sync.WaitGroup
		elected := make(chan string, 2)
		stop := map[string]context.CancelFunc{}
		for _, name := range []string{"a", "b"} {
			ctx, cancel := context.WithCancel(f.Context())
			defer cancel()
			stop[name] = cancel
			lock := &resourcelock.LeaseLock{
				LeaseMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "controller"}, Client: f.clientset().CoordinationV1(),
				LockConfig: resourcelock.ResourceLockConfig{Identity: name},
			}
			done.Go(func() {
				leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
					Lock: lock, LeaseDuration: 3 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: 100 * time.Millisecond, ReleaseOnCancel: true,
					Callbacks: leaderelection.LeaderCallbacks{
						OnStartedLeading: func(ctx context.Context) {
							assert.EqualValues(f, 1, leaders.Add(1))
							elected <- name
							<-ctx.Done()
							leaders.Add(-1)
						},
						OnStoppedLeading: func() {},
					},
				})
			})
		}
		first := <-elected
		stop[first]()
		second := <-elected
		assert.NotEqual(f, first, second)
		lease, err := f.clientset().CoordinationV1().Leases("kube-system").Get(f.Context(), "controller", metav1.GetOptions{})
		require.NoError(f, err)
		assert.Equal(f, second, *lease.Spec.HolderIdentity)
		assert.EqualValues(f, 1, *lease.Spec.LeaseTransitions)
		stop[second]()
		done.Wait()
	})
}

func TestEventRecorders(t *testing.T) {
	runInMemoryAndOnListener(t, apiservertest.Options{}, func(f fixture) {
		ctx, cancel := context.WithCancel(f.Context())
		defer cancel()
		c := f.clientset()
		require.NoError(f, f.server.Put(newPod("web")))
		pod, _ := apiservertest.Get[*corev1.Pod](f.server, "default", "web")
		pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}

		old := record.NewBroadcaster()
		defer old.Shutdown()
		old.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: c.CoreV1().Events("")})
		recorder := old.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "controller"})
		for range 3 {
			recorder.Event(pod, corev1.EventTypeWarning, "Broken", "it is broken")
		}
		find := func() []corev1.Event {
			list, err := c.CoreV1().Events("default").List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=web,reason=Broken"})
			require.NoError(f, err)
			return list.Items
		}
		f.awaitCondition(func() bool { return len(find()) == 1 && find()[0].Count == 3 }, "one event that is counted three times")

		broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: c.EventsV1()})
		defer broadcaster.Shutdown()
		require.NoError(f, broadcaster.StartRecordingToSinkWithContext(ctx))
		newer := broadcaster.NewRecorder(scheme.Scheme, "scheduler")
		newer.Eventf(pod, nil, corev1.EventTypeNormal, "Scheduled", "Binding", "bound to %s", "n1")
		newer.Eventf(pod, nil, corev1.EventTypeNormal, "Scheduled", "Binding", "bound to %s", "n1")
		scheduled := func() *eventsv1.Event {
			list, err := c.EventsV1().Events("default").List(ctx, metav1.ListOptions{FieldSelector: "regarding.name=web,reason=Scheduled"})
			require.NoError(f, err)
			if len(list.Items) != 1 || list.Items[0].Series == nil {
				return nil
			}
			return &list.Items[0]
		}
		f.awaitCondition(func() bool { return scheduled() != nil }, "a series of events")
		assert.Equal(f, "bound to n1", scheduled().Note)
		core, err := c.CoreV1().Events("default").Get(ctx, scheduled().Name, metav1.GetOptions{})
		require.NoError(f, err, "both APIs have the same events")
		assert.Equal(f, "bound to n1", core.Message)
		assert.Equal(f, "scheduler", core.ReportingController)
		assert.Len(f, apiservertest.List[*eventsv1.Event](f.server), 2)
	})
}
