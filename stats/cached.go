// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"context"
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/internal/latest"
)

// CachedCollector is a [Collector] that caches summaries for pages that several clients request. The kubelet's summaries are up
// to 15 s old. The time stamps in a summary are those of the measurement.
type CachedCollector struct {
	collector    *Collector
	full         *latest.Value[*statsapi.Summary]
	cpuAndMemory *latest.Value[*statsapi.Summary]
}

// Cached returns a CachedCollector whose summaries are at most maxAge old; zero or less disables the cache. A call during a
// measurement waits for it, and returns nil and the cause if its ctx ends first. Summaries returned with an error are not cached.
func (k *Collector) Cached(maxAge time.Duration) *CachedCollector {
	return &CachedCollector{collector: k, full: latest.New(maxAge, k.Summary), cpuAndMemory: latest.New(maxAge, k.CPUAndMemory)}
}

// Summary returns a cached summary, or calls [Collector.Summary]. The result is shared and must not be modified.
func (c *CachedCollector) Summary(ctx context.Context) (*statsapi.Summary, error) {
	return c.full.Get(ctx)
}

// CPUAndMemory returns a cached summary, or calls [Collector.CPUAndMemory]. The result is shared and must not be modified.
func (c *CachedCollector) CPUAndMemory(ctx context.Context) (*statsapi.Summary, error) {
	return c.cpuAndMemory.Get(ctx)
}

// Samples calls [Collector.Samples]. Samples are not cached.
func (c *CachedCollector) Samples(ctx context.Context, parts cgroups.Parts) ([]Sample, error) {
	return c.collector.Samples(ctx, parts)
}
