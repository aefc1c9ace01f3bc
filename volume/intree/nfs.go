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

// undoTimeout is how long what a failed mount has left may take.
const undoTimeout = 3 * time.Second

// maxMountOutput is how much is kept of what mount(8) prints.
const maxMountOutput = 4 << 10

// nfs mounts exports of NFS servers, by mount(8), which negotiates with them (pkg/volume/nfs).
type nfs struct {
	node *node
}

var (
	_ volume.Plugin = (*nfs)(nil)
	_ volume.Usager = (*nfs)(nil)
)

// nfsSource returns where a volume is exported.
func nfsSource(v volume.Volume) *corev1.NFSVolumeSource {
	switch {
	case v.PV != nil:
		return v.PV.Spec.NFS
	case v.Source != nil:
		return v.Source.NFS
	default:
		return nil
	}
}

// SetUp mounts the export for a pod. One that is mounted is left alone, and nobody asks its server.
func (n *nfs) SetUp(ctx context.Context, v volume.Volume) (volume.Mount, error) {
	m, source := volume.Mount{HostPath: v.Dir, ReadOnly: v.ReadOnly}, nfsSource(v)
	if source == nil || source.Server == "" || source.Path == "" {
		return m, &volume.FinalError{Err: errors.New("the volume has no NFS server, or no path")}
	}
	if mounted, err := mount.IsMountPoint(v.Dir); mounted || notexist.Ignore(err) != nil {
		return m, err
	}
	if err := os.Mkdir(v.Dir, 0o750); err != nil && !errors.Is(err, os.ErrExist) {
		return m, err
	}
	options := slices.Clone(v.MountOptions)
	if v.ReadOnly {
		options = append(options, "ro")
	}
	args := []string{"-t", "nfs"}
	if len(options) > 0 {
		slices.Sort(options)
		args = append(args, "-o", strings.Join(slices.Compact(options), ","))
	}
	args = append(args, "--", server(source.Server)+":"+source.Path, v.Dir)
	if err := mountCommand(ctx, args); err != nil {
		if undo := n.undo(ctx, v); undo != nil {
			return m, errors.Join(err, undo)
		}
		return m, &volume.FinalError{Err: err}
	}
	return m, nil
}

// undo takes away what a failed mount has left, also if nobody waits for it any more.
func (n *nfs) undo(ctx context.Context, v volume.Volume) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	return n.TearDown(ctx, v)
}

// server returns the name of a server as mount(8) has it.
func server(name string) string {
	if addr, err := netip.ParseAddr(name); err == nil && addr.Is6() {
		return "[" + name + "]"
	}
	return name
}

// mountCommand runs mount(8). It ends with ctx, with all that it has started.
func mountCommand(ctx context.Context, args []string) error {
	out := &plugincmd.Output{Max: maxMountOutput, Drop: true}
	cmd := exec.CommandContext(ctx, "mount", args...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := plugincmd.Run(cmd, false); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return fmt.Errorf("mount %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out.Held)))
	}
	return nil
}

// TearDown unmounts the export, by force if its server does not answer, and then lazily.
func (n *nfs) TearDown(ctx context.Context, v volume.Volume) error {
	if err := n.node.unmounter.Unmount(ctx, v.Dir); err != nil {
		return err
	}
	return notexist.Ignore(os.Remove(v.Dir))
}

// Usage returns how full the file system of the server is.
func (n *nfs) Usage(ctx context.Context, v volume.Volume) (volume.Usage, error) {
	return n.node.statfs(ctx, v.Dir)
}
