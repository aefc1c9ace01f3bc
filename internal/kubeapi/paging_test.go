// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeapi_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
	"github.com/seed81659283/nodeagent/internal/kubeapi"
)

// listed is a store that has stopped, with the errors that it reported.
type listed struct {
	*kubeapi.Store[*corev1.ConfigMap]
	failures []string
}

// list runs a store of the config maps on a server for the duration wait, with pages of at most maxList bytes.
func list(t *testing.T, server *server, maxList int64, wait time.Duration) *listed {
	t.Helper()
	client, err := kubeapi.New(server.Config(), kubeapi.Options{})
	require.NoError(t, err)
	client.SetMaxList(maxList)
	l := &listed{}
	l.Store = kubeapi.NewStore(kubeapi.In(client, kubeapi.ConfigMaps, "shop"), options{
		Rand: func() float64 { return 0 }, Failed: func(err error) { l.failures = append(l.failures, err.Error()) },
		Relist: 12 * time.Minute,
	})
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	require.NoError(t, l.Run(ctx))
	time.Sleep(time.Second) // the watch goroutines of client-go exit
	return l
}

// createConfigMaps creates a config map with a value of this size.
func createConfigMaps(t *testing.T, s *server, name string, size int) {
	t.Helper()
	require.NoError(t, s.Put(&corev1.ConfigMap{ObjectMeta: named(name), Data: map[string]string{"k": strings.Repeat("x", size)}}))
}

// listLimits returns the limits of the received list requests.
func listLimits(t *testing.T, s *server) (all []int) {
	t.Helper()
	for _, r := range s.Requests(match{Verb: "list"}) {
		query, err := url.ParseQuery(r.Query)
		require.NoError(t, err)
		limit, err := strconv.Atoi(query.Get("limit"))
		if err != nil {
			limit = 0
		}
		all = append(all, limit)
	}
	return all
}

// A page that is too large is requested again with half of the objects.
func TestLargePages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := apiservertest.NewServer(apiservertest.Options{})
		defer server.Close()
		for i := range 48 {
			createConfigMaps(t, server, fmt.Sprint("a", i), 1400)
		}
		l := list(t, server, 20_000, time.Minute)
		assert.True(t, l.Synced())
		assert.Equal(t, 48, l.Len())
		assert.Empty(t, l.failures)
		assert.Equal(t, []int{500, 250, 125, 62, 31, 15, 7, 7, 7, 7, 7, 7, 7}, listLimits(t, server))
	})
}

// An object that is too large by itself is reported; the other objects are listed.
func TestLargeObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := apiservertest.NewServer(apiservertest.Options{})
		defer server.Close()
		for _, name := range []string{"a", "b", "c"} {
			createConfigMaps(t, server, name, 100)
		}
		createConfigMaps(t, server, "big", 30_000)
		l := list(t, server, 20_000, time.Minute)
		assert.True(t, l.Synced())
		assert.Equal(t, 3, l.Len())
		assert.Equal(t, []string{"list configmaps shop/big: the answer is too large: more than 20000 bytes: it is passed over"}, l.failures)
	})
}

// A store keeps the value of an object that has become too large for a list.
func TestObjectThatGrewTooLargeStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := apiservertest.NewServer(apiservertest.Options{})
		defer server.Close()
		for _, name := range []string{"a", "big", "c"} {
			createConfigMaps(t, server, name, 100)
		}
		watches := fault{Match: match{Verb: "watch"}, Hang: true}
		server.Inject(watches)
		time.AfterFunc(time.Minute, func() {
			createConfigMaps(t, server, "big", 30_000)
			createConfigMaps(t, server, "d", 100)
		})
		l := list(t, server, 20_000, 20*time.Minute)
		assert.Equal(t, 4, l.Len())
		before, ok := l.Get("shop/big")
		require.True(t, ok)
		assert.Len(t, before.Data["k"], 100)
		assert.Contains(t, strings.Join(l.failures, "\n"), "shop/big")
	})
}

// A server that ignores limits gets few requests, and the store does not sync.
func TestUnlimitedServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := apiservertest.NewServer(apiservertest.Options{})
		defer server.Close()
		createConfigMaps(t, server, "a", 100)
		server.Inject(fault{Match: match{Verb: "list"}, Err: errors.New(strings.Repeat("x", 30_000))})
		l := list(t, server, 20_000, time.Minute)
		assert.False(t, l.Synced())
		assert.Less(t, len(listLimits(t, server)), 50)
	})
}

// A store has all objects below the size limit, reports the larger objects, and requests few more pages than necessary.
func TestRandomPages(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { randomPages(t, rand.New(rand.NewPCG(seed, 14))) })
		})
	}
}

func randomPages(t *testing.T, rnd *rand.Rand) {
	const maxList = 50_000
	server := apiservertest.NewServer(apiservertest.Options{})
	defer server.Close()
	var names, large []string
	bytes := 0
	scale := 1 << (4 + rnd.IntN(12))
	for i := range rnd.IntN(300) {
		name, size := fmt.Sprintf("c%03d", i), rnd.IntN(scale)
		switch rnd.IntN(30) {
		case 0:
			size = maxList - 2000 + rnd.IntN(1500) // nearly fills a page
		case 1:
			size = maxList + rnd.IntN(maxList)
		}
		createConfigMaps(t, server, name, size)
		if size >= maxList {
			large = append(large, name)
			continue
		}
		names, bytes = append(names, "shop/"+name), bytes+size+200
	}
	l := list(t, server, maxList, time.Minute)
	require.True(t, l.Synced(), l.failures)
	keys, objects := l.RowsIn("")
	require.Len(t, objects, len(names))
	for i := range keys {
		require.Equal(t, names[i], keys[i])
	}
	require.Len(t, l.failures, len(large))
	for i, name := range large {
		require.Contains(t, l.failures[i], "shop/"+name+": ")
	}
	asked := listLimits(t, server)
	require.LessOrEqual(t, len(asked), 12+12*len(large)+8*(1+bytes/maxList)+len(names)/10, "%d objects with %d bytes: %v", len(names), bytes, asked)
	for _, limit := range asked {
		require.Positive(t, limit)
	}
}

// All pages of a list have one resource version, and continue tokens expire.
func TestPagesOfTheServer(t *testing.T) {
	server := apiservertest.NewServer(apiservertest.Options{})
	defer server.Close()
	for _, name := range []string{"a", "b", "c"} {
		createConfigMaps(t, server, name, 10)
	}
	client, err := kubeapi.New(server.Config(), kubeapi.Options{})
	require.NoError(t, err)
	maps := kubeapi.In(client, kubeapi.ConfigMaps, "shop")
	first, err := maps.List(t.Context(), metav1.ListOptions{Limit: 2})
	require.NoError(t, err)
	require.Len(t, first.Items, 2)
	createConfigMaps(t, server, "d", 10)
	for range 2 {
		second, err := maps.List(t.Context(), metav1.ListOptions{Limit: 2, Continue: first.Continue})
		require.NoError(t, err)
		require.Len(t, second.Items, 1)
		require.Equal(t, "c", second.Items[0].Name)
		require.Equal(t, first.ResourceVersion, second.ResourceVersion)
		require.Empty(t, second.Continue)
	}
	server.Compact()
	_, err = maps.List(t.Context(), metav1.ListOptions{Limit: 2, Continue: first.Continue})
	require.ErrorContains(t, err, "too old")
}
