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

// kept is a store of a server's config maps, with the calls of its hooks.
type kept struct {
	*kubeapi.Store[*corev1.ConfigMap]
	server *apiservertest.Server
	dead   bool // guarded by mu: watches hear nothing from now on
	stop   func()

	mu     sync.Mutex
	told   []string
	errors []error
}

// runStore runs a store without sockets, in virtual time.
func runStore(t *testing.T, o kubeapi.StoreOptions[*corev1.ConfigMap], prepare func(*apiservertest.Server)) *kept {
	t.Helper()
	return keepLogged(t, o, prepare, nil)
}

// keepLogged is keep with a logger.
func keepLogged(t *testing.T, o kubeapi.StoreOptions[*corev1.ConfigMap], prepare func(*apiservertest.Server), log *slog.Logger) *kept {
	t.Helper()
	k := &kept{server: apiservertest.NewServer(apiservertest.Options{})}
	prepare(k.server)
	config := k.server.Config()
	config.Transport = deafening{k, config.Transport}
	client, err := kubeapi.New(config, kubeapi.Options{Logger: log})
	require.NoError(t, err)
	o.Rand = func() float64 { return 0 }
	o.Changed = func(keys ...string) {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.told = append(k.told, keys...)
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
		time.Sleep(time.Second) // client-go's goroutines of a watch end by themselves
	})
	t.Cleanup(k.stop)
	return k
}

// put sets the value of a config map.
func (k *kept) put(t *testing.T, name, value string) {
	t.Helper()
	require.NoError(t, put(k.server, name, value))
}

func put(s *apiservertest.Server, name, value string) error {
	return s.Put(&corev1.ConfigMap{ObjectMeta: named(name), Data: map[string]string{"k": value}})
}

func named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "shop", Name: name} }

// value returns the value in the store; empty: no object.
func (k *kept) value(name string) string {
	o, ok := k.Get("shop/" + name)
	if !ok {
		return ""
	}
	return o.Data["k"]
}

// takeChanges returns the changed keys since the last call.
func (k *kept) takeChanges() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	told := k.told
	k.told = nil
	return told
}

// countErrors returns the number of errors.
func (k *kept) countErrors() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.errors)
}

func (k *kept) count(verb string) int {
	return k.server.CountRequests(apiservertest.Match{Verb: verb, Resource: "configmaps"})
}

// silenceWatches makes the connections of all present watches dead: they stay open without data.
func (k *kept) silenceWatches(dead bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.dead = dead
}

// deafening is a transport whose response bodies can become dead.
type deafening struct {
	*kept
	next http.RoundTripper
}

func (d deafening) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := d.next.RoundTrip(r)
	if err == nil && r.URL.Query().Get("watch") == "true" {
		response.Body = &deafBody{response.Body, d.kept, r.Context()}
	}
	return response, err
}

type deafBody struct {
	io.ReadCloser
	kept *kept
	ctx  context.Context
}

func (d *deafBody) Read(b []byte) (int, error) {
	n, err := d.ReadCloser.Read(b)
	d.kept.mu.Lock()
	dead := d.kept.dead
	d.kept.mu.Unlock()
	if dead {
		<-d.ctx.Done()
		return 0, d.ctx.Err()
	}
	return n, err
}
