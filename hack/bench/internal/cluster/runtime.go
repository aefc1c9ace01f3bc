// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/hack/bench/internal/cri"
)

// prepareRuntime returns an error for a runtime with pods. It returns the address of the host on the pod bridge, which exists
// after a pod has run.
func prepareRuntime(ctx context.Context, r *cri.Client, bridge string) (string, error) {
	if err := r.CheckEmpty(ctx); err != nil {
		return "", err
	}
	_, err := r.Runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "first", Namespace: "bench-cluster", Uid: "first"},
	}})
	if err := errors.Join(err, r.RemovePods(ctx, nil)); err != nil {
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

// firstProcess returns the ID of the only running container of a pod, and its first process.
func firstProcess(ctx context.Context, r *cri.Client, podUID string) (id string, first *os.Process, err error) {
	running, err := r.Running(ctx, map[string]string{cri.LabelPodUID: podUID})
	if err != nil || len(running) != 1 {
		return "", nil, fmt.Errorf("pod %s has %d running containers: %w", podUID, len(running), err)
	}
	id = running[0].GetId()
	first, err = r.InitProcess(ctx, id)
	return id, first, err
}

// deaths contains the times at which the runtime reported the exits of containers.
type deaths struct {
	mu sync.Mutex // guards at
	at map[string]time.Time
}

// record stores the exits that the runtime reports until ctx ends.
func (d *deaths) record(ctx context.Context, r *cri.Client) error {
	stream, err := r.Runtime.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
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
