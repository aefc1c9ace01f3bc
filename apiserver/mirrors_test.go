// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/apiserver"
	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
	"github.com/seed81659283/nodeagent/lifecycle"
)

// mirrorScene is a scene with mirror pods of the static pods of the source "file".
type mirrorScene struct {
	*scene
	mirrors  *apiserver.Mirrors
	node     atomic.Pointer[corev1.Node]
	running  atomic.Pointer[corev1.Pod] // the static pod for which StillRunning returns true
	failures []string
}

func newMirrorScene(t *testing.T, logger ...*slog.Logger) *mirrorScene {
	o := apiserver.Options{}
	if len(logger) > 0 {
		o.Logger = logger[0]
	}
	s := &mirrorScene{scene: newScene(t, o)}
	s.node.Store(newNode())
	var err error
	s.mirrors, err = s.source.Mirrors(apiserver.MirrorsOptions{
		Sources: []string{"file"},
		Node:    func() *corev1.Node { return s.node.Load() },
		RunningUIDs: func(_, name string) (uids []types.UID) {
			if pod := s.running.Load(); pod != nil && pod.Name == name {
				uids = append(uids, pod.UID)
			}
			return uids
		},
		ActionFailed: func(pod types.NamespacedName, err error, retry time.Duration) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.failures = append(s.failures, fmt.Sprint(pod, " ", err, " ", retry > 0))
		},
	})
	require.NoError(t, err)
	s.runAll(s.pods, s.mirrors.Run)
	return s
}

func (s *mirrorScene) setStaticPods(pods ...*corev1.Pod) {
	s.mirrors.Set(lifecycle.PodSet{Source: "file", Pods: pods})
}

// failedActions returns the calls of ActionFailed.
func (s *mirrorScene) failedActions() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.failures)
}

// listPods returns the pods of the server, with their hashes.
func (s *mirrorScene) listPods() string {
	var words []string
	for _, pod := range apiservertest.List[*corev1.Pod](s.server) {
		words = append(words, pod.Name+"="+pod.Annotations[corev1.MirrorPodAnnotationKey])
	}
	return strings.Join(words, " ")
}

// countWrites returns the number of write requests.
func (s *mirrorScene) countWrites() (n int) {
	for _, r := range s.server.Requests(apiservertest.Match{}) {
		if !slices.Contains([]string{"get", "list", "watch"}, r.Verb) {
			n++
		}
	}
	return n
}

func TestMirrorsOfStaticPods(t *testing.T) {
	runInBubble(t, func(t *testing.T) {
		s := newMirrorScene(t)
		web := staticPod("web", "h1")
		s.setStaticPods(web)
		time.Sleep(time.Second)
		assert.Equal(t, "web=h1", s.listPods())
		mirror, ok := s.source.Pods().Mirror(web)
		require.True(t, ok)
		assert.NotEqual(t, web.UID, mirror.UID)
		u, _ := s.lastUpdate()
		assert.Empty(t, u.Pods, "mirror pods are not in the update")
		assert.Len(t, u.Mirrors, 1)
		assert.Equal(t, 1, (&apiserver.Parts{Source: s.source}).MirrorCount())
		assert.Zero(t, (*apiserver.Parts)(nil).MirrorCount())

		edited := staticPod("web", "h2")
		edited.Spec.Containers[0].Image = "other"
		s.setStaticPods(edited)
		_, ok = s.source.Pods().Mirror(edited)
		assert.False(t, ok, "no status is sent to the mirror of the previous pod")
		time.Sleep(2 * time.Second)
		assert.Equal(t, "web=h2", s.listPods())
		replaced, ok := s.source.Pods().Mirror(edited)
		require.True(t, ok)
		assert.NotEqual(t, mirror.UID, replaced.UID)
		assert.Equal(t, "other", replaced.Spec.Containers[0].Image)
		deletion := s.server.Requests(apiservertest.Match{Verb: "delete"})
		require.Len(t, deletion, 1)

		require.NoError(t, s.server.Remove(replaced))
		time.Sleep(2 * time.Second)
		assert.Equal(t, "web=h2", s.listPods(), "a mirror pod that a user deleted is created again")
		require.NoError(t, s.server.Delete(replaced, new(int64(30))))
		time.Sleep(2 * time.Second)
		again, ok := s.source.Pods().Mirror(edited)
		require.True(t, ok)
		assert.Nil(t, again.DeletionTimestamp, "the mirror pod is removed at once: no container runs for it")

		s.setStaticPods()
		time.Sleep(2 * time.Second)
		assert.Empty(t, s.listPods())
		writes := s.countWrites()
		time.Sleep(time.Hour)
		assert.Equal(t, writes, s.countWrites(), "no request is sent without changes")
		assert.Empty(t, s.failedActions())
		require.ErrorContains(t, s.mirrors.Run(t.Context()), "second call of Run")
	})
}

