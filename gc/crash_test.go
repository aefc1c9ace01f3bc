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

var errKilled = errors.New("the agent was killed")

// crashingStore is the runtime of an agent that is killed in call number crashAt, before or after the call takes effect.
type crashingStore struct {
	*gctest.Store
	calls, crashAt int
	after          bool
	cancel         context.CancelFunc
}

// callOrCrash calls do, until the simulated agent crashes at call number m.crashAt. Later calls do nothing and return errKilled.
func (m *crashingStore) callOrCrash(do func() error) error {
	m.calls++
	switch {
	case m.calls < m.crashAt:
		return do()
	case m.calls > m.crashAt:
		return errKilled
	}
	m.cancel()
	if m.after {
		_ = do()
	}
	return errKilled
}

func (m *crashingStore) List(ctx context.Context) (snap cri.Snapshot, err error) {
	err = m.callOrCrash(func() error { snap, err = m.Store.List(ctx); return err })
	return snap, err
}

func (m *crashingStore) ListImages(ctx context.Context) (images []cri.Image, err error) {
	err = m.callOrCrash(func() error { images, err = m.Store.ListImages(ctx); return err })
	return images, err
}

func (m *crashingStore) RemoveImage(_ context.Context, spec cri.ImageSpec) error {
	return m.callOrCrash(func() error { return m.Store.RemoveImage(context.Background(), spec) }) // a call that has begun takes effect
}

func (m *crashingStore) Disk(ctx context.Context) (disk gc.Disk, err error) {
	err = m.callOrCrash(func() error { disk, err = m.Store.Disk(ctx); return err })
	return disk, err
}

// An agent is killed in each call of a pass, before or after the call takes effect. After the pass of the next agent,
// exactly the three oldest images are removed, because the ages are on disk.
func TestCrashAtEachCallIsRecovered(t *testing.T) {
	crashes := 0
	for step := 1; ; step++ {
		ended := false
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("call %d, after %t", step, after), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store, ages := agedStore(t)
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					crashing := &crashingStore{Store: store, crashAt: step, after: after, cancel: cancel}
					err := newCollector(t, crashing, ages).Collect(ctx)
					if ended = crashing.calls < step; ended {
						require.NoError(t, err)
					} else {
						require.Error(t, err)
						crashes++
					}

					require.NoError(t, newCollector(t, &crashingStore{Store: store, crashAt: 1 << 30}, ages).Collect(t.Context()))
					require.Equal(t, []string{"sha256:a", "sha256:b", "sha256:c"}, store.RemovedIDs())
				})
			})
		}
		if ended {
			break
		}
	}
	require.Greater(t, crashes, 12, "each pass lists, measures, and removes three images")
}

// agedStore returns a disk that is 95 % full with six images of 100 bytes, and the file with their ages. The images were first
// detected an hour apart by a previous agent. Three of them must be removed to reach 80 %.
func agedStore(t *testing.T) (*gctest.Store, string) {
	t.Helper()
	store, ages := gctest.NewStore(2000), filepath.Join(t.TempDir(), "ages.json")
	first := newCollector(t, &crashingStore{Store: store, crashAt: 1 << 30}, ages)
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		store.AddImage(name, gctest.Layer{Name: name, Size: 100})
		require.NoError(t, first.Detect(t.Context()))
		time.Sleep(time.Hour)
	}
	store.AddContainer("user", "sha256:d")
	store.SetOtherBytes(1300)
	return store, ages
}

func newCollector(t *testing.T, m *crashingStore, ages string) *gc.Images {
	t.Helper()
	g, err := gc.NewImages(m, m, gc.ImageOptions{Ages: ages, Disk: m.Disk})
	require.NoError(t, err)
	return g
}
