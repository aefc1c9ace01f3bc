// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// runtime is the harness's own view of the container runtime.
type runtime struct {
	conn *grpc.ClientConn
	api  runtimeapi.RuntimeServiceClient
}

// dial refuses a runtime that others use.
func dial(ctx context.Context, endpoint string) (*runtime, error) {
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20)))
	if err != nil {
		return nil, fmt.Errorf("connect to runtime %s: %w", endpoint, err)
	}
	r := &runtime{conn, runtimeapi.NewRuntimeServiceClient(conn)}
	answer, err := r.api.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err == nil && len(answer.GetItems()) > 0 {
		err = fmt.Errorf("there are %d of others, and a kubelet would stop them", len(answer.GetItems()))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("list sandboxes of %s: %w", endpoint, err), conn.Close())
	}
	return r, nil
}

// running returns the containers that run.
func (r *runtime) running(ctx context.Context) ([]*runtimeapi.Container, error) {
	answer, err := r.api.ListContainers(ctx, &runtimeapi.ListContainersRequest{
		Filter: &runtimeapi.ContainerFilter{State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}},
	})
	return answer.GetContainers(), err
}

// clear removes all sandboxes: the runtime is the harness's own.
func (r *runtime) clear(ctx context.Context) error {
	answer, err := r.api.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	for _, s := range answer.GetItems() {
		_, stopErr := r.api.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: s.GetId()})
		_, removeErr := r.api.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: s.GetId()})
		err = errors.Join(err, stopErr, removeErr)
	}
	return err
}

// way is how the container is reached: by a URL for each session, and a reader for its log.
type way interface {
	exec(ctx context.Context, stdin bool, command ...string) (string, error)
	forward(ctx context.Context) (string, error)
	log(ctx context.Context) (io.ReadCloser, error)
}

// bare is the floor: the runtime itself, and the file.
type bare struct {
	*runtime
	container, sandbox, file string
}

func (b bare) exec(ctx context.Context, stdin bool, command ...string) (string, error) {
	answer, err := b.api.Exec(ctx, &runtimeapi.ExecRequest{ContainerId: b.container, Cmd: command, Stdin: stdin, Stdout: true})
	return answer.GetUrl(), err
}

func (b bare) forward(ctx context.Context) (string, error) {
	answer, err := b.api.PortForward(ctx, &runtimeapi.PortForwardRequest{PodSandboxId: b.sandbox})
	return answer.GetUrl(), err
}

func (b bare) log(context.Context) (io.ReadCloser, error) { return os.Open(b.file) }

// served is the API of an agent at a URL.
type served struct {
	url    string
	client *http.Client
}

const of = "/default/" + mainPod + "-" + nodeName

func (s served) exec(_ context.Context, stdin bool, command ...string) (string, error) {
	q := url.Values{"command": command, "output": {"1"}}
	if stdin {
		q.Set("input", "1")
	}
	return s.url + "/exec" + of + "/main?" + q.Encode(), nil
}

func (s served) forward(context.Context) (string, error) { return s.url + "/portForward" + of, nil }

func (s served) log(ctx context.Context) (io.ReadCloser, error) {
	return s.get(ctx, "/containerLogs"+of+"/main")
}

// get returns the body of a page.
func (s served) get(ctx context.Context, path string) (io.ReadCloser, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, nil)
	if err != nil {
		return nil, err
	}
	answer, err := s.client.Do(r)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 1000))
		return nil, errors.Join(fmt.Errorf("GET %s: %s: %s", path, answer.Status, text), answer.Body.Close())
	}
	return answer.Body, nil
}
