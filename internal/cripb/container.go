// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cripb

import (
	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/cri"
)

// EncodeContainerConfig returns the config of a container. The error is that of an unknown stop signal.
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
		Envs:        eachPtr(c.Env, encodeEnv),
		Mounts:      eachPtr(c.Mounts, encodeMount),
		Devices:     eachPtr(c.Devices, encodeDevice),
		CDIDevices:  each(c.CDIDevices, func(name string) *v1.CDIDevice { return &v1.CDIDevice{Name: name} }),
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

// DecodeContainerConfig reads the config of a container, or nil from nil.
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
		Env:         each(p.GetEnvs(), decodeEnv),
		Mounts:      each(p.GetMounts(), decodeMount),
		Devices:     each(p.GetDevices(), decodeDevice),
		CDIDevices:  each(p.GetCDIDevices(), (*v1.CDIDevice).GetName),
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

// EncodeContainer returns a container as lists have it.
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

// DecodeContainer reads a container as lists have it. PodUID is that of its label.
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

// EncodeContainerStatus returns a container with its details. A stop signal that the protocol does not know
// reads as the runtime's default there: one odd field must not hide the whole status.
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
		Mounts:      eachPtr(c.Mounts, encodeMount),
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

// DecodeContainerStatus reads a container with its details. PodUID is that of its label; SandboxID is empty,
// since the message does not have it.
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
		Mounts:      each(p.GetMounts(), decodeMount),
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
