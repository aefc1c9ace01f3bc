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

const mutantVariable = "GCTEST_MUTANT"

// mutant is a collector that breaks a rule of the suite.
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
		"removes nothing": {"Enough", "until want more bytes are available", func(context.Context, *gctest.Store, gc.ImageGC, uint64) (uint64, error) {
			return 0, nil
		}},
		"removes too much": {"Enough", "until want more bytes are available", func(ctx context.Context, _ *gctest.Store, good gc.ImageGC, _ uint64) (uint64, error) {
			return good.Reclaim(ctx, gc.ReclaimAll)
		}},
		"hides the ShortError": {"Short", "the error is a [*ShortError]", func(ctx context.Context, _ *gctest.Store, good gc.ImageGC, want uint64) (uint64, error) {
			freed, _ := good.Reclaim(ctx, want)
			return freed, nil
		}},
		"removes used images": {"All", "For [ReclaimAll] only failed removals", func(ctx context.Context, s *gctest.Store, _ gc.ImageGC, _ uint64) (uint64, error) {
			removeAll(ctx, s)
			return math.MaxUint64, nil
		}},
		"removes images for zero bytes": {"Zero", "A want of zero does nothing", func(ctx context.Context, s *gctest.Store, _ gc.ImageGC, _ uint64) (uint64, error) {
			removeAll(ctx, s)
			return 0, nil
		}},
		"ignores the context": {"Canceled", "When ctx ends, no further image is removed", func(ctx context.Context, _ *gctest.Store, good gc.ImageGC, want uint64) (uint64, error) {
			return good.Reclaim(context.WithoutCancel(ctx), want)
		}},
		"fails concurrent calls": {"Together", "Concurrent calls run one after another", newBusyCollector()},
	}
}

// newBusyCollector returns a faulty Reclaim function: its second call fails, instead of waiting for the first one.
func newBusyCollector() func(ctx context.Context, s *gctest.Store, good gc.ImageGC, want uint64) (uint64, error) {
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
		Collector: g, ImageSize: 1 << 20,
		AddImage: func(_ *testing.T, name string, bytes uint64) string {
			return store.AddImage(name, gctest.Layer{Name: name, Size: bytes})
		},
		AddContainer: func(_ *testing.T, id string) { store.AddContainer("container", id) },
		ImageIDs: func(t *testing.T) (ids []string) {
			list, err := store.ListImages(t.Context())
			require.NoError(t, err)
			for _, i := range list {
				ids = append(ids, i.ID)
			}
			return ids
		},
	}
}

// TestMutant tests one mutant in a process started by TestMutantsAreFound.
func TestMutant(t *testing.T) {
	m, ok := mutants()[os.Getenv(mutantVariable)]
	if !ok {
		t.Skip("runs only as a child of TestMutantsAreFound")
	}
	gctest.TestImageGC(t, func(t *testing.T) gctest.Subject { return subject(t, &m) })
}

func TestMutantsAreFound(t *testing.T) {
	for name, m := range mutants() {
		t.Run(name, func(t *testing.T) { suitetest.FindsFault(t, mutantVariable, name, m.testCase, m.broken) })
	}
}

func TestCorrectCollector(t *testing.T) {
	gctest.TestImageGC(t, func(t *testing.T) gctest.Subject { return subject(t, nil) })
}
