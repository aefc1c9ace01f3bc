// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/seed81659283/nodeagent/lifecycle/objects"
	"github.com/seed81659283/nodeagent/volume"
	"github.com/seed81659283/nodeagent/volume/csi"
	"github.com/seed81659283/nodeagent/volume/token"
)

// useDrivers gives pods the volumes of CSI drivers, which register themselves in plugins_registry below the state. What a cluster
// would say of drivers is in the directory of objects, and so are the secrets of volumes. The issuer of tokens may be nil.
func (a *agent) useDrivers(o *volume.Options, dir *objects.Dir, tokens token.Issuer) error {
	opts := csi.Options{Registry: a.state("plugins_registry"), NodeName: a.NodeName, Tokens: tokens, Logger: a.log}
	switch {
	case a.cluster != nil:
		all := a.cluster.objects
		node := newDriverNode(a.cluster)
		opts.Drivers, opts.Secrets, opts.Attachments, opts.Node = all, all.Volumes(), all, node
		a.parts = append(a.parts, node.later.Run)
	case dir != nil:
		opts.Drivers, opts.Secrets = dir, dir
	}
	opts.Hooks.Call = a.meter.CSI()
	plugin, err := csi.New(opts)
	if err != nil {
		return err
	}
	o.Plugins[volume.CSI] = plugin
	if a.cluster != nil {
		o.Attacher = attacher{plugin, a.cluster}
	}
	if o.Watcher == nil {
		o.Watcher = plugin
	} else {
		o.Watcher = volume.JoinWatchers(o.Watcher, plugin)
	}
	a.parts = append(a.parts, plugin.Run)
	return nil
}

// attacher waits for what controllers attach. It is a volume.Attacher.
type attacher struct {
	*csi.Plugin
	cluster *cluster
}

// WaitForAttach returns when a volume is attached and the API server knows that it is in use: a controller detaches what no node says
// it uses, though a pod may have it mounted. What an earlier agent has had, it has said of.
func (a attacher) WaitForAttach(ctx context.Context, v volume.Volume) (string, error) {
	if !v.Recovered {
		if err := a.cluster.reporter.Report(ctx); err != nil {
			return "", err
		}
	}
	return a.Plugin.WaitForAttach(ctx, v)
}
