// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podsapi_test

import (
	"context"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	podsv1alpha1 "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/nodeapi/podsapi"
)

// node is a source whose pods a test changes.
type node struct {
	mu    sync.Mutex
	pods  []podsapi.Pod
	ready bool
}

func (n *node) Pods() ([]podsapi.Pod, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.pods, n.ready
}

func (n *node) set(ready bool, pods ...podsapi.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pods, n.ready = pods, ready
}

func pod(uid string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pod-" + uid, UID: types.UID(uid)},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
}

func identity(uid string) cri.PodIdentity {
	return cri.PodIdentity{Namespace: "default", Name: "pod-" + uid, UID: uid}
}

func phase(p corev1.PodPhase) *corev1.PodStatus { return &corev1.PodStatus{Phase: p} }

// serve serves a source until the test ends, and returns the server and a client.
func serve(t *testing.T, source podsapi.Source, o podsapi.Options) (*podsapi.Server, podsv1alpha1.PodsClient, func()) {
	t.Helper()
	l, err := podsapi.Listen(filepath.Join(t.TempDir(), "pods-api", "pods-api.sock"))
	require.NoError(t, err)
	s := podsapi.New(source, o)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	wg.Go(func() { assert.NoError(t, s.Run(ctx, l)) })
	stop := func() {
		cancel()
		wg.Wait()
	}
	t.Cleanup(stop)
	return s, dial(t, l.Addr()), stop
}

func dial(t *testing.T, a net.Addr) podsv1alpha1.PodsClient {
	t.Helper()
	c, err := grpc.NewClient("unix://"+a.String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return podsv1alpha1.NewPodsClient(c)
}

func decode(t *testing.T, data []byte) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{}
	require.NoError(t, p.Unmarshal(data))
	return p
}

// formatEvent formats an event in one line.
func formatEvent(t *testing.T, e *podsv1alpha1.WatchPodsEvent) string {
	t.Helper()
	if e.GetPod() == nil {
		return e.GetType().String()
	}
	p := decode(t, e.GetPod())
	return strings.TrimSpace(fmt.Sprintf("%s %s %s %s", e.GetType(), p.UID, p.Name, p.Status.Phase))
}

func TestListPodsAndGetPod(t *testing.T) {
	n := &node{}
	_, client, _ := serve(t, n, podsapi.Options{})
	_, err := client.ListPods(t.Context(), &podsv1alpha1.ListPodsRequest{})
	assert.Equal(t, codes.FailedPrecondition, status.Code(err), "%v", err)
	_, err = client.GetPod(t.Context(), &podsv1alpha1.GetPodRequest{PodUID: "a"})
	assert.Equal(t, codes.FailedPrecondition, status.Code(err), "%v", err)

	fresh, unconfirmed, running := pod("c"), pod("a"), pod("b")
	unconfirmed.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: corev1.ConditionTrue},
	}}
	n.set(true, podsapi.Pod{Pod: fresh}, podsapi.Pod{Pod: unconfirmed}, podsapi.Pod{Pod: running, Status: phase(corev1.PodRunning)}, podsapi.Pod{})
	answer, err := client.ListPods(t.Context(), &podsv1alpha1.ListPodsRequest{})
	require.NoError(t, err)
	var got []string
	for _, data := range answer.GetPods() {
		p := decode(t, data)
		got = append(got, string(p.UID)+" "+string(p.Status.Phase))
	}
	assert.Equal(t, []string{"a Running", "b Running", "c Pending"}, got)

	one, err := client.GetPod(t.Context(), &podsv1alpha1.GetPodRequest{PodUID: "a"})
	require.NoError(t, err)
	p := decode(t, one.GetPod())
	assert.Equal(t, corev1.ConditionTrue, p.Status.Conditions[0].Status)
	assert.Equal(t, corev1.ConditionFalse, p.Status.Conditions[1].Status, "a pod is not reported as ready before its readiness is confirmed after a start")
	assert.Equal(t, "ContainersNotReady", p.Status.Conditions[1].Reason)
	assert.Equal(t, corev1.ConditionTrue, unconfirmed.Status.Conditions[1].Status, "the pod of the source is not modified")
	assert.Empty(t, fresh.Status.Phase)

	_, err = client.GetPod(t.Context(), &podsv1alpha1.GetPodRequest{PodUID: "x"})
	assert.Equal(t, codes.NotFound, status.Code(err))
	assert.ErrorContains(t, err, "pod with UID x not found")
	_, err = client.GetPod(t.Context(), &podsv1alpha1.GetPodRequest{PodUID: strings.Repeat("x", 1<<20)})
	assert.Equal(t, codes.ResourceExhausted, status.Code(err), "the size of requests is limited")
}

