// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeapi_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/seed81659283/nodeagent/internal/controlplane"
	"github.com/seed81659283/nodeagent/internal/kubeapi"
)

// A store lists several pages of a real API server, watches, and survives a restart of the API server.
func TestClusterStore(t *testing.T) {
	if os.Getenv(controlplane.RequiredEnv) != "required" {
		t.Skipf("takes a minute and needs programs with a long build: run `make cluster`, which sets %s", controlplane.RequiredEnv)
	}
	plane := controlplane.Start(t, controlplane.Options{})
	path, err := plane.Kubeconfig("admin", "system:masters")
	require.NoError(t, err)
	config, err := clientcmd.BuildConfigFromFlags("", path)
	require.NoError(t, err)
	client := newClient(t, config, kubeapi.Options{QPS: 500, Burst: 1000})
	r := kubeapi.In(client, kubeapi.ConfigMaps, "default")
	const objects = 1100 // three pages
	var group sync.WaitGroup
	for worker := range 10 {
		group.Go(func() {
			for i := worker; i < objects; i += 10 {
				o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("c%04d", i)}, Data: map[string]string{"k": "1"}}
				_, err := r.Create(t.Context(), o)
				assert.NoError(t, err)
			}
		})
	}
	group.Wait()
	page, err := r.List(t.Context(), metav1.ListOptions{Limit: 500})
	require.NoError(t, err)
	require.Len(t, page.Items, 500)
	require.NotEmpty(t, page.Continue)

	testLargeLists(t, config, r, objects)
	store := kubeapi.NewStore(r, options{Relist: 10 * time.Second, LabelSelector: "!skipped"})
	ctx, cancel := context.WithCancel(t.Context())
	group.Go(func() { assert.NoError(t, store.Run(ctx)) })
	defer group.Wait()
	defer cancel()
	await(t, "the first list", func() bool { return store.Len() >= objects })
	set := func(value string) {
		t.Helper()
		o, err := r.Get(t.Context(), "c0007")
		require.NoError(t, err)
		o = o.DeepCopy()
		o.Data["k"] = value
		_, err = r.Update(t.Context(), o)
		require.NoError(t, err)
		await(t, "value "+value, func() bool { o, _ := store.Get("default/c0007"); return o.Data["k"] == value })
	}
	set("2")
	before, _ := store.Get("default/c0001")
	synced := store.Status().Synced
	await(t, "another list", func() bool { return store.Status().Synced.After(synced) })
	after, _ := store.Get("default/c0001")
	require.Same(t, before, after)

	beats, err := client.HeartbeatClient()
	require.NoError(t, err)
	lease := kubeapi.In(beats, kubeapi.Leases, "kube-system")
	_, err = lease.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.NoError(t, plane.Kill(controlplane.APIServer))
	_, err = lease.List(t.Context(), metav1.ListOptions{})
	require.Error(t, err)
	await(t, "the error of the store", func() bool { return store.Status().Err != nil })
	require.GreaterOrEqual(t, store.Len(), objects)
	require.NoError(t, plane.Restart(t.Context(), controlplane.APIServer))
	_, err = lease.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	set("3")
	require.NoError(t, r.Delete(t.Context(), "c0007", metav1.DeleteOptions{}))
	await(t, "the deletion", func() bool { _, ok := store.Get("default/c0007"); return !ok })
}

// testLargeLists lists objects with a page limit that one object exceeds.
func testLargeLists(t *testing.T, config *rest.Config, r kubeapi.Resource[*corev1.ConfigMap], objects int) {
	t.Helper()
	big := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "big"}, Data: map[string]string{"k": strings.Repeat("x", 300_000)}}
	_, err := r.Create(t.Context(), big)
	require.NoError(t, err)
	small := newClient(t, config, kubeapi.Options{QPS: 500, Burst: 1000})
	small.SetMaxList(30_000)
	failed := make(chan error, 100)
	store := kubeapi.NewStore(kubeapi.In(small, kubeapi.ConfigMaps, "default"), options{Failed: func(err error) { failed <- err }})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- store.Run(ctx) }()
	await(t, "the list in small pages", store.Synced)
	cancel()
	require.NoError(t, <-ended)
	assert.GreaterOrEqual(t, store.Len(), objects)
	_, found := store.Get("default/big")
	assert.False(t, found)
	require.ErrorContains(t, <-failed, "default/big: ")
	require.NoError(t, r.Delete(t.Context(), "big", metav1.DeleteOptions{}))
}

func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for began := time.Now(); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			require.FailNow(t, what+": not within a minute")
		}
	}
}