// After a restart the mirror pods exist already: nothing is written, and none is deleted before all sources have reported.
func TestMirrorsKeepMirrorsAfterRestart(t *testing.T) {
	runInBubble(t, func(t *testing.T) {
		s := newMirrorScene(t)
		s.putObjects(mirrorPod("web", "h1", "m1"), mirrorPod("gone", "h2", "m2"))
		time.Sleep(time.Hour)
		s.mirrors.Set(lifecycle.PodSet{Source: "file", Incomplete: true})
		time.Sleep(time.Hour)
		assert.Equal(t, "gone=h2 web=h1", s.listPods())
		assert.Zero(t, s.countWrites())
		s.setStaticPods(staticPod("web", "h1"))
		time.Sleep(2 * time.Second)
		assert.Equal(t, "web=h1", s.listPods())
		assert.Equal(t, 1, s.countWrites())
		web, _ := apiservertest.Get[*corev1.Pod](s.server, "default", "web")
		assert.Equal(t, types.UID("m1"), web.UID)
	})
}

func TestMirrorStaysWhileItsPodTerminates(t *testing.T) {
	runInBubble(t, func(t *testing.T) {
		s := newMirrorScene(t)
		s.setStaticPods(staticPod("web", "h1"))
		time.Sleep(time.Second)
		s.running.Store(staticPod("web", "h1"))
		s.setStaticPods()
		time.Sleep(time.Hour)
		assert.Equal(t, "web=h1", s.listPods())
		s.running.Store(nil)
		time.Sleep(2 * time.Second)
		assert.Empty(t, s.listPods())
	})
}

// A changed static pod gets a new mirror pod after its predecessor has terminated. Until then the mirror keeps its UID, and is
// not recreated after a deletion.
func TestMirrorStaysWhilePredecessorTerminates(t *testing.T) {
	runInBubble(t, func(t *testing.T) {
		s := newMirrorScene(t)
		s.setStaticPods(staticPod("web", "h1"))
		time.Sleep(time.Second)
		before, _ := apiservertest.Get[*corev1.Pod](s.server, "default", "web")
		s.running.Store(staticPod("web", "h1"))
		for _, hash := range []string{"h2", "h3"} {
			s.setStaticPods(staticPod("web", hash))
			time.Sleep(time.Minute)
			during, _ := apiservertest.Get[*corev1.Pod](s.server, "default", "web")
			require.Equal(t, before.UID, during.UID)
			require.Equal(t, "web=h1", s.listPods())
		}
		s.running.Store(staticPod("web", "h3"))
		time.Sleep(2 * time.Second)
		assert.Equal(t, "web=h3", s.listPods())

		s.setStaticPods(staticPod("web", "h4"))
		require.NoError(t, s.server.Remove(newPod("web", "", "")))
		time.Sleep(time.Minute)
		assert.Empty(t, s.listPods())
		s.running.Store(nil)
		time.Sleep(2 * time.Second)
		assert.Equal(t, "web=h4", s.listPods())
	})
}

