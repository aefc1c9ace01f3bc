// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiclients_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/scale"

	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
)

// widgets are custom resources with a status, and clusters are custom resources without a namespace.
var (
	customKinds = apiservertest.Options{Kinds: []apiservertest.Kind{
		{Group: "example.com", Version: "v1alpha1", Kind: "Widget", Resource: "widgets", Namespaced: true, Status: true},
		{Group: "example.com", Version: "v1alpha1", Kind: "Zone", Resource: "zones"},
	}}
	widgets = schema.GroupVersionResource{Group: "example.com", Version: "v1alpha1", Resource: "widgets"}
)

func newWidget(name string, size int64) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1alpha1", "kind": "Widget", "metadata": map[string]any{"name": name, "namespace": "default"},
		"spec": map[string]any{"size": size},
	}}
}

func TestDiscoveryIsTheSameWithAndWithoutAggregation(t *testing.T) {
	runInMemoryAndOnListener(t, customKinds, func(f fixture) {
		client := discovery.NewDiscoveryClientForConfigOrDie(f.config)
		aggregatedGroups, aggregated, err := client.ServerGroupsAndResources()
		require.NoError(f, err)
		client.UseLegacyDiscovery = true
		legacyGroups, legacy, err := client.ServerGroupsAndResources()
		require.NoError(f, err)
		assert.Equal(f, namesOf(legacy), namesOf(aggregated))
		require.Len(f, aggregatedGroups, len(legacyGroups))
		for i, group := range legacyGroups {
			assert.Equal(f, group.Name, aggregatedGroups[i].Name)
			assert.Equal(f, group.PreferredVersion, aggregatedGroups[i].PreferredVersion)
		}
		assert.Contains(f, namesOf(legacy), "v1 pods/eviction Eviction [create]")
		assert.Contains(f, namesOf(legacy), "example.com/v1alpha1 widgets/status Widget [get patch update]")
		version, err := client.ServerVersion()
		require.NoError(f, err)
		assert.Equal(f, "1", version.Major)
		_, err = client.OpenAPISchema()
		assert.True(f, apierrors.IsNotFound(err), "%v", err)
	})
}

// namesOf returns a sorted line per resource.
func namesOf(lists []*metav1.APIResourceList) []string {
	var lines []string
	for _, list := range lists {
		for _, r := range list.APIResources {
			verbs := slices.Sorted(slices.Values(r.Verbs))
			lines = append(lines, list.GroupVersion+" "+r.Name+" "+r.Kind+" ["+joined(verbs)+"]")
		}
	}
	slices.Sort(lines)
	return lines
}

func joined(words []string) (text string) {
	for i, word := range words {
		if i > 0 {
			text += " "
		}
		text += word
	}
	return text
}

