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

// dying is a plugin that stops for good at one of its steps, before or after what it does, until its agent is gone.
type dying struct {
	*volumetest.MemoryPlugin
	left    int // steps until then
	reached chan struct{}
}

// point is a moment at which the agent can die.
func (d *dying) point(ctx context.Context) error {
	d.left--
	if d.left != 0 {
		return nil
	}
	close(d.reached)
	<-ctx.Done()
	return ctx.Err()
}

func (d *dying) SetUp(ctx context.Context, v volume.Volume) (volume.Mount, error) {
	if err := d.point(ctx); err != nil {
		return volume.Mount{}, err
	}
	m, err := d.MemoryPlugin.SetUp(ctx, v)
	if err == nil {
		err = d.point(ctx)
	}
	return m, err
}

func (d *dying) TearDown(ctx context.Context, v volume.Volume) error {
	if err := d.point(ctx); err != nil {
		return err
	}
	if err := d.MemoryPlugin.TearDown(ctx, v); err != nil {
		return err
	}
	return d.point(ctx)
}

// An agent dies at each step of a pod's volumes. The next one makes all of what is wanted, and leaves nothing of what is not.
func TestDeathAtEachStep(t *testing.T) {
	const points = 8 // two volumes, up and down, before and after
	for n := 1; n <= points; n++ {
		for _, wanted := range []bool{true, false} {
			t.Run(fmt.Sprintf("%d, wanted=%v", n, wanted), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					root, d := t.TempDir(), &dying{MemoryPlugin: &volumetest.MemoryPlugin{}, left: n, reached: make(chan struct{})}
					o := memory(root, d)
					o.Parallel = 1
					a, p := start(t, o), pod("u1", "x", "y")
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

					a = start(t, memory(root, d.MemoryPlugin))
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

// dyingShared is a plugin whose volumes are staged, that stops for good at one of its steps.
type dyingShared struct {
	*volumetest.MemoryStager
	*dying
}

func (d dyingShared) SetUp(ctx context.Context, v volume.Volume) (m volume.Mount, err error) {
	return m, d.around(ctx, func() error { m, err = d.MemoryStager.SetUp(ctx, v); return err })
}

func (d dyingShared) TearDown(ctx context.Context, v volume.Volume) error {
	return d.around(ctx, func() error { return d.MemoryStager.TearDown(ctx, v) })
}

func (d dyingShared) Shows(*corev1.Pod, *corev1.Volume, volume.Object) bool { return false }

func (d dyingShared) Stage(ctx context.Context, v volume.Volume) error {
	return d.around(ctx, func() error { return d.MemoryStager.Stage(ctx, v) })
}

func (d dyingShared) Unstage(ctx context.Context, v volume.Volume) error {
	return d.around(ctx, func() error { return d.MemoryStager.Unstage(ctx, v) })
}

// around is a call before and after which the agent can die.
func (d dyingShared) around(ctx context.Context, call func() error) error {
	if err := d.point(ctx); err != nil {
		return err
	}
	if err := call(); err != nil {
		return err
	}
	return d.point(ctx)
}

// An agent dies at each step of two pods that share a claim. The next one leaves nothing, and unstages nothing that is used.
func TestDeathAtEachSharedStep(t *testing.T) {
	const points = 12 // two volumes and a device, up and down, before and after
	for n := 1; n <= points; n++ {
		for _, wanted := range []bool{true, false} {
			t.Run(fmt.Sprintf("%d, wanted=%v", n, wanted), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					root, s := t.TempDir(), newStorage()
					d := dyingShared{s.MemoryStager, &dying{left: n, reached: make(chan struct{})}}
					o := s.with(root, d)
					a, first, second := start(t, o), claiming("u1", "db"), claiming("u2", "db")
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

					a = start(t, s.options(root))
					if wanted {
						require.NoError(t, a.Prepare(t.Context(), second))
						assert.Equal(t, []string{"pv1"}, s.Staged())
						assert.Contains(t, s.Volumes(), "u2/v-db")
					}
					require.NoError(t, a.Release(t.Context(), "u1"))
					require.NoError(t, a.Release(t.Context(), "u2"))
					s.nothing(t, root)
				})
			})
		}
	}
}
