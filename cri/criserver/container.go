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
	ctx context.Context, req *v1.CreateContainerRequest,
) (*v1.CreateContainerResponse, error) {
	switch {
	case req.GetConfig().GetMetadata() == nil:
		return nil, errMissingField("config.metadata")
	case req.GetSandboxConfig().GetMetadata() == nil:
		return nil, errMissingField("sandbox_config.metadata")
	}
	id, err := r.server.runtime.CreateContainer(ctx, req.GetPodSandboxId(),
		cripb.DecodeContainerConfig(req.GetConfig()), cripb.DecodeSandboxConfig(req.GetSandboxConfig(), ""))
	if err != nil {
		return nil, err
	}
	return &v1.CreateContainerResponse{ContainerId: id}, nil
}

func (r *runtimeService) StartContainer(
	ctx context.Context, req *v1.StartContainerRequest,
) (*v1.StartContainerResponse, error) {
	return &v1.StartContainerResponse{}, r.server.runtime.StartContainer(ctx, req.GetContainerId())
}

func (r *runtimeService) StopContainer(
	ctx context.Context, req *v1.StopContainerRequest,
) (*v1.StopContainerResponse, error) {
	err := r.server.runtime.StopContainer(ctx, req.GetContainerId(), secondsToDuration(req.GetTimeout()))
	return &v1.StopContainerResponse{}, ignoreNotFound(err)
}

func (r *runtimeService) RemoveContainer(
	ctx context.Context, req *v1.RemoveContainerRequest,
) (*v1.RemoveContainerResponse, error) {
	err := r.server.runtime.RemoveContainer(ctx, req.GetContainerId())
	return &v1.RemoveContainerResponse{}, ignoreNotFound(err)
}

func (r *runtimeService) ContainerStatus(
	ctx context.Context, req *v1.ContainerStatusRequest,
) (*v1.ContainerStatusResponse, error) {
	c, err := r.server.containerDetails(ctx, req.GetContainerId())
	if err != nil {
		return nil, err
	}
	return &v1.ContainerStatusResponse{Status: cripb.EncodeContainerStatus(&c)}, nil
}

// containerDetails returns the container with this ID, with all its details. It calls ContainerStatus if the runtime
// implements Inspector, else List.
func (s *Server) containerDetails(ctx context.Context, id string) (cri.Container, error) {
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
	ctx context.Context, req *v1.ListContainersRequest,
) (*v1.ListContainersResponse, error) {
	snapshot, err := r.server.runtime.List(ctx)
	if err != nil {
		return nil, err
	}
	f := req.GetFilter()
	out := &v1.ListContainersResponse{}
	for i := range snapshot.Containers {
		p := cripb.EncodeContainer(&snapshot.Containers[i])
		if matchesFilter(f.GetId(), p.GetId()) && matchesFilter(f.GetPodSandboxId(), p.GetPodSandboxId()) &&
			matchesLabels(f.GetLabelSelector(), p.GetLabels()) &&
			(f.GetState() == nil || f.GetState().GetState() == p.GetState()) {
			out.Containers = append(out.Containers, p)
		}
	}
	return out, nil
}

func (r *runtimeService) UpdateContainerResources(
	ctx context.Context, req *v1.UpdateContainerResourcesRequest,
) (*v1.UpdateContainerResourcesResponse, error) {
	if r.server.updater == nil {
		return nil, errUnsupportedCall("update container")
	}
	if req.GetLinux() == nil {
		return nil, errMissingField("linux")
	}
	err := r.server.updater.UpdateContainer(ctx, req.GetContainerId(),
		cripb.DecodeResources(req.GetLinux()), req.GetAnnotations())
	return &v1.UpdateContainerResourcesResponse{}, err
}

func (r *runtimeService) ReopenContainerLog(
	ctx context.Context, req *v1.ReopenContainerLogRequest,
) (*v1.ReopenContainerLogResponse, error) {
	if r.server.logs == nil {
		return nil, errUnsupportedCall("reopen log")
	}
	return &v1.ReopenContainerLogResponse{}, r.server.logs.ReopenContainerLog(ctx, req.GetContainerId())
}

// secondsToDuration converts a number of seconds to a [time.Duration]. It returns zero for a negative number, and the
// maximum duration if the result would overflow.
func secondsToDuration(seconds int64) time.Duration {
	if seconds > math.MaxInt64/int64(time.Second) {
		return math.MaxInt64
	}
	return time.Duration(max(seconds, 0)) * time.Second
}
