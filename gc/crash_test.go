// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package gc_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/gc"
	"github.com/seed81659283/nodeagent/internal/gctest"
)

var errKilled = errors.New("this agent is dead")

// mortal is the runtime of an agent that dies in its call number dies: before the call has its effect, or after it.
type mortal struct {
	*gctest.Store
	calls, dies int
	after       bool
	die         context.CancelFunc
}

// call calls do, until the simulated agent crashes at call number m.dies. Later calls do nothing and return errKilled.
func (m *mortal) call(do func() error) error {
	m.calls++
	switch {
	case m.calls < m.dies:
		return do()
	case m.calls > m.dies:
		return errKilled
	}
	m.die()
	if m.after {
		_ = do()
	}
	return errKilled
}

func (m *mortal) List(ctx context.Context) (snap cri.Snapshot, err error) {
	err = m.call(func() error { snap, err = m.Store.List(ctx); return err })
	return snap, err
}

func (m *mortal) ListImages(ctx context.Context) (images []cri.Image, err error) {
	err = m.call(func() error { images, err = m.Store.ListImages(ctx); return err })
	return images, err
}

func (m *mortal) RemoveImage(_ context.Context, spec cri.ImageSpec) error {
	return m.call(func() error { return m.Store.RemoveImage(context.Background(), spec) }) // what has begun, ends
}

func (m *mortal) Disk(ctx context.Context) (disk gc.Disk, err error) {
	err = m.call(func() error { disk, err = m.Store.Disk(ctx); return err })
	return disk, err
}

// An agent dies in each call that a pass makes, before or after its effect, and the next one goes on: in the end the same images
// are gone as if none had died, the oldest ones, and not one more. Ages are on disk, so that the successor knows which those are.
func TestAgentKilledWhileItCollects(t *testing.T) {
	died := 0
	for step := 1; ; step++ {
		ended := false
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("call %d, after %t", step, after), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store, ages := agedStore(t)
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					dying := &mortal{Store: store, dies: step, after: after, die: cancel}
					err := collectorOf(t, dying, ages).Collect(ctx)
					if ended = dying.calls < step; ended {
						require.NoError(t, err)
					} else {
						require.Error(t, err)
						died++
					}

					require.NoError(t, collectorOf(t, &mortal{Store: store, dies: 1 << 30}, ages).Collect(t.Context()))
					require.Equal(t, []string{"sha256:a", "sha256:b", "sha256:c"}, store.RemovedIDs())
				})
			})
		}
		if ended {
			break
		}
	}
	require.Greater(t, died, 12, "each pass lists, measures, and removes three images")
}

// agedStore returns a disk that is 95 % full with six images of 100 bytes, and the file with their ages. The images were first
// detected an hour apart by a previous agent. Three of them must be removed to reach 80 %.
func agedStore(t *testing.T) (*gctest.Store, string) {
	t.Helper()
	store, ages := gctest.NewStore(2000), filepath.Join(t.TempDir(), "ages.json")
	first := collectorOf(t, &mortal{Store: store, dies: 1 << 30}, ages)
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		store.AddImage(name, gctest.Layer{Name: name, Size: 100})
		require.NoError(t, first.Detect(t.Context()))
		time.Sleep(time.Hour)
	}
	store.AddContainer("user", "sha256:d")
	store.SetOtherBytes(1300)
	return store, ages
}

func collectorOf(t *testing.T, m *mortal, ages string) *gc.Images {
	t.Helper()
	g, err := gc.NewImages(m, m, gc.ImageOptions{Ages: ages, Disk: m.Disk})
	require.NoError(t, err)
	return g
}
