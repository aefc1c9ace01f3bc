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
	ctx context.Context, q *v1.RunPodSandboxRequest,
) (*v1.RunPodSandboxResponse, error) {
	if q.GetConfig().GetMetadata() == nil {
		return nil, errMissingField("config.metadata")
	}
	id, err := r.server.runtime.RunSandbox(ctx, cripb.DecodeSandboxConfig(q.GetConfig(), q.GetRuntimeHandler()))
	if err != nil {
		return nil, err
	}
	return &v1.RunPodSandboxResponse{PodSandboxId: id}, nil
}

func (r *runtimeService) StopPodSandbox(
	ctx context.Context, q *v1.StopPodSandboxRequest,
) (*v1.StopPodSandboxResponse, error) {
	err := r.server.runtime.StopSandbox(ctx, q.GetPodSandboxId())
	return &v1.StopPodSandboxResponse{}, ignoreNotFound(err)
}

func (r *runtimeService) RemovePodSandbox(
	ctx context.Context, q *v1.RemovePodSandboxRequest,
) (*v1.RemovePodSandboxResponse, error) {
	err := r.server.runtime.RemoveSandbox(ctx, q.GetPodSandboxId())
	return &v1.RemovePodSandboxResponse{}, ignoreNotFound(err)
}

func (r *runtimeService) PodSandboxStatus(
	ctx context.Context, q *v1.PodSandboxStatusRequest,
) (*v1.PodSandboxStatusResponse, error) {
	s, err := r.server.sandboxDetails(ctx, q.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	return &v1.PodSandboxStatusResponse{Status: cripb.EncodeSandboxStatus(&s)}, nil
}

// sandboxDetails returns one sandbox with details, from the Inspector or else from List.
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
	ctx context.Context, q *v1.ListPodSandboxRequest,
) (*v1.ListPodSandboxResponse, error) {
	snapshot, err := r.server.runtime.List(ctx)
	if err != nil {
		return nil, err
	}
	f := q.GetFilter()
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
	ctx context.Context, q *v1.UpdatePodSandboxResourcesRequest,
) (*v1.UpdatePodSandboxResourcesResponse, error) {
	if r.server.updater == nil {
		return nil, errUnsupportedCall("update sandbox")
	}
	err := r.server.updater.UpdateSandbox(ctx, q.GetPodSandboxId(),
		cripb.DecodeResources(q.GetOverhead()), cripb.DecodeResources(q.GetResources()))
	return &v1.UpdatePodSandboxResourcesResponse{}, err
}

// matchesFilter reports whether have equals the value that a filter wants; an empty want matches all.
func matchesFilter(want, have string) bool { return want == "" || want == have }

// matchesLabels reports whether labels contains all entries of selector.
func matchesLabels(selector, labels map[string]string) bool {
	for k, want := range selector {
		if have, ok := labels[k]; !ok || have != want {
			return false
		}
	}
	return true
}
