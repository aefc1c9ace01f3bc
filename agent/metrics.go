// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cri/streaming"
	"github.com/seed81659283/nodeagent/nodeapi"
	"github.com/seed81659283/nodeagent/nodeapi/prom"
	"github.com/seed81659283/nodeagent/nodeapi/prom/usage"
	"github.com/seed81659283/nodeagent/nodestatus"
	"github.com/seed81659283/nodeagent/nodestatus/machine"
)

// meter has the metrics of the engines, and their registries.
type meter struct {
	*prom.Metrics
	all, probes *prometheus.Registry
	slis        *prometheus.Registry
	process     *prometheus.Registry // of the program, which may have these metrics elsewhere: they are on the page, and not in Options.Registerer
	registered  bool                 // in Options.Registerer
	node        prom.NodeHooks
	server      prom.ServerHooks
}

func (a *Agent) makeMeter() (err error) {
	m := &meter{all: prometheus.NewRegistry(), probes: prometheus.NewRegistry(), slis: prometheus.NewRegistry(), process: prometheus.NewRegistry()}
	o := prom.Options{Probes: m.probes, Pods: a.pods.Pods, MirrorPods: func() int {
		if a.cluster == nil {
			return 0
		}
		return a.cluster.source.Pods().Mirrors()
	}}
	m.Metrics, err = prom.New(m.all, o)
	if err != nil {
		return err
	}
	m.server = m.Server()
	m.node = m.Node(prom.NodeOptions{Name: a.config.Node.NodeName, Boot: booted(), Started: time.Now()})
	a.meter = m
	if a.options.Registerer != nil {
		if err := a.options.Registerer.Register(m.all); err != nil {
			return fmt.Errorf("Options.Registerer: %w", err)
		}
		m.registered = true
	}
	return errors.Join(prom.RegisterProcess(m.process, nodestatus.Version), prom.RegisterStart(m.probes), prom.RegisterStart(m.slis))
}

// booted returns when the machine was started, or zero where the kernel does not say so.
func booted() time.Time {
	text, _ := os.ReadFile("/proc/stat")
	for line := range strings.Lines(string(text)) {
		var seconds int64
		if n, _ := fmt.Sscanf(line, "btime %d", &seconds); n == 1 {
			return time.Unix(seconds, 0)
		}
	}
	return time.Time{}
}

// pagesMaxAge is how old the numbers of a page may be, so that several clients cost no more than one. The kubelet measures every 10 to 15 s.
const pagesMaxAge = 10 * time.Second

// metricPages returns the pages that Prometheus reads.
func (a *Agent) metricPages(ctx context.Context) (nodeapi.Metrics, error) {
	o := prom.PageOptions{Error: func(err error) { a.log.Warn("metrics", "error", err) }}
	pages := nodeapi.Metrics{All: prom.Page(prometheus.Gatherers{a.meter.all, a.meter.process}, o), Probes: prom.Page(a.meter.probes, o), SLIs: prom.Page(a.meter.slis, o)}
	if a.collector == nil { // there are no cgroups to measure
		return pages, nil
	}
	m, _ := machine.Read(os.DirFS("/")) // a value that cannot be read is not on the page
	root, err := cgroups.ParseCgroupfs(a.config.Kubelet.CgroupRoot)
	if err != nil {
		return pages, err
	}
	measured := usage.Options{MaxAge: pagesMaxAge, Machine: m, CgroupRoot: root, Systemd: a.cgroups.slices, Error: func(page string, err error) { a.log.Warn("metrics", "page", page, "error", err) }}
	resource, noResource := usage.Resource(a.recent, measured)
	cadvisor, err := usage.Cadvisor(a.recent, measured)
	if err = errors.Join(noResource, err); err != nil {
		return pages, err
	}
	pages.Resource, pages.CAdvisor = resource, cadvisor
	storage := usage.Storage(func() (*statsapi.Summary, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second) // ctx is that of New
		defer cancel()
		return a.recent.Summary(ctx)
	}, measured)
	return pages, a.meter.all.Register(storage)
}

// requests returns the hooks that count the requests to the API of the node.
func (m *meter) requests() nodeapi.Hooks {
	return nodeapi.Hooks{
		Began: func(r nodeapi.Request) { m.server.Began(prom.Request(r)) },
		Ended: func(r nodeapi.Request, took time.Duration) { m.server.Ended(prom.Request(r), took) },
		Conns: func(_ string, closed int) { m.server.Refused(closed) },
	}
}

// sessions returns the hooks that count the sessions of WebSockets.
func (m *meter) sessions() streaming.Hooks {
	return streaming.Hooks{WebSocket: func(k streaming.Kind) { m.server.WebSocket(string(k)) }}
}
