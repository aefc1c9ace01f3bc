// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiservertest_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
)

// client returns a REST client for a group.
func client(t *testing.T, config *rest.Config, group, contentType string) *rest.RESTClient {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, corev1.AddToScheme(scheme))
	require.NoError(t, coordinationv1.AddToScheme(scheme))
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	config = rest.CopyConfig(config)
	config.GroupVersion, config.APIPath = &schema.GroupVersion{Group: group, Version: "v1"}, "/api"
	if group != "" {
		config.APIPath = "/apis"
	}
	config.ContentType = contentType
	config.AcceptContentTypes = contentType
	config.QPS = -1
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	c, err := rest.RESTClientFor(config)
	require.NoError(t, err)
	return c
}

// runWithEachTransport runs a test with each transport and encoding.
func runWithEachTransport(t *testing.T, test func(t *testing.T, server *apiservertest.Server, config *rest.Config, contentType string)) {
	for _, contentType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		t.Run("transport "+contentType, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := apiservertest.NewServer(apiservertest.Options{})
				defer server.Close()
				test(t, server, server.Config(), contentType)
			})
		})
		for _, plain := range []bool{true, false} {
			t.Run(map[bool]string{true: "HTTP ", false: "TLS "}[plain]+contentType, func(t *testing.T) {
				server := apiservertest.NewServer(apiservertest.Options{})
				config, stop := server.Listen(plain)
				t.Cleanup(stop)
				test(t, server, config, contentType)
			})
		}
	}
}

func newPod(name, node string) *corev1.Pod {
	grace := int64(30)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.PodSpec{
			NodeName: node, TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{{Name: "c", Image: "image"}},
		},
	}
}

func next(t *testing.T, w watch.Interface) watch.Event {
	t.Helper()
	select {
	case event, ok := <-w.ResultChan():
		require.True(t, ok, "the watch must stay open")
		return event
	case <-time.After(10 * time.Second):
		require.Fail(t, "no event")
		return watch.Event{}
	}
}

func TestPodIsCreatedUpdatedAndDeleted(t *testing.T) {
	runWithEachTransport(t, func(t *testing.T, server *apiservertest.Server, config *rest.Config, contentType string) {
		ctx := t.Context()
		c := client(t, config, "", contentType)
		var pod, got corev1.Pod
		require.NoError(t, c.Post().Namespace("default").Resource("pods").Body(newPod("web", "n1")).Do(ctx).Into(&pod))
		assert.NotEmpty(t, pod.UID)
		assert.NotEmpty(t, pod.ResourceVersion)
		assert.Equal(t, corev1.PodPending, pod.Status.Phase)
		err := c.Post().Namespace("default").Resource("pods").Body(newPod("web", "n1")).Do(ctx).Error()
		assert.True(t, apierrors.IsAlreadyExists(err), "%v", err)

		var list corev1.PodList
		require.NoError(t, c.Get().Resource("pods").Param("fieldSelector", "spec.nodeName=n1").Do(ctx).Into(&list))
		require.Len(t, list.Items, 1)
		assert.Equal(t, pod.UID, list.Items[0].UID)
		w, err := c.Get().Resource("pods").Param("fieldSelector", "spec.nodeName=n1").Param("watch", "true").
			Param("resourceVersion", list.ResourceVersion).Watch(ctx)
		require.NoError(t, err)
		defer w.Stop()

		patch := []byte(`{"metadata":{"uid":"` + string(pod.UID) + `"},"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`)
		require.NoError(t, c.Patch(types.StrategicMergePatchType).Namespace("default").Resource("pods").Name("web").SubResource("status").
			Body(patch).Do(ctx).Into(&got))
		assert.Equal(t, corev1.PodRunning, got.Status.Phase)
		event := next(t, w)
		assert.Equal(t, watch.Modified, event.Type)
		assert.Equal(t, got.Status, event.Object.(*corev1.Pod).Status)

		uid := types.UID("other")
		err = c.Delete().Namespace("default").Resource("pods").Name("web").Body(&metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &uid},
		}).Do(ctx).Error()
		assert.True(t, apierrors.IsConflict(err), "%v", err)
		require.NoError(t, c.Delete().Namespace("default").Resource("pods").Name("web").Do(ctx).Error())
		event = next(t, w)
		assert.Equal(t, watch.Modified, event.Type)
		assert.EqualValues(t, 30, *event.Object.(*corev1.Pod).DeletionGracePeriodSeconds)
		zero := int64(0)
		require.NoError(t, c.Delete().Namespace("default").Resource("pods").Name("web").
			Body(&metav1.DeleteOptions{GracePeriodSeconds: &zero}).Do(ctx).Error())
		event = next(t, w)
		assert.Equal(t, watch.Deleted, event.Type)
		err = c.Get().Namespace("default").Resource("pods").Name("web").Do(ctx).Into(&got)
		assert.True(t, apierrors.IsNotFound(err), "%v", err)
		assert.Equal(t, 1, server.CountRequests(apiservertest.Match{Verb: "patch", Resource: "pods", Subresource: "status"}))
		assert.Equal(t, http.StatusNotFound, server.Requests(apiservertest.Match{Verb: "get"})[0].Code)
	})
}

