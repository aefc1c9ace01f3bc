// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package intree

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/mount"
	"github.com/seed81659283/nodeagent/internal/notexist"
	"github.com/seed81659283/nodeagent/internal/plugincmd"
	"github.com/seed81659283/nodeagent/volume"
)

// undoTimeout is the maximum time for cleaning up after a failed mount.
const undoTimeout = 3 * time.Second

// maxMountOutput is the maximum number of bytes of the output of mount(8) in an error.
const maxMountOutput = 4 << 10

// nfs is the plugin for NFS volumes. It mounts exports with mount(8), which negotiates the NFS version (pkg/volume/nfs).
type nfs struct {
	node *node
}

var (
	_ volume.Plugin        = (*nfs)(nil)
	_ volume.DeviceFinder  = (*nfs)(nil)
	_ volume.UsageProvider = (*nfs)(nil)
)

// nfsSource returns the NFS server and path of the volume. It returns nil if the volume is no NFS volume.
func nfsSource(vol volume.Volume) *corev1.NFSVolumeSource {
	switch {
	case vol.PV != nil:
		return vol.PV.Spec.NFS
	case vol.Source != nil:
		return vol.Source.NFS
	default:
		return nil
	}
}

// SetUp mounts the NFS export of the volume at vol.Dir. If a file system is mounted there, SetUp does nothing and does not
// contact the server.
func (n *nfs) SetUp(ctx context.Context, vol volume.Volume) (volume.Mount, error) {
	m, source := volume.Mount{HostPath: vol.Dir, ReadOnly: vol.ReadOnly}, nfsSource(vol)
	if source == nil || source.Server == "" || source.Path == "" {
		return m, &volume.FinalError{Err: errors.New("the volume has no NFS server, or no path")}
	}
	if mounted, err := mount.IsMountPoint(vol.Dir); mounted || notexist.Ignore(err) != nil {
		return m, err
	}
	if err := os.Mkdir(vol.Dir, 0o750); err != nil && !errors.Is(err, os.ErrExist) {
		return m, err
	}
	options := slices.Clone(vol.MountOptions)
	if vol.ReadOnly {
		options = append(options, "ro")
	}
	args := []string{"-t", "nfs"}
	if len(options) > 0 {
		slices.Sort(options)
		args = append(args, "-o", strings.Join(slices.Compact(options), ","))
	}
	args = append(args, "--", formatServer(source.Server)+":"+source.Path, vol.Dir)
	if err := runMount(ctx, args); err != nil {
		if undo := n.undoMount(ctx, vol); undo != nil {
			return m, errors.Join(err, undo)
		}
		return m, &volume.FinalError{Err: err}
	}
	return m, nil
}

// undoMount unmounts and removes vol.Dir after a failed mount, even if ctx has ended. It takes at most undoTimeout.
func (n *nfs) undoMount(ctx context.Context, vol volume.Volume) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	return n.TearDown(ctx, vol)
}

// formatServer returns the name or address of an NFS server in the form for mount(8): an IPv6 address in brackets, any other
// name unchanged.
func formatServer(name string) string {
	if addr, err := netip.ParseAddr(name); err == nil && addr.Is6() {
		return "[" + name + "]"
	}
	return name
}

// runMount runs mount(8) with these arguments. Its error has the output. When ctx ends, it kills the command and its child
// processes.
func runMount(ctx context.Context, args []string) error {
	out := &plugincmd.Output{Max: maxMountOutput, Drop: true}
	cmd := exec.CommandContext(ctx, "mount", args...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := plugincmd.Run(cmd, false); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return fmt.Errorf("mount %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out.Text)))
	}
	return nil
}

// TearDown unmounts vol.Dir and removes it. If the server does not respond, it unmounts by force, and then lazily.
func (n *nfs) TearDown(ctx context.Context, vol volume.Volume) error {
	if err := n.node.unmounter.Unmount(ctx, vol.Dir); err != nil {
		return err
	}
	return notexist.Ignore(os.Remove(vol.Dir))
}

// FindDevice returns the zero Device: TearDown needs only the directory of the volume.
func (n *nfs) FindDevice(volume.Volume) (volume.Device, error) { return volume.Device{}, nil }

// Usage returns the usage of the file system of the server.
func (n *nfs) Usage(ctx context.Context, vol volume.Volume) (volume.Usage, error) {
	return n.node.statFilesystem(ctx, vol.Dir)
}
