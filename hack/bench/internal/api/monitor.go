// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package api

import (
	"context"
	"time"

	"github.com/seed81659283/nodeagent/hack/bench/internal/wait"
)

// scrapePeriod is the scrape period of Prometheus and metrics-server.
const scrapePeriod = 15 * time.Second

// monitor measures all CPU time, including that at rest, while every page is requested once per scrapePeriod.
func (t *trial) monitor(ctx context.Context) error {
	wall, cpu, err := t.spent(func() error {
		for began, round := time.Now(), 0; time.Since(began) < t.monitored; {
			for _, page := range pages() {
				if err := t.read(ctx, page); err != nil {
					return err
				}
			}
			round++
			if err := wait.Sleep(ctx, time.Until(began.Add(time.Duration(round)*scrapePeriod))); err != nil {
				return err
			}
		}
		return nil
	})
	t.figures.add(monitoredMillicores, 1000*(cpu/wall+t.atRest))
	return err
}
