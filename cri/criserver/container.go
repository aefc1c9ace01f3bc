// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package criserver

import (
	"context"
	"math"
	"time"

	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/cripb"
)

func (r *runtimeService) CreateContainer(
	ctx context.Context, q *v1.CreateContainerRequest,
) (*v1.CreateContainerResponse, error) {
	switch {
	case q.GetConfig().GetMetadata() == nil:
		return nil, missing("config.metadata")
	case q.GetSandboxConfig().GetMetadata() == nil:
		return nil, missing("sandbox_config.metadata")
	}
	id, err := r.server.runtime.CreateContainer(ctx, q.GetPodSandboxId(),
		cripb.DecodeContainerConfig(q.GetConfig()), cripb.DecodeSandboxConfig(q.GetSandboxConfig(), ""))
	if err != nil {
		return nil, err
	}
	return &v1.CreateContainerResponse{ContainerId: id}, nil
}

func (r *runtimeService) StartContainer(
	ctx context.Context, q *v1.StartContainerRequest,
) (*v1.StartContainerResponse, error) {
	return &v1.StartContainerResponse{}, r.server.runtime.StartContainer(ctx, q.GetContainerId())
}

func (r *runtimeService) StopContainer(
	ctx context.Context, q *v1.StopContainerRequest,
) (*v1.StopContainerResponse, error) {
	err := r.server.runtime.StopContainer(ctx, q.GetContainerId(), duration(q.GetTimeout()))
	return &v1.StopContainerResponse{}, goneIsFine(err)
}

func (r *runtimeService) RemoveContainer(
	ctx context.Context, q *v1.RemoveContainerRequest,
) (*v1.RemoveContainerResponse, error) {
	err := r.server.runtime.RemoveContainer(ctx, q.GetContainerId())
	return &v1.RemoveContainerResponse{}, goneIsFine(err)
}

func (r *runtimeService) ContainerStatus(
	ctx context.Context, q *v1.ContainerStatusRequest,
) (*v1.ContainerStatusResponse, error) {
	c, err := r.server.container(ctx, q.GetContainerId())
	if err != nil {
		return nil, err
	}
	return &v1.ContainerStatusResponse{Status: cripb.EncodeContainerStatus(&c)}, nil
}

// container returns one container with its details.
func (s *Server) container(ctx context.Context, id string) (cri.Container, error) {
	if s.inspector != nil {
		return s.inspector.ContainerStatus(ctx, id)
	}
	snapshot, err := s.runtime.List(ctx)
	if err != nil {
		return cri.Container{}, err
	}
	for _, c := range snapshot.Containers {
		if c.ID == id {
			return c, nil
		}
	}
	return cri.Container{}, &cri.Error{Op: "ContainerStatus", ID: id, Err: cri.ErrNotFound}
}

func (r *runtimeService) ListContainers(
	ctx context.Context, q *v1.ListContainersRequest,
) (*v1.ListContainersResponse, error) {
	snapshot, err := r.server.runtime.List(ctx)
	if err != nil {
		return nil, err
	}
	f := q.GetFilter()
	out := &v1.ListContainersResponse{}
	for i := range snapshot.Containers {
		p := cripb.EncodeContainer(&snapshot.Containers[i])
		if matches(f.GetId(), p.GetId()) && matches(f.GetPodSandboxId(), p.GetPodSandboxId()) &&
			matchesLabels(f.GetLabelSelector(), p.GetLabels()) &&
			(f.GetState() == nil || f.GetState().GetState() == p.GetState()) {
			out.Containers = append(out.Containers, p)
		}
	}
	return out, nil
}

func (r *runtimeService) UpdateContainerResources(
	ctx context.Context, q *v1.UpdateContainerResourcesRequest,
) (*v1.UpdateContainerResourcesResponse, error) {
	if r.server.updater == nil {
		return nil, lacking("update container")
	}
	if q.GetLinux() == nil {
		return nil, missing("linux")
	}
	err := r.server.updater.UpdateContainer(ctx, q.GetContainerId(),
		cripb.DecodeResources(q.GetLinux()), q.GetAnnotations())
	return &v1.UpdateContainerResourcesResponse{}, err
}

func (r *runtimeService) ReopenContainerLog(
	ctx context.Context, q *v1.ReopenContainerLogRequest,
) (*v1.ReopenContainerLogResponse, error) {
	if r.server.logs == nil {
		return nil, lacking("reopen log")
	}
	return &v1.ReopenContainerLogResponse{}, r.server.logs.ReopenContainerLog(ctx, q.GetContainerId())
}

// duration reads a number of seconds from outside. What is negative is zero, what is too long is the longest.
func duration(seconds int64) time.Duration {
	if seconds > math.MaxInt64/int64(time.Second) {
		return math.MaxInt64
	}
	return time.Duration(max(seconds, 0)) * time.Second
}
