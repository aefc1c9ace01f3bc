// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package critest

import (
	"testing"

	"github.com/seed81659283/nodeagent/cri"
)

// Fixture is a runtime under test.
type Fixture struct {
	// New opens the runtime. Each case calls it once; what it opens is closed by t.Cleanup. Several cases may
	// share one runtime, and may share it with others: the suite looks only at pods that it made itself.
	New func(t *testing.T) cri.Runtime
	// Reopen opens what rt is once more, as an agent does that was restarted; it closes rt first where only one
	// agent may have the runtime open. Nil leaves that case out.
	Reopen func(t *testing.T, rt cri.Runtime) cri.Runtime

	// Run runs a case; nil runs cases in parallel. [testing/synctest.Test] does for a runtime whose time is that
	// of a bubble.
	Run func(t *testing.T, f func(t *testing.T))

	// Image has a shell with the usual commands (busybox); the runtime holds it. Empty where there are no images.
	Image string
	// Shell is the path of the shell in the image; empty is /bin/sh.
	Shell string
	// IsolatedNetwork says that a sandbox can have a network and an address of its own. Without it the suite asks
	// for the host's network.
	IsolatedNetwork bool
	// Logs says that the runtime writes container logs to files of this machine.
	Logs bool
	// Adjust has the last word on every config before it is used, for what a machine needs. The container's is
	// nil when a sandbox is about to be run. May be nil.
	Adjust func(s *cri.SandboxConfig, c *cri.ContainerConfig)
}

// TestRuntime checks a runtime against the documentation of package cri. It has up to 20 sandboxes in
// one case, takes well under a minute on a real runtime, and removes what it made. A failure names the sentence that is
// broken. What the runtime has no capability for is skipped.
func TestRuntime(t *testing.T, f Fixture) {
	if f.Shell == "" {
		f.Shell = "/bin/sh"
	}
	run := f.Run
	if run == nil {
		run = func(t *testing.T, f func(t *testing.T)) {
			t.Parallel()
			f(t)
		}
	}
	for _, c := range []struct {
		name string
		test func(t *trial)
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
		{"status", status},
		{"stats", stats},
	} {
		t.Run(c.name, func(t *testing.T) {
			run(t, func(t *testing.T) { c.test(newTrial(t, f)) })
		})
	}
}
