// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cripb

import (
	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/cri"
)

// EncodeContainerConfig encodes the config of a container. It returns an error for an unknown stop signal.
func EncodeContainerConfig(c *cri.ContainerConfig) (*v1.ContainerConfig, error) {
	signal, err := EncodeSignal(c.StopSignal)
	if err != nil {
		return nil, err
	}
	return &v1.ContainerConfig{
		Metadata:    &v1.ContainerMetadata{Name: c.Name, Attempt: c.Attempt},
		Image:       EncodeImageSpec(&c.Image),
		Command:     c.Command,
		Args:        c.Args,
		WorkingDir:  c.WorkingDir,
		Envs:        mapSlicePtr(c.Env, encodeEnv),
		Mounts:      mapSlicePtr(c.Mounts, encodeMount),
		Devices:     mapSlicePtr(c.Devices, encodeDevice),
		CDIDevices:  mapSlice(c.CDIDevices, func(name string) *v1.CDIDevice { return &v1.CDIDevice{Name: name} }),
		Labels:      c.Labels,
		Annotations: c.Annotations,
		LogPath:     c.LogPath,
		Stdin:       c.Stdin,
		StdinOnce:   c.StdinOnce,
		Tty:         c.TTY,
		StopSignal:  signal,
		Linux: &v1.LinuxContainerConfig{
			Resources:       EncodeResources(c.Resources),
			SecurityContext: encodeContainerSecurity(&c.Security),
		},
	}, nil
}

// DecodeContainerConfig decodes the config of a container. nil stays nil.
func DecodeContainerConfig(p *v1.ContainerConfig) *cri.ContainerConfig {
	if p == nil {
		return nil
	}
	return &cri.ContainerConfig{
		Name:        p.GetMetadata().GetName(),
		Attempt:     p.GetMetadata().GetAttempt(),
		Image:       DecodeImageSpec(p.GetImage()),
		Command:     p.GetCommand(),
		Args:        p.GetArgs(),
		WorkingDir:  p.GetWorkingDir(),
		Env:         mapSlice(p.GetEnvs(), decodeEnv),
		Mounts:      mapSlice(p.GetMounts(), decodeMount),
		Devices:     mapSlice(p.GetDevices(), decodeDevice),
		CDIDevices:  mapSlice(p.GetCDIDevices(), (*v1.CDIDevice).GetName),
		Labels:      p.GetLabels(),
		Annotations: p.GetAnnotations(),
		LogPath:     p.GetLogPath(),
		Stdin:       p.GetStdin(),
		StdinOnce:   p.GetStdinOnce(),
		TTY:         p.GetTty(),
		StopSignal:  DecodeSignal(p.GetStopSignal()),
		Resources:   DecodeResources(p.GetLinux().GetResources()),
		Security:    decodeContainerSecurity(p.GetLinux().GetSecurityContext()),
	}
}

// EncodeContainer encodes a container as in lists, without details.
func EncodeContainer(c *cri.Container) *v1.Container {
	return &v1.Container{
		Id:           c.ID,
		PodSandboxId: c.SandboxID,
		Metadata:     &v1.ContainerMetadata{Name: c.Name, Attempt: c.Attempt},
		Image:        EncodeImageSpec(&c.Image),
		ImageRef:     c.ImageRef,
		ImageId:      c.ImageID,
		State:        v1.ContainerState(c.State),
		CreatedAt:    encodeTime(c.CreatedAt),
		Labels:       c.Labels,
		Annotations:  c.Annotations,
	}
}

// DecodeContainer decodes a container as in lists, without details. PodUID comes from the pod UID label.
func DecodeContainer(p *v1.Container) cri.Container {
	return cri.Container{
		ID:          p.GetId(),
		SandboxID:   p.GetPodSandboxId(),
		PodUID:      p.GetLabels()[cri.LabelPodUID],
		Name:        p.GetMetadata().GetName(),
		Attempt:     p.GetMetadata().GetAttempt(),
		State:       decodeContainerState(p.GetState()),
		CreatedAt:   decodeTime(p.GetCreatedAt()),
		Image:       DecodeImageSpec(p.GetImage()),
		ImageRef:    p.GetImageRef(),
		ImageID:     p.GetImageId(),
		Labels:      p.GetLabels(),
		Annotations: p.GetAnnotations(),
	}
}

