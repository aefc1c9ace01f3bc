// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"

	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/cripb"
)

// RunSandbox creates and starts a sandbox, and returns its ID.
func (c *Client) RunSandbox(ctx context.Context, config *cri.SandboxConfig) (string, error) {
	o := callInfo{name: "RunPodSandbox", id: config.Pod.Namespace + "/" + config.Pod.Name}
	r, err := invoke(ctx, c, o, c.runtime.RunPodSandbox, &v1.RunPodSandboxRequest{
		Config:         cripb.EncodeSandboxConfig(config),
		RuntimeHandler: config.RuntimeHandler,
	})
	if err != nil {
		return "", err
	}
	return r.GetPodSandboxId(), o.requireFields(requiredField{"pod_sandbox_id", r.GetPodSandboxId() != ""})
}

// StopSandbox kills the containers of a sandbox and tears down its network. A missing sandbox is no error.
func (c *Client) StopSandbox(ctx context.Context, id string) error {
	_, err := invoke(ctx, c, callInfo{name: "StopPodSandbox", id: id}, c.runtime.StopPodSandbox,
		&v1.StopPodSandboxRequest{PodSandboxId: id})
	return ignoreNotFound(err)
}

// RemoveSandbox removes a sandbox and all its containers. A missing sandbox is no error.
func (c *Client) RemoveSandbox(ctx context.Context, id string) error {
	_, err := invoke(ctx, c, callInfo{name: "RemovePodSandbox", id: id}, c.runtime.RemovePodSandbox,
		&v1.RemovePodSandboxRequest{PodSandboxId: id})
	return ignoreNotFound(err)
}

// SandboxStatus returns the sandbox with this ID and all its details.
func (c *Client) SandboxStatus(ctx context.Context, id string) (cri.Sandbox, error) {
	o := callInfo{name: "PodSandboxStatus", id: id}
	r, err := invoke(ctx, c, o, c.runtime.PodSandboxStatus, &v1.PodSandboxStatusRequest{PodSandboxId: id})
	if err != nil {
		return cri.Sandbox{}, err
	}
	s := cripb.DecodeSandboxStatus(r.GetStatus())
	return s, o.requireFields(
		requiredField{"status.id", s.ID != ""},
		requiredField{"status.metadata.name", s.Pod.Name != ""},
		requiredField{"status.metadata.namespace", s.Pod.Namespace != ""},
		requiredField{"status.metadata.uid", s.Pod.UID != ""},
	)
}

// UpdateSandbox sends the changed resources of a pod to the runtime. overhead is the overhead of the pod, and resources is
// the sum over the pod's containers.
func (c *Client) UpdateSandbox(ctx context.Context, id string, overhead, resources *cri.Resources) error {
	_, err := invoke(ctx, c, callInfo{name: "UpdatePodSandboxResources", id: id}, c.runtime.UpdatePodSandboxResources,
		&v1.UpdatePodSandboxResourcesRequest{
			PodSandboxId: id,
			Overhead:     cripb.EncodeResources(overhead),
			Resources:    cripb.EncodeResources(resources),
		})
	return err
}
