// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podresources

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/kubelet/pkg/apis/podresources/v1alpha1"
)

// serviceV1 implements the gRPC service PodResourcesLister of v1.
type serviceV1 struct {
	podresourcesv1.UnimplementedPodResourcesListerServer
	server *Server
}

// List returns the resources of all active pods.
func (v serviceV1) List(context.Context, *podresourcesv1.ListPodResourcesRequest) (*podresourcesv1.ListPodResourcesResponse, error) {
	return v.server.takeSnapshot().listPods(), nil
}

// Get returns the resources of one active pod. The error for an unknown pod has the code Unknown, as in the kubelet.
func (v serviceV1) Get(_ context.Context, q *podresourcesv1.GetPodResourcesRequest) (*podresourcesv1.GetPodResourcesResponse, error) {
	pod := v.server.takeSnapshot().findPod(q.GetPodNamespace(), q.GetPodName())
	if pod == nil {
		return nil, status.Errorf(codes.Unknown, "pod %s in namespace %s not found", q.GetPodName(), q.GetPodNamespace())
	}
	return &podresourcesv1.GetPodResourcesResponse{PodResources: pod}, nil
}

// GetAllocatableResources returns the resources that containers may have, whether or not containers use them.
func (v serviceV1) GetAllocatableResources(context.Context, *podresourcesv1.AllocatableResourcesRequest) (*podresourcesv1.AllocatableResourcesResponse, error) {
	answer := &podresourcesv1.AllocatableResourcesResponse{}
	opts := &v.server.opts
	if opts.Devices != nil {
		answer.Devices = (&snapshot{}).devices(opts.Devices.Allocatable())
	}
	if opts.CPUs != nil {
		answer.CpuIds = opts.CPUs.AllocatableCPUs()
	}
	if opts.Memory != nil {
		answer.Memory = convertMemory(opts.Memory.AllocatableMemory())
	}
	return answer, nil
}

// serviceV1alpha1 implements the gRPC service PodResourcesLister of v1alpha1.
type serviceV1alpha1 struct {
	v1alpha1.UnimplementedPodResourcesListerServer
	server *Server
}

// List returns the devices of all pods.
func (v serviceV1alpha1) List(context.Context, *v1alpha1.ListPodResourcesRequest) (*v1alpha1.ListPodResourcesResponse, error) {
	return v.server.takeSnapshot().listAlpha(), nil
}

// takeSnapshot reads the pods, and then the allocations. In this order, a pod that was reserved before the first read has its devices.
func (s *Server) takeSnapshot() *snapshot {
	n := &snapshot{
		unreserved: s.opts.ListUnreserved || s.opts.Devices == nil,
		cpus:       s.opts.CPUs, memory: s.opts.Memory, claims: s.opts.Claims,
	}
	if s.opts.Pods != nil {
		n.active, n.inactive = s.opts.Pods.Pods()
	}
	if s.opts.Devices != nil {
		n.allocations = s.opts.Devices.Allocations()
	}
	return n
}
