// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/process"
	"github.com/seed81659283/nodeagent/cri/remote"
)

// runtime is what both runtimes can do.
type runtime interface {
	cri.Runtime
	cri.Execer
	cri.LogReopener
	Close() error
}

// openRuntime opens the runtime of the config, or the embedded one.
func (a *agent) openRuntime(ctx context.Context) (err error) {
	if a.Runtime == "" {
		a.runtime, err = process.Open(a.state("processes"), process.Options{Logger: a.log})
		return err
	}
	if a.client, err = remote.Dial(a.Runtime, remote.Options{Called: a.meter.Runtime()}); err != nil {
		return err
	}
	a.runtime = a.client
	return a.client.Check(ctx) // Dial does not connect
}
