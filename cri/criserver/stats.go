// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package criserver

import (
	"context"
	"slices"

	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/cripb"
)

func (r *runtimeService) ContainerStats(
	ctx context.Context, req *v1.ContainerStatsRequest,
) (*v1.ContainerStatsResponse, error) {
	list, err := r.ListContainerStats(ctx, &v1.ListContainerStatsRequest{
		Filter: &v1.ContainerStatsFilter{Id: req.GetContainerId()},
	})
	if err != nil {
		return nil, err
	}
	if req.GetContainerId() == "" || len(list.GetStats()) == 0 {
		return nil, &cri.Error{Op: "ContainerStats", ID: req.GetContainerId(), Err: cri.ErrNotFound}
	}
	return &v1.ContainerStatsResponse{Stats: list.GetStats()[0]}, nil
}

func (r *runtimeService) ListContainerStats(
	ctx context.Context, req *v1.ListContainerStatsRequest,
) (*v1.ListContainerStatsResponse, error) {
	if r.server.stats == nil {
		return nil, errUnsupportedCall("stats")
	}
	f := req.GetFilter()
	stats, err := r.server.containerStats(ctx, f.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	out := &v1.ListContainerStatsResponse{}
	for i := range stats {
		s := &stats[i]
		if matchesFilter(f.GetId(), s.ID) && matchesLabels(f.GetLabelSelector(), s.Labels) {
			out.Stats = append(out.Stats, cripb.EncodeContainerStats(s))
		}
	}
	return out, nil
}

// containerStats returns the usage of the containers in a sandbox, or of all containers if sandboxID is empty.
func (s *Server) containerStats(ctx context.Context, sandboxID string) ([]cri.ContainerStats, error) {
	if sandboxID != "" && s.podStats != nil {
		return s.podStats.PodContainerStats(ctx, sandboxID)
	}
	stats, err := s.stats.ContainerStats(ctx)
	if err != nil || sandboxID == "" {
		return stats, err
	}
	inSandbox, err := s.containerIDs(ctx, sandboxID)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(stats), func(c cri.ContainerStats) bool { return !inSandbox[c.ID] }), nil
}

// containerIDs returns the set of the IDs of the containers in a sandbox. Stats of containers have no sandbox ID.
func (s *Server) containerIDs(ctx context.Context, sandboxID string) (map[string]bool, error) {
	snapshot, err := s.runtime.List(ctx)
	if err != nil {
		return nil, err
	}
	ids := map[string]bool{}
	for i := range snapshot.Containers {
		if snapshot.Containers[i].SandboxID == sandboxID {
			ids[snapshot.Containers[i].ID] = true
		}
	}
	return ids, nil
}

func (r *runtimeService) PodSandboxStats(
	ctx context.Context, req *v1.PodSandboxStatsRequest,
) (*v1.PodSandboxStatsResponse, error) {
	list, err := r.ListPodSandboxStats(ctx, &v1.ListPodSandboxStatsRequest{
		Filter: &v1.PodSandboxStatsFilter{Id: req.GetPodSandboxId()},
	})
	if err != nil {
		return nil, err
	}
	if req.GetPodSandboxId() == "" || len(list.GetStats()) == 0 {
		return nil, &cri.Error{Op: "PodSandboxStats", ID: req.GetPodSandboxId(), Err: cri.ErrNotFound}
	}
	return &v1.PodSandboxStatsResponse{Stats: list.GetStats()[0]}, nil
}

func (r *runtimeService) ListPodSandboxStats(
	ctx context.Context, req *v1.ListPodSandboxStatsRequest,
) (*v1.ListPodSandboxStatsResponse, error) {
	if r.server.stats == nil {
		return nil, errUnsupportedCall("stats")
	}
	stats, err := r.server.stats.SandboxStats(ctx)
	if err != nil {
		return nil, err
	}
	f := req.GetFilter()
	out := &v1.ListPodSandboxStatsResponse{}
	for i := range stats {
		if matchesFilter(f.GetId(), stats[i].ID) && matchesLabels(f.GetLabelSelector(), stats[i].Labels) {
			out.Stats = append(out.Stats, cripb.EncodeSandboxStats(&stats[i]))
		}
	}
	return out, nil
}
