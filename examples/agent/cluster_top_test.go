// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/controlplane"
	"github.com/seed81659283/nodeagent/internal/exetest"
)

// Container spin uses as much of a CPU as it gets. Container hold keeps 32 MiB in memory and is idle.
const topPod = `
apiVersion: v1
kind: Pod
metadata: {name: top}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: spin, image: "nodeagent.test/busybox:1", command: [sh, -c, "while :; do :; done"], resources: {requests: {cpu: "1"}}}
  - {name: hold, image: "nodeagent.test/busybox:1", command: [sh, -c, "head -c 33554432 /dev/zero > /dev/shm/zeros; exec sleep 3600"]}
`

// usage is a line of kubectl top: millicores and MiB.
type usage struct{ cpu, memory int }

var topLine = regexp.MustCompile(`^(\S+ )?(\S+) (\d+)m (?:\d+% )?(\d+)Mi(?: \d+%)?$`)

// top returns the values of kubectl top, by the last name of the line.
func (m *member) top(args ...string) (map[string]usage, error) {
	text, err := m.try("", append(append([]string{"top"}, args...), "--no-headers")...)
	if err != nil {
		return nil, err
	}
	uses := map[string]usage{}
	for line := range strings.Lines(text) {
		fields := topLine.FindStringSubmatch(strings.Join(strings.Fields(line), " "))
		if fields == nil {
			return nil, fmt.Errorf("kubectl top %s: the line %q has no values", strings.Join(args, " "), line)
		}
		cpu, cpuErr := strconv.Atoi(fields[3])
		memory, memoryErr := strconv.Atoi(fields[4])
		if cpuErr != nil || memoryErr != nil {
			return nil, fmt.Errorf("kubectl top %s: the line %q has values out of range", strings.Join(args, " "), line)
		}
		uses[fields[2]] = usage{cpu, memory}
	}
	return uses, nil
}

// measureCPU returns the CPU time of the first process of a container during while, in units of 10 ms.
func (m *member) measureCPU(pod, container string, while time.Duration) time.Duration {
	ticks := func() (sum int) {
		fields := strings.Fields(m.do("exec", pod, "-c", container, "--", "cat", "/proc/1/stat"))
		require.Greater(m.t, len(fields), 14)
		for _, field := range fields[13:15] { // user and system
			n, err := strconv.Atoi(field)
			require.NoError(m.t, err)
			sum += n
		}
		return sum
	}
	before := ticks()
	time.Sleep(while)
	return time.Duration(ticks()-before) * time.Second / 100
}

// A metrics-server reads this node with the permissions of its role. It uses the port and the address in the node's status;
// the serving certificate of the cluster has this address. kubectl top shows the usage of node, pod and containers.
func TestClusterTop(t *testing.T) {
	controlplane.RequirePrograms(t, controlplane.MetricsServer)
	m := newMember(t, map[string]any{"serverTLSBootstrap": true})
	m.apply(topPod)
	m.do("wait", "--for=condition=ready", "pod/top", "--timeout=30s")
	// The node has the address of a bridge, which exists since the first pod.
	m.eventually(timeout, "get", "node", "n1", "-o", `jsonpath={.status.addresses[?(@.type=="InternalIP")].address}`)(m.lab.Subnet().Addr().Next().String())
	m.approveServingCertificate(m.lab.Subnet().Addr().Next())
	began := time.Now()
	require.NoError(t, m.StartMetricsServer(t.Context()))

	// A busy machine gives the container spin less than a CPU, so the test measures its CPU time. The ten seconds of this
	// measurement and those of the metrics-server overlap. If the load changes, they differ by a factor of two at most.
	var took time.Duration
	exetest.Eventually(t, 2*time.Minute, func() error {
		took = m.measureCPU("top", "spin", 10*time.Second)
		got, err := m.top("pod", "top", "--containers")
		if err != nil {
			return err
		}
		spin, hold, want := got["spin"], got["hold"], int(took/(10*time.Millisecond))
		if len(got) != 2 || spin.cpu < want/2 || spin.cpu > want*2 || spin.memory > 16 || hold.cpu > want/4 || hold.memory < 32 || hold.memory > 48 {
			return fmt.Errorf("kubectl top pod --containers shows %v, the kernel %dm", got, want)
		}
		t.Logf("kubectl top pod --containers shows %v, the kernel %dm", got, want)
		return nil
	})
	require.Greater(t, took, 200*time.Millisecond, "spin gets enough CPU time for a comparison")
	t.Logf("kubectl top has values %v after the start of the metrics-server", time.Since(began).Round(10*time.Millisecond))

	pods, err := m.top("pod")
	require.NoError(t, err)
	require.Len(t, pods, 1)
	require.Positive(t, pods["top"].cpu)
	require.InDelta(t, 48, pods["top"].memory, 16, "memory of the pod in MiB")

	nodes, err := m.top("node")
	require.NoError(t, err)
	require.Len(t, nodes, 1)
	require.GreaterOrEqual(t, nodes["n1"].cpu, pods["top"].cpu/2, "the CPU usage of the node includes the pod")
	require.Greater(t, nodes["n1"].memory, pods["top"].memory)
	m.do("delete", "pod", "top", "--timeout=30s")
}