// EncodeContainerStatus encodes a container with details. A stop signal unknown to the protocol becomes the runtime's default, so
// that one field does not hide the whole status.
func EncodeContainerStatus(c *cri.Container) *v1.ContainerStatus {
	signal, err := EncodeSignal(c.StopSignal)
	if err != nil {
		signal = v1.Signal_SIGNAL_RUNTIME_DEFAULT
	}
	s := &v1.ContainerStatus{
		Id:          c.ID,
		Metadata:    &v1.ContainerMetadata{Name: c.Name, Attempt: c.Attempt},
		State:       v1.ContainerState(c.State),
		CreatedAt:   encodeTime(c.CreatedAt),
		StartedAt:   encodeTime(c.StartedAt),
		FinishedAt:  encodeTime(c.FinishedAt),
		ExitCode:    c.ExitCode,
		Image:       EncodeImageSpec(&c.Image),
		ImageRef:    c.ImageRef,
		ImageId:     c.ImageID,
		Reason:      c.Reason,
		Message:     c.Message,
		Labels:      c.Labels,
		Annotations: c.Annotations,
		Mounts:      mapSlicePtr(c.Mounts, encodeMount),
		LogPath:     c.LogPath,
		StopSignal:  signal,
	}
	if c.Resources != nil {
		s.Resources = &v1.ContainerResources{Linux: EncodeResources(c.Resources)}
	}
	if u := c.User; u != nil {
		s.User = &v1.ContainerUser{Linux: &v1.LinuxContainerUser{
			Uid: u.UID, Gid: u.GID, SupplementalGroups: u.SupplementalGroups,
		}}
	}
	return s
}

// DecodeContainerStatus decodes a container with details. PodUID comes from the pod UID label. SandboxID is empty, because the
// message does not contain it.
func DecodeContainerStatus(p *v1.ContainerStatus) cri.Container {
	c := cri.Container{
		ID:          p.GetId(),
		PodUID:      p.GetLabels()[cri.LabelPodUID],
		Name:        p.GetMetadata().GetName(),
		Attempt:     p.GetMetadata().GetAttempt(),
		State:       decodeContainerState(p.GetState()),
		CreatedAt:   decodeTime(p.GetCreatedAt()),
		StartedAt:   decodeTime(p.GetStartedAt()),
		FinishedAt:  decodeTime(p.GetFinishedAt()),
		ExitCode:    p.GetExitCode(),
		Image:       DecodeImageSpec(p.GetImage()),
		ImageRef:    p.GetImageRef(),
		ImageID:     p.GetImageId(),
		Reason:      p.GetReason(),
		Message:     p.GetMessage(),
		Labels:      p.GetLabels(),
		Annotations: p.GetAnnotations(),
		Mounts:      mapSlice(p.GetMounts(), decodeMount),
		LogPath:     p.GetLogPath(),
		Resources:   DecodeResources(p.GetResources().GetLinux()),
		StopSignal:  DecodeSignal(p.GetStopSignal()),
	}
	if u := p.GetUser().GetLinux(); u != nil {
		c.User = &cri.ContainerUser{
			UID: u.GetUid(), GID: u.GetGid(), SupplementalGroups: u.GetSupplementalGroups(),
		}
	}
	return c
}

func decodeContainerState(s v1.ContainerState) cri.ContainerState {
	switch s {
	case v1.ContainerState_CONTAINER_CREATED:
		return cri.ContainerCreated
	case v1.ContainerState_CONTAINER_RUNNING:
		return cri.ContainerRunning
	case v1.ContainerState_CONTAINER_EXITED:
		return cri.ContainerExited
	default:
		return cri.ContainerUnknown
	}
}

func encodeEnv(e *cri.EnvVar) *v1.KeyValue {
	return &v1.KeyValue{Key: e.Name, Value: []byte(e.Value)}
}

func decodeEnv(p *v1.KeyValue) cri.EnvVar {
	return cri.EnvVar{Name: p.GetKey(), Value: string(p.GetValue())}
}

func encodeDevice(d *cri.Device) *v1.Device {
	return &v1.Device{ContainerPath: d.ContainerPath, HostPath: d.HostPath, Permissions: d.Permissions}
}

func decodeDevice(p *v1.Device) cri.Device {
	return cri.Device{
		ContainerPath: p.GetContainerPath(), HostPath: p.GetHostPath(), Permissions: p.GetPermissions(),
	}
}
