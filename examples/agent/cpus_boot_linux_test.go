// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/internal/exetest"
)

// TestIntegrationExclusiveCPUsSurviveBoots is one boot of a machine. The files of the agent outlive the boot, in the directory $NODEAGENT_BOOTS; the
// containers do not. After the first boot each pod gets the CPUs that it had, although another order of the pods would give it others. The machine may
// then lose a socket: the agent starts, where a kubelet asks for its state file to be deleted, and the remaining pod keeps its CPUs.
func TestIntegrationExclusiveCPUsSurviveBoots(t *testing.T) {
	dir := os.Getenv("NODEAGENT_BOOTS")
	if dir == "" {
		t.Skip("needs a machine that boots several times: make test-numa starts one")
	}
	machine, err := topology.Read(os.DirFS("/"))
	require.NoError(t, err)
	n := newNode(t)
	n.manifests.Path = filepath.Join(os.TempDir(), "nodeagent-boots") // the UID of a static pod depends on the path of its file
	require.NoError(t, os.MkdirAll(n.manifests.Path, 0o700))
	files := filepath.Join(dir, "files.tar")
	static := map[string]any{
		"cpuManagerPolicy": "static", "cpuManagerPolicyOptions": map[string]any{"full-pcpus-only": "true"}, "reservedSystemCPUs": "0",
		"topologyManagerPolicy": "single-numa-node",
	}
	if _, err := os.Stat(files); os.IsNotExist(err) {
		a := n.start(static)
		for _, pod := range []struct{ name, cpus string }{{"z", "2-3"}, {"a", "4-5"}} {
			n.manifests.Write(pod.name+".yaml", affinityPod(pod.name, 2))
			n.awaitLog(pod.name+"-n1", "main", "cpus "+pod.cpus+", 2 in all, quota max")
		}
		n.saveFiles(a, files)
		return
	}
	runTar(t, "-x", "-f", files, "-C", n.state)
	n.manifests.Write("z.yaml", affinityPod("z", 2))
	hasTwoSockets := len(machine.Nodes) == 2
	if hasTwoSockets {
		n.manifests.Write("a.yaml", affinityPod("a", 2))
	}
	a := n.start(static)
	n.awaitLog("z-n1", "main", "cpus 2-3, 2 in all, quota max")
	if hasTwoSockets {
		n.awaitLog("a-n1", "main", "cpus 4-5, 2 in all, quota max")
	} else {
		a.AwaitLine(timeout, "the machine has no CPUs 4-5 any more")
	}
	n.saveFiles(a, files)
}

// saveFiles kills the agent, as the end of the machine does, and saves its files for the next boot.
func (n *node) saveFiles(a *exetest.Process, path string) {
	a.Kill()
	runTar(n.t, "-c", "-f", path, "-C", n.state, ".")
	n.drain(a)
}

// runTar runs tar(1), which leaves sockets out.
func runTar(t *testing.T, args ...string) {
	text, err := exec.CommandContext(t.Context(), "tar", args...).CombinedOutput()
	require.NoError(t, err, "%s", text)
}
