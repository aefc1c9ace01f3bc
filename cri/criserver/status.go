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

// Version returns the version of the runtime. If the runtime does not implement StatusReporter, it returns a constant version
// that the kubelet and crictl accept.
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

// Status returns the status of the runtime. If the runtime does not implement StatusReporter, runtime and network are reported as
// ready.
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

// RuntimeConfig returns the runtime's cgroup driver. If the runtime does not implement StatusReporter, the call fails with code
// Unimplemented, and the kubelet uses the driver of its own configuration.
func (r *runtimeService) RuntimeConfig(
	ctx context.Context, _ *v1.RuntimeConfigRequest,
) (*v1.RuntimeConfigResponse, error) {
	if r.server.reporter == nil {
		return nil, errUnsupportedCall("runtime config")
	}
	d, err := r.server.reporter.CgroupDriver(ctx)
	if err != nil {
		return nil, err
	}
	return cripb.EncodeCgroupDriver(d), nil
}

// UpdateRuntimeConfig passes the pod CIDRs of the request to the runtime. If the runtime does not implement PodCIDRSetter, they
// are ignored, and the call succeeds.
func (r *runtimeService) UpdateRuntimeConfig(
	ctx context.Context, req *v1.UpdateRuntimeConfigRequest,
) (*v1.UpdateRuntimeConfigResponse, error) {
	text := req.GetRuntimeConfig().GetNetworkConfig().GetPodCidr()
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
