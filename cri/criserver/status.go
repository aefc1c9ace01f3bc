// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package criserver

import (
	"context"
	"net/netip"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/cripb"
)

// Version answers for a runtime that does not say who it is, so that the kubelet and crictl accept it.
func (r *runtimeService) Version(ctx context.Context, _ *v1.VersionRequest) (*v1.VersionResponse, error) {
	v := cri.Version{Version: "0.1.0", RuntimeName: "nodeagent", RuntimeVersion: "0.0.0", RuntimeAPIVersion: "v1"}
	if r.server.reporter != nil {
		var err error
		if v, err = r.server.reporter.Version(ctx); err != nil {
			return nil, err
		}
	}
	return cripb.EncodeVersion(v), nil
}

// Status calls a runtime ready that does not say how it is: it answers, after all.
func (r *runtimeService) Status(ctx context.Context, _ *v1.StatusRequest) (*v1.StatusResponse, error) {
	s := cri.Status{Conditions: []cri.Condition{
		{Type: cri.ConditionRuntimeReady, Status: true},
		{Type: cri.ConditionNetworkReady, Status: true},
	}}
	if r.server.reporter != nil {
		var err error
		if s, err = r.server.reporter.Status(ctx); err != nil {
			return nil, err
		}
	}
	return cripb.EncodeStatus(s), nil
}

// RuntimeConfig is Unimplemented for a runtime that wants no cgroup driver; the kubelet then goes by its own
// configuration.
func (r *runtimeService) RuntimeConfig(
	ctx context.Context, _ *v1.RuntimeConfigRequest,
) (*v1.RuntimeConfigResponse, error) {
	if r.server.reporter == nil {
		return nil, lacking("runtime config")
	}
	d, err := r.server.reporter.CgroupDriver(ctx)
	if err != nil {
		return nil, err
	}
	return cripb.EncodeCgroupDriver(d), nil
}

// UpdateRuntimeConfig hands the pod CIDR on. Without somebody who takes it, it does nothing, like a runtime whose CNI config
// has its own.
func (r *runtimeService) UpdateRuntimeConfig(
	ctx context.Context, q *v1.UpdateRuntimeConfigRequest,
) (*v1.UpdateRuntimeConfigResponse, error) {
	text := q.GetRuntimeConfig().GetNetworkConfig().GetPodCidr()
	if r.server.cidrs == nil || text == "" {
		return &v1.UpdateRuntimeConfigResponse{}, nil
	}
	var cidrs []netip.Prefix
	for part := range strings.SplitSeq(text, ",") {
		cidr, err := netip.ParsePrefix(strings.TrimSpace(part))
		if err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "runtime_config.network_config.pod_cidr: %v", err)
		}
		cidrs = append(cidrs, cidr)
	}
	return &v1.UpdateRuntimeConfigResponse{}, r.server.cidrs.SetPodCIDRs(ctx, cidrs)
}
