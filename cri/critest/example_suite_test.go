// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package critest_test

import (
	"testing"
	"testing/synctest"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
)

// The test of a runtime, here a wrapper of the runtime in memory. SuiteScript plays the programs of the suite. A runtime that
// runs processes needs no script, but an image with a shell.
func ExampleTestRuntime() {
	_ = func(t *testing.T) { // stands for func TestRuntime(t *testing.T) in the package of the runtime
		critest.TestRuntime(t, critest.Fixture{
			New: func(*testing.T) cri.Runtime {
				return critest.New(critest.Options{
					Script: critest.SuiteScript,
					Images: []cri.Image{critest.NewImage("busybox", 1<<20)},
				})
			},
			Run:             synctest.Test, // in virtual time
			Image:           "busybox",
			IsolatedNetwork: true,
		})
	}
}

// The test of the sessions of a runtime.
func ExampleTestSessions() {
	_ = func(t *testing.T) { // stands for func TestSessions(t *testing.T) in the package of the runtime
		critest.TestSessions(t, critest.SessionFixture{
			New: func(*testing.T) (cri.Runtime, cri.SessionRunner) {
				rt := critest.New(critest.Options{Script: critest.SessionSuiteScript})
				return rt, rt
			},
			NoAttach: true, // SessionSuiteScript plays no containers
		})
	}
}
