// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package objectwatch_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/objectwatch"
)

// Notify calls all registered functions, which may call Notify themselves.
func TestNotifyCallsWatchers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l objectwatch.Watchers
		l.Notify("Secret", "shop", "nobody")
		var mu sync.Mutex
		var notified []string
		ctx, cancel := context.WithCancel(t.Context())
		for range 2 {
			go func() {
				assert.NoError(t, l.Watch(ctx, func(kind, namespace, name string) {
					mu.Lock()
					notified = append(notified, kind+" "+namespace+"/"+name)
					first := len(notified) == 1
					mu.Unlock()
					if first {
						l.Notify("ConfigMap", "shop", "c")
					}
				}))
			}()
		}
		synctest.Wait()
		l.Notify("Secret", "shop", "s")
		require.ElementsMatch(t, []string{"Secret shop/s", "Secret shop/s", "ConfigMap shop/c", "ConfigMap shop/c"}, notified)
		cancel()
		synctest.Wait()
		l.Notify("Secret", "shop", "late")
		require.Len(t, notified, 4)
	})
}
