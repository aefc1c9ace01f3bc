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

// The first container takes all of a CPU that it gets, the second keeps 32 MiB in memory and does nothing.
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

// use is a line of kubectl top: millicores and MiB.
type use struct{ cpu, memory int }

var topLine = regexp.MustCompile(`^(\S+ )?(\S+) (\d+)m (?:\d+% )?(\d+)Mi(?: \d+%)?$`)

// top returns what kubectl top shows, by the name that is nearest to the values.
func (m *member) top(args ...string) (map[string]use, error) {
	text, err := m.try("", append(append([]string{"top"}, args...), "--no-headers")...)
	if err != nil {
		return nil, err
	}
	uses := map[string]use{}
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
		uses[fields[2]] = use{cpu, memory}
	}
	return uses, nil
}

// takes returns how much CPU time the first process of a container takes in a while, in the kernel's hundredths of a second.
func (m *member) takes(pod, container string, while time.Duration) time.Duration {
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

// A metrics-server reads this node as it reads any other, by the port and the address in the node's status, which is in the certificate
// that the cluster has issued, and with no more rights than its role has, and kubectl top shows what node, pod and containers take.
func TestClusterTop(t *testing.T) {
	controlplane.RequirePrograms(t, controlplane.MetricsServer)
	m := newMember(t, map[string]any{"serverTLSBootstrap": true})
	m.apply(topPod)
	m.do("wait", "--for=condition=ready", "pod/top", "--timeout=30s")
	// The address is that of a bridge, which is there since the first pod is.
	m.eventually(timeout, "get", "node", "n1", "-o", `jsonpath={.status.addresses[?(@.type=="InternalIP")].address}`)(m.lab.Subnet().Addr().Next().String())
	m.approve(m.lab.Subnet().Addr().Next())
	began := time.Now()
	require.NoError(t, m.StartMetricsServer(t.Context()))

	// How much the first container gets is up to the machine, which may have more to do, and is asked of the kernel: the last ten
	// seconds of it and of the metrics-server overlap, so that a factor of two is between them at most when the load changes.
	var took time.Duration
	exetest.Eventually(t, 2*time.Minute, func() error {
		took = m.takes("top", "spin", 10*time.Second)
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
	require.Greater(t, took, 200*time.Millisecond, "too little of a CPU to say anything")
	t.Logf("the values are there %v after the start of the metrics-server", time.Since(began).Round(10*time.Millisecond))

	pods, err := m.top("pod")
	require.NoError(t, err)
	require.Len(t, pods, 1)
	require.Positive(t, pods["top"].cpu)
	require.InDelta(t, 48, pods["top"].memory, 16, "memory of the pod")

	nodes, err := m.top("node")
	require.NoError(t, err)
	require.Len(t, nodes, 1)
	require.GreaterOrEqual(t, nodes["n1"].cpu, pods["top"].cpu/2, "the pod runs on the node")
	require.Greater(t, nodes["n1"].memory, pods["top"].memory)
	m.do("delete", "pod", "top", "--timeout=30s")
}