func TestUpdatesConflict(t *testing.T) {
	runWithEachTransport(t, func(t *testing.T, server *apiservertest.Server, config *rest.Config, contentType string) {
		ctx := t.Context()
		c := client(t, config, "coordination.k8s.io", contentType)
		holder := "me"
		lease := &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-node-lease", Name: "n1"},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder},
		}
		var first, second coordinationv1.Lease
		require.NoError(t, c.Post().Namespace("kube-node-lease").Resource("leases").Body(lease).Do(ctx).Into(&first))
		put := func(l *coordinationv1.Lease) error {
			return c.Put().Namespace("kube-node-lease").Resource("leases").Name("n1").Body(l).Do(ctx).Into(&second)
		}
		renewed := first.DeepCopy()
		renewed.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
		require.NoError(t, put(renewed))
		assert.NotEqual(t, first.ResourceVersion, second.ResourceVersion)
		assert.True(t, apierrors.IsConflict(put(renewed)), "an update with an old resource version is a conflict")
		recreated := second.DeepCopy()
		recreated.UID = "other"
		assert.True(t, apierrors.IsConflict(put(recreated)))
		unversioned := second.DeepCopy()
		unversioned.ResourceVersion = ""
		assert.True(t, apierrors.IsInvalid(put(unversioned)))
		require.NoError(t, server.Remove(lease))
		assert.True(t, apierrors.IsNotFound(put(renewed)))
	})
}

func TestFaults(t *testing.T) {
	runWithEachTransport(t, func(t *testing.T, server *apiservertest.Server, config *rest.Config, contentType string) {
		require.NoError(t, server.Put(newPod("web", "n1")))
		c := client(t, config, "", contentType)
		get := func(ctx context.Context) error {
			return c.Get().Namespace("default").Resource("pods").Name("web").MaxRetries(0).Do(ctx).Error()
		}
		remove := server.Fail("get", "pods", 500)
		assert.True(t, apierrors.IsInternalError(get(t.Context())))
		remove()
		server.Inject(apiservertest.Fault{Match: apiservertest.Match{Verb: "get"}, Code: 429, RetryAfter: 7 * time.Second, Times: 1, Skip: 1})
		require.NoError(t, get(t.Context()), "a fault with Skip 1 spares the first request")
		err := get(t.Context())
		seconds, ok := apierrors.SuggestsClientDelay(err)
		assert.True(t, ok && seconds == 7, "%v", err)
		require.NoError(t, get(t.Context()))
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		remove = server.Hang("get", "")
		require.ErrorIs(t, get(ctx), context.DeadlineExceeded)
		remove()
		remove = server.Disconnect("get", "")
		require.Error(t, get(t.Context()))
		remove()
		server.SetUnavailable(true)
		require.Error(t, get(t.Context()))
		server.SetUnavailable(false)
		require.NoError(t, get(t.Context()))

		server.Inject(apiservertest.Fault{Match: apiservertest.Match{Verb: "create"}, LoseResponse: true, Times: 1})
		require.Error(t, c.Post().Namespace("default").Resource("pods").Body(newPod("lost", "n1")).Do(t.Context()).Error())
		_, exists := apiservertest.Get[*corev1.Pod](server, "default", "lost")
		assert.True(t, exists, "the pod is created although the response is lost")
	})
}

