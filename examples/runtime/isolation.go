// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"path/filepath"

	"github.com/seed81659283/nodeagent/cgroups/driver"
	"github.com/seed81659283/nodeagent/cni"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/process"
)

// network implements process.Network with CNI plugins.
type network struct{ *cni.Pods }

var (
	_ process.Network        = network{}
	_ process.NetworkReadier = network{} // Ready of cni.Pods: the runtime reports a missing configuration as NetworkReady=false
)

// Setup attaches the sandbox to the pod network, with the ports and DNS settings of its config.
func (n network) Setup(ctx context.Context, id string, c *cri.SandboxConfig) (process.SandboxNetwork, error) {
	pod := cni.Pod{
		SandboxID: id, UID: c.Pod.UID, Namespace: c.Pod.Namespace, Name: c.Pod.Name,
		Annotations: c.Annotations, CgroupPath: c.CgroupParent,
	}
	for _, p := range c.Ports {
		pod.Ports = append(pod.Ports, cni.PortMapping{
			Protocol: p.Protocol.String(), HostPort: p.HostPort, ContainerPort: p.ContainerPort, HostIP: p.HostIP,
		})
	}
	if c.DNS != nil {
		pod.DNS = &cni.DNS{Servers: c.DNS.Servers, Searches: c.DNS.Searches, Options: c.DNS.Options}
	}
	status, err := n.Pods.Setup(ctx, pod)
	if err != nil {
		return process.SandboxNetwork{}, err
	}
	return process.SandboxNetwork{Netns: status.Netns, IPs: status.IPs}, nil
}

// openIsolation opens the network and the cgroups that the flags select. The caller must call all closers, also after an
// error.
func (f *flags) openIsolation(ctx context.Context) (o process.Options, closers []func() error, err error) {
	o.Mounts = f.mounts
	if f.cniConf != "" {
		pods, err := cni.Open(filepath.Join(f.state, "cni"), cni.Options{
			ConfDir: f.cniConf, PluginDirs: []string{f.cniPlugins}, NetnsDir: f.netns,
		})
		if err != nil {
			return o, closers, err
		}
		o.Network, closers = network{pods}, append(closers, pods.Close)
	}
	if f.cgroups != "" {
		d, err := driver.Open(ctx, driver.Options{Root: f.cgroups})
		if err != nil {
			return o, closers, err
		}
		o.Cgroups, closers = d, append(closers, d.Close)
	}
	return o, closers, nil
}
