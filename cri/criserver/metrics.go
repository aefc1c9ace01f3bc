// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package criserver

import (
	"context"

	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/internal/cripb"
)

func (r *runtimeService) ListMetricDescriptors(
	ctx context.Context, _ *v1.ListMetricDescriptorsRequest,
) (*v1.ListMetricDescriptorsResponse, error) {
	if r.server.metrics == nil {
		return nil, errUnsupportedCall("metrics")
	}
	all, err := r.server.metrics.MetricDescriptors(ctx)
	if err != nil {
		return nil, err
	}
	out := &v1.ListMetricDescriptorsResponse{Descriptors: make([]*v1.MetricDescriptor, len(all))}
	for i := range all {
		out.Descriptors[i] = cripb.EncodeMetricDescriptor(&all[i])
	}
	return out, nil
}

func (r *runtimeService) ListPodSandboxMetrics(
	ctx context.Context, _ *v1.ListPodSandboxMetricsRequest,
) (*v1.ListPodSandboxMetricsResponse, error) {
	if r.server.metrics == nil {
		return nil, errUnsupportedCall("metrics")
	}
	all, err := r.server.metrics.SandboxMetrics(ctx)
	if err != nil {
		return nil, err
	}
	out := &v1.ListPodSandboxMetricsResponse{PodMetrics: make([]*v1.PodSandboxMetrics, len(all))}
	for i := range all {
		out.PodMetrics[i] = cripb.EncodeSandboxMetrics(&all[i])
	}
	return out, nil
}
