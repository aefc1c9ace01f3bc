// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package criserver

import (
	"context"

	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/cripb"
)

func (r *runtimeService) RunPodSandbox(
	ctx context.Context, req *v1.RunPodSandboxRequest,
) (*v1.RunPodSandboxResponse, error) {
	if req.GetConfig().GetMetadata() == nil {
		return nil, errMissingField("config.metadata")
	}
	id, err := r.server.runtime.RunSandbox(ctx, cripb.DecodeSandboxConfig(req.GetConfig(), req.GetRuntimeHandler()))
	if err != nil {
		return nil, err
	}
	return &v1.RunPodSandboxResponse{PodSandboxId: id}, nil
}

func (r *runtimeService) StopPodSandbox(
	ctx context.Context, req *v1.StopPodSandboxRequest,
) (*v1.StopPodSandboxResponse, error) {
	err := r.server.runtime.StopSandbox(ctx, req.GetPodSandboxId())
	return &v1.StopPodSandboxResponse{}, ignoreNotFound(err)
}

func (r *runtimeService) RemovePodSandbox(
	ctx context.Context, req *v1.RemovePodSandboxRequest,
) (*v1.RemovePodSandboxResponse, error) {
	err := r.server.runtime.RemoveSandbox(ctx, req.GetPodSandboxId())
	return &v1.RemovePodSandboxResponse{}, ignoreNotFound(err)
}

func (r *runtimeService) PodSandboxStatus(
	ctx context.Context, req *v1.PodSandboxStatusRequest,
) (*v1.PodSandboxStatusResponse, error) {
	s, err := r.server.sandboxDetails(ctx, req.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	return &v1.PodSandboxStatusResponse{Status: cripb.EncodeSandboxStatus(&s)}, nil
}

// sandboxDetails returns the sandbox with this ID, with all its details. It calls SandboxStatus if the runtime implements
// Inspector, else List.
func (s *Server) sandboxDetails(ctx context.Context, id string) (cri.Sandbox, error) {
	if s.inspector != nil {
		return s.inspector.SandboxStatus(ctx, id)
	}
	snapshot, err := s.runtime.List(ctx)
	if err != nil {
		return cri.Sandbox{}, err
	}
	for _, sandbox := range snapshot.Sandboxes {
		if sandbox.ID == id {
			return sandbox, nil
		}
	}
	return cri.Sandbox{}, &cri.Error{Op: "PodSandboxStatus", ID: id, Err: cri.ErrNotFound}
}

func (r *runtimeService) ListPodSandbox(
	ctx context.Context, req *v1.ListPodSandboxRequest,
) (*v1.ListPodSandboxResponse, error) {
	snapshot, err := r.server.runtime.List(ctx)
	if err != nil {
		return nil, err
	}
	f := req.GetFilter()
	out := &v1.ListPodSandboxResponse{}
	for i := range snapshot.Sandboxes {
		p := cripb.EncodeSandbox(&snapshot.Sandboxes[i])
		if matchesFilter(f.GetId(), p.GetId()) && matchesLabels(f.GetLabelSelector(), p.GetLabels()) &&
			(f.GetState() == nil || f.GetState().GetState() == p.GetState()) {
			out.Items = append(out.Items, p)
		}
	}
	return out, nil
}

func (r *runtimeService) UpdatePodSandboxResources(
	ctx context.Context, req *v1.UpdatePodSandboxResourcesRequest,
) (*v1.UpdatePodSandboxResourcesResponse, error) {
	if r.server.updater == nil {
		return nil, errUnsupportedCall("update sandbox")
	}
	err := r.server.updater.UpdateSandbox(ctx, req.GetPodSandboxId(),
		cripb.DecodeResources(req.GetOverhead()), cripb.DecodeResources(req.GetResources()))
	return &v1.UpdatePodSandboxResourcesResponse{}, err
}

// matchesFilter reports whether a value passes a filter. An empty filter accepts every value.
func matchesFilter(filter, value string) bool { return filter == "" || filter == value }

// matchesLabels reports whether labels contains all entries of selector.
func matchesLabels(selector, labels map[string]string) bool {
	for k, want := range selector {
		if have, ok := labels[k]; !ok || have != want {
			return false
		}
	}
	return true
}
