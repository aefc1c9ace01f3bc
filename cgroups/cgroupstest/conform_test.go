// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroupstest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/cgroupstest"
)

// TestTreeConforms shows that a driver can pass the suite; TestSuiteFindsFaults that drivers with faults fail it.
func TestTreeConforms(t *testing.T) {
	for name, o := range map[string]cgroupstest.Options{
		"v1":           {Mode: cgroupstest.V1, HugepageSizes: []string{"2MB"}},
		"v2":           {HugepageSizes: []string{"2MB", "1GB"}},
		"v2 by linear": {WeightFormula: cgroups.WeightLinear},
	} {
		t.Run(name, func(t *testing.T) {
			cgroupstest.TestDriver(t, fixture(o, func(tree *cgroupstest.Tree) cgroupstest.Driver { return tree }))
		})
	}
	t.Run("bare", func(t *testing.T) {
		cgroupstest.TestDriver(t, fixture(cgroupstest.Options{}, func(tree *cgroupstest.Tree) cgroupstest.Driver {
			return &cgroupstest.Faults{Driver: tree}
		}))
	})
}

// fixture returns a Fixture for a tree wrapped by wrap.
func fixture(o cgroupstest.Options, wrap func(*cgroupstest.Tree) cgroupstest.Driver) cgroupstest.Fixture {
	trees := map[cgroupstest.Driver]*cgroupstest.Tree{}
	return cgroupstest.Fixture{
		New: func(*testing.T) cgroupstest.Driver {
			tree := cgroupstest.New(o)
			target := wrap(tree)
			trees[target] = tree
			return target
		},
		Start: func(t *testing.T, d cgroupstest.Driver, p cgroups.Path, memory int64) int {
			pid, err := trees[d].Start(cgroupstest.Proc{Cgroup: p, Memory: memory})
			require.NoError(t, err)
			return pid
		},
		Mode:          o.Mode,
		WeightFormula: o.WeightFormula,
		Controllers:   []string{"cpu", "cpuset", "memory", "pids"},
		HugepageSizes: o.HugepageSizes,
		Swap:          true,
	}
}
