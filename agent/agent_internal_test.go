// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/agent/kubeletconfig"
	"github.com/seed81659283/nodeagent/cri/process"
)

// TestMain keeps the tests on one processor: the race detector of Go 1.26 now and then crashes when timers of a synctest bubble fire on several
// (golang/go#78156).
func TestMain(m *testing.M) {
	process.Main() // the keeper of a container is the test program itself
	runtime.GOMAXPROCS(1)
	os.Exit(m.Run())
}

// newAgent returns an agent without parts, for tests of functions that create single parts.
func newAgent(t *testing.T, c Config) *Agent {
	t.Helper()
	c.Kubelet.SetDefaults(kubeletconfig.Defaults{Cluster: c.Node.Kubeconfig != ""})
	c.Node.CertDir = filepath.Join(c.Node.RootDir, "pki")
	a := &Agent{config: c, log: slog.New(slog.DiscardHandler)}
	require.NoError(t, a.openMetrics(t.Context(), nil))
	return a
}
