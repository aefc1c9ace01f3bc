// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeapi_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
	"github.com/seed81659283/nodeagent/internal/kubeapi"
)

// testStore is a running store of the config maps on a server. It records the calls of the hooks.
type testStore struct {
	*kubeapi.Store[*corev1.ConfigMap]
	server *apiservertest.Server
	dead   bool // guarded by mu: watches receive no data
	stop   func()

	mu      sync.Mutex
	changed []string
	errors  []error
}

// runStore runs a store without sockets, in virtual time.
func runStore(t *testing.T, o kubeapi.StoreOptions[*corev1.ConfigMap], prepare func(*apiservertest.Server)) *testStore {
	t.Helper()
	return runStoreLogged(t, o, prepare, nil)
}

// runStoreLogged is runStore with a logger of the client.
func runStoreLogged(t *testing.T, o kubeapi.StoreOptions[*corev1.ConfigMap], prepare func(*apiservertest.Server), log *slog.Logger) *testStore {
	t.Helper()
	k := &testStore{server: apiservertest.NewServer(apiservertest.Options{})}
	prepare(k.server)
	config := k.server.Config()
	config.Transport = silenceTransport{k, config.Transport}
	client, err := kubeapi.New(config, kubeapi.Options{Logger: log})
	require.NoError(t, err)
	o.Rand = func() float64 { return 0 }
	o.Changed = func(keys ...string) {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.changed = append(k.changed, keys...)
	}
	o.Failed = func(err error) {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.errors = append(k.errors, err)
	}
	k.Store = kubeapi.NewStore(kubeapi.In(client, kubeapi.ConfigMaps, "shop"), o)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- k.Run(ctx) }()
	k.stop = sync.OnceFunc(func() {
		cancel()
		assert.NoError(t, <-ended)
		k.server.Close()
		time.Sleep(time.Second) // the watch goroutines of client-go exit
	})
	t.Cleanup(k.stop)
	return k
}

// put sets the value of a config map.
func (k *testStore) put(t *testing.T, name, value string) {
	t.Helper()
	require.NoError(t, put(k.server, name, value))
}

func put(s *apiservertest.Server, name, value string) error {
	return s.Put(&corev1.ConfigMap{ObjectMeta: named(name), Data: map[string]string{"k": value}})
}

func named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "shop", Name: name} }

// value returns the value in the store, or "" if the object is not stored.
func (k *testStore) value(name string) string {
	o, ok := k.Get("shop/" + name)
	if !ok {
		return ""
	}
	return o.Data["k"]
}

// takeChanges returns the keys that have changed since the last call.
func (k *testStore) takeChanges() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	changed := k.changed
	k.changed = nil
	return changed
}

// countErrors returns the number of calls of the hook Failed.
func (k *testStore) countErrors() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.errors)
}

func (k *testStore) count(verb string) int {
	return k.server.CountRequests(apiservertest.Match{Verb: verb, Resource: "configmaps"})
}

// silenceWatches(true) makes the watches silent: their connections stay open without data.
func (k *testStore) silenceWatches(dead bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.dead = dead
}

// silenceTransport is a transport whose watch responses can become silent.
type silenceTransport struct {
	*testStore
	next http.RoundTripper
}

func (d silenceTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := d.next.RoundTrip(r)
	if err == nil && r.URL.Query().Get("watch") == "true" {
		response.Body = &silenceBody{response.Body, d.testStore, r.Context()}
	}
	return response, err
}

type silenceBody struct {
	io.ReadCloser
	testStore *testStore
	ctx       context.Context
}

func (d *silenceBody) Read(b []byte) (int, error) {
	n, err := d.ReadCloser.Read(b)
	d.testStore.mu.Lock()
	dead := d.testStore.dead
	d.testStore.mu.Unlock()
	if dead {
		<-d.ctx.Done()
		return 0, d.ctx.Err()
	}
	return n, err
}
