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

// CachedCollector is a [Collector] that caches its summaries, for pages that several clients request. Time stamps in a summary
// are those of its measurement. The kubelet also serves cached summaries, up to 15 s old.
type CachedCollector struct {
	collector    *Collector
	full         *latest.Value[*statsapi.Summary]
	cpuAndMemory *latest.Value[*statsapi.Summary]
}

// Cached returns a collector whose summaries are at most maxAge old; zero or less disables the cache. A call during a
// measurement waits for its result, or returns nil and the cause if its ctx ends first. A summary with an error is not cached.
func (k *Collector) Cached(maxAge time.Duration) *CachedCollector {
	return &CachedCollector{collector: k, full: latest.New(maxAge, k.Summary), cpuAndMemory: latest.New(maxAge, k.CPUAndMemory)}
}

// Summary returns a summary of [Collector.Summary] from the cache, or measures one. Callers share the result and must not
// modify it.
func (c *CachedCollector) Summary(ctx context.Context) (*statsapi.Summary, error) {
	return c.full.Get(ctx)
}

// CPUAndMemory returns a summary of [Collector.CPUAndMemory] from the cache, or measures one. Callers share the result and
// must not modify it.
func (c *CachedCollector) CPUAndMemory(ctx context.Context) (*statsapi.Summary, error) {
	return c.cpuAndMemory.Get(ctx)
}

// Samples returns the counters of the cgroups; see [Collector.Samples]. The result is not cached.
func (c *CachedCollector) Samples(ctx context.Context, parts cgroups.Parts) ([]Sample, error) {
	return c.collector.Samples(ctx, parts)
}

// Filesystems returns the size and free space of the file system of each path; see [Collector.Filesystems]. The result is
// not cached.
func (c *CachedCollector) Filesystems(ctx context.Context, paths []string) (map[string]Filesystem, error) {
	return c.collector.Filesystems(ctx, paths)
}