// Each change of a pod, from its first status to its removal, is sent once and in order.
func TestWatchPodsSendsEachChangeOnceInOrder(t *testing.T) {
	n := &node{}
	s, client, _ := serve(t, n, podsapi.Options{})
	refused, err := client.WatchPods(t.Context(), &podsv1alpha1.WatchPodsRequest{})
	require.NoError(t, err)
	_, err = refused.Recv()
	assert.Equal(t, codes.FailedPrecondition, status.Code(err), "%v", err)

	n.set(true, podsapi.Pod{Pod: pod("b"), Status: phase(corev1.PodRunning)}, podsapi.Pod{Pod: pod("a")})
	w, err := client.WatchPods(t.Context(), &podsv1alpha1.WatchPodsRequest{})
	require.NoError(t, err)
	next := func() string {
		e, err := w.Recv()
		require.NoError(t, err)
		return formatEvent(t, e)
	}
	assert.Equal(t, "ADDED a pod-a Pending", next())
	assert.Equal(t, "ADDED b pod-b Running", next())
	assert.Equal(t, "INITIAL_SYNC_COMPLETE", next())

	deleting := pod("d")
	deleting.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	s.StatusChanged(pod("a"), phase(corev1.PodPending))
	s.StatusChanged(pod("a"), phase(corev1.PodRunning))
	s.StatusChanged(pod("a"), phase(corev1.PodSucceeded))
	s.ResourcesReleased(identity("a"))
	s.StatusChanged(pod("a"), phase(corev1.PodSucceeded))
	s.ResourcesReleased(identity("a"))
	s.PodRemoved(identity("a"))
	s.StatusChanged(deleting, phase(corev1.PodRunning))
	s.PodRemoved(identity("d"))
	s.StatusChanged(pod("a"), phase(corev1.PodPending))
	s.PodRemoved(identity("never-seen"))
	for _, want := range []string{
		"ADDED a pod-a Pending", "MODIFIED a pod-a Running", "MODIFIED a pod-a Succeeded", "DELETED a pod-a",
		"MODIFIED d pod-d Running", "DELETED d pod-d", "ADDED a pod-a Pending", "DELETED never-seen pod-never-seen",
	} {
		assert.Equal(t, want, next())
	}
}

// A client that reads nothing is disconnected, and other watchers get all events.
func TestSlowWatcherIsDropped(t *testing.T) {
	dropped, answered := make(chan struct{}, 1), make(chan string, 4)
	n := &node{ready: true}
	s, client, _ := serve(t, n, podsapi.Options{WatchQueue: 10, Hooks: podsapi.Hooks{
		WatcherDropped: func() { dropped <- struct{}{} },
		CallCompleted:  func(method, code string) { answered <- method + " " + code },
	}})
	watch := func(c podsv1alpha1.PodsClient) podsv1alpha1.Pods_WatchPodsClient {
		w, err := c.WatchPods(t.Context(), &podsv1alpha1.WatchPodsRequest{})
		require.NoError(t, err)
		_, err = w.Recv()
		require.NoError(t, err)
		return w
	}
	slow, fast := watch(client), watch(client)
	large := pod("large")
	large.Annotations = map[string]string{"x": strings.Repeat("x", 60_000)}
	for i, gone := 0, false; !gone; i++ {
		require.Less(t, i, 100, "the flow control window must fill up")
		s.StatusChanged(large, phase(corev1.PodRunning))
		_, err := fast.Recv()
		require.NoError(t, err)
		select {
		case <-dropped:
			gone = true
		default:
		}
	}
	assert.Equal(t, "WatchPods ResourceExhausted", <-answered, "the call returns although the client reads nothing")
	s.StatusChanged(large, phase(corev1.PodRunning))
	_, err := fast.Recv()
	require.NoError(t, err)

	// Events that are already in its queue arrive before the error.
	for err = nil; err == nil; {
		_, err = slow.Recv()
	}
	assert.Equal(t, codes.ResourceExhausted, status.Code(err), "%v", err)
}

