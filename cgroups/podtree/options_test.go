// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podtree_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups/cgroupstest"
	"github.com/seed81659283/nodeagent/cgroups/podtree"
)

func options() podtree.Options {
	return podtree.Options{Capacity: list("cpu", "4", "memory", "10Gi")}
}

func TestValidateEnforcement(t *testing.T) {
	for _, tc := range []struct {
		name string
		keys []podtree.Enforcement
		want string // empty: valid
	}{
		{"the default", nil, ""},
		{"no key", []podtree.Enforcement{}, ""},
		{"none alone", []podtree.Enforcement{"none"}, ""},
		{"none and another key", []podtree.Enforcement{"none", "pods"}, `enforce "none": must be the only value`},
		{"key listed twice", []podtree.Enforcement{"pods", "pods"}, `enforce "pods": listed twice`},
		{"unknown key", []podtree.Enforcement{"nodes"}, `enforce "nodes": want pods, system-reserved, kube-reserved, ` +
			`system-reserved-compressible, kube-reserved-compressible or none`},
		{"cgroup not set", []podtree.Enforcement{"kube-reserved"}, `enforce "kube-reserved": no cgroup is set`},
		{
			"cgroup not set, compressible",
			[]podtree.Enforcement{"kube-reserved-compressible"},
			`enforce "kube-reserved-compressible": no cgroup is set`,
		},
		{"cgroup set", []podtree.Enforcement{"pods", "system-reserved"}, ""},
		{
			"both forms",
			[]podtree.Enforcement{"system-reserved", "system-reserved-compressible"},
			`enforce "system-reserved": excludes "system-reserved-compressible"`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := options()
			o.Enforce, o.SystemCgroup = tc.keys, "system"
			o.Reserved.System, o.Reserved.Kube = list(), list()
			if err := o.Validate(); tc.want != "" {
				require.EqualError(t, err, tc.want)
			} else {
				require.NoError(t, err)
			}
		})
	}
}

func TestNewRejectsInvalidOptions(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*podtree.Options)
		want   string
	}{
		{"no capacity", func(o *podtree.Options) { o.Capacity = list("cpu", "4") }, "capacity memory 0: not positive"},
		{"root outside the tree", func(o *podtree.Options) { o.Root = "../other" }, "root: "},
		{"percentage above 100", func(o *podtree.Options) { o.QOSReserved = new(int64(101)) }, "qosReserved memory 101%"},
		{"negative number of PIDs", func(o *podtree.Options) { o.MaxPIDs = -1 }, "maximum of PIDs -1"},
		{
			"reservation above capacity", func(o *podtree.Options) { o.Reserved.Kube = list("memory", "11Gi") },
			"reserve memory 11Gi: the node has 10Gi",
		},
		{"enforcement without a reservation", func(o *podtree.Options) {
			o.Enforce, o.KubeCgroup = []podtree.Enforcement{podtree.EnforceKube}, "agent"
		}, `enforce "kube-reserved" on cgroup /agent: nothing is reserved`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := options()
			tc.change(&o)
			_, err := podtree.New(cgroupstest.New(cgroupstest.Options{}), pods(), o)
			require.ErrorContains(t, err, tc.want)
			require.ErrorContains(t, err, "pod cgroups: ")
		})
	}
}
