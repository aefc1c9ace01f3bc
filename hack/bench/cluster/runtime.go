// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// runtime is the harness's own view of the container runtime.
type runtime struct {
	conn *grpc.ClientConn
	api  runtimeapi.RuntimeServiceClient
}

func dial(endpoint string) (*runtime, error) {
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20)))
	if err != nil {
		return nil, fmt.Errorf("connect to runtime %s: %w", endpoint, err)
	}
	return &runtime{conn: conn, api: runtimeapi.NewRuntimeServiceClient(conn)}, nil
}

// prepare refuses a runtime that others use, and returns the address that the host has on the bridge of pods: it is there as soon as
// one has been.
func (r *runtime) prepare(ctx context.Context, bridge string) (string, error) {
	answer, err := r.api.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return "", fmt.Errorf("list sandboxes: %w", err)
	}
	if n := len(answer.GetItems()); n > 0 {
		return "", fmt.Errorf("the runtime has %d pods of others, and a kubelet would stop them", n)
	}
	_, err = r.api.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "first", Namespace: "bench-cluster", Uid: "first"},
	}})
	if err := errors.Join(err, r.clear(ctx)); err != nil {
		return "", fmt.Errorf("run a first sandbox: %w", err)
	}
	device, err := net.InterfaceByName(bridge)
	if err != nil {
		return "", fmt.Errorf("find interface %s: %w", bridge, err)
	}
	addresses, err := device.Addrs()
	if err != nil {
		return "", err
	}
	for _, a := range addresses {
		if ip, _, err := net.ParseCIDR(a.String()); err == nil && ip.To4() != nil {
			return ip.String(), nil
		}
	}
	return "", fmt.Errorf("interface %s has no IPv4 address", bridge)
}

// clear removes all sandboxes: the runtime is the harness's own.
func (r *runtime) clear(ctx context.Context) error {
	answer, err := r.api.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return err
	}
	for _, s := range answer.GetItems() {
		if _, err := r.api.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: s.GetId()}); err != nil {
			return fmt.Errorf("stop sandbox %s: %w", s.GetId(), err)
		}
		if _, err := r.api.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: s.GetId()}); err != nil {
			return fmt.Errorf("remove sandbox %s: %w", s.GetId(), err)
		}
	}
	return nil
}

// container returns the container of a pod that runs, and its first process. The process is seen to be the container's after there is a
// handle on it, so that a signal reaches no other one.
func (r *runtime) container(ctx context.Context, podUID string) (id string, first *os.Process, err error) {
	answer, err := r.api.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		State:         &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
		LabelSelector: map[string]string{"io.kubernetes.pod.uid": podUID},
	}})
	if err != nil || len(answer.GetContainers()) != 1 {
		return "", nil, fmt.Errorf("pod %s has %d running containers: %w", podUID, len(answer.GetContainers()), err)
	}
	id = answer.GetContainers()[0].GetId()
	status, err := r.api.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		return "", nil, fmt.Errorf("ask for container %s: %w", id, err)
	}
	var info struct {
		PID int `json:"pid"`
	}
	if err := json.Unmarshal([]byte(status.GetInfo()["info"]), &info); err != nil || info.PID <= 1 {
		return "", nil, fmt.Errorf("find process of container %s: pid %d: %w", id, info.PID, err)
	}
	if first, err = os.FindProcess(info.PID); err != nil {
		return "", nil, err
	}
	groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", info.PID))
	if err != nil || !strings.Contains(string(groups), id) {
		return "", nil, fmt.Errorf("find process of container %s: process %d is not in its cgroup: %w", id, info.PID, err)
	}
	return id, first, nil
}

// deaths are the moments at which the runtime told that containers had ended.
type deaths struct {
	mu sync.Mutex // guards at
	at map[string]time.Time
}

// follow notes them until ctx ends.
func (r *runtime) follow(ctx context.Context, d *deaths) error {
	stream, err := r.api.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		return err
	}
	for {
		event, err := stream.Recv()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("events of the runtime: %w", err)
		}
		if event.GetContainerEventType() == runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT {
			d.mu.Lock()
			if d.at[event.GetContainerId()].IsZero() {
				d.at[event.GetContainerId()] = time.Now()
			}
			d.mu.Unlock()
		}
	}
}

func (d *deaths) seen(id string) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.at[id]
}
