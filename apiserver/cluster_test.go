// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/seed81659283/nodeagent/apiserver"
	"github.com/seed81659283/nodeagent/internal/controlplane"
	"github.com/seed81659283/nodeagent/lifecycle"
)

// clusterWait limits waits for a real control plane.
const clusterWait = 90 * time.Second

// cluster is a source on a real API server, with the permissions of a node.
type cluster struct {
	*testing.T
	*controlplane.Plane
	source  *apiserver.Source
	mirrors *apiserver.Mirrors
	node    atomic.Pointer[corev1.Node]
	last    atomic.Pointer[apiserver.Update]

	mu       sync.Mutex // guards the fields below
	failures []string   // of mirror actions
}

func newCluster(t *testing.T) *cluster {
	if os.Getenv(controlplane.RequiredEnv) != "required" {
		t.Skipf("takes a minute and needs programs that take long to build: run `make cluster`, which sets %s", controlplane.RequiredEnv)
	}
	c := &cluster{T: t, Plane: controlplane.Start(t, controlplane.Options{ControllerManager: true})}
	c.registerNode()
	kubeconfig, err := c.Kubeconfig("system:node:n1", "system:nodes")
	require.NoError(t, err)
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	require.NoError(t, err)
	c.source, err = apiserver.New(config, apiserver.Options{NodeName: "n1"})
	require.NoError(t, err)
	c.mirrors, err = c.source.Mirrors(apiserver.MirrorsOptions{
		Sources: []string{"file"}, Node: c.node.Load,
		ActionFailed: func(pod types.NamespacedName, err error, _ time.Duration) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.failures = append(c.failures, fmt.Sprint(pod, " ", err))
		},
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for _, run := range []func(context.Context) error{
		c.mirrors.Run,
		func(ctx context.Context) error {
			return c.source.Pods().Run(ctx, func(u apiserver.Update) { c.last.Store(&u) })
		},
	} {
		wg.Go(func() {
			if err := run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() { cancel(); wg.Wait() })
	return c
}

// registerNode creates the Node object, as package nodestatus does.
func (c *cluster) registerNode() {
	var node corev1.Node
	require.NoError(c, c.Admin().Do(c.Context(), http.MethodPost, "/api/v1/nodes",
		&corev1.Node{TypeMeta: metav1.TypeMeta{Kind: "Node", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, &node))
	c.node.Store(&node)
}

// getPod returns a pod, and false if there is none.
func (c *cluster) getPod(name string) (*corev1.Pod, bool) {
	pod := &corev1.Pod{}
	err := c.Admin().Do(c.Context(), http.MethodGet, "/api/v1/namespaces/default/pods/"+name, nil, pod)
	if controlplane.StatusCode(err) == http.StatusNotFound {
		return nil, false
	}
	require.NoError(c, err)
	return pod, true
}

func (c *cluster) createPod(pod *corev1.Pod) error {
	pod = pod.DeepCopy()
	pod.TypeMeta = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}
	pod.UID, pod.ResourceVersion = "", ""
	return c.Admin().Do(c.Context(), http.MethodPost, "/api/v1/namespaces/default/pods", pod, nil)
}

func (c *cluster) deletePod(name string, grace int) {
	c.Helper()
	err := c.Admin().Do(c.Context(), http.MethodDelete, fmt.Sprintf("/api/v1/namespaces/default/pods/%s?gracePeriodSeconds=%d", name, grace), nil, nil)
	require.NoError(c, err)
}

// awaitCondition waits until a condition holds, and returns how long that took.
func (c *cluster) awaitCondition(what string, holds func() bool) time.Duration {
	c.Helper()
	began := time.Now()
	for !holds() {
		if time.Since(began) > clusterWait {
			c.mu.Lock()
			defer c.mu.Unlock()
			require.FailNow(c, what, "not within %v; mirrors: %q; pods: %v", clusterWait, c.failures, c.source.Pods().Err())
		}
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(began)
}

// hasMirror reports whether a static pod has its mirror pod at the API server and in the lookup of statuses.
func (c *cluster) hasMirror(static *corev1.Pod) func() bool {
	return func() bool {
		mirror, ok := c.source.Pods().Mirror(static)
		if !ok {
			return false
		}
		pod, exists := c.getPod(static.Name)
		return exists && pod.UID == mirror.UID && pod.DeletionTimestamp == nil
	}
}

// NodeRestriction accepts the mirror pods, and each change of a static pod or its mirror leads to the expected mirror.
func TestClusterMirrors(t *testing.T) {
	c := newCluster(t)
	web := staticPod("web", "h1")
	web.Finalizers = []string{"example.com/never"}
	c.mirrors.Set(lifecycle.PodSet{Source: "file", Pods: []*corev1.Pod{web}})
	t.Logf("mirrored after %v", c.awaitCondition("mirrored", c.hasMirror(web)))
	first, _ := c.getPod("web")
	require.Equal(t, "h1", first.Annotations[corev1.MirrorPodAnnotationKey])
	require.Equal(t, c.node.Load().UID, first.OwnerReferences[0].UID)

	edited := staticPod("web", "h2")
	c.mirrors.Set(lifecycle.PodSet{Source: "file", Pods: []*corev1.Pod{edited}})
	t.Logf("replaced after %v", c.awaitCondition("edited", c.hasMirror(edited)))
	for _, grace := range []int{0, 30} {
		before, _ := c.getPod("web")
		c.deletePod("web", grace)
		t.Logf("created again after %v", c.awaitCondition("the mirror created again after a user deleted it", func() bool {
			pod, ok := c.getPod("web")
			return ok && pod.UID != before.UID && c.hasMirror(edited)()
		}))
	}

	token := staticPod("token", "h3")
	token.Spec.ServiceAccountName = "default"
	c.mirrors.Set(lifecycle.PodSet{Source: "file", Pods: []*corev1.Pod{edited, token}})
	c.awaitCondition("the error that the pod cannot have a mirror", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.failures) > 0
	})
	c.mu.Lock()
	failures := slices.Clone(c.failures)
	c.mu.Unlock()
	require.Equal(t, []string{"default/token pod default/token cannot have a mirror: spec.serviceAccountName: Forbidden: mirror pods may not reference service accounts"}, failures)

	c.mirrors.Set(lifecycle.PodSet{Source: "file"})
	c.awaitCondition("removal of the mirror without its static pod", func() bool { _, ok := c.getPod("web"); return !ok })
	c.mu.Lock()
	defer c.mu.Unlock()
	require.Len(t, c.failures, 1)
}

// The set has the pods that are bound to the node, also after a restart of the API server.
func TestClusterPods(t *testing.T) {
	c := newCluster(t)
	c.awaitCondition("a service account, which pods require", func() bool {
		return c.Admin().Do(t.Context(), http.MethodGet, "/api/v1/namespaces/default/serviceaccounts/default", nil, nil) == nil
	})
	has := func(names ...string) func() bool {
		return func() bool {
			u := c.last.Load()
			if u == nil || len(u.Pods) != len(names) {
				return false
			}
			for i, pod := range u.Pods {
				if pod.Name != names[i] || pod.Annotations["kubernetes.io/config.source"] != apiserver.API {
					return false
				}
			}
			return true
		}
	}
	c.awaitCondition("the empty pod set", has())
	liar := newPod("a", "", "")
	liar.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
	require.NoError(t, c.createPod(liar))
	elsewhere := newPod("elsewhere", "", "")
	elsewhere.Spec.NodeName = "n2"
	require.NoError(t, c.createPod(elsewhere))
	t.Logf("bound pod seen after %v", c.awaitCondition("a pod", has("a")))
	c.deletePod("a", 30)
	c.awaitCondition("its deletion", func() bool { return c.last.Load().Pods[0].DeletionTimestamp != nil })
	c.deletePod("a", 5)
	c.awaitCondition("a shorter grace period", func() bool { return *c.last.Load().Pods[0].DeletionGracePeriodSeconds == 5 })

	require.NoError(t, c.Kill(controlplane.APIServer))
	time.Sleep(3 * time.Second)
	require.True(t, has("a")(), "the pod stays in the set while the API server is unavailable")
	require.NoError(t, c.Restart(t.Context(), controlplane.APIServer))
	require.NoError(t, c.createPod(newPod("b", "", "")))
	t.Logf("watch restored after %v", c.awaitCondition("a pod created after the restart", has("a", "b")))
	c.deletePod("a", 0)
	require.NoError(t, c.createPod(newPod("a", "", "")))
	c.awaitCondition("another pod of the same name", func() bool { return c.last.Load().Pods[0].DeletionTimestamp == nil && has("a", "b")() })
}
