// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"flag"
	"runtime/debug"
	"testing"

	"github.com/go-logr/logr"
	libcontainercgroups "github.com/opencontainers/cgroups"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/klog/v2"

	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/internal/mounttest"
)

var flags = conformance.NewFlags(flag.CommandLine)

// The log of the kubelet is discarded: it has lines for each input. All feature gates have their defaults, except the gate
// of qosReserved, which has no effect without the setting.
func TestMain(m *testing.M) {
	debug.SetGCPercent(800) // most objects are short-lived, and half of the time was spent in the garbage collector
	klog.SetLogger(logr.Discard())
	if err := utilfeature.DefaultMutableFeatureGate.Set("QOSReserved=true"); err != nil {
		panic(err)
	}
	mounttest.Main(m) // some comparisons mount
}

// run compares both sides on generated inputs.
func run[In, Out any](t *testing.T, c conformance.Comparison[In, Out]) {
	t.Helper()
	c.Run(t, flags)
}

// fuzz compares both sides on inputs of the fuzzer.
func fuzz[In, Out any](f *testing.F, c conformance.Comparison[In, Out]) {
	f.Helper()
	c.Fuzz(f)
}

// pageSizes are the huge page sizes of the simulated host.
var pageSizes = []string{"1GB", "2MB", "64KB"}

// host sets the cgroup version that the kubelet detects, for the whole process. Tests that need different versions must not
// run in parallel.
func host(v2 bool) { libcontainercgroups.ConformanceHost(v2, pageSizes) }
