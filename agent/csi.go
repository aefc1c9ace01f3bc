// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"

	"github.com/seed81659283/nodeagent/lifecycle/objects"
	"github.com/seed81659283/nodeagent/volume"
	"github.com/seed81659283/nodeagent/volume/csi"
)

// addDrivers adds the volumes of CSI drivers, which register themselves in plugins_registry below rootDir. Without a cluster the CSIDriver
// objects and the secrets of volumes are in objectsDir. The issuer of tokens may be nil.
func (a *Agent) addDrivers(o *volume.Options, dir *objects.Dir, tokens volume.TokenIssuer) error {
	opts := csi.Options{Registry: a.config.path("plugins_registry"), NodeName: a.config.Node.NodeName, Tokens: tokens, Logger: a.log}
	switch {
	case a.cluster != nil:
		all := a.cluster.objects
		node := csi.NewClusterNode(all, a.log)
		opts.Drivers, opts.Secrets, opts.Attachments, opts.Node = all, all.Volumes(), all, node
		a.add("CSI drivers of the Node", node.Run)
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
		o.Attacher = attacher{plugin, &a.node}
	}
	if o.Watcher == nil {
		o.Watcher = plugin
	} else {
		o.Watcher = volume.JoinWatchers(o.Watcher, plugin)
	}
	a.add("CSI drivers", plugin.Run)
	return nil
}

// attacher waits for the volumes that controllers attach. It is a volume.Attacher.
type attacher struct {
	*csi.Plugin
	node *node
}

// WaitForAttach returns when a volume is attached and the API server knows that it is in use: a controller detaches a volume that no node
// reports in use, though a pod may have it mounted. An earlier agent has reported the volumes that it mounted.
func (a attacher) WaitForAttach(ctx context.Context, v volume.Volume) (string, error) {
	if !v.Recovered {
		if err := a.node.Reporter.Report(ctx); err != nil {
			return "", err
		}
	}
	return a.Plugin.WaitForAttach(ctx, v)
}
