// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeapi_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
	"github.com/seed81659283/nodeagent/internal/kubeapi"
	"github.com/seed81659283/nodeagent/internal/runonce"
)

type (
	options = kubeapi.StoreOptions[*corev1.ConfigMap]
	server  = apiservertest.Server
	fault   = apiservertest.Fault
	match   = apiservertest.Match
)

// withConfigMaps returns a function that creates config maps with value 1 on a server.
func withConfigMaps(names ...string) func(*server) {
	return func(s *server) {
		for _, name := range names {
			if err := put(s, name, "1"); err != nil {
				panic(err)
			}
		}
	}
}

func TestStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := runStore(t, options{}, withConfigMaps("a"))
		synctest.Wait()
		require.True(t, k.Synced())
		assert.Equal(t, []string{"shop/a"}, k.takeChanges())
		k.put(t, "b", "1")
		k.put(t, "a", "2")
		require.NoError(t, k.server.Remove(&corev1.ConfigMap{ObjectMeta: named("b")}))
		synctest.Wait()
		assert.Equal(t, []string{"shop/b", "shop/a", "shop/b"}, k.takeChanges())
		assert.Equal(t, "2", k.value("a"))
		assert.Len(t, k.List(), 1)
		time.Sleep(11 * time.Minute)
		assert.Equal(t, 1, k.count("list"), "bookmarks keep the watch open")
		require.ErrorIs(t, k.Run(t.Context()), runonce.ErrTwice)
		k.stop()
		assert.Equal(t, "2", k.value("a"))
	})
}

// An object whose deletion event was lost is removed at the next consistent list, here after 12 minutes. Unchanged objects
// keep their pointers.
func TestRelist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := runStore(t, options{Relist: 12 * time.Minute}, withConfigMaps("a", "phantom"))
		synctest.Wait()
		k.takeChanges()
		before, _ := k.Get("shop/a")
		require.NoError(t, k.server.DeleteSilently(&corev1.ConfigMap{ObjectMeta: named("phantom")}))
		time.Sleep(11 * time.Minute)
		require.Equal(t, "1", k.value("phantom"))
		time.Sleep(time.Minute + time.Second)
		assert.Equal(t, []string{"shop/phantom"}, k.takeChanges())
		after, _ := k.Get("shop/a")
		assert.Same(t, before, after)
		for _, r := range k.server.Requests(match{Verb: "list"}) {
			assert.NotContains(t, r.Query, "resourceVersion=")
		}
	})
}

// A failed periodic list does not stop the watch, and is retried.
func TestFailedRelist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := runStore(t, options{Relist: 12 * time.Minute}, withConfigMaps("a", "phantom"))
		synctest.Wait()
		require.NoError(t, k.server.DeleteSilently(&corev1.ConfigMap{ObjectMeta: named("phantom")}))
		k.server.Inject(fault{Match: match{Verb: "list"}, Times: 2, Code: http.StatusInternalServerError})
		time.Sleep(12*time.Minute + 5*time.Second)
		require.Equal(t, 1, k.countErrors())
		k.put(t, "a", "2")
		synctest.Wait()
		require.Equal(t, "2", k.value("a"))
		require.Equal(t, "1", k.value("phantom"))
		time.Sleep(2*time.Minute + 5*time.Second)
		require.Empty(t, k.value("phantom"))
		require.Equal(t, 2, k.countErrors())
	})
}

// While the API server is unavailable the store keeps its objects, and sends few requests.
func TestStoreKeepsObjectsDuringOutage(t *testing.T) {
	for name, f := range map[string]fault{
		"500": {Code: http.StatusInternalServerError}, "hang": {Hang: true}, "cut": {Disconnect: true}, "403": {Code: http.StatusForbidden},
		"429": {Code: http.StatusTooManyRequests, RetryAfter: 5 * time.Second}, "503": {Code: http.StatusServiceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := runStore(t, options{}, withConfigMaps("a"))
				synctest.Wait()
				remove := k.server.Inject(f)
				k.server.DisconnectAll()
				k.put(t, "a", "2")
				time.Sleep(10 * time.Minute)
				assert.Equal(t, "1", k.value("a"))
				assert.Less(t, k.count("list")+k.count("watch"), 130, "the store sends few requests in ten minutes")
				assert.Positive(t, k.countErrors())
				remove()
				time.Sleep(61 * time.Second)
				assert.Equal(t, "2", k.value("a"))
				require.NoError(t, k.Status().Err)
			})
		})
	}

	synctest.Test(t, func(t *testing.T) {
		k := runStore(t, options{}, withConfigMaps("a"))
		synctest.Wait()
		k.server.SetUnavailable(true)
		k.put(t, "a", "2")
		time.Sleep(2 * time.Minute)
		assert.Equal(t, "1", k.value("a"))
		require.Error(t, k.Status().Err)
		k.server.SetUnavailable(false)
		time.Sleep(31 * time.Second)
		assert.Equal(t, "2", k.value("a"))
		require.NoError(t, k.Status().Err)
	})
}

