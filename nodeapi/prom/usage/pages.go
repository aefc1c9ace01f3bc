// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// summaryTimeout is how long a request of the page /metrics waits for a summary.
const summaryTimeout = 10 * time.Second

// Summarizer is a [Source] that also measures volumes and logs. *stats.CachedCollector implements it.
type Summarizer interface {
	Source
	// Summary measures the node and its pods.
	Summary(ctx context.Context) (*statsapi.Summary, error)
}

// Pages has the pages and the collector with the kubelet's metrics about resource usage.
type Pages struct {
	Resource, Cadvisor *Page
	Storage            prometheus.Collector // for the page /metrics
}

// NewPages returns the pages [Resource] and [Cadvisor] and the collector [Storage], with values measured by source. The end
// of ctx does not cancel measurements for Storage. The error names the invalid option.
func NewPages(ctx context.Context, source Summarizer, opts Options) (pages Pages, err error) {
	var failed error
	pages.Resource, failed = Resource(source, opts)
	pages.Cadvisor, err = Cadvisor(source, opts)
	pages.Storage = Storage(func() (*statsapi.Summary, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), summaryTimeout)
		defer cancel()
		return source.Summary(ctx)
	}, opts)
	return pages, errors.Join(failed, err)
}
