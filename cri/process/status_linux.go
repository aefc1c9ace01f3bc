// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"

	"github.com/seed81659283/nodeagent/cri"
)

// Version returns the name of the runtime and the CRI version whose behaviour it has.
func (r *Runtime) Version(context.Context) (cri.Version, error) {
	return cri.Version{
		Version:           "0.1.0",
		RuntimeName:       "nodeagent-process",
		RuntimeVersion:    "0.1.0",
		RuntimeAPIVersion: "v1",
	}, nil
}

// Status says that the runtime and the network, which is the host's, are ready.
func (r *Runtime) Status(context.Context) (cri.Status, error) {
	return cri.Status{
		Conditions: []cri.Condition{
			{Type: cri.ConditionRuntimeReady, Status: true},
			{Type: cri.ConditionNetworkReady, Status: true},
		},
		Handlers: []cri.RuntimeHandler{{}},
	}, nil
}

// CgroupDriver returns cgroupfs. It does not matter: containers stay in the agent's cgroup.
func (r *Runtime) CgroupDriver(context.Context) (cri.CgroupDriver, error) {
	return cri.CgroupDriverCgroupfs, nil
}
