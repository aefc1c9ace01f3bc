// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cripb

import (
	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/cri"
)

// EncodeContainerConfig converts the config of a container to a CRI message. It returns an error for an unknown stop signal.
func EncodeContainerConfig(config *cri.ContainerConfig) (*v1.ContainerConfig, error) {
	signal, err := EncodeSignal(config.StopSignal)
	if err != nil {
		return nil, err
	}
	return &v1.ContainerConfig{
		Metadata:    &v1.ContainerMetadata{Name: config.Name, Attempt: config.Attempt},
		Image:       EncodeImageSpec(&config.Image),
		Command:     config.Command,
		Args:        config.Args,
		WorkingDir:  config.WorkingDir,
		Envs:        mapSlicePtr(config.Env, encodeEnv),
		Mounts:      mapSlicePtr(config.Mounts, encodeMount),
		Devices:     mapSlicePtr(config.Devices, encodeDevice),
		CDIDevices:  mapSlice(config.CDIDevices, func(name string) *v1.CDIDevice { return &v1.CDIDevice{Name: name} }),
		Labels:      config.Labels,
		Annotations: config.Annotations,
		LogPath:     config.LogPath,
		Stdin:       config.Stdin,
		StdinOnce:   config.StdinOnce,
		Tty:         config.TTY,
		StopSignal:  signal,
		Linux: &v1.LinuxContainerConfig{
			Resources:       EncodeResources(config.Resources),
			SecurityContext: encodeContainerSecurity(&config.Security),
		},
	}, nil
}

// DecodeContainerConfig converts the CRI message msg to the config of a container. A nil message becomes nil.
func DecodeContainerConfig(msg *v1.ContainerConfig) *cri.ContainerConfig {
	if msg == nil {
		return nil
	}
	return &cri.ContainerConfig{
		Name:        msg.GetMetadata().GetName(),
		Attempt:     msg.GetMetadata().GetAttempt(),
		Image:       DecodeImageSpec(msg.GetImage()),
		Command:     msg.GetCommand(),
		Args:        msg.GetArgs(),
		WorkingDir:  msg.GetWorkingDir(),
		Env:         mapSlice(msg.GetEnvs(), decodeEnv),
		Mounts:      mapSlice(msg.GetMounts(), decodeMount),
		Devices:     mapSlice(msg.GetDevices(), decodeDevice),
		CDIDevices:  mapSlice(msg.GetCDIDevices(), (*v1.CDIDevice).GetName),
		Labels:      msg.GetLabels(),
		Annotations: msg.GetAnnotations(),
		LogPath:     msg.GetLogPath(),
		Stdin:       msg.GetStdin(),
		StdinOnce:   msg.GetStdinOnce(),
		TTY:         msg.GetTty(),
		StopSignal:  DecodeSignal(msg.GetStopSignal()),
		Resources:   DecodeResources(msg.GetLinux().GetResources()),
		Security:    decodeContainerSecurity(msg.GetLinux().GetSecurityContext()),
	}
}

// EncodeContainer converts a container to an entry of a container list. Such an entry has no details of the container.
func EncodeContainer(container *cri.Container) *v1.Container {
	return &v1.Container{
		Id:           container.ID,
		PodSandboxId: container.SandboxID,
		Metadata:     &v1.ContainerMetadata{Name: container.Name, Attempt: container.Attempt},
		Image:        EncodeImageSpec(&container.Image),
		ImageRef:     container.ImageRef,
		ImageId:      container.ImageID,
		State:        v1.ContainerState(container.State),
		CreatedAt:    encodeTime(container.CreatedAt),
		Labels:       container.Labels,
		Annotations:  container.Annotations,
	}
}

// DecodeContainer converts an entry of a container list to a container without details. PodUID is the value of the label for
// the pod UID.
func DecodeContainer(msg *v1.Container) cri.Container {
	return cri.Container{
		ID:          msg.GetId(),
		SandboxID:   msg.GetPodSandboxId(),
		PodUID:      msg.GetLabels()[cri.LabelPodUID],
		Name:        msg.GetMetadata().GetName(),
		Attempt:     msg.GetMetadata().GetAttempt(),
		State:       decodeContainerState(msg.GetState()),
		CreatedAt:   decodeTime(msg.GetCreatedAt()),
		Image:       DecodeImageSpec(msg.GetImage()),
		ImageRef:    msg.GetImageRef(),
		ImageID:     msg.GetImageId(),
		Labels:      msg.GetLabels(),
		Annotations: msg.GetAnnotations(),
	}
}

