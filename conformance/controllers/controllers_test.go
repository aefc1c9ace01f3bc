// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"context"
	"flag"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/scale"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/deployment"
	"k8s.io/kubernetes/pkg/controller/disruption"
	"k8s.io/kubernetes/pkg/controller/replicaset"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/profile"

	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
)

// TestMain keeps the tests on one processor: the race detector of Go 1.26 now and then crashes when timers of a
// synctest bubble fire on several (golang/go#78156). Goroutines are still preempted and still checked for races.
// The scheduler listens for SIGUSR2: the goroutines of package os/signal must start outside of a bubble. The second handler of
// utilruntime.HandleError waits until a millisecond after the last error, which a bubble of the year 2000 takes for 26 years.
func TestMain(m *testing.M) {
	flag.Parse()
	runtime.GOMAXPROCS(1)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGUSR2)
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	if !testing.Verbose() {
		klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	}
	os.Exit(m.Run())
}

// runControlPlane runs a scheduler and the controllers of deployments, replica sets and disruption budgets until ctx ends. It returns a
// function that waits for them.
func runControlPlane(ctx context.Context, t *testing.T, config *rest.Config) (wait func()) {
	t.Helper()
	client := kubernetes.NewForConfigOrDie(config)
	factory := scheduler.NewInformerFactory(client, 0, nil)
	pods, replicaSets, deployments := factory.Core().V1().Pods(), factory.Apps().V1().ReplicaSets(), factory.Apps().V1().Deployments()

	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	require.NoError(t, broadcaster.StartRecordingToSinkWithContext(ctx))
	sched, err := scheduler.New(ctx, client, factory, nil, profile.NewRecorderFactory(broadcaster))
	require.NoError(t, err)
	replicaSetController := replicaset.NewReplicaSetController(ctx, replicaSets, pods, client, replicaset.BurstReplicas)
	deploymentController, err := deployment.NewDeploymentController(ctx, deployments, replicaSets, pods, client)
	require.NoError(t, err)
	cached := memory.NewMemCacheClient(client.Discovery())
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(cached)
	scales, err := scale.NewForConfig(config, mapper, dynamic.LegacyAPIPathResolverFunc, scale.NewDiscoveryScaleKindResolver(cached))
	require.NoError(t, err)
	disruptionController := disruption.NewDisruptionController(ctx, pods, factory.Policy().V1().PodDisruptionBudgets(),
		factory.Core().V1().ReplicationControllers(), replicaSets, deployments, factory.Apps().V1().StatefulSets(), client, mapper, scales, cached)

	factory.Start(ctx.Done())
	syncing, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	for kind, synced := range factory.WaitForCacheSync(syncing.Done()) {
		require.True(t, synced, "%v", kind)
	}
	require.NoError(t, sched.WaitForHandlersSync(syncing))
	var running sync.WaitGroup
	running.Go(func() { sched.Run(ctx) })
	running.Go(func() { replicaSetController.Run(ctx, 2) })
	running.Go(func() { deploymentController.Run(ctx, 2) })
	running.Go(func() { disruptionController.Run(ctx, 1) })
	return func() {
		running.Wait()
		factory.Shutdown()
		broadcaster.Shutdown()
	}
}

// runPods plays the kubelets of all nodes: it reports each bound pod as ready, and removes each terminating pod.
func runPods(t *testing.T, server *apiservertest.Server) {
	t.Helper()
	for _, pod := range apiservertest.List[*corev1.Pod](server) {
		switch {
		case pod.DeletionTimestamp != nil:
			require.NoError(t, server.Remove(pod))
		case pod.Spec.NodeName != "" && pod.Status.Phase == corev1.PodPending:
			require.NoError(t, apiservertest.Change(server, pod.Namespace, pod.Name, func(pod *corev1.Pod) {
				pod.Status.Phase = corev1.PodRunning
				pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
			}))
		}
	}
}

// awaitCondition plays the kubelets until condition returns true, at most a minute.
func awaitCondition(t *testing.T, server *apiservertest.Server, expectation string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !condition(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			require.Fail(t, "the condition is not met within a minute", expectation)
		}
		runPods(t, server)
	}
}

// newNode returns a node for three pods of newDeployment.
func newNode(name string) *corev1.Node {
	capacity := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi"), corev1.ResourcePods: resource.MustParse("110"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
		Status:     corev1.NodeStatus{Capacity: capacity, Allocatable: capacity},
	}
}

