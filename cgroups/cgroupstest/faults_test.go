// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroupstest_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/cgroupstest"
)

// Each method calls Around and its own func.
func TestFaultsCallAroundAndFunc(t *testing.T) {
	ctx, boom := t.Context(), errors.New("boom")
	f := &cgroupstest.Faults{Driver: cgroupstest.New(cgroupstest.Options{})}
	calls := map[string]func() error{
		"Apply":    func() error { return f.Apply(ctx, "a", cgroups.Resources{}) },
		"Remove":   func() error { return f.Remove(ctx, "b") },
		"Children": func() error { _, err := f.Children(ctx, "a"); return err },
		"Procs":    func() error { _, err := f.Procs(ctx, "a"); return err },
		"Limits":   func() error { _, err := f.Limits(ctx, "a"); return err },
		"Stats":    func() error { _, err := f.Stats(ctx, "a"); return err },
	}
	require.NoError(t, f.Apply(ctx, "a", cgroups.Resources{}))
	for op, call := range calls {
		require.NoError(t, call(), op)
		f.Around = func(_ context.Context, got string, _ cgroups.Path, call func() error) error {
			assert.Equal(t, op, got)
			assert.NoError(t, call())
			return boom // the call took effect, but its result is lost
		}
		require.ErrorIs(t, call(), boom, op)
		f.Around = nil
	}

	f.ApplyFunc = func(context.Context, cgroupstest.Driver, cgroups.Path, cgroups.Resources) error { return boom }
	f.RemoveFunc = func(context.Context, cgroupstest.Driver, cgroups.Path) error { return boom }
	f.ChildrenFunc = func(context.Context, cgroupstest.Driver, cgroups.Path) ([]string, error) { return nil, boom }
	f.ProcsFunc = func(context.Context, cgroupstest.Driver, cgroups.Path) ([]int, error) { return nil, boom }
	f.LimitsFunc = func(context.Context, cgroupstest.Driver, cgroups.Path) (cgroups.Resources, error) {
		return cgroups.Resources{}, boom
	}
	f.StatsFunc = func(context.Context, cgroupstest.Driver, cgroups.Path) (cgroups.Stats, error) {
		return cgroups.Stats{}, boom
	}
	for op, call := range calls {
		require.ErrorIs(t, call(), boom, op)
	}
}

func TestHangReturnsWhenContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.ErrorIs(t, cgroupstest.Hang(ctx), context.Canceled)
}
