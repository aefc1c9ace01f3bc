// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package gctest_test

import (
	"context"
	"errors"
	"math"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/gc"
	"github.com/seed81659283/nodeagent/internal/gctest"
	"github.com/seed81659283/nodeagent/internal/suite/suitetest"
)

func TestRulesAreDocumented(t *testing.T) { suitetest.Documented(t, "rule.go", "../../gc/*.go", 7) }

const variable = "GCTEST_MUTANT"

// mutant is a collector that breaks a rule.
type mutant struct {
	testCase, broken string
	reclaim          func(ctx context.Context, s *gctest.Store, good gc.ImageGC, want uint64) (uint64, error)
}

func mutants() map[string]mutant {
	removeAll := func(ctx context.Context, s *gctest.Store) {
		list, _ := s.ListImages(ctx)
		for _, i := range list {
			_ = s.RemoveImage(ctx, cri.ImageSpec{Image: i.ID})
		}
	}
	return map[string]mutant{
		"lazy": {"Enough", "until want more bytes are available", func(context.Context, *gctest.Store, gc.ImageGC, uint64) (uint64, error) {
			return 0, nil
		}},
		"greedy": {"Enough", "until want more bytes are available", func(ctx context.Context, _ *gctest.Store, good gc.ImageGC, _ uint64) (uint64, error) {
			return good.Reclaim(ctx, gc.All)
		}},
		"silent": {"Short", "the error is a [*ShortError]", func(ctx context.Context, _ *gctest.Store, good gc.ImageGC, want uint64) (uint64, error) {
			freed, _ := good.Reclaim(ctx, want)
			return freed, nil
		}},
		"ruthless": {"All", "For [All] it is no error", func(ctx context.Context, s *gctest.Store, _ gc.ImageGC, _ uint64) (uint64, error) {
			removeAll(ctx, s)
			return math.MaxUint64, nil
		}},
		"eager": {"Zero", "Zero bytes are there already", func(ctx context.Context, s *gctest.Store, _ gc.ImageGC, _ uint64) (uint64, error) {
			removeAll(ctx, s)
			return 0, nil
		}},
		"stubborn": {"Canceled", "When ctx ends nothing more is removed", func(ctx context.Context, _ *gctest.Store, good gc.ImageGC, want uint64) (uint64, error) {
			return good.Reclaim(context.WithoutCancel(ctx), want)
		}},
		"busy": {"Together", "Of calls at the same time one waits", newBusy()},
	}
}

// newBusy returns a collector that refuses a call while there is another.
func newBusy() func(ctx context.Context, s *gctest.Store, good gc.ImageGC, want uint64) (uint64, error) {
	var mu sync.Mutex
	calls := 0
	return func(ctx context.Context, _ *gctest.Store, good gc.ImageGC, want uint64) (uint64, error) {
		mu.Lock()
		defer mu.Unlock()
		if calls++; calls > 1 {
			return 0, errors.New("busy")
		}
		return good.Reclaim(ctx, want)
	}
}

func subject(t *testing.T, m *mutant) gctest.Subject {
	store := gctest.NewStore(1 << 40)
	good, err := gc.NewImages(store, store, gc.ImageOptions{Policy: &gc.ImagePolicy{}, Disk: store.Disk, Settle: -1})
	require.NoError(t, err)
	var g gc.ImageGC = good
	if m != nil {
		g = gc.ImageGCFunc(func(ctx context.Context, want uint64) (uint64, error) { return m.reclaim(ctx, store, good, want) })
	}
	return gctest.Subject{
		GC: g, Size: 1 << 20,
		Load: func(_ *testing.T, name string, bytes uint64) string {
			return store.Load(name, gctest.Layer{Name: name, Size: bytes})
		},
		Use: func(_ *testing.T, id string) { store.Use("container", id) },
		Present: func(t *testing.T) (ids []string) {
			list, err := store.ListImages(t.Context())
			require.NoError(t, err)
			for _, i := range list {
				ids = append(ids, i.ID)
			}
			return ids
		},
	}
}

// TestMutant is run by TestMutantsAreFound.
func TestMutant(t *testing.T) {
	m, ok := mutants()[os.Getenv(variable)]
	if !ok {
		t.Skip("for TestMutantsAreFound")
	}
	gctest.TestImageGC(t, func(t *testing.T) gctest.Subject { return subject(t, &m) })
}

func TestMutantsAreFound(t *testing.T) {
	for name, m := range mutants() {
		t.Run(name, func(t *testing.T) { suitetest.FindsFault(t, variable, name, m.testCase, m.broken) })
	}
}

func TestGood(t *testing.T) {
	gctest.TestImageGC(t, func(t *testing.T) gctest.Subject { return subject(t, nil) })
}
