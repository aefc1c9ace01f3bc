// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/changeover"
)

// listTree returns a line for each file below the directories, with its metadata and content.
func listTree(t *testing.T, dirs ...string) (lines []string) {
	t.Helper()
	for _, dir := range dirs {
		require.NoError(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := entry.Info()
			if err != nil {
				return err
			}
			var content []byte
			if entry.Type().IsRegular() {
				if content, err = os.ReadFile(path); err != nil {
					return err
				}
			}
			lines = append(lines, fmt.Sprintf("%s %s %s %q", path, info.Mode(), info.ModTime(), content))
			return nil
		}))
	}
	return lines
}

// check runs the program with the argument check, and returns its report and exit code.
func (n *node) check(fields map[string]any) (r changeover.Report, code int) {
	n.t.Helper()
	p := program.Start(n.t, "check", "-config", n.config(fields), "-o", "json")
	code = p.Wait(timeout)
	require.NoError(n.t, json.Unmarshal([]byte(p.Output()), &r), p.Output())
	return r, code
}

// The command check predicts the effect on pods of a node whose agent was killed: on one of the agent, which keeps running, on one of which the manifest
// has changed, and on one that was created by hand. It changes no file, no container and no cgroup.
func TestIntegrationCheckPredictsAndChangesNothing(t *testing.T) {
	n := newNode(t)
	const script = "trap 'exit 0' TERM; while :; do sleep 0.1; done"
	n.manifests.Write("web.yaml", podYAML("web", script))
	a := n.start(nil)
	a.AwaitLine(2*timeout, "pod=web-n1 phase=Running")
	// check reads the same socket, cgroups and files beside a running agent, as it does beside a kubelet
	fields := map[string]any{"containerRuntimeEndpoint": n.lab.Endpoint(), "cgroupRoot": n.root}
	r, code := n.check(fields)
	require.Len(t, r.Pods, 1, "%+v", r)
	require.Equal(t, changeover.Keeps, r.Pods[0].Outcome, "%+v", r)
	require.Equal(t, changeover.ExitKeeps, code, "%+v", r)
	a.Kill()

	ctx := within(t, 4*timeout)
	config := &cri.SandboxConfig{Pod: cri.PodIdentity{UID: "by-hand", Name: "hand", Namespace: "ns"}}
	config.Security.Namespaces.Network = cri.NamespaceNode
	hand, err := n.client.RunSandbox(ctx, config)
	require.NoError(t, err)
	listed, err := n.client.List(ctx)
	require.NoError(t, err)
	before, groups := listTree(t, n.state, n.logs, n.manifests.Path), n.listCgroups()
	r, code = n.check(fields)
	require.Equal(t, before, listTree(t, n.state, n.logs, n.manifests.Path), "files")
	require.Equal(t, groups, n.listCgroups(), "cgroups")
	after, err := n.client.List(ctx)
	require.NoError(t, err)
	assert.ElementsMatch(t, listed.Sandboxes, after.Sandboxes)
	assert.ElementsMatch(t, listed.Containers, after.Containers)
	require.Len(t, r.Pods, 2, "%+v", r)
	assert.Equal(t, changeover.Keeps, r.Pods[0].Outcome, "%+v", r.Pods[0])
	assert.Equal(t, changeover.Stops, r.Pods[1].Outcome, "no source lists it: %+v", r.Pods[1])
	assert.Equal(t, changeover.ExitChanges, code)

	// With another manifest the pod has another UID, and replaces the running one. A setting that is not supported is reported with it.
	n.manifests.Write("web.yaml", podYAML("web", script+"; exit 0"))
	fields["featureGates"] = map[string]bool{"MemoryQoS": false}
	r, code = n.check(fields)
	require.Len(t, r.Settings, 1, "%+v", r)
	assert.Contains(t, r.Settings[0], "featureGates: MemoryQoS: false is not supported by this version")
	require.Len(t, r.Pods, 3, "%+v", r)
	assert.ElementsMatch(t, []changeover.Outcome{changeover.Keeps, changeover.Stops}, []changeover.Outcome{r.Pods[0].Outcome, r.Pods[1].Outcome}, "%+v", r)
	assert.Equal(t, changeover.ExitChanges, code)

	require.NoError(t, n.client.StopSandbox(ctx, hand))
	require.NoError(t, n.client.RemoveSandbox(ctx, hand))
	a = n.start(nil)
	a.AwaitLine(2*timeout, "pod=web-n1 phase=Running", `summary="1/1 restarts=0`)
	n.drain(a)
}

// listCgroups returns the cgroups of the node with their limits.
func (n *node) listCgroups() (lines []string) {
	n.t.Helper()
	classes, err := n.cgroups.Children(n.t.Context(), "kubepods")
	require.NoError(n.t, err)
	return classes
}
