// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"maps"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/apiserver"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/objects"
	"github.com/seed81659283/nodeagent/volume"
	"github.com/seed81659283/nodeagent/volume/intree"
)

// volumeWait is how long a pod waits for its volumes before its status has the cause. The pod starts by itself once they are mounted.
const volumeWait = 15 * time.Second

// mount makes the engine that mounts the volumes of pods.
func (a *Agent) mount(o *lifecycle.Options) error {
	n := &a.config.Node
	plugins, opts := intree.Options{Allocatable: a.node.Allocatable}, volume.Options{Root: o.Dirs.Pods, Shared: n.SharedMounts, Wait: volumeWait, Logger: a.log}
	opts.Labels = func() map[string]string { return map[string]string{corev1.LabelHostname: n.NodeName} }
	var dir *objects.Dir
	if n.ObjectsDir != "" {
		dir = objects.NewDir(n.ObjectsDir)
		plugins.Objects, opts.Claims, opts.Watcher = dir, dir, dir
	}
	switch {
	case a.cluster != nil:
		all := a.cluster.objects
		keeper, grown := intree.NewCertificateKeeper(all, intree.CertificateOptions{Logger: a.log, Event: a.podEvent}), apiserver.NewExpansions(all, a.log)
		a.add("pod certificates", keeper.Run)
		a.add("expanded claims", grown.Run)
		opts.Hooks.Expanded = grown.Expanded
		plugins.Objects, plugins.Tokens = all.Volumes(), a.cluster.source.Tokens()
		plugins.TrustBundles, plugins.Certificates = all, keeper
		opts.Claims, opts.Watcher, opts.Labels = all, volume.JoinWatchers(all, keeper), func() map[string]string { return a.node.Node().Labels }
	case n.Kubeconfig != "":
		tokens, err := a.openTokens()
		if err != nil {
			return err
		}
		plugins.Tokens = tokens
	}
	node, err := volume.ReadSELinux(os.DirFS("/"))
	if err != nil {
		return err
	}
	opts.SELinux, o.Spec.SELinux = node, node.Enabled
	opts.Plugins = intree.Plugins(plugins)
	if err := a.addDrivers(&opts, dir, plugins.Tokens); err != nil {
		return err
	}
	maps.Copy(opts.Plugins, a.options.Plugins)
	opts.Hooks.Event = a.podEvent
	opts.Hooks = a.meter.Volumes(a.options.Hooks.Volumes, opts.Hooks)
	volumes, err := volume.New(opts)
	if err != nil {
		return err
	}
	a.volumes, o.Volumes, o.Spec.VolumeGroups = volumes, volumes, volumes.Groups
	a.add("volumes", volumes.Run)
	return nil
}
