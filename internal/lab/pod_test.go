// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"context"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/internal/lab"
)

type webServer struct{ sandbox, container, ip string }

func (w webServer) addr(t *testing.T) netip.Addr {
	t.Helper()
	a, err := netip.ParseAddr(w.ip)
	require.NoError(t, err)
	return a
}

// runWebServer runs a pod with one container, which responds with "hello" on port 8080 and on hostPort of the host.
func runWebServer(ctx context.Context, t *testing.T, cri runtimeapi.RuntimeServiceClient, hostPort string) webServer {
	t.Helper()
	port, err := strconv.ParseInt(hostPort, 10, 32)
	require.NoError(t, err)
	config := &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "lab", Uid: "uid-web"},
		LogDirectory: t.TempDir(),
		PortMappings: []*runtimeapi.PortMapping{{ContainerPort: 8080, HostPort: int32(port)}},
		Linux:        &runtimeapi.LinuxPodSandboxConfig{},
	}
	sandbox, err := cri.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
	require.NoError(t, err)
	created, err := cri.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId:  sandbox.GetPodSandboxId(),
		SandboxConfig: config,
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "httpd"},
			Image:    &runtimeapi.ImageSpec{Image: lab.BusyboxImage},
			Command:  []string{"sh", "-c", "echo hello >/tmp/index.html; exec httpd -f -p 8080 -h /tmp"},
			LogPath:  "httpd.log",
			Linux:    &runtimeapi.LinuxContainerConfig{},
		},
	})
	require.NoError(t, err)
	_, err = cri.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: created.GetContainerId()})
	require.NoError(t, err)
	status, err := cri.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: sandbox.GetPodSandboxId()})
	require.NoError(t, err)
	return webServer{sandbox.GetPodSandboxId(), created.GetContainerId(), status.GetStatus().GetNetwork().GetIp()}
}

// countKinds returns the number of lines by their first word.
func countKinds(lines []string) map[string]int {
	counts := map[string]int{}
	for _, line := range lines {
		kind, _, _ := strings.Cut(line, " ")
		counts[kind]++
	}
	return counts
}

// listProcesses returns the command lines of all processes for which /proc/PID/file contains one of words.
func listProcesses(t *testing.T, file string, words ...string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/" + file)
	require.NoError(t, err)
	var found []string
	for _, path := range files {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // the process has exited
		}
		if slices.ContainsFunc(words, func(word string) bool { return strings.Contains(string(b), word) }) {
			cmdline, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
			found = append(found, strings.ReplaceAll(string(cmdline), "\x00", " "))
		}
	}
	return found
}

// listNATRules returns the firewall rules of the host that forward host ports.
func listNATRules(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "iptables", "--table", "nat", "--list-rules").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}
