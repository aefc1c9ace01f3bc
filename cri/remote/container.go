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

// CreateContainer creates a container in a sandbox and returns the ID of the container. sandboxConfig is the config that
// was passed to RunSandbox.
func (c *Client) CreateContainer(
	ctx context.Context, sandboxID string, config *cri.ContainerConfig, sandboxConfig *cri.SandboxConfig,
) (string, error) {
	o := callInfo{name: "CreateContainer", id: config.Name}
	encoded, err := cripb.EncodeContainerConfig(config)
	if err != nil {
		return "", o.wrapError(err)
	}
	r, err := invoke(ctx, c, o, c.runtime.CreateContainer, &v1.CreateContainerRequest{
		PodSandboxId:  sandboxID,
		Config:        encoded,
		SandboxConfig: cripb.EncodeSandboxConfig(sandboxConfig),
	})
	if err != nil {
		return "", err
	}
	return r.GetContainerId(), o.requireFields(requiredField{"container_id", r.GetContainerId() != ""})
}

// StartContainer starts a created container.
func (c *Client) StartContainer(ctx context.Context, id string) error {
	_, err := invoke(ctx, c, callInfo{name: "StartContainer", id: id}, c.runtime.StartContainer,
		&v1.StartContainerRequest{ContainerId: id})
	return err
}

// StopContainer sends the stop signal to a container, and kills it after the grace period. A missing container is no error.
func (c *Client) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	_, err := invoke(ctx, c, callInfo{name: "StopContainer", id: id, extra: grace}, c.runtime.StopContainer,
		&v1.StopContainerRequest{ContainerId: id, Timeout: roundUpToSeconds(grace)})
	return ignoreNotFound(err)
}

// RemoveContainer removes a container, which the runtime kills first if it runs. A missing container is no error.
func (c *Client) RemoveContainer(ctx context.Context, id string) error {
	_, err := invoke(ctx, c, callInfo{name: "RemoveContainer", id: id}, c.runtime.RemoveContainer,
		&v1.RemoveContainerRequest{ContainerId: id})
	return ignoreNotFound(err)
}

// ContainerStatus returns a container with all details. Its SandboxID is empty, because the CRI message does not contain it.
func (c *Client) ContainerStatus(ctx context.Context, id string) (cri.Container, error) {
	o := callInfo{name: "ContainerStatus", id: id}
	r, err := invoke(ctx, c, o, c.runtime.ContainerStatus, &v1.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		return cri.Container{}, err
	}
	s := cripb.DecodeContainerStatus(r.GetStatus())
	return s, o.requireFields(
		requiredField{"status.id", s.ID != ""},
		requiredField{"status.metadata.name", s.Name != ""},
		requiredField{"status.image.image", s.Image.Image != ""},
		requiredField{"status.image_ref", s.ImageRef != ""},
	)
}

// UpdateContainer changes the resources of a container. A field that is zero in resources keeps its current value. The
// runtime receives annotations unchanged.
func (c *Client) UpdateContainer(
	ctx context.Context, id string, resources *cri.Resources, annotations map[string]string,
) error {
	_, err := invoke(ctx, c, callInfo{name: "UpdateContainerResources", id: id}, c.runtime.UpdateContainerResources,
		&v1.UpdateContainerResourcesRequest{
			ContainerId: id, Linux: cripb.EncodeResources(resources), Annotations: annotations,
		})
	return err
}

// ReopenContainerLog makes the runtime open a new log file at the same path. The caller has renamed the old file before.
func (c *Client) ReopenContainerLog(ctx context.Context, id string) error {
	_, err := invoke(ctx, c, callInfo{name: "ReopenContainerLog", id: id}, c.runtime.ReopenContainerLog,
		&v1.ReopenContainerLogRequest{ContainerId: id})
	return err
}
