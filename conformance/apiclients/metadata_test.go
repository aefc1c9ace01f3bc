// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiclients_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
)

func TestMetadataClientAndInformer(t *testing.T) {
	runInMemoryAndOnListener(t, customKinds, func(f fixture) {
		ctx, cancel := context.WithCancel(f.Context())
		pod := newPod("web")
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "u"}}
		require.NoError(f, f.server.Put(pod, newWidget("a", 1)))
		client := metadata.NewForConfigOrDie(f.config)
		pods := client.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace("default")
		got, err := pods.Get(ctx, "web", metav1.GetOptions{})
		require.NoError(f, err)
		assert.Equal(f, pod.OwnerReferences, got.OwnerReferences)
		list, err := client.Resource(widgets).List(ctx, metav1.ListOptions{Limit: 10})
		require.NoError(f, err)
		require.Len(f, list.Items, 1)
		assert.Equal(f, "a", list.Items[0].Name)

		factory := metadatainformer.NewSharedInformerFactory(client, 0)
		defer factory.Shutdown()
		defer cancel()
		var podLog, widgetLog eventLog
		_, err = factory.ForResource(corev1.SchemeGroupVersion.WithResource("pods")).Informer().AddEventHandler(podLog.handler())
		require.NoError(f, err)
		_, err = factory.ForResource(widgets).Informer().AddEventHandler(widgetLog.handler())
		require.NoError(f, err)
		factory.Start(ctx.Done())
		f.awaitCondition(podLog.has("add default/web"), "the pod of the list")
		f.awaitCondition(widgetLog.has("add default/a"), "the custom resource of the list")
		_, err = pods.Patch(ctx, "web", types.MergePatchType, []byte(`{"metadata":{"ownerReferences":null}}`), metav1.PatchOptions{})
		require.NoError(f, err)
		f.awaitCondition(podLog.has("update default/web"), "the updated pod")
		require.NoError(f, pods.Delete(ctx, "web", metav1.DeleteOptions{}))
		f.awaitCondition(podLog.has("delete default/web"), "the deleted pod")
	})
}
