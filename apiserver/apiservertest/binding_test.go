// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiservertest_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
)

// A binding binds a pod once, if the pod exists and can be scheduled.
func TestBinding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := apiservertest.NewServer(apiservertest.Options{})
		defer server.Close()
		gated := newPod("gated", "")
		gated.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "wait"}}
		require.NoError(t, server.Put(newPod("web", ""), gated))
		c := client(t, server.Config(), "", runtime.ContentTypeJSON)
		bind := func(name, node string) error {
			return c.Post().Namespace("default").Resource("pods").Name(name).SubResource("binding").Body(&corev1.Binding{
				ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"chosen": "yes"}},
				Target:     corev1.ObjectReference{Kind: "Node", Name: node},
			}).Do(t.Context()).Error()
		}
		assert.True(t, apierrors.IsInvalid(bind("web", "")))
		assert.True(t, apierrors.IsNotFound(bind("other", "n1")))
		assert.True(t, apierrors.IsConflict(bind("gated", "n1")))
		require.NoError(t, bind("web", "n1"))
		err := bind("web", "n2")
		assert.True(t, apierrors.IsConflict(err))
		assert.ErrorContains(t, err, `pod web is already assigned to node "n1"`)

		pod, _ := apiservertest.Get[*corev1.Pod](server, "default", "web")
		assert.Equal(t, "n1", pod.Spec.NodeName)
		assert.Equal(t, "yes", pod.Annotations["chosen"])
		require.Len(t, pod.Status.Conditions, 1)
		assert.Equal(t, corev1.PodScheduled, pod.Status.Conditions[0].Type)
		assert.Equal(t, corev1.ConditionTrue, pod.Status.Conditions[0].Status)
	})
}

// Objects get the defaults of a real server that an agent depends on, such as the restart policy.
func TestPutSetsDefaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := apiservertest.NewServer(apiservertest.Options{})
		defer server.Close()
		bare := func(name string) *corev1.Pod {
			return &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
			}
		}
		require.NoError(t, server.Put(bare("put"), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s"}}))
		c := client(t, server.Config(), "", runtime.ContentTypeProtobuf)
		require.NoError(t, c.Post().Namespace("default").Resource("pods").Body(bare("created")).Do(t.Context()).Error())
		for _, name := range []string{"put", "created"} {
			pod, _ := apiservertest.Get[*corev1.Pod](server, "default", name)
			assert.Equal(t, corev1.RestartPolicyAlways, pod.Spec.RestartPolicy)
			assert.EqualValues(t, 30, *pod.Spec.TerminationGracePeriodSeconds)
			assert.Equal(t, corev1.PullAlways, pod.Spec.Containers[0].ImagePullPolicy)
			assert.Equal(t, corev1.DNSClusterFirst, pod.Spec.DNSPolicy)
		}
		secret, _ := apiservertest.Get[*corev1.Secret](server, "default", "s")
		assert.Equal(t, corev1.SecretTypeOpaque, secret.Type)
	})
}
