// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podevents"
	"github.com/seed81659283/nodeagent/probe"
	"github.com/seed81659283/nodeagent/probe/grpcprobe"
	"github.com/seed81659283/nodeagent/probe/httpprobe"
	"github.com/seed81659283/nodeagent/probe/podprobe"
)

// probes makes the engine that runs the probes of pods, and keeps their results for the next agent.
func (a *Agent) probes() lifecycle.Probes {
	if a.options.Probes != nil {
		return a.options.Probes
	}
	pool := httpprobe.NewPool(httpprobe.PoolOptions{})
	hooks := a.meter.Probes(a.options.Hooks.Probes, podevents.Probes(&a.pods, a.event))
	set := probe.NewSet(probe.Options{Store: a.config.path("probes"), Logger: a.log, Hooks: hooks})
	a.add("probes", func(ctx context.Context) error { defer pool.Close(); return set.Run(ctx) })
	o := podprobe.Options{Pool: pool, GRPC: func(g podprobe.GRPC) (probe.Prober, error) {
		return grpcprobe.New(grpcprobe.Config{Host: g.Host, Port: g.Port, Service: g.Service, TLS: g.TLS})
	}}
	if execer, ok := a.runtime.(cri.Execer); ok {
		o.Execer = podprobe.CRI(execer)
	}
	return podprobe.NewPods(set, o)
}
