// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"time"

	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/cripb"
)

// CreateContainer creates a container in a sandbox.
func (c *Client) CreateContainer(
	ctx context.Context, sandboxID string, config *cri.ContainerConfig, s *cri.SandboxConfig,
) (string, error) {
	o := op{name: "CreateContainer", id: config.Name}
	encoded, err := cripb.EncodeContainerConfig(config)
	if err != nil {
		return "", o.fail(err)
	}
	r, err := call(ctx, c, o, c.runtime.CreateContainer, &v1.CreateContainerRequest{
		PodSandboxId:  sandboxID,
		Config:        encoded,
		SandboxConfig: cripb.EncodeSandboxConfig(s),
	})
	if err != nil {
		return "", err
	}
	return r.GetContainerId(), o.require(field{"container_id", r.GetContainerId() != ""})
}

// StartContainer starts a created container.
func (c *Client) StartContainer(ctx context.Context, id string) error {
	_, err := call(ctx, c, op{name: "StartContainer", id: id}, c.runtime.StartContainer,
		&v1.StartContainerRequest{ContainerId: id})
	return err
}

// StopContainer sends the stop signal and kills after grace.
func (c *Client) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	_, err := call(ctx, c, op{name: "StopContainer", id: id, extra: grace}, c.runtime.StopContainer,
		&v1.StopContainerRequest{ContainerId: id, Timeout: seconds(grace)})
	return goneIsFine(err)
}

// RemoveContainer removes a container, by force if it runs.
func (c *Client) RemoveContainer(ctx context.Context, id string) error {
	_, err := call(ctx, c, op{name: "RemoveContainer", id: id}, c.runtime.RemoveContainer,
		&v1.RemoveContainerRequest{ContainerId: id})
	return goneIsFine(err)
}

// ContainerStatus returns the container with its details, but for SandboxID.
func (c *Client) ContainerStatus(ctx context.Context, id string) (cri.Container, error) {
	o := op{name: "ContainerStatus", id: id}
	r, err := call(ctx, c, o, c.runtime.ContainerStatus, &v1.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		return cri.Container{}, err
	}
	s := cripb.DecodeContainerStatus(r.GetStatus())
	return s, o.require(
		field{"status.id", s.ID != ""},
		field{"status.metadata.name", s.Name != ""},
		field{"status.image.image", s.Image.Image != ""},
		field{"status.image_ref", s.ImageRef != ""},
	)
}

// UpdateContainer sets the resources of a container: what is zero in r stays as it is.
func (c *Client) UpdateContainer(
	ctx context.Context, id string, r *cri.Resources, annotations map[string]string,
) error {
	_, err := call(ctx, c, op{name: "UpdateContainerResources", id: id}, c.runtime.UpdateContainerResources,
		&v1.UpdateContainerResourcesRequest{
			ContainerId: id, Linux: cripb.EncodeResources(r), Annotations: annotations,
		})
	return err
}

// ReopenContainerLog makes the runtime open the container's log file anew.
func (c *Client) ReopenContainerLog(ctx context.Context, id string) error {
	_, err := call(ctx, c, op{name: "ReopenContainerLog", id: id}, c.runtime.ReopenContainerLog,
		&v1.ReopenContainerLogRequest{ContainerId: id})
	return err
}
