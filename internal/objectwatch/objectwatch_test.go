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

// A registered function is called, and may itself call Notify.
func TestNotifyCallsWatchers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l objectwatch.Watchers
		l.Notify("Secret", "shop", "nobody")
		var mu sync.Mutex
		var told []string
		ctx, cancel := context.WithCancel(t.Context())
		for range 2 {
			go func() {
				assert.NoError(t, l.Watch(ctx, func(kind, namespace, name string) {
					mu.Lock()
					told = append(told, kind+" "+namespace+"/"+name)
					first := len(told) == 1
					mu.Unlock()
					if first {
						l.Notify("ConfigMap", "shop", "c")
					}
				}))
			}()
		}
		synctest.Wait()
		l.Notify("Secret", "shop", "s")
		require.ElementsMatch(t, []string{"Secret shop/s", "Secret shop/s", "ConfigMap shop/c", "ConfigMap shop/c"}, told)
		cancel()
		synctest.Wait()
		l.Notify("Secret", "shop", "late")
		require.Len(t, told, 4)
	})
}
