// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"time"

	"github.com/seed81659283/nodeagent/internal/volume/plan"
)

func ExamplePlan() {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	cache := &plan.Volume{Pod: "u1", Name: "cache", Desired: plan.Mounted}
	old := &plan.Volume{Pod: "u0", Name: "data", Desired: plan.Unmounted, Progress: plan.Progress{Phase: plan.Ready}}
	s := plan.State{Volumes: []*plan.Volume{cache, old}, Parallel: 4, Slow: 10 * time.Second}
	actions, _ := plan.Plan(&s, now)
	for _, a := range actions {
		fmt.Println(a.Step, a.Volume.Name)
		a.Start(now)
		a.Volume.Complete(nil, now)
	}
	// Output:
	// tear down data
	// set up cache
}
