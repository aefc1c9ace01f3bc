// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiclients_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
)

func newDeployment(name string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "i"}, {Name: "b", Image: "i"}}},
			},
		},
	}
}

// statusOf returns the Status of an API error.
func statusOf(t *testing.T, err error) metav1.Status {
	t.Helper()
	var status apierrors.APIStatus
	require.ErrorAs(t, err, &status)
	return status.Status()
}

func TestDeploymentIsServedAsByARealServer(t *testing.T) {
	for _, contentType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		t.Run(contentType, func(t *testing.T) {
			runInMemoryAndOnListener(t, apiservertest.Options{}, func(f fixture) {
				f.config.ContentType = contentType
				ctx, c := f.Context(), f.clientset().AppsV1().Deployments("default")
				created, err := c.Create(ctx, newDeployment("web"), metav1.CreateOptions{})
				require.NoError(f, err)
				assert.EqualValues(f, 1, *created.Spec.Replicas)
				assert.Equal(f, "25%", created.Spec.Strategy.RollingUpdate.MaxSurge.String())
				assert.EqualValues(f, 1, created.Generation)
				_, err = c.Create(ctx, newDeployment("web"), metav1.CreateOptions{})
				assert.Equal(f, `deployments.apps "web" already exists`, statusOf(f.T, err).Message)

				created.Status.Replicas, created.Status.ObservedGeneration = 5, 1
				updated, err := c.UpdateStatus(ctx, created, metav1.UpdateOptions{})
				require.NoError(f, err)
				assert.EqualValues(f, 5, updated.Status.Replicas)
				assert.EqualValues(f, 1, updated.Generation, "a change of the status is no new generation")
				updated.Spec.Paused, updated.Status.Replicas = true, 7
				updated, err = c.Update(ctx, updated, metav1.UpdateOptions{})
				require.NoError(f, err)
				assert.EqualValues(f, 2, updated.Generation)
				assert.EqualValues(f, 5, updated.Status.Replicas, "an update does not write the status")
				_, err = c.Update(ctx, created, metav1.UpdateOptions{})
				assert.True(f, apierrors.IsConflict(err))
				assert.Equal(f, `Operation cannot be fulfilled on deployments.apps "web": the object has been modified; please apply your changes to the latest version and try again`,
					statusOf(f.T, err).Message)

				patched, err := c.Patch(ctx, "web", types.StrategicMergePatchType,
					[]byte(`{"spec":{"template":{"spec":{"containers":[{"name":"b","image":"new"}]}}}}`), metav1.PatchOptions{})
				require.NoError(f, err)
				require.Len(f, patched.Spec.Template.Spec.Containers, 2, "a strategic merge patch merges lists by key")
				assert.Equal(f, "new", patched.Spec.Template.Spec.Containers[1].Image)
				_, err = c.Patch(ctx, "web", types.ApplyPatchType, []byte(`{}`), metav1.PatchOptions{FieldManager: "test"})
				assert.Equal(f, metav1.StatusReasonUnsupportedMediaType, statusOf(f.T, err).Reason)
				assert.Contains(f, err.Error(), "application/strategic-merge-patch+json")

				require.NoError(f, c.Delete(ctx, "web", metav1.DeleteOptions{}))
				_, err = c.Get(ctx, "web", metav1.GetOptions{})
				status := statusOf(f.T, err)
				assert.Equal(f, `deployments.apps "web" not found`, status.Message)
				assert.Equal(f, &metav1.StatusDetails{Name: "web", Group: "apps", Kind: "deployments"}, status.Details)
				assert.EqualValues(f, http.StatusNotFound, status.Code)
			})
		})
	}
}

