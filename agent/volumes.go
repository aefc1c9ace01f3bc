// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"maps"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/apiserver"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/objects"
	"github.com/seed81659283/nodeagent/volume"
	"github.com/seed81659283/nodeagent/volume/csi"
	"github.com/seed81659283/nodeagent/volume/intree"
)

// volumeWait is how long a pod waits for its volumes until its status reports the error. The pod still starts once all volumes are mounted.
const volumeWait = 15 * time.Second

// createVolumes creates the engine that mounts the volumes of pods, and sets the fields of the reconciler's options o that depend on it.
func (a *Agent) createVolumes(ctx context.Context, o *lifecycle.Options) error {
	n := &a.config.Node
	plugins := intree.Options{Allocatable: a.node.Allocatable}
	opts := volume.Options{Root: o.Dirs.Pods, AdoptUnrecorded: n.AdoptPods, MakeRootShared: n.SharedMounts, WaitTimeout: volumeWait, Logger: a.log}
	opts.NodeLabels = func() map[string]string { return map[string]string{corev1.LabelHostname: n.NodeName} }
	var dir *objects.Dir
	var watchers []volume.Watcher
	if n.ObjectsDir != "" {
		dir = objects.NewDir(n.ObjectsDir)
		plugins.Objects, opts.Claims, watchers = dir, dir, []volume.Watcher{dir}
	}
	switch {
	case a.cluster != nil:
		all := a.cluster.Objects
		keeper, expansions := intree.NewCertificateKeeper(all, intree.CertificateOptions{Logger: a.log, Event: a.recordPodEvent}), apiserver.NewExpansions(all, a.log)
		a.parts.Add("pod certificates", keeper.Run)
		a.parts.Add("expanded claims", expansions.Run)
		opts.Hooks.Expanded = expansions.Expanded
		plugins.Objects, plugins.Tokens = all.Volumes(), a.cluster.Source.Tokens()
		plugins.TrustBundles, plugins.Certificates = all, keeper
		opts.Claims, watchers = all, []volume.Watcher{all, keeper}
		opts.NodeLabels = func() map[string]string { return a.node.Node().Labels }
	case n.Kubeconfig != "":
		tokens, err := a.openTokens(ctx)
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
	drivers, err := a.openDrivers(dir, plugins.Tokens)
	if err != nil {
		return err
	}
	opts.Plugins[volume.CSI], opts.Watcher = drivers, volume.JoinWatchers(append(watchers, drivers)...)
	if a.cluster != nil {
		opts.Attacher = csi.Attacher{Plugin: drivers, Report: a.node.Report}
	}
	maps.Copy(opts.Plugins, a.options.Plugins)
	opts.Hooks.Event = a.recordPodEvent
	opts.Hooks = a.metrics.Volumes(a.options.Hooks.Volumes, opts.Hooks)
	if a.volumes, err = volume.New(opts); err != nil {
		return err
	}
	o.Volumes, o.Spec.VolumeGroups = a.volumes, a.volumes.SupplementalGroups
	a.parts.Add("volumes", a.volumes.Run)
	return nil
}

// openDrivers creates the plugin for CSI volumes, whose drivers register in rootDir/plugins_registry. Each argument may be nil.
func (a *Agent) openDrivers(dir *objects.Dir, tokens volume.TokenIssuer) (*csi.Plugin, error) {
	opts := csi.Options{Registry: a.filePath("plugins_registry"), NodeName: a.config.Node.NodeName, Tokens: tokens, Logger: a.log}
	switch {
	case a.cluster != nil:
		all := a.cluster.Objects
		node := csi.NewClusterNode(all, a.log)
		opts.Drivers, opts.Secrets, opts.Attachments, opts.NodeUpdater = all, all.Volumes(), all, node
		a.parts.Add("CSI drivers of the Node", node.Run)
	// without a cluster, the CSIDriver objects and Secrets are files
	case dir != nil:
		opts.Drivers, opts.Secrets = dir, dir
	}
	opts.Hooks.CallCompleted = a.metrics.CSI()
	plugin, err := csi.New(opts)
	if err == nil {
		a.parts.Add("CSI drivers", plugin.Run)
	}
	return plugin, err
}
