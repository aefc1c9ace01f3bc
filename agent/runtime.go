// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"

	"github.com/seed81659283/nodeagent/cri/process"
	"github.com/seed81659283/nodeagent/cri/remote"
)

// openRuntime opens the runtime of the options, of the endpoint, or the embedded one.
func (a *Agent) openRuntime(ctx context.Context) (err error) {
	endpoint := a.config.Kubelet.ContainerRuntimeEndpoint
	switch {
	case a.options.Runtime != nil:
		a.runtime = a.options.Runtime
		return nil
	case endpoint == "":
		embedded, err := process.Open(a.config.path("processes"), process.Options{Logger: a.log})
		if err == nil {
			a.runtime = embedded
		}
		return err
	}
	if a.client, err = remote.Dial(endpoint, remote.Options{Called: a.meter.Runtime()}); err != nil {
		return err
	}
	a.runtime = a.client
	return a.client.Check(ctx) // Dial does not connect
}
