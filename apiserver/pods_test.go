// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/seed81659283/nodeagent/apiserver"
	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
)

func stamp() *metav1.Time { return new(metav1.NewTime(time.Now().Add(30 * time.Second))) }

// scene is a source with an API server in memory, in a synctest bubble.
type scene struct {
	*testing.T
	server *apiservertest.Server
	source *apiserver.Source

	mu      sync.Mutex // guards the fields below
	errs    []error
	updates []apiserver.Update
}

// newScene starts a source, which stops with the test.
func newScene(t *testing.T, o apiserver.Options) *scene {
	s := &scene{T: t, server: apiservertest.NewServer(apiservertest.Options{})}
	o.NodeName = "n1"
	o.Hooks.Error = func(err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.errs = append(s.errs, err)
	}
	var err error
	s.source, err = apiserver.New(s.server.Config(), o)
	require.NoError(t, err)
	return s
}

// runAll runs components until the test ends.
func (s *scene) runAll(parts ...func(context.Context) error) {
	ctx, cancel := context.WithCancel(s.Context())
	var wg sync.WaitGroup
	for _, part := range parts {
		wg.Go(func() { assert.NoError(s, part(ctx)) })
	}
	s.Cleanup(func() { cancel(); wg.Wait(); s.server.Close() })
}

func (s *scene) pods(ctx context.Context) error { return s.source.Pods().Run(ctx, s.storeUpdate) }

func (s *scene) storeUpdate(u apiserver.Update) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.updates = append(s.updates, u)
}

// reportedErrors returns the errors passed to Hooks.Error.
func (s *scene) reportedErrors() []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.errs)
}

// lastUpdate returns the last update, and the number of updates.
func (s *scene) lastUpdate() (apiserver.Update, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.updates) == 0 {
		return apiserver.Update{}, 0
	}
	return s.updates[len(s.updates)-1], len(s.updates)
}

// podNames returns the names of the pods in the last update.
func (s *scene) podNames() string {
	var names []string
	u, _ := s.lastUpdate()
	for _, pod := range u.Pods {
		names = append(names, pod.Name)
	}
	return strings.Join(names, " ")
}

func (s *scene) putObjects(pods ...*corev1.Pod) {
	s.Helper()
	for _, pod := range pods {
		pod = pod.DeepCopy()
		pod.ResourceVersion = ""
		require.NoError(s, s.server.Put(pod))
	}
}

func runInBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}

func TestNewNamesMissingOption(t *testing.T) {
	config := &rest.Config{Host: "http://apiserver.test"}
	for _, c := range []struct {
		config *rest.Config
		node   string
		want   string
	}{
		{config, "", "apiserver.New: Options.NodeName: required"},
		{config, "No Name", `apiserver.New: Options.NodeName "No Name": a lowercase RFC 1123 subdomain`},
		{nil, "n1", "apiserver.New: kubeapi: config is nil"},
		{&rest.Config{}, "n1", "apiserver.New: kubeapi: config.Host is empty"},
	} {
		_, err := apiserver.New(c.config, apiserver.Options{NodeName: c.node})
		require.ErrorContains(t, err, c.want)
	}
	source, err := apiserver.New(config, apiserver.Options{NodeName: "n1"})
	require.NoError(t, err)
	require.ErrorContains(t, source.Pods().Run(t.Context(), nil), "sink is nil")
}

func TestPodsRunPassesPodsOfNode(t *testing.T) {
	runInBubble(t, func(t *testing.T) {
		s := newScene(t, apiserver.Options{})
		elsewhere := newPod("elsewhere", "9", "")
		elsewhere.Spec.NodeName = "n2"
		s.putObjects(newPod("a", "1", ""), elsewhere)
		s.runAll(s.pods)
		time.Sleep(time.Second)
		assert.Equal(t, "a", s.podNames())
		u, n := s.lastUpdate()
		assert.Equal(t, 1, n)
		assert.False(t, u.Incomplete)
		assert.True(t, s.source.Pods().Synced())

		s.putObjects(newPod("b", "2", ""))
		require.NoError(t, apiservertest.Change(s.server, "default", "elsewhere", func(pod *corev1.Pod) { pod.Spec.NodeName = "n1" }))
		time.Sleep(time.Second)
		assert.Equal(t, "a b elsewhere", s.podNames())

		require.NoError(t, s.server.Delete(newPod("a", "", ""), new(int64(30))))
		time.Sleep(time.Second)
		u, _ = s.lastUpdate()
		assert.EqualValues(t, 30, *u.Pods[0].DeletionGracePeriodSeconds)
		require.NoError(t, s.server.Delete(newPod("a", "", ""), new(int64(5))))
		time.Sleep(time.Second)
		u, _ = s.lastUpdate()
		assert.EqualValues(t, 5, *u.Pods[0].DeletionGracePeriodSeconds, "the update has the shorter grace period")
		require.NoError(t, s.server.Delete(newPod("a", "", ""), new(int64(0))))
		s.putObjects(newPod("a", "3", ""))
		time.Sleep(time.Second)
		u, _ = s.lastUpdate()
		assert.Equal(t, "a b elsewhere", s.podNames())
		assert.Equal(t, types.UID("3"), u.Pods[0].UID, "the update has the new pod of the same name")
		assert.Nil(t, u.Pods[0].DeletionTimestamp)
		require.ErrorContains(t, s.pods(t.Context()), "second call of Run")
		assert.Empty(t, s.reportedErrors())
	})
}

