// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"errors"

	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/cripb"
)

// ContainerStats returns the usage of every running container.
func (c *Client) ContainerStats(ctx context.Context) ([]cri.ContainerStats, error) {
	r, err := invoke(ctx, c, callInfo{name: "ListContainerStats"}, c.runtime.ListContainerStats,
		&v1.ListContainerStatsRequest{})
	if err != nil {
		return nil, err
	}
	return decodeList(r.GetStats(), cripb.DecodeContainerStats), nil
}

// PodContainerStats returns the usage of every running container in a sandbox. For a missing sandbox it returns an empty
// list without an error.
func (c *Client) PodContainerStats(ctx context.Context, sandboxID string) ([]cri.ContainerStats, error) {
	r, err := invoke(ctx, c, callInfo{name: "ListContainerStats", id: sandboxID}, c.runtime.ListContainerStats,
		&v1.ListContainerStatsRequest{Filter: &v1.ContainerStatsFilter{PodSandboxId: sandboxID}})
	if errors.Is(err, cri.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return decodeList(r.GetStats(), cripb.DecodeContainerStats), nil
}

// SandboxStats returns the usage of every ready sandbox.
func (c *Client) SandboxStats(ctx context.Context) ([]cri.SandboxStats, error) {
	r, err := invoke(ctx, c, callInfo{name: "ListPodSandboxStats"}, c.runtime.ListPodSandboxStats,
		&v1.ListPodSandboxStatsRequest{})
	if err != nil {
		return nil, err
	}
	return decodeList(r.GetStats(), cripb.DecodeSandboxStats), nil
}

// MetricDescriptors returns the descriptors of the runtime's own metrics.
func (c *Client) MetricDescriptors(ctx context.Context) ([]cri.MetricDescriptor, error) {
	r, err := invoke(ctx, c, callInfo{name: "ListMetricDescriptors"}, c.runtime.ListMetricDescriptors,
		&v1.ListMetricDescriptorsRequest{})
	if err != nil {
		return nil, err
	}
	return decodeList(r.GetDescriptors(), cripb.DecodeMetricDescriptor), nil
}

// SandboxMetrics returns the metrics of every ready sandbox.
func (c *Client) SandboxMetrics(ctx context.Context) ([]cri.SandboxMetrics, error) {
	r, err := invoke(ctx, c, callInfo{name: "ListPodSandboxMetrics"}, c.runtime.ListPodSandboxMetrics,
		&v1.ListPodSandboxMetricsRequest{})
	if err != nil {
		return nil, err
	}
	return decodeList(r.GetPodMetrics(), cripb.DecodeSandboxMetrics), nil
}
