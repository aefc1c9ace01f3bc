// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package nodes

import (
	"github.com/seed81659283/nodeagent/hack/bench/internal/process"
)

// subject is a simulator of nodes.
type subject struct {
	name       string
	needsNodes bool // the harness creates its Node objects
	start      func(o *options, kubeconfig, dir string, nodes []string) (*process.Process, error)
}

// startVirtualnode starts examples/virtualnode with these nodes. Its output is in dir.
func startVirtualnode(o *options, kubeconfig, dir string, nodes []string) (*process.Process, error) {
	return process.Start(o.virtualnode, dir, nil, append([]string{"-kubeconfig", kubeconfig}, nodes...)...)
}

// startKWOK starts kwok, which simulates all Node objects of the cluster, with the leases that kwokctl sets. Its output is in dir.
func startKWOK(o *options, kubeconfig, dir string, _ []string) (*process.Process, error) {
	return process.Start(o.kwok, dir, nil, "--kubeconfig", kubeconfig, "--config", o.stages, "--manage-all-nodes", "--node-lease-duration-seconds=40")
}