func TestScaleSubresource(t *testing.T) {
	runInMemoryAndOnListener(t, apiservertest.Options{}, func(f fixture) {
		ctx, c := f.Context(), f.clientset().AppsV1().Deployments("default")
		_, err := c.Create(ctx, newDeployment("web"), metav1.CreateOptions{})
		require.NoError(f, err)
		scale, err := c.GetScale(ctx, "web", metav1.GetOptions{})
		require.NoError(f, err)
		assert.EqualValues(f, 1, scale.Spec.Replicas)
		assert.Equal(f, "app=web", scale.Status.Selector)
		stale := scale.DeepCopy()
		scale.Spec.Replicas = 4
		scale, err = c.UpdateScale(ctx, "web", scale, metav1.UpdateOptions{})
		require.NoError(f, err)
		assert.EqualValues(f, 4, scale.Spec.Replicas)
		_, err = c.UpdateScale(ctx, "web", stale, metav1.UpdateOptions{})
		assert.True(f, apierrors.IsConflict(err))
		_, err = c.UpdateScale(ctx, "web", &autoscalingv1.Scale{
			ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: autoscalingv1.ScaleSpec{Replicas: -1},
		}, metav1.UpdateOptions{})
		assert.True(f, apierrors.IsInvalid(err))
		_, err = c.Patch(ctx, "web", types.MergePatchType, []byte(`{"spec":{"replicas":6}}`), metav1.PatchOptions{}, "scale")
		require.NoError(f, err)
		deployment, err := c.Get(ctx, "web", metav1.GetOptions{})
		require.NoError(f, err)
		assert.EqualValues(f, 6, *deployment.Spec.Replicas)
		assert.EqualValues(f, 3, deployment.Generation)
	})
}

func TestPodsAndNodesOfASchedulerTest(t *testing.T) {
	runInMemoryAndOnListener(t, apiservertest.Options{}, func(f fixture) {
		ctx, c := f.Context(), f.clientset()
		_, err := c.SchedulingV1().PriorityClasses().Create(ctx, &schedulingv1.PriorityClass{
			ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 1000,
		}, metav1.CreateOptions{})
		require.NoError(f, err)
		pod := newPod("")
		pod.GenerateName, pod.Spec.PriorityClassName = "web-", "high"
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "u"}}
		created, err := c.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{})
		require.NoError(f, err)
		assert.Regexp(f, "^web-[a-z0-9]{5}$", created.Name)
		assert.EqualValues(f, 1000, *created.Spec.Priority)
		assert.Equal(f, pod.OwnerReferences, created.OwnerReferences)
		pod.Spec.PriorityClassName = "unknown"
		_, err = c.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{})
		assert.True(f, apierrors.IsForbidden(err))
		assert.ErrorContains(f, err, "no PriorityClass with name unknown was found")

		created.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "i"}}}
		created.Spec.NodeName = "other"
		debugged, err := c.CoreV1().Pods("default").UpdateEphemeralContainers(ctx, created.Name, created, metav1.UpdateOptions{})
		require.NoError(f, err)
		assert.Len(f, debugged.Spec.EphemeralContainers, 1)
		assert.Empty(f, debugged.Spec.NodeName, "the subresource writes the ephemeral containers only")
		debugged.Spec.EphemeralContainers = nil
		_, err = c.CoreV1().Pods("default").UpdateEphemeralContainers(ctx, created.Name, debugged, metav1.UpdateOptions{})
		assert.True(f, apierrors.IsInvalid(err))

		node, err := c.CoreV1().Nodes().Create(ctx, newNode("n1"), metav1.CreateOptions{})
		require.NoError(f, err)
		node.Spec.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}}
		node, err = c.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{})
		require.NoError(f, err)
		node.Spec.Taints, node.Status.Phase = nil, corev1.NodeRunning
		node, err = c.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
		require.NoError(f, err)
		assert.Len(f, node.Spec.Taints, 1, "an update of the status does not write the taints")
		assert.Equal(f, corev1.NodeRunning, node.Status.Phase)
	})
}

