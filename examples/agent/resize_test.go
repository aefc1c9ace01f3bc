// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/driver"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/exetest"
)

// resizable is a manifest whose edits change the pod instead of making another: its UID is given. The container holds
// a few megabytes and restarts for memory requests and limits if it is to.
func resizable(resources, policy string) string {
	text := podYAML("resized", "x=$(head -c 8388608 /dev/zero | tr '\\0' x); "+sleeper) +
		"      resources: " + resources + "\n      resizePolicy: [" + policy + "]\n"
	return strings.Replace(text, "metadata:\n", "metadata:\n  uid: 3f0c2a51-resized\n", 1)
}

// A manifest that asks for other resources gets them in the cgroups of the pod and of the container, without a restart
// unless the policy wants one; not less memory than is used; and an agent that is killed meanwhile changes nothing of it.
func TestIntegrationResize(t *testing.T) {
	const restart = "{resourceName: memory, restartPolicy: RestartContainer}"
	n := newNode(t)
	n.manifests.Write("resized.yaml", resizable("{requests: {cpu: 250m, memory: 32Mi}, limits: {cpu: 500m, memory: 64Mi}}", ""))
	a := n.start(nil)
	first := n.awaitRunning(vmTimeout, "resized-n1")["resized-n1"]
	pod := cgroups.PodPath("", cgroups.Burstable, "3f0c2a51-resized")
	n.awaitLimits(pod, first, 256, 50000, 64<<20)

	n.manifests.Write("resized.yaml", resizable("{requests: {cpu: 500m, memory: 32Mi}, limits: {cpu: 1, memory: 128Mi}}", ""))
	n.awaitLimits(pod, first, 512, 100000, 128<<20)
	n.manifests.Write("resized.yaml", resizable("{requests: {cpu: 100m, memory: 32Mi}, limits: {cpu: 200m, memory: 128Mi}}", ""))
	n.awaitLimits(pod, first, 102, 20000, 128<<20)

	// Too little, and then more of one thing and less of the other.
	n.manifests.Write("resized.yaml", resizable("{requests: {cpu: 100m, memory: 1Mi}, limits: {cpu: 200m, memory: 4Mi}}", ""))
	a.AwaitLine(vmTimeout, "cannot decrease memory limits", "container", "memory limit (4194304) below current usage")
	n.awaitLimits(pod, first, 102, 20000, 128<<20)
	n.manifests.Write("resized.yaml", resizable("{requests: {cpu: 500m, memory: 32Mi}, limits: {cpu: 1, memory: 96Mi}}", ""))
	n.awaitLimits(pod, first, 512, 100000, 96<<20)

	// Another agent finds out what was done before, and what was asked for while there was none. The store is waited for, or
	// that would begin with an earlier size.
	exetest.Eventually(t, vmTimeout, func() error {
		text, err := os.ReadFile(filepath.Join(n.state, "pods.store"))
		if err == nil && !strings.Contains(string(text), `"memory":"96Mi"`) {
			err = fmt.Errorf("the stored pods are\n%s", text)
		}
		return err
	})
	a.Kill()
	n.manifests.Write("resized.yaml", resizable("{requests: {cpu: 250m, memory: 32Mi}, limits: {cpu: 500m, memory: 96Mi}}", ""))
	a = n.start(nil)
	n.awaitLimits(pod, first, 256, 50000, 96<<20)
	require.Equal(t, 1, strings.Count(a.Output(), "resize container"), a.Output())

	n.manifests.Remove("resized.yaml") // what a resize restarts stays as it is for as long as a pod has its UID
	n.awaitNothing(vmTimeout)
	n.manifests.Write("resized.yaml", resizable("{requests: {cpu: 250m, memory: 32Mi}, limits: {cpu: 500m, memory: 96Mi}}", restart))
	first = n.awaitRunning(vmTimeout, "resized-n1")["resized-n1"]
	n.awaitLimits(pod, first, 256, 50000, 96<<20)
	n.manifests.Write("resized.yaml", resizable("{requests: {cpu: 250m, memory: 32Mi}, limits: {cpu: 500m, memory: 128Mi}}", restart))
	var second cri.Container
	exetest.Eventually(t, vmTimeout, func() error {
		var err error
		if second, err = n.running("resized-n1"); err == nil && second.ID == first.ID {
			err = fmt.Errorf("still the first container")
		}
		return err
	})
	require.Equal(t, uint32(1), second.Attempt)
	n.awaitLimits(pod, second, 256, 50000, 128<<20)

	n.manifests.Remove("resized.yaml")
	n.awaitNothing(vmTimeout)
	a.Terminate(vmTimeout)
}

// awaitLimits waits until the pod's one running container is c, and its cgroup and that of the pod have these limits.
func (n *node) awaitLimits(pod cgroups.Path, c cri.Container, shares uint64, quota, memory int64) {
	n.t.Helper()
	want := fmt.Sprint(inUnits(n.cgroups.Host().Mode == driver.V2, shares), quota, memory)
	exetest.Eventually(n.t, vmTimeout, func() error {
		if now, err := n.running("resized-n1"); err != nil || now.ID != c.ID {
			return fmt.Errorf("container %s runs: %w", now.ID, err)
		}
		for _, p := range []cgroups.Path{pod, pod.Join(c.ID)} {
			r, err := n.cgroups.Limits(n.t.Context(), p)
			if err != nil {
				return err
			}
			if has := fmt.Sprint(r.CPUShares, r.CPUQuota, *r.MemoryMax); has != want {
				return fmt.Errorf("%s has %s, want %s", p, has, want)
			}
		}
		return nil
	})
}