// EncodeContainerStatus converts a container with its details to a CRI message. It omits a stop signal that the CRI does not
// define, because an error would hide the whole status.
func EncodeContainerStatus(container *cri.Container) *v1.ContainerStatus {
	signal, err := EncodeSignal(container.StopSignal)
	if err != nil {
		signal = v1.Signal_SIGNAL_RUNTIME_DEFAULT
	}
	s := &v1.ContainerStatus{
		Id:          container.ID,
		Metadata:    &v1.ContainerMetadata{Name: container.Name, Attempt: container.Attempt},
		State:       v1.ContainerState(container.State),
		CreatedAt:   encodeTime(container.CreatedAt),
		StartedAt:   encodeTime(container.StartedAt),
		FinishedAt:  encodeTime(container.FinishedAt),
		ExitCode:    container.ExitCode,
		Image:       EncodeImageSpec(&container.Image),
		ImageRef:    container.ImageRef,
		ImageId:     container.ImageID,
		Reason:      container.Reason,
		Message:     container.Message,
		Labels:      container.Labels,
		Annotations: container.Annotations,
		Mounts:      mapSlicePtr(container.Mounts, encodeMount),
		LogPath:     container.LogPath,
		StopSignal:  signal,
	}
	if container.Resources != nil {
		s.Resources = &v1.ContainerResources{Linux: EncodeResources(container.Resources)}
	}
	if u := container.User; u != nil {
		s.User = &v1.ContainerUser{Linux: &v1.LinuxContainerUser{
			Uid: u.UID, Gid: u.GID, SupplementalGroups: u.SupplementalGroups,
		}}
	}
	return s
}

// DecodeContainerStatus converts the CRI message msg to a container with its details. PodUID is the value of the label for
// the pod UID. SandboxID is empty, because the message does not contain it.
func DecodeContainerStatus(msg *v1.ContainerStatus) cri.Container {
	c := cri.Container{
		ID:          msg.GetId(),
		PodUID:      msg.GetLabels()[cri.LabelPodUID],
		Name:        msg.GetMetadata().GetName(),
		Attempt:     msg.GetMetadata().GetAttempt(),
		State:       decodeContainerState(msg.GetState()),
		CreatedAt:   decodeTime(msg.GetCreatedAt()),
		StartedAt:   decodeTime(msg.GetStartedAt()),
		FinishedAt:  decodeTime(msg.GetFinishedAt()),
		ExitCode:    msg.GetExitCode(),
		Image:       DecodeImageSpec(msg.GetImage()),
		ImageRef:    msg.GetImageRef(),
		ImageID:     msg.GetImageId(),
		Reason:      msg.GetReason(),
		Message:     msg.GetMessage(),
		Labels:      msg.GetLabels(),
		Annotations: msg.GetAnnotations(),
		Mounts:      mapSlice(msg.GetMounts(), decodeMount),
		LogPath:     msg.GetLogPath(),
		Resources:   DecodeResources(msg.GetResources().GetLinux()),
		StopSignal:  DecodeSignal(msg.GetStopSignal()),
	}
	if u := msg.GetUser().GetLinux(); u != nil {
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

func decodeEnv(msg *v1.KeyValue) cri.EnvVar {
	return cri.EnvVar{Name: msg.GetKey(), Value: string(msg.GetValue())}
}

func encodeDevice(d *cri.Device) *v1.Device {
	return &v1.Device{ContainerPath: d.ContainerPath, HostPath: d.HostPath, Permissions: d.Permissions}
}

func decodeDevice(msg *v1.Device) cri.Device {
	return cri.Device{
		ContainerPath: msg.GetContainerPath(), HostPath: msg.GetHostPath(), Permissions: msg.GetPermissions(),
	}
}
