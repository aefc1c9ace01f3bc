// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package driver_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/cgroupstest"
	"github.com/seed81659283/nodeagent/cgroups/driver"
)

func TestIntegrationConformance(t *testing.T) {
	for _, formula := range []cgroups.WeightFormula{cgroups.WeightLogQuadratic, cgroups.WeightLinear} {
		t.Run(fmt.Sprint("weight formula ", formula), func(t *testing.T) {
			host := openDriver(t).Host()
			f := cgroupstest.Fixture{
				New: func(t *testing.T) cgroupstest.Driver {
					return openAt(t, driver.Options{Root: root(t), WeightFormula: formula})
				},
				Start: func(t *testing.T, d cgroupstest.Driver, p cgroups.Path, memory int64) int {
					w := start(t, d.(*driver.Driver), p, fmt.Sprintf("memory %d", memory>>20))
					_, _ = w.out.ReadString('\n') // the process has its memory, or was killed
					return w.Process.Pid
				},
				Mode:          cgroupstest.V1,
				WeightFormula: formula,
				Swap:          host.HasController("swap"),
				Controllers:   []string{"cpu", "cpuset", "memory", "pids"},
			}
			f.Controllers = slices.DeleteFunc(f.Controllers, func(c string) bool { return !host.HasController(c) })
			if host.Mode == driver.V2 {
				f.Mode = cgroupstest.V2
			}
			if host.HasController("hugetlb") {
				f.HugepageSizes = host.HugepageSizes
			}
			cgroupstest.TestDriver(t, f)
		})
	}
}