func TestMirrorsWaitForNode(t *testing.T) {
	runInBubble(t, func(t *testing.T) {
		s := newMirrorScene(t)
		s.node.Store(nil)
		s.setStaticPods(staticPod("web", "h1"))
		time.Sleep(time.Hour)
		assert.Empty(t, s.listPods())
		assert.Zero(t, s.countWrites())
		assert.Equal(t, []string{"default/web mirror of pod default/web: the node is not registered, or is being deleted false"}, s.failedActions(), "once")
		s.node.Store(newNode())
		time.Sleep(1100 * time.Millisecond)
		assert.Equal(t, "web=h1", s.listPods())
	})
}

// The name of the mirror belongs to another pod: no request is sent until that pod is removed.
func TestMirrorWithTakenNameIsNotCreated(t *testing.T) {
	runInBubble(t, func(t *testing.T) {
		s := newMirrorScene(t)
		s.putObjects(newPod("web", "user", ""))
		elsewhere := newPod("db", "user2", "")
		elsewhere.Spec.NodeName = "n2"
		s.putObjects(elsewhere)
		time.Sleep(time.Second)
		s.setStaticPods(staticPod("web", "h1"), staticPod("db", "h2"))
		time.Sleep(10 * time.Minute)
		assert.Equal(t, "db= web=", s.listPods())
		assert.Less(t, s.countWrites(), 20, "requests for db only, with a back-off: the pod of its name is on another node")
		require.NoError(t, s.server.Remove(newPod("web", "", "")))
		require.NoError(t, s.server.Remove(elsewhere))
		time.Sleep(2 * time.Minute)
		assert.Equal(t, "db=h2 web=h1", s.listPods())
	})
}

// The response of a create request was lost, or a previous agent created the mirror and the watch is behind.
func TestExistingMirrorIsAdoptedOrReplaced(t *testing.T) {
	runInBubble(t, func(t *testing.T) {
		s := newMirrorScene(t)
		time.Sleep(time.Second)
		s.server.Inject(apiservertest.Fault{Match: apiservertest.Match{Verb: "watch"}, Hang: true})
		s.server.DisconnectAll()
		s.putObjects(mirrorPod("same", "h1", "m1"), mirrorPod("other", "h0", "m2"))
		s.server.Inject(apiservertest.Fault{Match: apiservertest.Match{Verb: "create"}, LoseResponse: true, Times: 1})
		s.setStaticPods(staticPod("lost", "h3"))
		time.Sleep(5 * time.Second)
		s.setStaticPods(staticPod("same", "h1"), staticPod("other", "h2"), staticPod("lost", "h3"))
		time.Sleep(20 * time.Second)
		assert.Equal(t, "lost=h3 other=h2 same=h1", s.listPods())
		same, _ := apiservertest.Get[*corev1.Pod](s.server, "default", "same")
		assert.Equal(t, types.UID("m1"), same.UID)
	})
}

// The API server or a webhook rejects the mirror: requests are retried with a back-off.
func TestRejectedMirrorIsRetriedWithBackOff(t *testing.T) {
	runInBubble(t, func(t *testing.T) {
		s := newMirrorScene(t)
		allow := s.server.Inject(apiservertest.Fault{Match: apiservertest.Match{Verb: "create"}, Err: apierrors.NewForbidden(
			schema.GroupResource{Resource: "pods"}, "web", errors.New("no mirrors here"))})
		s.setStaticPods(staticPod("web", "h1"))
		time.Sleep(10 * time.Minute)
		assert.Less(t, s.countWrites(), 20)
		require.NotEmpty(t, s.failedActions())
		assert.Contains(t, s.failedActions()[0], "no mirrors here")
		allow()
		time.Sleep(2 * time.Minute)
		assert.Equal(t, "web=h1", s.listPods())
	})
}