func TestDeletions(t *testing.T) {
	runInMemoryAndOnListener(t, apiservertest.Options{}, func(f fixture) {
		ctx, c := f.Context(), f.clientset()
		pods := c.CoreV1().Pods("default")
		for i := range 10 {
			pod := newPod(fmt.Sprint("web-", i))
			pod.Labels["half"] = fmt.Sprint(i % 2)
			_, err := pods.Create(ctx, pod, metav1.CreateOptions{})
			require.NoError(f, err)
		}
		first, err := pods.Get(ctx, "web-0", metav1.GetOptions{})
		require.NoError(f, err)
		version, other := "1", types.UID("other")
		err = pods.Delete(ctx, "web-0", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &version}})
		assert.True(f, apierrors.IsConflict(err))
		err = pods.Delete(ctx, "web-0", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &other}})
		assert.True(f, apierrors.IsConflict(err))
		require.NoError(f, pods.Delete(ctx, "web-0", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}))
		_, err = pods.Get(ctx, "web-0", metav1.GetOptions{})
		require.NoError(f, err, "a dry run deletes nothing")
		require.NoError(f, pods.Delete(ctx, "web-0", *metav1.NewPreconditionDeleteOptions(string(first.UID))))

		require.NoError(f, pods.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "half=1"}))
		list, err := pods.List(ctx, metav1.ListOptions{})
		require.NoError(f, err)
		assert.Len(f, list.Items, 4)
		require.NoError(f, pods.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "metadata.name=web-2"}))
		list, err = pods.List(ctx, metav1.ListOptions{})
		require.NoError(f, err)
		assert.Len(f, list.Items, 3)
		assert.Equal(f, 2, f.server.CountRequests(apiservertest.Match{Verb: "deletecollection", Resource: "pods"}))

		_, err = c.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: "team"}, Spec: corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes}},
		}, metav1.CreateOptions{})
		require.NoError(f, err)
		require.NoError(f, c.CoreV1().Namespaces().Delete(ctx, "team", metav1.DeleteOptions{}))
		namespace, err := c.CoreV1().Namespaces().Get(ctx, "team", metav1.GetOptions{})
		require.NoError(f, err)
		assert.Equal(f, corev1.NamespaceTerminating, namespace.Status.Phase)
		namespace.Spec.Finalizers = nil
		_, err = c.CoreV1().Namespaces().Finalize(ctx, namespace, metav1.UpdateOptions{})
		require.NoError(f, err)
		_, err = c.CoreV1().Namespaces().Get(ctx, "team", metav1.GetOptions{})
		assert.True(f, apierrors.IsNotFound(err), "the last finalizer removes the namespace")
	})
}

func TestThousandPodsAreListedInPages(t *testing.T) {
	runInMemoryAndOnListener(t, apiservertest.Options{}, func(f fixture) {
		for i := range 1000 {
			pod := newPod(fmt.Sprintf("web-%03d", i))
			if i%4 == 0 {
				pod.Spec.NodeName = "n1"
			}
			require.NoError(f, f.server.Put(pod))
		}
		pods := f.clientset().CoreV1().Pods("")
		names, options := map[string]bool{}, metav1.ListOptions{Limit: 300}
		for page := 1; ; page++ {
			list, err := pods.List(f.Context(), options)
			require.NoError(f, err)
			for _, pod := range list.Items {
				names[pod.Name] = true
			}
			if page == 1 {
				assert.EqualValues(f, 700, *list.RemainingItemCount)
				require.NoError(f, f.server.Put(newPod("a-late-one")))
			}
			if options.Continue = list.Continue; options.Continue == "" {
				assert.Equal(f, 4, page)
				break
			}
		}
		assert.Len(f, names, 1000, "all pages are of the time of the first one")

		list, err := pods.List(f.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=n1", Limit: 10})
		require.NoError(f, err)
		assert.Nil(f, list.RemainingItemCount, "a list with a selector does not tell the number of remaining items")
		f.server.Compact()
		_, err = pods.List(f.Context(), metav1.ListOptions{Limit: 10, Continue: list.Continue})
		assert.True(f, apierrors.IsResourceExpired(err), "%v", err)
	})
}