// A node without pods is a complete empty set. Without an API server the sink is not called.
func TestPodsRunWaitsForFirstList(t *testing.T) {
	runInBubble(t, func(t *testing.T) {
		s := newScene(t, apiserver.Options{})
		s.server.SetUnavailable(true)
		s.runAll(s.pods)
		time.Sleep(10 * time.Minute)
		_, n := s.lastUpdate()
		assert.Zero(t, n)
		assert.False(t, s.source.Pods().Synced())
		require.Error(t, s.source.Pods().Err())
		assert.NotEmpty(t, s.reportedErrors())
		assert.Less(t, len(s.reportedErrors()), 60, "list requests have a back-off")
		s.server.SetUnavailable(false)
		time.Sleep(time.Minute)
		u, n := s.lastUpdate()
		assert.Equal(t, 1, n)
		assert.Empty(t, u.Pods)
		assert.False(t, u.Incomplete)
	})
}

func TestPodsRunWaitsForNode(t *testing.T) {
	runInBubble(t, func(t *testing.T) {
		registered := make(chan struct{})
		s := newScene(t, apiserver.Options{WaitForNode: func(ctx context.Context) error {
			select {
			case <-registered:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}})
		s.putObjects(newPod("a", "1", ""))
		s.runAll(s.pods)
		time.Sleep(time.Hour)
		assert.Zero(t, s.server.CountRequests(apiservertest.Match{}))
		close(registered)
		time.Sleep(time.Second)
		assert.Equal(t, "a", s.podNames())

		refused := newScene(t, apiserver.Options{WaitForNode: func(context.Context) error { return errors.New("no such node") }})
		require.ErrorContains(t, refused.pods(t.Context()), "apiserver.Pods: wait for node n1: no such node")
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		stopped := newScene(t, apiserver.Options{WaitForNode: func(ctx context.Context) error { return ctx.Err() }})
		require.NoError(t, stopped.pods(ended))
	})
}

// The set stays unchanged while the API server is unavailable, and is complete again afterwards.
func TestPodsStayWhileAPIServerIsUnavailable(t *testing.T) {
	runInBubble(t, func(t *testing.T) {
		s := newScene(t, apiserver.Options{})
		s.putObjects(newPod("a", "1", ""), newPod("b", "2", ""))
		s.runAll(s.pods)
		time.Sleep(time.Second)
		first, _ := s.lastUpdate()
		s.server.SetUnavailable(true)
		require.NoError(t, s.server.Remove(newPod("a", "", "")))
		s.putObjects(newPod("c", "3", ""))
		time.Sleep(2 * time.Minute)
		_, n := s.lastUpdate()
		assert.Equal(t, 1, n, "the sink is not called while the API server is unavailable")
		s.server.SetUnavailable(false)
		time.Sleep(time.Minute)
		assert.Equal(t, "b c", s.podNames())
		last, _ := s.lastUpdate()
		assert.Same(t, first.Pods[1], last.Pods[0], "the unchanged pod b keeps its pointer")
	})
}

// A pod whose deletion event was lost, as after a restore of etcd, is removed within 15 minutes.
func TestRelistRemovesPodsLostByWatch(t *testing.T) {
	runInBubble(t, func(t *testing.T) {
		s := newScene(t, apiserver.Options{})
		s.putObjects(newPod("a", "1", ""), newPod("b", "2", ""))
		s.runAll(s.pods)
		time.Sleep(time.Second)
		require.NoError(t, s.server.DeleteSilently(newPod("a", "", "")))
		time.Sleep(11 * time.Minute)
		assert.Equal(t, "a b", s.podNames())
		time.Sleep(5 * time.Minute)
		assert.Equal(t, "b", s.podNames())
	})
}

// The pods of the node change during each fault of one minute. One minute after the fault the set is correct.
func TestPodsUnderFaults(t *testing.T) {
	for name, fault := range map[string]apiservertest.Fault{
		"409":                  {Code: 409},
		"429 with Retry-After": {Code: 429, RetryAfter: 3 * time.Second},
		"500":                  {Code: 500},
		"hang":                 {Hang: true},
		"slow":                 {Delay: 3 * time.Second},
		"refused":              {Disconnect: true},
		"cut after 1 s":        {Match: apiservertest.Match{Verb: "watch"}, DisconnectAfter: time.Second},
		"410 of each watch":    {Match: apiservertest.Match{Verb: "watch"}, Code: 410},
		"403 of each list":     {Match: apiservertest.Match{Verb: "list"}, Code: 403},
	} {
		t.Run(name, func(t *testing.T) {
			runInBubble(t, func(t *testing.T) {
				s := newScene(t, apiserver.Options{})
				s.putObjects(newPod("first", "0", ""))
				s.runAll(s.pods)
				time.Sleep(time.Second)
				s.server.ForgetRequests()
				remove := s.server.Inject(fault)
				s.server.DisconnectAll()
				rnd := rand.New(rand.NewPCG(1, 1))
				for i := range 60 {
					s.changePods(rnd, i)
					if rnd.IntN(10) == 0 {
						s.server.Compact()
					}
					time.Sleep(time.Second)
				}
				remove()
				s.server.DisconnectAll()
				requests := s.server.CountRequests(apiservertest.Match{})
				t.Logf("%d requests in a minute", requests)
				assert.Less(t, requests, 200, "requests have a back-off")
				time.Sleep(time.Minute)
				s.checkLastUpdate()
			})
		})
	}
}

// changePods changes the pods of the node at random.
func (s *scene) changePods(rnd *rand.Rand, i int) {
	s.Helper()
	pods := apiservertest.List[*corev1.Pod](s.server)
	var pod *corev1.Pod
	if len(pods) > 0 {
		pod = pods[rnd.IntN(len(pods))]
	}
	switch what := rnd.IntN(8); {
	case pod == nil || what < 3:
		next := newPod(fmt.Sprint("p", rnd.IntN(6)), fmt.Sprint("uid-", i), "")
		if rnd.IntN(5) == 0 {
			next.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
		}
		s.putObjects(next)
	case what == 3:
		require.NoError(s, s.server.Remove(pod))
	case what == 4:
		require.NoError(s, s.server.Delete(pod, new(int64(rnd.IntN(3)*10))))
	case what == 5:
		require.NoError(s, s.server.DeleteSilently(pod))
		s.putObjects(pod) // changes the pod with a resource version that the watch has not seen
	case what == 6:
		pod.Spec.NodeName = []string{"n1", "n2"}[rnd.IntN(2)]
		s.putObjects(pod)
	default:
		pod.Status.Phase = corev1.PodRunning
		pod.Labels = map[string]string{"change": fmt.Sprint(i)}
		s.putObjects(pod)
	}
}

// checkLastUpdate compares the last update with the server.
func (s *scene) checkLastUpdate() {
	s.Helper()
	var want, got []string
	for _, pod := range apiservertest.List[*corev1.Pod](s.server) {
		if pod.Spec.NodeName == "n1" {
			_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
			want = append(want, fmt.Sprint(pod.Name, " ", pod.UID, " ", pod.ResourceVersion, " ", mirror))
		}
	}
	u, _ := s.lastUpdate()
	for _, pod := range u.Pods {
		got = append(got, fmt.Sprint(pod.Name, " ", pod.UID, " ", pod.ResourceVersion, " ", false))
	}
	for _, pod := range u.Mirrors {
		got = append(got, fmt.Sprint(pod.Name, " ", pod.UID, " ", pod.ResourceVersion, " ", true))
	}
	slices.Sort(got)
	slices.Sort(want)
	require.Equal(s, want, got)
	require.Empty(s, u.Errs)
}

// TestPodsOfRandomOperations checks that the set equals the server's pods after random changes and faults.
func TestPodsOfRandomOperations(t *testing.T) {
	for seed := range uint64(40) {
		runInBubble(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 3))
			s := newScene(t, apiserver.Options{})
			s.runAll(s.pods)
			var calm []func()
			for i := range 40 {
				s.changePods(rnd, i)
				calm = append(calm, s.injectFault(rnd))
				time.Sleep(time.Duration(rnd.IntN(4000)) * time.Millisecond)
			}
			for _, end := range calm {
				end()
			}
			s.server.SetUnavailable(false)
			time.Sleep(2 * time.Minute)
			s.checkLastUpdate()
		})
	}
}