// A rejected first list is repeated after Retry-After.
func TestFirstList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := runStore(t, options{}, func(s *server) {
			withConfigMaps("a")(s)
			s.Inject(fault{Match: match{Verb: "list"}, Times: 1, Code: http.StatusTooManyRequests, RetryAfter: 40 * time.Second})
		})
		time.Sleep(39 * time.Second)
		require.False(t, k.Synced())
		require.Equal(t, 1, k.count("list"))
		time.Sleep(2 * time.Second)
		require.True(t, k.Synced())
		require.Equal(t, 1, k.countErrors())
	})
}

// A watch that is rejected with Retry-After is not repeated earlier, and causes no list.
func TestBusyWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := runStore(t, options{}, withConfigMaps("a"))
		time.Sleep(2 * time.Second)
		k.server.Inject(fault{Match: match{Verb: "watch"}, Times: 1, Code: http.StatusTooManyRequests, RetryAfter: 20 * time.Second})
		k.server.DisconnectAll()
		k.put(t, "a", "2")
		time.Sleep(19 * time.Second)
		require.Equal(t, 2, k.count("watch"))
		time.Sleep(17 * time.Second)
		require.Equal(t, 3, k.count("watch"))
		require.Equal(t, "2", k.value("a"))
		require.Equal(t, 1, k.count("list"))
	})
}

// Watches that close once a second cost about one request a second, and lose no event.
func TestBrokenWatchesResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := runStore(t, options{}, withConfigMaps())
		for i := range 60 {
			k.put(t, "a", fmt.Sprint(i))
			time.Sleep(time.Second)
			k.server.DisconnectAll()
		}
		time.Sleep(31 * time.Second)
		assert.Equal(t, "59", k.value("a"))
		assert.LessOrEqual(t, k.count("list")+k.count("watch"), 95)
	})
}

// A watch that the server closes at any time is no failure and calls no hook.
func TestBrokenWatchIsNoFailure(t *testing.T) {
	for name, f := range map[string]fault{
		"after some time":     {DisconnectAfter: 10 * time.Second},
		"at once":             {DisconnectAfter: time.Nanosecond},
		"before the response": {Disconnect: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log strings.Builder
				k := runStoreLogged(t, options{}, withConfigMaps("a"), slog.New(slog.NewTextHandler(&log, nil)))
				f.Match = match{Verb: "watch"}
				f.Times = 3
				k.server.Inject(f)
				k.server.DisconnectAll()
				time.Sleep(time.Minute)
				k.put(t, "a", "2")
				time.Sleep(15 * time.Second)
				k.stop()
				assert.Equal(t, "2", k.value("a"))
				assert.Empty(t, k.errors)
				assert.Empty(t, log.String())
			})
		})
	}
}

// A failed watch is reported once.
func TestFailedWatch(t *testing.T) {
	for want, f := range map[string]fault{
		"the watch has not begun within 30s": {Hang: true},
		"injected":                           {Code: http.StatusInternalServerError},
	} {
		synctest.Test(t, func(t *testing.T) {
			k := runStore(t, options{}, withConfigMaps("a"))
			synctest.Wait()
			f.Match, f.Times = match{Verb: "watch"}, 1
			k.server.Inject(f)
			k.server.DisconnectAll()
			time.Sleep(time.Minute)
			k.stop()
			require.Len(t, k.errors, 1)
			assert.ErrorContains(t, k.errors[0], want)
		})
	}
}