func newDeployment(replicas int32) *appsv1.Deployment {
	labels := map[string]string{"app": "web"}
	requests := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1300m")}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{Requests: requests}}}},
			},
		},
	}
}

// readyPods returns the number of pods on each node that are ready.
func readyPods(server *apiservertest.Server) map[string]int {
	count := map[string]int{}
	for _, pod := range apiservertest.List[*corev1.Pod](server) {
		if pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
			count[pod.Spec.NodeName]++
		}
	}
	return count
}

// A deployment gets its pods, the scheduler spreads them, and the eviction API respects the budget that the disruption controller computes.
func runDeployment(t *testing.T, server *apiservertest.Server, config *rest.Config) {
	config.QPS = -1
	ctx, cancel := context.WithCancel(t.Context())
	require.NoError(t, server.Put(newNode("n1"), newNode("n2")))
	wait := runControlPlane(ctx, t, config)
	defer wait()
	defer cancel()
	client := kubernetes.NewForConfigOrDie(config)

	_, err := client.AppsV1().Deployments("default").Create(ctx, newDeployment(4), metav1.CreateOptions{})
	require.NoError(t, err)
	one := intstr.FromInt32(1)
	_, err = client.PolicyV1().PodDisruptionBudgets("default").Create(ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	deploymentIsComplete := func(replicas int32) func() bool {
		return func() bool {
			d, err := client.AppsV1().Deployments("default").Get(ctx, "web", metav1.GetOptions{})
			require.NoError(t, err)
			return d.Status.AvailableReplicas == replicas && d.Status.Replicas == replicas && d.Status.ObservedGeneration == d.Generation
		}
	}
	awaitCondition(t, server, "four pods are available", deploymentIsComplete(4))
	assert.Equal(t, map[string]int{"n1": 2, "n2": 2}, readyPods(server))

	budgetPermits := func(n int32) func() bool {
		return func() bool {
			budget, err := client.PolicyV1().PodDisruptionBudgets("default").Get(ctx, "web", metav1.GetOptions{})
			require.NoError(t, err)
			return budget.Status.DisruptionsAllowed == n && budget.Status.CurrentHealthy == 4
		}
	}
	awaitCondition(t, server, "the budget permits a disruption", budgetPermits(1))
	pods := apiservertest.List[*corev1.Pod](server)
	evict := func(pod *corev1.Pod) error {
		return client.PolicyV1().Evictions("default").Evict(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}})
	}
	require.NoError(t, evict(pods[0]))
	err = evict(pods[1])
	assert.True(t, apierrors.IsTooManyRequests(err), "%v", err)
	assert.True(t, apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause))
	awaitCondition(t, server, "the evicted pod is replaced", func() bool {
		_, exists := apiservertest.Get[*corev1.Pod](server, "default", pods[0].Name)
		return !exists && deploymentIsComplete(4)() && budgetPermits(1)()
	})

	server.DisconnectAll()
	server.Compact()
	scaled, err := client.AppsV1().Deployments("default").GetScale(ctx, "web", metav1.GetOptions{})
	require.NoError(t, err)
	scaled.Spec.Replicas = 7
	_, err = client.AppsV1().Deployments("default").UpdateScale(ctx, "web", scaled, metav1.UpdateOptions{})
	require.NoError(t, err)
	awaitCondition(t, server, "both nodes are full", func() bool { return readyPods(server)["n1"] == 3 && readyPods(server)["n2"] == 3 })
	awaitCondition(t, server, "the seventh pod fits on no node", func() bool {
		return slices.ContainsFunc(apiservertest.List[*corev1.Event](server), func(e *corev1.Event) bool { return e.Reason == "FailedScheduling" })
	})
	require.NoError(t, server.Put(newNode("n3")))
	awaitCondition(t, server, "the seventh pod runs on the new node", deploymentIsComplete(7))
	assert.Equal(t, map[string]int{"n1": 3, "n2": 3, "n3": 1}, readyPods(server))
}

func TestDeploymentIsScheduledAndEvicted(t *testing.T) {
	t.Run("in memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			server := apiservertest.NewServer(apiservertest.Options{})
			defer server.Close()
			runDeployment(t, server, server.Config())
		})
	})
	t.Run("listener", func(t *testing.T) {
		server := apiservertest.NewServer(apiservertest.Options{})
		config, stop := server.Listen(false)
		t.Cleanup(stop)
		runDeployment(t, server, config)
	})
}
