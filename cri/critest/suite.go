// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package critest

import (
	"testing"

	"github.com/seed81659283/nodeagent/cri"
)

// Fixture describes the runtime that [TestRuntime] tests.
type Fixture struct {
	// New opens the runtime. It is called once per case and registers Close with t.Cleanup. Cases may share one runtime, also
	// with other users: the suite examines only its own pods.
	New func(t *testing.T) cri.Runtime
	// Reopen opens the runtime rt a second time, like a restarted agent. It closes rt first if only one agent can open the
	// runtime at a time. Nil skips this case.
	Reopen func(t *testing.T, rt cri.Runtime) cri.Runtime

	// Run runs a case; if nil, cases run in parallel. Use [testing/synctest.Test] for a runtime in memory.
	Run func(t *testing.T, test func(t *testing.T))

	// Image is an image in the runtime with a shell and common commands, such as busybox. Empty for a runtime without images.
	Image string
	// Shell is the path of the shell in the image; empty means /bin/sh.
	Shell string
	// IsolatedNetwork means that sandboxes can have their own network and address. If false, the suite uses the host network.
	IsolatedNetwork bool
	// Logs means that the runtime writes container logs to files on this machine.
	Logs bool
	// Adjust may change each config before it is used, for requirements of the machine. container is nil for RunSandbox. May be nil.
	Adjust func(sandbox *cri.SandboxConfig, container *cri.ContainerConfig)
}

// TestRuntime checks a runtime against the documentation of package cri. A failure quotes the violated sentence. It takes less
// than a minute on a real runtime, runs up to 20 sandboxes at a time, and removes its pods. Tests of optional interfaces that
// the runtime lacks are skipped.
func TestRuntime(t *testing.T, fixture Fixture) {
	if fixture.Shell == "" {
		fixture.Shell = "/bin/sh"
	}
	run := fixture.Run
	if run == nil {
		run = func(t *testing.T, test func(t *testing.T)) {
			t.Parallel()
			test(t)
		}
	}
	for _, c := range []struct {
		name string
		test func(t *testCase)
	}{
		{"sandbox/lifecycle", sandboxLifecycle},
		{"sandbox/attempts", sandboxAttempts},
		{"sandbox/name is reserved", sandboxName},
		{"sandbox/address", sandboxAddress},
		{"sandbox/stop kills containers", sandboxStopKills},
		{"sandbox/remove removes containers", sandboxRemoveRemoves},
		{"sandbox/unknown", sandboxUnknown},
		{"sandbox/stopped takes no container", sandboxStopped},

		{"container/lifecycle", containerLifecycle},
		{"container/attempts", containerAttempts},
		{"container/name is reserved", containerName},
		{"container/unknown", containerUnknown},
		{"container/starts once", containerStartsOnce},
		{"container/exit codes", containerExitCodes},
		{"container/signals", containerSignals},
		{"container/cannot start", containerCannotStart},
		{"container/stop", containerStop},
		{"container/stop ignored", containerStopIgnored},
		{"container/stop at once", containerStopAtOnce},
		{"container/stop cut short", containerStopCutShort},
		{"container/stop twice", containerStopTwice},
		{"container/remove running", containerRemoveRunning},
		{"container/children", containerChildren},
		{"container/log", containerLog},
		{"container/log reopened", containerLogReopened},

		{"list/fields", listFields},
		{"list/pod", listPod},
		{"list/reopened", listReopened},
		{"list/many at once", listManyAtOnce},

		{"events/order", eventsOrder},
		{"events/end", eventsEnd},
		{"exec/result", execResult},
		{"exec/timeout", execTimeout},
		{"exec/unknown", execUnknown},
		{"status", statusReport},
		{"stats", statsOfRunning},
	} {
		t.Run(c.name, func(t *testing.T) {
			run(t, func(t *testing.T) { c.test(newTestCase(t, fixture)) })
		})
	}
}
