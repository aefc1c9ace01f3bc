// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package cri is the client by which benchmarks observe a container runtime and create the pods of the floor.
package cri

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/hack/bench/internal/trace"
	"github.com/seed81659283/nodeagent/hack/bench/internal/wait"
)

// Labels that the kubelet puts on all sandboxes and containers (pkg/kubelet/types/labels.go).
const (
	LabelPodName      = "io.kubernetes.pod.name"
	LabelPodNamespace = "io.kubernetes.pod.namespace"
	LabelPodUID       = "io.kubernetes.pod.uid"
	LabelContainer    = "io.kubernetes.container.name"
)

// callTimeout is the timeout of each CRI call. It is the longest of the kubelet: RunPodSandbox takes seconds under load.
const callTimeout = 4 * time.Minute

// Client is a connection of the harness to the runtime.
type Client struct {
	conn     *grpc.ClientConn
	Runtime  runtimeapi.RuntimeServiceClient
	image    runtimeapi.ImageServiceClient
	endpoint string

	// Trace records the measured calls. Nil: no call is recorded.
	Trace *trace.Trace
}

// isObservation reports whether the harness calls a method only to observe the runtime, so that the call is not part of the floor.
func isObservation(method string) bool {
	switch method {
	case "Version", "ImageStatus", "ListContainers", "ListPodSandbox", "ContainerStatus":
		return true
	}
	return false
}

// Dial connects to the runtime at endpoint and returns a client, and the runtime's name and version.
func Dial(ctx context.Context, endpoint string) (*Client, string, error) {
	c := &Client{endpoint: endpoint}
	conn, err := grpc.NewClient(endpoint,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20)),
		grpc.WithUnaryInterceptor(func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn,
			invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
		) error {
			ctx, cancel := context.WithTimeout(ctx, callTimeout)
			defer cancel()
			if !isObservation(path.Base(method)) {
				defer c.Trace.Begin(path.Base(method))()
			}
			return invoke(ctx, method, req, reply, conn, opts...)
		}))
	if err != nil {
		return nil, "", fmt.Errorf("connect to runtime %s: %w", endpoint, err)
	}
	c.conn, c.Runtime, c.image = conn, runtimeapi.NewRuntimeServiceClient(conn), runtimeapi.NewImageServiceClient(conn)
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	version, err := c.Runtime.Version(ctx, &runtimeapi.VersionRequest{})
	if err != nil {
		return nil, "", errors.Join(fmt.Errorf("ask runtime %s for its version: %w", endpoint, err), conn.Close())
	}
	return c, version.GetRuntimeName() + " " + version.GetRuntimeVersion(), nil
}

// Close closes the connection.
func (c *Client) Close() error { return c.conn.Close() }

// Endpoint returns the address that the client was dialed with.
func (c *Client) Endpoint() string { return c.endpoint }

// PID returns the ID of the process that listens on the endpoint, which is the runtime. It returns 0 if the process is
// unknown: the endpoint is no unix socket, or the service supervisor opened it.
func (c *Client) PID() int {
	socket, isUnix := strings.CutPrefix(c.endpoint, "unix://")
	if !isUnix {
		return 0
	}
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return 0
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0
	}
	pid := 0
	err = raw.Control(func(fd uintptr) {
		if peer, err := syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED); err == nil {
			pid = int(peer.Pid)
		}
	})
	if err != nil || pid == 1 {
		return 0
	}
	return pid
}

// ResolveImage returns the ID of an image that is already in the runtime. Benchmarks do not measure pulls.
func (c *Client) ResolveImage(ctx context.Context, ref string) (string, error) {
	answer, err := c.image.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: ref}})
	if err != nil {
		return "", fmt.Errorf("look up image %s: %w", ref, err)
	}
	if answer.GetImage() == nil {
		return "", fmt.Errorf("look up image %s: the runtime does not have it: import or pull it first", ref)
	}
	return answer.GetImage().GetId(), nil
}

// Running lists the running containers with these labels.
func (c *Client) Running(ctx context.Context, labels map[string]string) ([]*runtimeapi.Container, error) {
	answer, err := c.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		State:         &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
		LabelSelector: labels,
	}})
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	return answer.GetContainers(), nil
}

// Sandboxes lists the sandboxes with these labels, and all sandboxes for nil.
func (c *Client) Sandboxes(ctx context.Context, labels map[string]string) ([]*runtimeapi.PodSandbox, error) {
	answer, err := c.Runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{
		Filter: &runtimeapi.PodSandboxFilter{LabelSelector: labels},
	})
	if err != nil {
		return nil, fmt.Errorf("list sandboxes: %w", err)
	}
	return answer.GetItems(), nil
}

// CheckEmpty returns an error if the runtime has sandboxes: a kubelet stops every pod that it does not manage.
func (c *Client) CheckEmpty(ctx context.Context) error {
	sandboxes, err := c.Sandboxes(ctx, nil)
	if err == nil && len(sandboxes) > 0 {
		err = fmt.Errorf("the runtime %s has %d pods of other agents, and a kubelet would stop them", c.endpoint, len(sandboxes))
	}
	return err
}

// Status returns the status of a container in the runtime.
func (c *Client) Status(ctx context.Context, id string) (*runtimeapi.ContainerStatus, error) {
	answer, err := c.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		return nil, fmt.Errorf("ask for container %s: %w", id, err)
	}
	return answer.GetStatus(), nil
}

// InitProcess returns a handle on the first process of a container. The handle is a pidfd, and the cgroup of the process is
// checked after it was opened: a signal through the handle reaches no process outside the container.
func (c *Client) InitProcess(ctx context.Context, id string) (*os.Process, error) {
	answer, err := c.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		return nil, fmt.Errorf("ask for container %s: %w", id, err)
	}
	pid, err := parsePID(answer.GetInfo())
	if err != nil {
		return nil, fmt.Errorf("find process of container %s: %w", id, err)
	}
	process, err := os.FindProcess(pid)
	if err != nil {
		return nil, fmt.Errorf("find process of container %s: %w", id, err)
	}
	groups, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(pid), "cgroup"))
	if err != nil || !strings.Contains(string(groups), id) {
		return nil, fmt.Errorf("find process of container %s: process %d is not in its cgroup", id, pid)
	}
	return process, nil
}

// parsePID returns the process ID in verbose status information of containerd or CRI-O.
func parsePID(info map[string]string) (int, error) {
	var parsed struct {
		PID int `json:"pid"`
	}
	if err := json.Unmarshal([]byte(info["info"]), &parsed); err != nil {
		return 0, fmt.Errorf("parse verbose status: %w", err)
	}
	if parsed.PID <= 1 {
		return 0, fmt.Errorf("parse verbose status: no process in it (pid %d)", parsed.PID)
	}
	return parsed.PID, nil
}

// RemovePods stops and removes the sandboxes with these labels, and their containers.
func (c *Client) RemovePods(ctx context.Context, labels map[string]string) error {
	sandboxes, err := c.Sandboxes(ctx, labels)
	if err != nil {
		return err
	}
	return wait.Each(ctx, len(sandboxes), 4, func(i int) error {
		return c.RemoveSandbox(ctx, sandboxes[i].GetId())
	})
}

// RemoveSandbox stops and removes one sandbox. A sandbox that does not exist is no error.
func (c *Client) RemoveSandbox(ctx context.Context, id string) error {
	_, err := c.Runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
	if err == nil || status.Code(err) == codes.NotFound {
		_, err = c.Runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
	}
	if err != nil && status.Code(err) != codes.NotFound {
		return fmt.Errorf("remove sandbox %s: %w", id, err)
	}
	return nil
}