// A silent watch is closed after 3 minutes and resumed. A watch request without a response is closed after 30 s.
func TestSilentWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := runStore(t, options{}, withConfigMaps())
		synctest.Wait()
		k.silenceWatches(true)
		k.put(t, "a", "1")
		time.Sleep(time.Second)
		k.silenceWatches(false)
		time.Sleep(3*time.Minute + 2*time.Second)
		assert.Equal(t, "1", k.value("a"))
		assert.Equal(t, 1, k.count("list"))
		assert.Equal(t, 2, k.count("watch"))

		k.server.Inject(fault{Match: match{Verb: "watch"}, Times: 1, Hang: true})
		k.server.DisconnectAll()
		k.put(t, "a", "2")
		time.Sleep(40 * time.Second)
		assert.Equal(t, "2", k.value("a"))
	})
}

// A watch from an expired resource version leads to a list.
func TestExpiredVersionIsListedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := runStore(t, options{}, withConfigMaps("a"))
		synctest.Wait()
		k.server.SetUnavailable(true)
		require.NoError(t, k.server.Remove(&corev1.ConfigMap{ObjectMeta: named("a")}))
		k.put(t, "b", "1")
		k.server.Compact()
		k.server.SetUnavailable(false)
		k.server.Inject(fault{Match: match{Verb: "list"}, Times: 1, Err: apierrors.NewResourceExpired("too old")})
		time.Sleep(35 * time.Second)
		assert.Empty(t, k.value("a"))
		assert.Equal(t, "1", k.value("b"))
		assert.LessOrEqual(t, k.count("list"), 4)
	})
}

func TestStoreWithTooManyObjectsFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := runStore(t, options{MaxObjects: 1}, withConfigMaps("a", "b"))
		synctest.Wait()
		require.ErrorIs(t, k.Status().Err, kubeapi.ErrTooLarge)
		require.False(t, k.Synced())
		require.NoError(t, k.server.Remove(&corev1.ConfigMap{ObjectMeta: named("b")}))
		time.Sleep(5 * time.Second)
		require.True(t, k.Synced())
		k.put(t, "c", "1")
		synctest.Wait()
		require.ErrorIs(t, k.Status().Err, kubeapi.ErrTooLarge)
		require.Equal(t, 1, k.Len())
	})
}

// A store with more objects than MaxObjects keeps the most important objects of lists and events.
func TestStoreKeepsMostImportantObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		byName := func(a, b *corev1.ConfigMap) int { return -strings.Compare(a.Name, b.Name) }
		k := runStore(t, options{MaxObjects: 2, Compare: byName, Relist: time.Minute}, withConfigMaps("a", "b", "c"))
		names := func() (names string) {
			for _, o := range k.List() {
				names += o.Name
			}
			return names
		}
		synctest.Wait()
		require.True(t, k.Synced())
		require.Equal(t, "bc", names())
		require.ErrorIs(t, k.Status().Err, kubeapi.ErrTooLarge)
		require.ErrorContains(t, k.Status().Err, "more than 2 objects: 1 are left out, the first is shop/a")

		k.put(t, "d", "1")
		time.Sleep(2 * time.Second)
		require.Equal(t, "cd", names(), "a more important object replaces a less important one")
		k.put(t, "aa", "1")
		time.Sleep(2 * time.Second)
		require.Equal(t, "cd", names())
		count, first := k.Omitted()
		require.Equal(t, 3, count)
		require.Equal(t, "b", first.Name)

		require.NoError(t, k.server.Remove(&corev1.ConfigMap{ObjectMeta: named("c")}))
		time.Sleep(25 * time.Second)
		require.Equal(t, "bd", names(), "after a deletion the next list adds an omitted object")
		for _, name := range []string{"d", "a"} {
			require.NoError(t, k.server.Remove(&corev1.ConfigMap{ObjectMeta: named(name)}))
		}
		time.Sleep(25 * time.Second)
		require.Equal(t, "aab", names())
		require.NoError(t, k.Status().Err)
	})
}

func TestRunRefusesZeroResourceAndMissingTransform(t *testing.T) {
	s := apiservertest.NewServer(apiservertest.Options{})
	client, err := kubeapi.New(s.Config(), kubeapi.Options{})
	require.NoError(t, err)
	r := kubeapi.In(client, kubeapi.ConfigMaps, "shop")
	require.ErrorContains(t, kubeapi.NewTable(r, kubeapi.TableOptions[*corev1.ConfigMap, string]{}).Run(t.Context()), "TableOptions.Transform")
	var none kubeapi.Resource[*corev1.ConfigMap]
	require.ErrorContains(t, kubeapi.NewStore(none, options{}).Run(t.Context()), "want that of In")
	_, err = none.Get(t.Context(), "a")
	require.ErrorContains(t, err, "want that of In")
}