func TestRESTMapperAndScaleClient(t *testing.T) {
	runInMemoryAndOnListener(t, customKinds, func(f fixture) {
		cached := memory.NewMemCacheClient(discovery.NewDiscoveryClientForConfigOrDie(f.config))
		mapper := restmapper.NewShortcutExpander(restmapper.NewDeferredDiscoveryRESTMapper(cached), cached, nil)
		mapping, err := mapper.RESTMapping(schema.GroupKind{Group: "apps", Kind: "Deployment"})
		require.NoError(f, err)
		assert.Equal(f, "deployments", mapping.Resource.Resource)
		assert.Equal(f, apimeta.RESTScopeNamespace, mapping.Scope)
		mapping, err = mapper.RESTMapping(schema.GroupKind{Group: "example.com", Kind: "Zone"})
		require.NoError(f, err)
		assert.Equal(f, apimeta.RESTScopeRoot, mapping.Scope)
		found, err := mapper.ResourceFor(schema.GroupVersionResource{Resource: "pdb"})
		require.NoError(f, err)
		assert.Equal(f, schema.GroupVersionResource{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"}, found)
		_, err = mapper.RESTMapping(schema.GroupKind{Group: "example.com", Kind: "Unknown"})
		assert.True(f, apimeta.IsNoMatchError(err), "%v", err)

		require.NoError(f, f.server.Put(newWidget("a", 1)))
		deployment := newDeployment("web")
		deployment.Namespace = "default"
		require.NoError(f, f.server.Put(deployment))
		scales, err := scale.NewForConfig(f.config, mapper, dynamic.LegacyAPIPathResolverFunc, scale.NewDiscoveryScaleKindResolver(cached))
		require.NoError(f, err)
		deployments := schema.GroupResource{Group: "apps", Resource: "deployments"}
		got, err := scales.Scales("default").Get(f.Context(), deployments, "web", metav1.GetOptions{})
		require.NoError(f, err)
		got.Spec.Replicas = 3
		got, err = scales.Scales("default").Update(f.Context(), deployments, got, metav1.UpdateOptions{})
		require.NoError(f, err)
		assert.EqualValues(f, 3, got.Spec.Replicas)
	})
}

// Every resource that discovery reports can be created, read, watched, patched, listed and deleted.
func TestEveryDiscoveredResourceIsServed(t *testing.T) {
	runInMemoryAndOnListener(t, customKinds, func(f fixture) {
		lists, err := discovery.NewDiscoveryClientForConfigOrDie(f.config).ServerPreferredResources()
		require.NoError(f, err)
		dynamicClient := dynamic.NewForConfigOrDie(f.config)
		served := 0
		for _, list := range lists {
			version, err := schema.ParseGroupVersion(list.GroupVersion)
			require.NoError(f, err)
			for _, r := range list.APIResources {
				served++
				resource := dynamicClient.Resource(version.WithResource(r.Name))
				client, namespace := dynamic.ResourceInterface(resource), ""
				if r.Namespaced {
					client, namespace = resource.Namespace("default"), "default"
				}
				serveResource(f, client, version.WithKind(r.Kind), namespace)
			}
		}
		assert.Greater(f, served, 35)
	})
}

func serveResource(f fixture, c dynamic.ResourceInterface, kind schema.GroupVersionKind, namespace string) {
	ctx, obj := f.Context(), &unstructured.Unstructured{Object: map[string]any{}}
	obj.SetGroupVersionKind(kind)
	obj.SetName("a")
	created, err := c.Create(ctx, obj, metav1.CreateOptions{})
	require.NoError(f, err, kind)
	assert.Equal(f, kind, created.GroupVersionKind())
	assert.Equal(f, namespace, created.GetNamespace(), kind)
	w, err := c.Watch(ctx, metav1.ListOptions{ResourceVersion: created.GetResourceVersion()})
	require.NoError(f, err, kind)
	defer w.Stop()
	_, err = c.Patch(ctx, "a", types.MergePatchType, []byte(`{"metadata":{"labels":{"k":"v"}}}`), metav1.PatchOptions{})
	require.NoError(f, err, kind)
	event := <-w.ResultChan()
	assert.Equal(f, "v", event.Object.(*unstructured.Unstructured).GetLabels()["k"], kind)
	found, err := c.List(ctx, metav1.ListOptions{LabelSelector: "k=v", FieldSelector: "metadata.name=a"})
	require.NoError(f, err, kind)
	require.Len(f, found.Items, 1, kind)
	assert.Equal(f, kind, found.Items[0].GroupVersionKind())
	require.NoError(f, c.Delete(ctx, "a", metav1.DeleteOptions{}), kind)
	_, err = c.Get(ctx, "a", metav1.GetOptions{})
	assert.True(f, apierrors.IsNotFound(err), kind)
}

func TestCustomResources(t *testing.T) {
	runInMemoryAndOnListener(t, customKinds, func(f fixture) {
		ctx, c := f.Context(), dynamic.NewForConfigOrDie(f.config).Resource(widgets).Namespace("default")
		obj := newWidget("a", 1<<60+1)
		obj.Object["status"] = map[string]any{"ready": true}
		created, err := c.Create(ctx, obj, metav1.CreateOptions{})
		require.NoError(f, err)
		assert.NotContains(f, created.Object, "status", "a creation does not write the status")
		assert.EqualValues(f, 1, created.GetGeneration())
		created.Object["status"], created.Object["spec"] = map[string]any{"ready": true}, map[string]any{}
		created.SetLabels(map[string]string{"k": "v"})
		updated, err := c.UpdateStatus(ctx, created, metav1.UpdateOptions{})
		require.NoError(f, err)
		assert.Equal(f, map[string]any{"ready": true}, updated.Object["status"])
		assert.Equal(f, map[string]any{"size": int64(1<<60 + 1)}, updated.Object["spec"])
		assert.Empty(f, updated.GetLabels(), "the status subresource writes the status only")

		patched, err := c.Patch(ctx, "a", types.MergePatchType, []byte(`{"spec":{"color":"red"},"status":{"ready":false}}`), metav1.PatchOptions{})
		require.NoError(f, err)
		assert.Equal(f, map[string]any{"size": int64(1<<60 + 1), "color": "red"}, patched.Object["spec"])
		assert.Equal(f, map[string]any{"ready": true}, patched.Object["status"])
		assert.EqualValues(f, 2, patched.GetGeneration())
		patched, err = c.Patch(ctx, "a", types.JSONPatchType, []byte(`[{"op":"replace","path":"/status/ready","value":false}]`), metav1.PatchOptions{}, "status")
		require.NoError(f, err)
		assert.Equal(f, map[string]any{"ready": false}, patched.Object["status"])
		assert.Equal(f, map[string]any{"size": int64(1<<60 + 1), "color": "red"}, patched.Object["spec"], "the status subresource writes the status only")
		patched, err = c.Patch(ctx, "a", types.JSONPatchType,
			[]byte(`[{"op":"test","path":"/spec/size","value":1152921504606846977},{"op":"remove","path":"/spec/color"}]`), metav1.PatchOptions{})
		require.NoError(f, err)
		assert.Equal(f, map[string]any{"size": int64(1<<60 + 1)}, patched.Object["spec"], "a JSON patch keeps integers of 64 bits")
		_, err = c.Patch(ctx, "a", types.StrategicMergePatchType, []byte(`{}`), metav1.PatchOptions{})
		assert.True(f, apierrors.IsUnsupportedMediaType(err), "%v", err)
		patched.SetResourceVersion("")
		_, err = c.Update(ctx, patched, metav1.UpdateOptions{})
		assert.True(f, apierrors.IsInvalid(err), "%v", err)

		kept := newWidget("kept", 1)
		kept.SetFinalizers([]string{"example.com/keep"})
		_, err = c.Create(ctx, kept, metav1.CreateOptions{})
		require.NoError(f, err)
		require.NoError(f, c.Delete(ctx, "kept", metav1.DeleteOptions{}))
		got, err := c.Get(ctx, "kept", metav1.GetOptions{})
		require.NoError(f, err)
		assert.NotNil(f, got.GetDeletionTimestamp())
		got.SetFinalizers(nil)
		_, err = c.Update(ctx, got, metav1.UpdateOptions{})
		require.NoError(f, err)
		_, err = c.Get(ctx, "kept", metav1.GetOptions{})
		assert.True(f, apierrors.IsNotFound(err))
		require.NoError(f, c.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
		require.Error(f, f.server.Put(&unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v2", "kind": "Widget"}}))
	})
}
