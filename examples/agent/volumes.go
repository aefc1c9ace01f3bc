// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/internal/retryqueue"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/objects"
	"github.com/seed81659283/nodeagent/volume"
	"github.com/seed81659283/nodeagent/volume/intree"
	"github.com/seed81659283/nodeagent/volume/podcert"
	"github.com/seed81659283/nodeagent/volume/selinux"
	"github.com/seed81659283/nodeagent/volume/trustbundle"
)

// wait is how long a pod waits for its volumes before its status says why. It goes on by itself when they are there.
const wait = 15 * time.Second

// mount gives pods volumes that need nothing but this node and the directory of objects, in which a change is seen at once.
func (a *agent) mount(o *lifecycle.Options) error {
	plugins, opts := intree.Options{Allocatable: a.allocatable}, volume.Options{Root: o.Dirs.Pods, Shared: a.SharedMounts, Wait: wait, Logger: a.log}
	opts.Labels = func() map[string]string { return map[string]string{corev1.LabelHostname: a.NodeName} }
	var dir *objects.Dir
	if a.Objects != "" {
		dir = objects.NewDir(a.Objects)
		plugins.Objects, opts.Claims, opts.Watcher = dir, dir, dir
	}
	switch {
	case a.cluster != nil:
		all := a.cluster.objects
		keeper, grown := podcert.New(all, podcert.Options{Logger: a.log, Event: a.podEvent}), a.expansions()
		a.parts = append(a.parts, keeper.Run, grown.Run)
		opts.Hooks.Expanded = func(claim *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume, size int64) {
			grown.Put(claim.UID, &expansion{claim, size})
		}
		plugins.Objects, plugins.Tokens = all.Volumes(), a.cluster.source.Tokens()
		plugins.TrustBundles, plugins.Certificates = trustbundle.NewReader(all), keeper
		opts.Claims, opts.Watcher, opts.Labels = all, volume.JoinWatchers(all, keeper), func() map[string]string { return a.cluster.reporter.Node().Labels }
	case a.Kubeconfig != "":
		tokens, err := a.openTokens()
		if err != nil {
			return err
		}
		plugins.Tokens = tokens
	}
	node, err := selinux.Read(os.DirFS("/"))
	if err != nil {
		return err
	}
	opts.SELinux, o.Spec.SELinux = node, node.Enabled
	opts.Plugins = intree.Plugins(plugins)
	if err := a.useDrivers(&opts, dir, plugins.Tokens); err != nil {
		return err
	}
	opts.Hooks.Event = a.podEvent
	opts.Hooks = a.meter.Volumes(opts.Hooks)
	volumes, err := volume.New(opts)
	if err != nil {
		return err
	}
	a.volumes, o.Volumes, o.Spec.VolumeGroups = volumes, volumes, volumes.Groups
	a.parts = append(a.parts, volumes.Run)
	return nil
}

// expansion is the size that the volume of a claim has on this node now, in bytes.
type expansion struct {
	claim *corev1.PersistentVolumeClaim
	size  int64
}

// expansions tell the cluster which volumes have grown on this node.
func (a *agent) expansions() *retryqueue.Queue[types.UID, expansion] {
	return retryqueue.New[types.UID](func(ctx context.Context, x *expansion) bool {
		err := a.cluster.objects.ClaimExpanded(ctx, x.claim, x.size)
		if err == nil || errors.Is(err, fs.ErrNotExist) { // nobody wants to know any more
			return true
		}
		a.log.Warn("expanded claim", "namespace", x.claim.Namespace, "claim", x.claim.Name, "error", err)
		return false
	})
}
