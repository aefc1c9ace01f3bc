// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/internal/lab"
)

const stepTimeout = 30 * time.Second

// TestIntegrationPrivateLab runs a pod that serves HTTP. It checks both images of the registry, addresses and host ports, a
// killed containerd, and the list of leftovers.
func TestIntegrationPrivateLab(t *testing.T) {
	l := lab.StartPrivate(t)
	ctx, cancel := context.WithTimeout(t.Context(), 4*stepTimeout)
	defer cancel()
	require.Empty(t, leftovers(t, l), "a new lab is empty")

	conn, err := grpc.NewClient(l.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	cri, images := runtimeapi.NewRuntimeServiceClient(conn), runtimeapi.NewImageServiceClient(conn)

	for _, ref := range []string{l.RegistryImage(), l.RegistryImageByDigest()} {
		status, err := images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: ref}})
		require.NoError(t, err)
		assert.Nil(t, status.GetImage(), "image %s exists before its pull", ref)
	}
	for _, ref := range []string{l.RegistryImage(), l.RegistryImageByDigest()} {
		_, err := images.PullImage(ctx, &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: ref}})
		require.NoError(t, err)
	}

	hostPort := freePort(t)
	pod := runWebServer(ctx, t, cri, hostPort)
	assert.Equal(t, "hello\n", get(t, net.JoinHostPort(pod.ip, "8080")), "the pod responds at its IP address")
	assert.Equal(t, "hello\n", get(t, net.JoinHostPort("127.0.0.1", hostPort)), "the pod responds at its host port")
	assert.True(t, l.Subnet().Contains(pod.addr(t)), "pod address %s is in the subnet %s", pod.ip, l.Subnet())

	kinds := countKinds(leftovers(t, l))
	for _, kind := range []string{"address", "container", "interface", "mount", "netns", "runc", "sandbox", "shim"} {
		assert.Positive(t, kinds[kind], "a running pod is listed as %s", kind)
	}

	before := l.ContainerdPID()
	require.NoError(t, l.Kill(ctx))
	require.Error(t, l.Ready(ctx))
	assert.Equal(t, "hello\n", get(t, net.JoinHostPort(pod.ip, "8080")), "the pod outlives containerd")
	require.NoError(t, l.Restart(ctx))
	assert.NotEqual(t, before, l.ContainerdPID())
	status, err := cri.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: pod.container}, grpc.WaitForReady(true))
	require.NoError(t, err)
	assert.Equal(t, runtimeapi.ContainerState_CONTAINER_RUNNING, status.GetStatus().GetState())

	_, err = cri.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: pod.sandbox})
	require.NoError(t, err)
	_, err = cri.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: pod.sandbox})
	require.NoError(t, err)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.Empty(c, leftovers(t, l)) // shims exit a moment after their pod
	}, stepTimeout, 50*time.Millisecond)
}

// TestIntegrationDownRemovesEverything stops labs with pods. Their containerd runs, was killed, or was killed and the record
// of the lab was deleted.
func TestIntegrationDownRemovesEverything(t *testing.T) {
	for name, disturb := range map[string]func(context.Context, *lab.Lab) error{
		"running": func(context.Context, *lab.Lab) error { return nil },
		"killed":  func(ctx context.Context, l *lab.Lab) error { return l.Kill(ctx) },
		"killed, record lost": func(ctx context.Context, l *lab.Lab) error {
			return errors.Join(l.Kill(ctx), os.Remove(filepath.Join(l.Dir(), "lab.json")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := lab.StartPrivate(t)
			ctx, cancel := context.WithTimeout(t.Context(), 4*stepTimeout)
			defer cancel()
			conn, err := grpc.NewClient(l.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()))
			require.NoError(t, err)
			defer conn.Close()
			pod := runWebServer(ctx, t, runtimeapi.NewRuntimeServiceClient(conn), freePort(t))
			require.NotEmpty(t, listProcesses(t, "cgroup", pod.container))
			require.Contains(t, listNATRules(t), pod.sandbox)
			require.NoError(t, disturb(ctx, l))

			require.NoError(t, l.Down(ctx))

			assert.NoDirExists(t, l.Dir())
			assert.NoDirExists(t, l.StateDir())
			_, err = net.InterfaceByName(l.Bridge())
			assert.Error(t, err, "the bridge is removed")
			mounts, err := os.ReadFile("/proc/self/mountinfo")
			require.NoError(t, err)
			assert.NotContains(t, string(mounts), l.StateDir())
			assert.NotContains(t, string(mounts), l.Dir())
			assert.Empty(t, listProcesses(t, "cmdline", l.StateDir(), l.Dir()))
			assert.Empty(t, listProcesses(t, "cgroup", pod.sandbox, pod.container))
			assert.NotContains(t, listNATRules(t), pod.sandbox)
			results, err := filepath.Glob("/var/lib/cni/results/*" + pod.sandbox + "*")
			require.NoError(t, err)
			assert.Empty(t, results)
			assert.NoError(t, l.Down(ctx), "a second Down succeeds")
		})
	}
}

// TestIntegrationSharedLab checks that two calls of Start return the same lab.
func TestIntegrationSharedLab(t *testing.T) {
	a, b := lab.Start(t), lab.Start(t)
	require.NoError(t, a.Ready(t.Context()))
	assert.Equal(t, a.Endpoint(), b.Endpoint())
	assert.Equal(t, a.ContainerdPID(), b.ContainerdPID())
}

func leftovers(t *testing.T, l *lab.Lab) []string {
	t.Helper()
	found, err := l.Leftovers(t.Context())
	require.NoError(t, err)
	return found
}

func get(t *testing.T, address string) string {
	t.Helper()
	client := http.Client{Timeout: time.Second}
	defer client.CloseIdleConnections()
	var body string
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		resp, err := client.Get("http://" + address + "/")
		if !assert.NoError(c, err) {
			return
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		require.NoError(c, err)
		body = string(b)
	}, stepTimeout, 20*time.Millisecond)
	return body
}

func freePort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	return port
}