func TestWatchSendsSelectedChanges(t *testing.T) {
	runWithEachTransport(t, func(t *testing.T, server *apiservertest.Server, config *rest.Config, contentType string) {
		require.NoError(t, server.Put(newPod("a", "n1"), newPod("b", "n2")))
		old := server.ResourceVersion()
		c := client(t, config, "", contentType)
		open := func(params ...string) watch.Interface {
			r := c.Get().Resource("pods").Param("watch", "1").Param("fieldSelector", "spec.nodeName=n1").Param("allowWatchBookmarks", "true")
			for i := 0; i < len(params); i += 2 {
				r.Param(params[i], params[i+1])
			}
			w, err := r.Watch(t.Context())
			require.NoError(t, err)
			t.Cleanup(w.Stop)
			return w
		}
		w := open("sendInitialEvents", "true", "resourceVersionMatch", "NotOlderThan")
		defer w.Stop()
		assert.Equal(t, "a", next(t, w).Object.(*corev1.Pod).Name)
		mark := next(t, w)
		assert.Equal(t, watch.Bookmark, mark.Type)
		assert.Equal(t, "true", mark.Object.(*corev1.Pod).Annotations[metav1.InitialEventsAnnotationKey])

		require.NoError(t, apiservertest.Change(server, "default", "b", func(pod *corev1.Pod) { pod.Spec.NodeName = "n1" }))
		assert.Equal(t, watch.Added, next(t, w).Type, "a pod that starts to match the selector is an Added event")
		require.NoError(t, apiservertest.Change(server, "default", "a", func(pod *corev1.Pod) { pod.Spec.NodeName = "n2" }))
		assert.Equal(t, watch.Deleted, next(t, w).Type, "a pod that no longer matches the selector is a Deleted event")
		require.NoError(t, server.DeleteSilently(newPod("b", "")))
		require.NoError(t, server.Put(newPod("c", "n1")))
		assert.Equal(t, "c", next(t, w).Object.(*corev1.Pod).Name, "a silent deletion sends no event")

		server.DisconnectAll()
		for event := range w.ResultChan() {
			assert.Equal(t, watch.Error, event.Type, "a cut watch reports an error only with HTTP/2")
		}
		server.Compact()
		w, err := c.Get().Resource("pods").Param("watch", "1").Param("resourceVersion", fmt.Sprint(old)).Watch(t.Context())
		require.NoError(t, err)
		defer w.Stop()
		expired := next(t, w)
		assert.Equal(t, watch.Error, expired.Type)
		assert.True(t, apierrors.IsResourceExpired(apierrors.FromObject(expired.Object)), "%v", expired.Object)
	})
}

func TestPatches(t *testing.T) {
	runWithEachTransport(t, func(t *testing.T, server *apiservertest.Server, config *rest.Config, contentType string) {
		pod := newPod("web", "n1")
		pod.Labels = map[string]string{"a": "1", "b": "2"}
		require.NoError(t, server.Put(pod))
		c := client(t, config, "", contentType)
		patch := func(typ types.PatchType, body string) (got corev1.Pod, err error) {
			err = c.Patch(typ).Namespace("default").Resource("pods").Name("web").Body([]byte(body)).Do(t.Context()).Into(&got)
			return got, err
		}
		got, err := patch(types.MergePatchType, `{"metadata":{"labels":{"a":null,"c":"3"}},"status":{"phase":"Failed"}}`)
		require.NoError(t, err)
		assert.Equal(t, map[string]string{"b": "2", "c": "3"}, got.Labels)
		assert.NotEqual(t, corev1.PodFailed, got.Status.Phase, "the status changes through its subresource only")
		got, err = patch(types.JSONPatchType, `[{"op":"test","path":"/metadata/labels/b","value":"2"},{"op":"move","from":"/metadata/labels/b","path":"/metadata/labels/d"},
			{"op":"add","path":"/spec/containers/-","value":{"name":"two","image":"i"}},{"op":"remove","path":"/spec/containers/0"}]`)
		require.NoError(t, err)
		assert.Equal(t, map[string]string{"c": "3", "d": "2"}, got.Labels)
		require.Len(t, got.Spec.Containers, 1)
		assert.Equal(t, "two", got.Spec.Containers[0].Name)
		_, err = patch(types.JSONPatchType, `[{"op":"test","path":"/metadata/labels/c","value":"4"}]`)
		assert.True(t, apierrors.IsInvalid(err), "%v", err)
		_, err = patch(types.StrategicMergePatchType, `{"metadata":{"uid":"other"}}`)
		assert.True(t, apierrors.IsInvalid(err), "%v", err)
		_, err = patch(types.StrategicMergePatchType, `{"metadata":{"resourceVersion":"1"}}`)
		assert.True(t, apierrors.IsConflict(err), "%v", err)
		_, err = patch(types.ApplyPatchType, `{}`)
		assert.True(t, apierrors.IsUnsupportedMediaType(err), "%v", err)
	})
}
