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

// The kubelet's log would say what it does, input by input. All of its gates are as they are by default but that of
// qosReserved, which counts only where an input sets it.
func TestMain(m *testing.M) {
	debug.SetGCPercent(800) // little lives long here, and half of the time went into looking for it
	klog.SetLogger(logr.Discard())
	if err := utilfeature.DefaultMutableFeatureGate.Set("QOSReserved=true"); err != nil {
		panic(err)
	}
	mounttest.Main(m) // some of what is compared mounts
}

// run compares generated inputs.
func run[In, Out any](t *testing.T, c conformance.Comparison[In, Out]) {
	t.Helper()
	c.Run(t, flags)
}

// fuzz compares what the fuzzer finds.
func fuzz[In, Out any](f *testing.F, c conformance.Comparison[In, Out]) {
	f.Helper()
	c.Fuzz(f)
}

// pageSizes is what every host here has.
var pageSizes = []string{"1GB", "2MB", "64KB"}

// host makes the kubelet believe that it runs on this version of cgroups. It holds for the whole process, so what needs
// a version does not run beside what needs another.
func host(v2 bool) { libcontainercgroups.ConformanceHost(v2, pageSizes) }
