// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"context"
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/seed81659283/nodeagent/internal/latest"
)

// Recent is a [Collector] whose summaries are kept for a while, for pages that several clients ask for: what they cost is measuring. The
// kubelet's are up to 15 s old. Time stamps say when that was. All else is measured whenever it is asked.
type CachedCollector struct {
	*Collector
	whole, short *latest.Value[*statsapi.Summary]
}

// Recent returns the collector with summaries that may be so old; with an age of zero or less they are made whenever somebody asks. Who asks
// while one is made waits for it, and gets nil and the cause if its own ctx ends before. What lacks something is not kept.
func (k *Collector) Cached(age time.Duration) *CachedCollector {
	return &CachedCollector{k, latest.New(age, k.Summary), latest.New(age, k.CPUAndMemory)}
}

// Summary is [Collector.Summary], or what that has returned before. It is shared: nobody may change it.
func (r *CachedCollector) Summary(ctx context.Context) (*statsapi.Summary, error) {
	return r.whole.Get(ctx)
}

// CPUAndMemory is [Collector.CPUAndMemory], or what that has returned before. It is shared: nobody may change it.
func (r *CachedCollector) CPUAndMemory(ctx context.Context) (*statsapi.Summary, error) {
	return r.short.Get(ctx)
}
