// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/volume"
	"github.com/seed81659283/nodeagent/volume/volumetest"
)

// crashingPlugin is a plugin that stops at one of its crash points until its agent is stopped.
type crashingPlugin struct {
	*volumetest.MemoryPlugin
	remaining int // crash points before it stops
	reached   chan struct{}
}

// crashPoint blocks until ctx ends if it is the crash point at which the plugin stops.
func (d *crashingPlugin) crashPoint(ctx context.Context) error {
	d.remaining--
	if d.remaining != 0 {
		return nil
	}
	close(d.reached)
	<-ctx.Done()
	return ctx.Err()
}

func (d *crashingPlugin) SetUp(ctx context.Context, v volume.Volume) (volume.Mount, error) {
	if err := d.crashPoint(ctx); err != nil {
		return volume.Mount{}, err
	}
	m, err := d.MemoryPlugin.SetUp(ctx, v)
	if err == nil {
		err = d.crashPoint(ctx)
	}
	return m, err
}

func (d *crashingPlugin) TearDown(ctx context.Context, v volume.Volume) error {
	if err := d.crashPoint(ctx); err != nil {
		return err
	}
	if err := d.MemoryPlugin.TearDown(ctx, v); err != nil {
		return err
	}
	return d.crashPoint(ctx)
}

// A restarted agent sets up all desired volumes, and removes all other volumes.
func TestCrashAtEachStepIsRecovered(t *testing.T) {
	const points = 8 // two volumes; set-up and teardown; before and after each call
	for n := 1; n <= points; n++ {
		for _, wanted := range []bool{true, false} {
			t.Run(fmt.Sprintf("%d, wanted=%v", n, wanted), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					root, d := t.TempDir(), &crashingPlugin{MemoryPlugin: &volumetest.MemoryPlugin{}, remaining: n, reached: make(chan struct{})}
					o := memoryOptions(root, d)
					o.Parallel = 1
					a, p := startAgent(t, o), podWithConfigMaps("u1", "x", "y")
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					go func() {
						if a.Prepare(ctx, p) == nil {
							_ = a.Release(ctx, "u1")
						}
					}()
					<-d.reached
					a.stop()
					cancel()

					a = startAgent(t, memoryOptions(root, d.MemoryPlugin))
					if wanted {
						require.NoError(t, a.Prepare(t.Context(), p))
						assert.Equal(t, []string{"u1/x", "u1/y"}, d.Volumes())
					}
					require.NoError(t, a.Release(t.Context(), "u1"))
					assert.Empty(t, d.Volumes())
					assert.Empty(t, podDirs(t, root))
				})
			})
		}
	}
}

// crashingStager is a crashingPlugin whose volumes are staged.
type crashingStager struct {
	*volumetest.MemoryStager
	*crashingPlugin
}

func (d crashingStager) SetUp(ctx context.Context, v volume.Volume) (m volume.Mount, err error) {
	return m, d.callWithCrashPoints(ctx, func() error { m, err = d.MemoryStager.SetUp(ctx, v); return err })
}

func (d crashingStager) TearDown(ctx context.Context, v volume.Volume) error {
	return d.callWithCrashPoints(ctx, func() error { return d.MemoryStager.TearDown(ctx, v) })
}

func (d crashingStager) Shows(*corev1.Pod, *corev1.Volume, volume.Object) bool { return false }

func (d crashingStager) Stage(ctx context.Context, v volume.Volume) error {
	return d.callWithCrashPoints(ctx, func() error { return d.MemoryStager.Stage(ctx, v) })
}

func (d crashingStager) Unstage(ctx context.Context, v volume.Volume) error {
	return d.callWithCrashPoints(ctx, func() error { return d.MemoryStager.Unstage(ctx, v) })
}

// callWithCrashPoints makes a call with a crash point before and after it.
func (d crashingStager) callWithCrashPoints(ctx context.Context, call func() error) error {
	if err := d.crashPoint(ctx); err != nil {
		return err
	}
	if err := call(); err != nil {
		return err
	}
	return d.crashPoint(ctx)
}

// Two pods share the claim. A restarted agent leaves nothing, and never unstages a device in use.
func TestCrashAtEachStepOfSharedClaimIsRecovered(t *testing.T) {
	const points = 12 // two volumes and a device; set-up and teardown; before and after each call
	for n := 1; n <= points; n++ {
		for _, wanted := range []bool{true, false} {
			t.Run(fmt.Sprintf("%d, wanted=%v", n, wanted), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					root, s := t.TempDir(), newStorage()
					d := crashingStager{s.MemoryStager, &crashingPlugin{remaining: n, reached: make(chan struct{})}}
					o := s.optionsWith(root, d)
					a, first, second := startAgent(t, o), podWithClaims("u1", "db"), podWithClaims("u2", "db")
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					go func() {
						if a.Prepare(ctx, first) == nil && a.Prepare(ctx, second) == nil && a.Release(ctx, "u1") == nil {
							_ = a.Release(ctx, "u2")
						}
					}()
					<-d.reached
					a.stop()
					cancel()

					a = startAgent(t, s.options(root))
					if wanted {
						require.NoError(t, a.Prepare(t.Context(), second))
						assert.Equal(t, []string{"pv1"}, s.Staged())
						assert.Contains(t, s.Volumes(), "u2/v-db")
					}
					require.NoError(t, a.Release(t.Context(), "u1"))
					require.NoError(t, a.Release(t.Context(), "u2"))
					s.checkNothingLeft(t, root)
				})
			})
		}
	}
}