// Creation in a namespace that does not exist, or is being deleted, is retried with a back-off and logged once, until the
// namespace exists.
func TestMirrorInMissingNamespaceBacksOff(t *testing.T) {
	terminating := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "web", errors.New("namespace is being terminated"))
	terminating.ErrStatus.Details.Causes = append(terminating.ErrStatus.Details.Causes, metav1.StatusCause{Type: corev1.NamespaceTerminatingCause})
	for name, refusal := range map[string]*apierrors.StatusError{
		"missing":     apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "default"),
		"terminating": terminating,
	} {
		t.Run(name, func(t *testing.T) {
			runInBubble(t, func(t *testing.T) {
				var log bytes.Buffer
				s := newMirrorScene(t, slog.New(slog.NewTextHandler(&log, nil)))
				allow := s.server.Inject(apiservertest.Fault{Match: apiservertest.Match{Verb: "create"}, Err: refusal})
				s.setStaticPods(staticPod("web", "h1"))
				time.Sleep(24 * time.Hour)
				assert.Less(t, s.countWrites(), 24*6+15, "one request in 10 minutes")
				assert.Greater(t, s.countWrites(), 24*4)
				assert.Len(t, s.failedActions(), s.countWrites(), "the hook is called for each failed request")
				lines := strings.Count(log.String(), "mirror pod")
				assert.Equal(t, 1, lines, log.String())
				allow()
				time.Sleep(15 * time.Minute)
				assert.Equal(t, "web=h1", s.listPods())
			})
		})
	}
}

// A client that keeps deleting mirror pods causes no request storm.
func TestMirrorsDeletedRepeatedlyAreRecreatedWithPause(t *testing.T) {
	runInBubble(t, func(t *testing.T) {
		s := newMirrorScene(t)
		s.setStaticPods(staticPod("web", "h1"))
		for range 600 {
			time.Sleep(100 * time.Millisecond)
			_ = s.server.Remove(newPod("web", "", "")) // the mirror may not exist
		}
		assert.LessOrEqual(t, s.countWrites(), 61, "one request a second")
		time.Sleep(2 * time.Second)
		assert.Equal(t, "web=h1", s.listPods())
	})
}

// TestMirrorsOfRandomOperations checks that each static pod has its mirror after random changes on both sides and random faults.
func TestMirrorsOfRandomOperations(t *testing.T) {
	for seed := range uint64(30) {
		runInBubble(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 5))
			s := newMirrorScene(t)
			want := map[string]*corev1.Pod{}
			var calm []func()
			for i := range 40 {
				s.changeMirrors(rnd, want, i)
				calm = append(calm, s.injectFault(rnd))
				time.Sleep(time.Duration(rnd.IntN(3000)) * time.Millisecond)
			}
			for _, end := range calm {
				end()
			}
			s.server.SetUnavailable(false)
			s.running.Store(nil)
			time.Sleep(5 * time.Minute)
			var words []string
			for _, name := range slices.Sorted(maps.Keys(want)) {
				words = append(words, name+"="+want[name].Annotations["kubernetes.io/config.hash"])
			}
			require.Equal(t, strings.Join(words, " "), s.listPods(), "seed %d", seed)
			for _, pod := range want {
				_, ok := s.source.Pods().Mirror(pod)
				require.True(t, ok)
			}
			writes := s.countWrites()
			time.Sleep(time.Hour)
			require.Equal(t, writes, s.countWrites(), "seed %d", seed)
		})
	}
}

// changeMirrors changes the static pods or their mirrors at random.
func (s *mirrorScene) changeMirrors(rnd *rand.Rand, want map[string]*corev1.Pod, i int) {
	name := fmt.Sprint("p", rnd.IntN(4))
	mirror, exists := apiservertest.Get[*corev1.Pod](s.server, "default", name)
	switch what := rnd.IntN(7); {
	case what < 2:
		want[name] = staticPod(name, fmt.Sprint("h", i))
	case what == 2:
		delete(want, name)
	case what == 3 && exists:
		require.NoError(s, s.server.Remove(mirror))
	case what == 4 && exists:
		require.NoError(s, s.server.Delete(mirror, new(int64(20))))
	case what == 6:
		s.running.Store(staticPod(name, "predecessor")) // Only one static pod of a name runs at a time.
	case what == 5:
		s.putObjects(mirrorPod(name, "alien", fmt.Sprint("alien", i)))
	}
	s.setStaticPods(slices.Collect(maps.Values(want))...)
}