// Many watchers start and stop while pods change. Each of them finally has the state of the source.
func TestWatchersConvergeToSource(t *testing.T) {
	const pods, changes = 20, 300
	n := &node{ready: true}
	s, client, _ := serve(t, n, podsapi.Options{WatchQueue: 10_000})
	state := map[string]corev1.PodPhase{}
	update := func(i int) {
		uid := fmt.Sprintf("p%02d", i*7%pods)
		if i%5 == 0 && i < changes {
			delete(state, uid)
		} else {
			state[uid] = []corev1.PodPhase{corev1.PodRunning, corev1.PodPending, corev1.PodFailed}[i%3]
		}
		var all []podsapi.Pod
		for uid, p := range state {
			all = append(all, podsapi.Pod{Pod: pod(uid), Status: phase(p)})
		}
		n.set(true, all...)
		if p, ok := state[uid]; ok {
			s.StatusChanged(pod(uid), phase(p))
		} else {
			s.PodRemoved(identity(uid))
		}
	}
	var wg sync.WaitGroup
	views := make([]map[string]corev1.PodPhase, 10)
	for v := range views {
		w, err := client.WatchPods(t.Context(), &podsv1alpha1.WatchPodsRequest{})
		require.NoError(t, err)
		views[v] = map[string]corev1.PodPhase{}
		wg.Go(func() {
			for {
				e, err := w.Recv()
				if !assert.NoError(t, err) {
					return
				}
				if e.GetPod() == nil {
					continue
				}
				p := &corev1.Pod{}
				assert.NoError(t, p.Unmarshal(e.GetPod()))
				switch {
				case p.UID == "end":
					return
				case e.GetType() == podsv1alpha1.EventType_DELETED:
					delete(views[v], string(p.UID))
				default:
					views[v][string(p.UID)] = p.Status.Phase
				}
			}
		})
		for i := range changes / len(views) {
			update(v*changes/len(views) + i)
		}
	}
	// A watcher that is still starting gets this pod from the list.
	n.set(true, append(func() (all []podsapi.Pod) {
		for uid, p := range state {
			all = append(all, podsapi.Pod{Pod: pod(uid), Status: phase(p)})
		}
		return all
	}(), podsapi.Pod{Pod: pod("zzz")})...)
	state["zzz"] = corev1.PodPending
	s.StatusChanged(pod("zzz"), phase(corev1.PodPending))
	done := make(chan struct{})
	go func() {
		defer close(done)
		wg.Wait()
	}()
	for over := false; !over; { // repeated until every watcher, also one that starts late, has received it
		s.StatusChanged(pod("end"), phase(corev1.PodRunning))
		select {
		case <-done:
			over = true
		case <-time.After(50 * time.Millisecond):
		}
	}
	for v, view := range views {
		assert.True(t, maps.Equal(state, view), "watcher %d: want %v, got %v", v, state, view)
	}
}

func TestLimitsOfRateWatchersAndRequestSize(t *testing.T) {
	var mu sync.Mutex
	answered := map[string]int{}
	n := &node{ready: true}
	_, client, stop := serve(t, n, podsapi.Options{Rate: 1, MaxWatchers: 2, Hooks: podsapi.Hooks{CallCompleted: func(method, code string) {
		mu.Lock()
		defer mu.Unlock()
		answered[method+" "+code]++
	}}})
	refused, begun := 0, time.Now()
	for range 15 {
		if _, err := client.ListPods(t.Context(), &podsv1alpha1.ListPodsRequest{}); err != nil {
			assert.Equal(t, codes.ResourceExhausted, status.Code(err))
			assert.ErrorContains(t, err, "rejected by rate limit")
			refused++
		}
	}
	assert.LessOrEqual(t, refused, 5, "ten requests are admitted at once")
	assert.GreaterOrEqual(t, refused, 5-int(time.Since(begun)/time.Second)-1, "one more request is admitted per second")

	watch := func() (podsv1alpha1.Pods_WatchPodsClient, error) {
		w, err := client.WatchPods(t.Context(), &podsv1alpha1.WatchPodsRequest{})
		require.NoError(t, err)
		_, err = w.Recv()
		return w, err
	}
	w, err := watch()
	require.NoError(t, err)
	_, err = watch()
	require.NoError(t, err)
	_, err = watch()
	assert.Equal(t, codes.ResourceExhausted, status.Code(err))
	assert.ErrorContains(t, err, "too many watchers: there are 2")

	// The end of Run ends watches without waiting for their clients.
	stop()
	_, err = w.Recv()
	assert.Equal(t, codes.Unavailable, status.Code(err), "%v", err)
	mu.Lock()
	defer mu.Unlock()
	assert.Equal(t, map[string]int{
		"ListPods OK": 15 - refused, "WatchPods ResourceExhausted": 1, "WatchPods Unavailable": 2,
	}, answered)
}

func TestSecondRunAndNilSource(t *testing.T) {
	assert.Panics(t, func() { podsapi.New(nil, podsapi.Options{}) })
	s := podsapi.New(&node{}, podsapi.Options{})
	path := filepath.Join(t.TempDir(), "s")
	l, err := podsapi.Listen(path)
	require.NoError(t, err)
	require.NoError(t, l.Close())
	require.ErrorContains(t, s.Run(t.Context(), l), "serve pods on "+path+": ", "Run returns the error of its listener")
	require.ErrorContains(t, s.Run(t.Context(), l), "make another server")
}
