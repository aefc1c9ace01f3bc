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

// resizablePod is a manifest with a fixed UID, so that an edit changes the pod instead of replacing it. The container uses a
// few megabytes, and policy is its resizePolicy.
func resizablePod(resources, policy string) string {
	text := podYAML("resized", "x=$(head -c 8388608 /dev/zero | tr '\\0' x); "+sleeper) +
		"      resources: " + resources + "\n      resizePolicy: [" + policy + "]\n"
	return strings.Replace(text, "metadata:\n", "metadata:\n  uid: 3f0c2a51-resized\n", 1)
}

// A manifest with changed resources changes the cgroups of the pod and its container. The container is restarted only if its
// resizePolicy requires it. A memory limit below the usage is refused. A restart of the agent affects none of this.
func TestIntegrationResize(t *testing.T) {
	const restart = "{resourceName: memory, restartPolicy: RestartContainer}"
	n := newNode(t)
	n.manifests.Write("resized.yaml", resizablePod("{requests: {cpu: 250m, memory: 32Mi}, limits: {cpu: 500m, memory: 64Mi}}", ""))
	a := n.start(nil)
	first := n.awaitRunning(vmTimeout, "resized-n1")["resized-n1"]
	pod := cgroups.PodPath("", cgroups.Burstable, "3f0c2a51-resized")
	n.awaitLimits(pod, first, 256, 50000, 64<<20)

	n.manifests.Write("resized.yaml", resizablePod("{requests: {cpu: 500m, memory: 32Mi}, limits: {cpu: 1, memory: 128Mi}}", ""))
	n.awaitLimits(pod, first, 512, 100000, 128<<20)
	n.manifests.Write("resized.yaml", resizablePod("{requests: {cpu: 100m, memory: 32Mi}, limits: {cpu: 200m, memory: 128Mi}}", ""))
	n.awaitLimits(pod, first, 102, 20000, 128<<20)

	// The first limit is below the memory usage. The second edit increases CPU and decreases memory.
	n.manifests.Write("resized.yaml", resizablePod("{requests: {cpu: 100m, memory: 1Mi}, limits: {cpu: 200m, memory: 4Mi}}", ""))
	a.AwaitLine(vmTimeout, "cannot decrease memory limits", "container", "memory limit (4194304) below current usage")
	n.awaitLimits(pod, first, 102, 20000, 128<<20)
	n.manifests.Write("resized.yaml", resizablePod("{requests: {cpu: 500m, memory: 32Mi}, limits: {cpu: 1, memory: 96Mi}}", ""))
	n.awaitLimits(pod, first, 512, 100000, 96<<20)

	// A restarted agent applies an edit that was made while no agent ran, after the stored resources. Therefore the test
	// waits for the store. It also waits for the event: the runtime writes the cgroup before it records the resources, and an
	// agent that is killed in between resizes the container once more.
	a.AwaitLine(vmTimeout, "reason=ResizeCompleted", `\"memory\":\"96Mi\"`)
	exetest.Eventually(t, vmTimeout, func() error {
		text, err := os.ReadFile(filepath.Join(n.state, "pods.store"))
		if err == nil && !strings.Contains(string(text), `"memory":"96Mi"`) {
			err = fmt.Errorf("the stored pods are\n%s", text)
		}
		return err
	})
	a.Kill()
	n.manifests.Write("resized.yaml", resizablePod("{requests: {cpu: 250m, memory: 32Mi}, limits: {cpu: 500m, memory: 96Mi}}", ""))
	a = n.start(nil)
	n.awaitLimits(pod, first, 256, 50000, 96<<20)
	require.Equal(t, 1, strings.Count(a.Output(), "resize container"), a.Output())

	n.manifests.Remove("resized.yaml") // the resizePolicy is immutable as long as a pod has the UID
	n.awaitNoLeftovers(vmTimeout)
	n.manifests.Write("resized.yaml", resizablePod("{requests: {cpu: 250m, memory: 32Mi}, limits: {cpu: 500m, memory: 96Mi}}", restart))
	first = n.awaitRunning(vmTimeout, "resized-n1")["resized-n1"]
	n.awaitLimits(pod, first, 256, 50000, 96<<20)
	n.manifests.Write("resized.yaml", resizablePod("{requests: {cpu: 250m, memory: 32Mi}, limits: {cpu: 500m, memory: 128Mi}}", restart))
	var second cri.Container
	exetest.Eventually(t, vmTimeout, func() error {
		var err error
		if second, err = n.runningContainer("resized-n1"); err == nil && second.ID == first.ID {
			err = fmt.Errorf("the first container still runs")
		}
		return err
	})
	require.Equal(t, uint32(1), second.Attempt)
	n.awaitLimits(pod, second, 256, 50000, 128<<20)

	n.manifests.Remove("resized.yaml")
	n.awaitNoLeftovers(vmTimeout)
	a.Terminate(vmTimeout)
}

// awaitLimits waits until c is the running container of the pod, and its cgroup and that of the pod have these limits.
func (n *node) awaitLimits(pod cgroups.Path, c cri.Container, shares uint64, quota, memory int64) {
	n.t.Helper()
	want := fmt.Sprint(sharesInKernel(n.cgroups.Host().Mode == driver.V2, shares), quota, memory)
	exetest.Eventually(n.t, vmTimeout, func() error {
		if now, err := n.runningContainer("resized-n1"); err != nil || now.ID != c.ID {
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
