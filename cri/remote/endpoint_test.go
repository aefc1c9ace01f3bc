// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package remote_test

import (
	"cmp"
	"os"
	"testing"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/cri/remote"
)

// TestIntegrationEndpoint runs the conformance suite against a runtime of the machine, such as CRI-O. NODEAGENT_CRI_ENDPOINT
// is its socket, and NODEAGENT_CRI_IMAGE a present image with /bin/sh.
func TestIntegrationEndpoint(t *testing.T) {
	endpoint := os.Getenv("NODEAGENT_CRI_ENDPOINT")
	if endpoint == "" {
		t.Skip("NODEAGENT_CRI_ENDPOINT is not set")
	}
	open := func() cri.Runtime { return dialClient(t, endpoint, remote.Options{}) }
	critest.TestRuntime(t, critest.Fixture{
		New:             func(*testing.T) cri.Runtime { return open() },
		Reopen:          func(*testing.T, cri.Runtime) cri.Runtime { return open() },
		Image:           cmp.Or(os.Getenv("NODEAGENT_CRI_IMAGE"), "docker.io/library/busybox:latest"),
		IsolatedNetwork: true,
		Logs:            true,
	})
}
