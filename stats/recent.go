// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"context"
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/seed81659283/nodeagent/internal/latest"
)

// CachedCollector is a [Collector] that caches summaries for pages that several clients request. The kubelet's summaries are up
// to 15 s old. The time stamps in a summary are those of the measurement.
type CachedCollector struct {
	*Collector
	whole, short *latest.Value[*statsapi.Summary]
}

// Cached returns a CachedCollector whose summaries are at most maxAge old; zero or less disables the cache. A call during a
// measurement waits for it, and returns nil and the cause if its ctx ends first. Summaries returned with an error are not cached.
func (k *Collector) Cached(age time.Duration) *CachedCollector {
	return &CachedCollector{k, latest.New(age, k.Summary), latest.New(age, k.CPUAndMemory)}
}

// Summary returns a cached summary, or calls [Collector.Summary]. The result is shared and must not be modified.
func (r *CachedCollector) Summary(ctx context.Context) (*statsapi.Summary, error) {
	return r.whole.Get(ctx)
}

// CPUAndMemory returns a cached summary, or calls [Collector.CPUAndMemory]. The result is shared and must not be modified.
func (r *CachedCollector) CPUAndMemory(ctx context.Context) (*statsapi.Summary, error) {
	return r.short.Get(ctx)
}
