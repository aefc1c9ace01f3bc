// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/mount"
	"github.com/seed81659283/nodeagent/internal/volume/claim"
	"github.com/seed81659283/nodeagent/internal/volume/plan"
	"github.com/seed81659283/nodeagent/volume/internal/blockmap"
)

// attachError is why a volume is not known to be attached.
type attachError struct{ Err error }

// Error returns the text of the cause, with what was waited for.
func (e *attachError) Error() string { return "wait for attach: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *attachError) Unwrap() error { return e.Err }

// take calls the plugin.
func (s *step) take(ctx context.Context) (r result) {
	plugin, ok := s.v.opts.Plugins[s.volume.Plugin]
	if !ok {
		r.err = fmt.Errorf("there is no plugin %s", s.volume.Plugin)
		return r
	}
	switch s.kind {
	case plan.TearDown:
		r.err = s.tearDown(ctx, plugin)
	case plan.Unstage:
		r.err = s.unstage(ctx, plugin)
	case plan.Stage:
		r.path, r.err = s.stage(ctx, plugin)
	default:
		s.setUp(ctx, plugin, &r)
	}
	return r
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// tearDown removes what is made of a volume, last made first.
func (s *step) tearDown(ctx context.Context, plugin Plugin) error {
	if s.volume.Block {
		if err := mapping(s.volume).Unmap(ctx); err != nil {
			return err
		}
		return plugin.TearDown(ctx, s.volume)
	}
	if err := cleanSubPaths(ctx, s.volume); err != nil {
		return err
	}
	return plugin.TearDown(ctx, s.volume)
}

// unstage removes what is made of a device, unless somebody has it mounted elsewhere: a file system that is used must not lose its
// device.
func (s *step) unstage(ctx context.Context, plugin Plugin) error {
	stager, ok := plugin.(Stager)
	if !ok {
		return fmt.Errorf("plugin %s stages nothing", s.volume.Plugin)
	}
	if dir := s.volume.StagingDir; dir != "" && !s.volume.Block {
		if err := unreferenced(dir); err != nil {
			return err
		}
	}
	if err := stager.Unstage(ctx, s.volume); err != nil {
		return err
	}
	if d := s.volume.Device.MapDir; d != "" {
		return ignoreMissing(os.Remove(filepath.Join(s.volume.PluginDir, d)))
	}
	return nil
}

// unreferenced returns an error if what is mounted on a directory is mounted elsewhere, too.
func unreferenced(dir string) error {
	if mounted, err := mount.IsMountPoint(dir); err != nil || !mounted {
		return ignoreMissing(err)
	}
	table, err := mount.Table()
	if err != nil {
		return err
	}
	if others := mount.Others(table, dir); len(others) > 0 {
		return fmt.Errorf("%s is still mounted at %s, of %d", dir, others[0].Point, len(others))
	}
	return nil
}

// stage makes a device ready for its volumes.
func (s *step) stage(ctx context.Context, plugin Plugin) (path string, err error) {
	stager, ok := plugin.(Stager)
	if !ok {
		return "", fmt.Errorf("plugin %s stages nothing", s.volume.Plugin)
	}
	if _, err := s.refill(ctx); err != nil {
		if s.recall(err) {
			s.v.opts.Logger.Info("claim is not known: the volume is used as it is staged", "pod", s.pod.name, "volume", s.volume.Name, "error", err)
			return "", nil
		}
		return "", s.unmade(err)
	}
	if err := s.mayUse(); err != nil {
		return "", s.unmade(err)
	}
	if s.attaches() {
		limited, cancel := context.WithTimeout(ctx, s.v.opts.AttachTimeout)
		path, err = s.v.opts.Attacher.WaitForAttach(limited, s.volume)
		cancel()
		if err != nil {
			return "", s.unmade(&attachError{err})
		}
		s.volume.DevicePath = path
	}
	ctx, cancel := context.WithTimeout(ctx, s.v.opts.Timeout)
	defer cancel()
	if dir := s.volume.StagingDir; dir != "" {
		if err := os.MkdirAll(filepath.Dir(dir), 0o750); err != nil {
			return "", err
		}
	}
	return path, stager.Stage(ctx, s.volume)
}

// unmade marks an error before which the step has made nothing.
func (s *step) unmade(err error) error {
	if s.before.absent {
		return &FinalError{Err: err}
	}
	return err
}

// refill fetches the claim of a volume again, which has to be what it was.
func (s *step) refill(ctx context.Context) (*claimed, error) {
	v := &s.volume
	if v.Source == nil {
		return nil, fmt.Errorf("the pod has no such volume of plugin %s", v.Plugin)
	}
	now, c, err := s.v.record(ctx, v.Pod, v.Source)
	if err == nil {
		err = s.before.recorded.same(now)
	}
	if err != nil {
		return nil, err
	}
	v.fill(c)
	return c, nil
}

// mayUse returns why the pod cannot have the volume on this node now.
func (s *step) mayUse() error {
	if s.volume.PV == nil {
		return nil
	}
	if labels := s.v.opts.Labels; labels != nil {
		if err := claim.CheckAffinity(s.volume.PV, labels()); err != nil {
			return err
		}
	}
	if s.volume.Shared && claim.OncePerPod(s.volume.PV) {
		return claim.ErrInUse
	}
	return nil
}

// setUp makes a volume, or brings it up to date, and lets it grow.
func (s *step) setUp(ctx context.Context, plugin Plugin, r *result) {
	r.mount = s.before.mount
	c, err := s.refill(ctx)
	if err != nil && s.kind == plan.Remount && s.before.claimed != nil {
		s.v.opts.Logger.Info("claim is not known", "pod", s.pod.name, "volume", s.volume.Name, "error", err)
		return // it stays as it is
	}
	if err != nil && s.recall(err) {
		r.claimed = s.before.recorded.kept()
		if r.mount, r.err = s.make(ctx, plugin); r.err == nil {
			r.err = &StaleError{Err: err}
		}
		return
	}
	r.claimed, r.err = c, err
	if r.err == nil {
		r.err = s.mayUse()
	}
	if r.err != nil {
		r.err = s.unmade(r.err)
		return
	}
	if s.kind == plan.SetUp || s.updates(plugin) {
		if r.mount, r.err = s.make(ctx, plugin); r.err != nil {
			return
		}
	}
	r.size, r.err = s.grow(ctx, plugin)
}

// updates reports whether the plugin brings the volume up to date itself.
func (s *step) updates(plugin Plugin) bool {
	_, ok := plugin.(Refresher)
	return ok && s.volume.PV == nil || s.before.mount.Refresh
}

// make has the plugin make the volume, and binds a block device for the pod.
func (s *step) make(ctx context.Context, plugin Plugin) (Mount, error) {
	if err := prepareParents(s.volume); err != nil {
		return Mount{}, err
	}
	m, err := plugin.SetUp(ctx, s.volume)
	if err != nil || !s.volume.Block {
		return m, err
	}
	err = mapping(s.volume).Map(ctx, m.HostPath)
	m.HostPath = s.volume.Dir // the link
	return m, err
}

// mapping returns where a block device is made known by its pod.
func mapping(v Volume) blockmap.Mapping {
	return blockmap.Mapping{Bound: filepath.Join(v.PluginDir, v.Device.MapDir, v.UID), Link: v.Dir}
}

// grow lets a volume grow on the node when its PV has.
func (s *step) grow(ctx context.Context, plugin Plugin) (size int64, err error) {
	x, ok := plugin.(Expander)
	if !ok || s.volume.PV == nil || s.before.recorded.Device == nil {
		return 0, nil
	}
	g, due := claim.Grow(s.volume.Claim, s.volume.PV, s.before.size)
	switch {
	case !due:
		return max(g.Old, 0), nil
	case s.volume.ReadOnly:
		s.volume.Warn(ReasonFileSystemResizeFailed, "MountVolume.NodeExpandVolume failed requested read-only file system")
		return g.Old, nil
	}
	if err := x.NodeExpand(ctx, s.volume, Expansion{Old: g.Old, New: g.New}); err != nil {
		s.volume.Warn(ReasonFileSystemResizeFailed, fmt.Sprintf("NodeExpandVolume failed for volume %q : %v", s.volume.Spec, err))
		return 0, fmt.Errorf("expand volume to %d bytes: %w", g.New, err)
	}
	s.v.event(s.volume.Pod, corev1.EventTypeNormal, ReasonFileSystemResizeSuccessful, fmt.Sprintf("NodeExpandVolume succeeded for volume %q", s.volume.Spec))
	if hook := s.v.opts.Hooks.Expanded; hook != nil {
		hook(s.volume.Claim, s.volume.PV, g.New)
	}
	return g.New, nil
}
