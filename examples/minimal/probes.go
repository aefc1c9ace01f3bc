// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"path/filepath"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/probe"
	"github.com/seed81659283/nodeagent/probe/grpcprobe"
	"github.com/seed81659283/nodeagent/probe/httpprobe"
	"github.com/seed81659283/nodeagent/probe/podprobe"
)

// podProbes asks the containers of the pods how they are.
type podProbes struct {
	*podprobe.Pods
	set  *probe.Set
	pool *httpprobe.Pool
}

// openProbes makes probes that keep what they find in the state directory.
func (c config) openProbes(rt cri.Runtime) (*podProbes, error) {
	if err := os.MkdirAll(c.state, 0o700); err != nil {
		return nil, err
	}
	p := &podProbes{
		pool: httpprobe.NewPool(httpprobe.PoolOptions{}),
		set:  probe.NewSet(probe.Options{Store: filepath.Join(c.state, "probes"), Logger: c.log}),
	}
	o := podprobe.Options{Pool: p.pool, GRPC: func(g podprobe.GRPC) (probe.Prober, error) {
		return grpcprobe.New(grpcprobe.Config{Host: g.Host, Port: g.Port, Service: g.Service, TLS: g.TLS})
	}}
	if execer, ok := rt.(cri.Execer); ok {
		o.Execer = podprobe.CRI(execer)
	}
	p.Pods = podprobe.NewPods(p.set, o)
	return p, nil
}

// run asks until ctx ends.
func (p *podProbes) run(ctx context.Context) {
	_ = p.set.Run(ctx)
	p.pool.Close()
}

var _ lifecycle.Probes = (*podProbes)(nil)