// injectFault injects a random fault, and returns a function that removes it.
func (s *scene) injectFault(rnd *rand.Rand) (end func()) {
	switch rnd.IntN(12) {
	case 0:
		s.server.DisconnectAll()
	case 1:
		s.server.Compact()
	case 2:
		s.server.SetUnavailable(true)
	case 3, 4:
		s.server.SetUnavailable(false)
	case 5:
		return s.server.Inject(apiservertest.Fault{Times: 1 + rnd.IntN(3), Code: []int{409, 410, 429, 500, 503, 504}[rnd.IntN(6)]})
	case 6:
		return s.server.Inject(apiservertest.Fault{Times: 1, Hang: true})
	case 7:
		return s.server.Inject(apiservertest.Fault{Times: 2, DisconnectAfter: time.Duration(rnd.IntN(3000)) * time.Millisecond})
	}
	return func() {}
}

// Changes during a call of the sink are combined in one update.
func TestBurstOfPodsIsOneUpdate(t *testing.T) {
	runInBubble(t, func(t *testing.T) {
		s := newScene(t, apiserver.Options{})
		s.runAll(func(ctx context.Context) error {
			return s.source.Pods().Run(ctx, func(u apiserver.Update) {
				s.storeUpdate(u)
				time.Sleep(100 * time.Millisecond)
			})
		})
		time.Sleep(time.Second)
		for i := range 110 {
			s.putObjects(newPod(fmt.Sprint("p", i), fmt.Sprint(i), ""))
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Second)
		u, n := s.lastUpdate()
		assert.Len(t, u.Pods, 110)
		assert.Less(t, n, 10)
	})
}

