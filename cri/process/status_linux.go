// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"

	"github.com/seed81659283/nodeagent/cri"
)

// Version returns the runtime name "nodeagent-process" and the implemented version of the CRI.
func (r *Runtime) Version(context.Context) (cri.Version, error) {
	return cri.Version{
		Version:           "0.1.0",
		RuntimeName:       "nodeagent-process",
		RuntimeVersion:    "0.1.0",
		RuntimeAPIVersion: "v1",
	}, nil
}

// Status reports the runtime as ready. It reports the network as ready too, unless Options.Network is a NetworkReadier whose
// Ready method returns an error.
func (r *Runtime) Status(ctx context.Context) (cri.Status, error) {
	network := cri.Condition{Type: cri.ConditionNetworkReady, Status: true}
	if readier, ok := r.options.Network.(NetworkReadier); ok {
		if err := readier.Ready(ctx); err != nil {
			network = cri.Condition{Type: cri.ConditionNetworkReady, Reason: "NetworkPluginNotReady", Message: err.Error()}
		}
	}
	return cri.Status{
		Conditions: []cri.Condition{{Type: cri.ConditionRuntimeReady, Status: true}, network},
		Handlers:   []cri.RuntimeHandler{{RecursiveReadOnlyMounts: r.options.Mounts}},
		Features:   cri.RuntimeFeatures{MountOptions: r.options.Mounts},
	}, nil
}

// CgroupDriver returns cgroupfs. The value has no meaning if Options.Cgroups is nil.
func (r *Runtime) CgroupDriver(context.Context) (cri.CgroupDriver, error) {
	return cri.CgroupDriverCgroupfs, nil
}
