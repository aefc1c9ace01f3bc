// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/seed81659283/nodeagent/probe"
	"github.com/seed81659283/nodeagent/probe/grpcprobe"
	"github.com/seed81659283/nodeagent/probe/httpprobe"
	"github.com/seed81659283/nodeagent/probe/podprobe"
)

// probes makes what runs the probes of pods, and keeps their results for the next agent.
func (a *agent) probes() *podprobe.Pods {
	pool := httpprobe.NewPool(httpprobe.PoolOptions{})
	set := probe.NewSet(probe.Options{Store: a.state("probes"), Logger: a.log, Hooks: a.meter.Probes(a.probeEvents())})
	a.parts = append(a.parts, func(ctx context.Context) error { defer pool.Close(); return set.Run(ctx) })
	return podprobe.NewPods(set, podprobe.Options{
		Pool: pool, Execer: podprobe.CRI(a.runtime), GRPC: func(g podprobe.GRPC) (probe.Prober, error) {
			return grpcprobe.New(grpcprobe.Config{Host: g.Host, Port: g.Port, Service: g.Service, TLS: g.TLS})
		},
	})
}