// Of too many pods, terminated pods are omitted first. Of the terminated pods, the newest 1,000 are returned.
func TestPodsBeyondLimitAreOmitted(t *testing.T) {
	for phase, incomplete := range map[corev1.PodPhase]bool{corev1.PodFailed: false, corev1.PodRunning: true} {
		want := 10_000
		if !incomplete {
			want = 1_001
		}
		runInBubble(t, func(t *testing.T) {
			s := newScene(t, apiserver.Options{})
			for i := range 10_050 {
				pod := newPod(fmt.Sprint("a", i), fmt.Sprint("a", i), "")
				pod.Status.Phase = phase
				s.putObjects(pod)
			}
			old := newPod("zz", "zz", "")
			old.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour))
			s.putObjects(old)
			s.runAll(s.pods)
			time.Sleep(30 * time.Second)
			u, _ := s.lastUpdate()
			require.Len(t, u.Pods, want)
			require.Equal(t, "zz", u.Pods[len(u.Pods)-1].Name)
			require.Equal(t, incomplete, u.Incomplete, "a pod that is left out may run, so the set is incomplete")
			require.ErrorContains(t, s.source.Pods().Err(), "more than 10000 objects: 51 are left out, the first is default/a")
			require.Len(t, s.reportedErrors(), 1)
		})
	}
}

// The returned pod is the watched object, not a copy. A mirror pod is not modified.
func TestWatchedPodsAreNotCopied(t *testing.T) {
	runInBubble(t, func(t *testing.T) {
		s := newScene(t, apiserver.Options{})
		pod, mirror := newPod("a", "1", ""), newPod("m", "2", "")
		pod.Annotations = map[string]string{"kubernetes.io/config.source": "file", "kubernetes.io/config.seen": "now", "kept": "yes"}
		mirror.Annotations = map[string]string{"kubernetes.io/config.mirror": "h1", "kubernetes.io/config.source": "file"}
		s.putObjects(pod, mirror)
		s.runAll(s.pods)
		time.Sleep(time.Minute)
		u, _ := s.lastUpdate()
		require.Len(t, u.Pods, 1)
		require.Len(t, u.Mirrors, 1)
		require.True(t, u.Shared)
		watched, ok := s.source.Pods().Object(pod.Namespace, "a")
		require.True(t, ok)
		require.Same(t, watched, u.Pods[0])
		require.Equal(t, map[string]string{"kubernetes.io/config.source": "api", "kept": "yes"}, watched.Annotations)
		require.Equal(t, mirror.Annotations, u.Mirrors[0].Annotations)
	})
}
