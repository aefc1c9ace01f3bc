// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/volume"
)

// failingWatcher reports an object after a delay, and then returns its error, if any.
type failingWatcher struct {
	name  string
	after time.Duration
	err   error
}

func (w failingWatcher) Watch(ctx context.Context, changed func(kind, namespace, name string)) error {
	select {
	case <-time.After(w.after):
		changed("ConfigMap", "default", w.name)
	case <-ctx.Done():
	}
	if w.err != nil {
		return w.err
	}
	<-ctx.Done()
	return ctx.Err()
}

func TestJoinedWatchersEndWithFirstError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var seen []string
		note := func(_, _, name string) {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, name)
		}
		gone := errors.New("the server is gone")
		err := volume.JoinWatchers(failingWatcher{"a", time.Second, nil}, failingWatcher{"b", time.Minute, gone}, failingWatcher{"c", time.Hour, nil}).Watch(t.Context(), note)
		require.ErrorIs(t, err, gone)
		slices.Sort(seen)
		assert.Equal(t, []string{"a", "b"}, seen)

		for _, w := range []volume.Watcher{volume.JoinWatchers(), volume.JoinWatchers(failingWatcher{"d", time.Hour, nil})} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			require.ErrorIs(t, w.Watch(ctx, note), context.DeadlineExceeded)
			cancel()
		}
		assert.Len(t, seen, 2)
	})
}
