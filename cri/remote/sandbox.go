// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"

	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/cripb"
)

// RunSandbox creates and starts a sandbox.
func (c *Client) RunSandbox(ctx context.Context, config *cri.SandboxConfig) (string, error) {
	o := op{name: "RunPodSandbox", id: config.Pod.Namespace + "/" + config.Pod.Name}
	r, err := call(ctx, c, o, c.runtime.RunPodSandbox, &v1.RunPodSandboxRequest{
		Config:         cripb.EncodeSandboxConfig(config),
		RuntimeHandler: config.RuntimeHandler,
	})
	if err != nil {
		return "", err
	}
	return r.GetPodSandboxId(), o.require(field{"pod_sandbox_id", r.GetPodSandboxId() != ""})
}

// StopSandbox kills what runs in the sandbox and tears down its network.
func (c *Client) StopSandbox(ctx context.Context, id string) error {
	_, err := call(ctx, c, op{name: "StopPodSandbox", id: id}, c.runtime.StopPodSandbox,
		&v1.StopPodSandboxRequest{PodSandboxId: id})
	return goneIsFine(err)
}

// RemoveSandbox removes the sandbox and every container in it.
func (c *Client) RemoveSandbox(ctx context.Context, id string) error {
	_, err := call(ctx, c, op{name: "RemovePodSandbox", id: id}, c.runtime.RemovePodSandbox,
		&v1.RemovePodSandboxRequest{PodSandboxId: id})
	return goneIsFine(err)
}

// SandboxStatus returns the sandbox with its details.
func (c *Client) SandboxStatus(ctx context.Context, id string) (cri.Sandbox, error) {
	o := op{name: "PodSandboxStatus", id: id}
	r, err := call(ctx, c, o, c.runtime.PodSandboxStatus, &v1.PodSandboxStatusRequest{PodSandboxId: id})
	if err != nil {
		return cri.Sandbox{}, err
	}
	s := cripb.DecodeSandboxStatus(r.GetStatus())
	return s, o.require(
		field{"status.id", s.ID != ""},
		field{"status.metadata.name", s.Pod.Name != ""},
		field{"status.metadata.namespace", s.Pod.Namespace != ""},
		field{"status.metadata.uid", s.Pod.UID != ""},
	)
}

// UpdateSandbox tells the runtime the new sum of a pod's resources and overhead.
func (c *Client) UpdateSandbox(ctx context.Context, id string, overhead, resources *cri.Resources) error {
	_, err := call(ctx, c, op{name: "UpdatePodSandboxResources", id: id}, c.runtime.UpdatePodSandboxResources,
		&v1.UpdatePodSandboxResourcesRequest{
			PodSandboxId: id,
			Overhead:     cripb.EncodeResources(overhead),
			Resources:    cripb.EncodeResources(resources),
		})
	return err
}
