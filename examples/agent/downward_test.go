// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	hardware "github.com/seed81659283/nodeagent/nodestatus/machine"
)

// limitsEnv has variables with limits of the container, which has none.
const limitsEnv = `      env:
        - {name: CPU, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 1m}}}
        - {name: MEMORY, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1Ki}}}
        - {name: PAGES, valueFrom: {resourceFieldRef: {resource: limits.hugepages-2Mi}}}
        - {name: REQUEST, valueFrom: {resourceFieldRef: {resource: requests.cpu}}}
        - {name: DISK, valueFrom: {resourceFieldRef: {resource: limits.ephemeral-storage}}}
`

// reservations are not whole CPUs or MiB, so that allocatable and capacity differ.
var reservations = map[string]any{
	"systemReserved": map[string]string{"cpu": "100m", "memory": "10Mi"}, "kubeReserved": map[string]string{"cpu": "23m"},
}

// allocatableLine returns the CPU in millicores and the memory in KiB that [reservations] leave of this machine, less huge pages.
func allocatableLine(t *testing.T) string {
	m, err := hardware.Read(os.DirFS("/"))
	require.NoError(t, err)
	memory := m.Memory - 10<<20
	for _, bytes := range m.HugePages {
		memory -= bytes
	}
	return fmt.Sprintf("%d %d", m.CPUs*1000-123, (memory+1023)/1024)
}

// A variable with a limit that the container lacks has the allocatable resources of the node, also without a cluster. Huge
// pages and requests have no such fallback.
func TestEnvOfMissingLimitsIsAllocatable(t *testing.T) {
	f := newFiles(t)
	f.manifests.Write("limits.yaml", podYAML("limits", "echo $CPU $MEMORY $PAGES $REQUEST; [ $DISK -gt 1000000 ] && echo disk; "+sleeper, limitsEnv))
	a := f.start(reservations)
	f.awaitLog("limits-n1", "main", allocatableLine(t)+" 0 0", "disk")
	f.manifests.Remove("limits.yaml")
	a.Terminate(timeout)
}

// Volumes have the allocatable resources for limits that a container lacks, and a tmpfs has their size.
func TestIntegrationVolumesOfMissingLimitsAreAllocatable(t *testing.T) {
	const items = "items: [" +
		"{path: cpu, resourceFieldRef: {containerName: main, resource: limits.cpu, divisor: 1m}}, " +
		"{path: memory, resourceFieldRef: {containerName: main, resource: limits.memory, divisor: 1Ki}}]"
	n := newNode(t)
	n.manifests.Write("limits.yaml", strings.Replace(podYAML("limits",
		"for d in info all; do echo $d $(cat /$d/cpu) $(cat /$d/memory); done; echo size $(df -k /m | tail -1 | awk '{print $2}'); "+sleeper, `
      volumeMounts: [{name: info, mountPath: /info}, {name: all, mountPath: /all}, {name: m, mountPath: /m}]
`), "spec:", `spec:
  volumes:
    - {name: info, downwardAPI: {`+items+`}}
    - {name: all, projected: {sources: [{downwardAPI: {`+items+`}}]}}
    - {name: m, emptyDir: {medium: Memory}}`, 1))
	a := n.start(reservations)
	line := allocatableLine(t)
	_, memory, _ := strings.Cut(line, " ")
	n.awaitLog("limits-n1", "main", "info "+line, "all "+line, "size "+memory)
	n.drain(a)
}
