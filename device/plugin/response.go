// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/device"
)

// Limits of a response of Allocate.
const (
	maxEntries    = 4096        // entries of each list or map
	maxEnv        = 128<<10 - 1 // bytes of NAME=VALUE: Linux's MAX_ARG_STRLEN without the final zero
	maxKey        = 512         // bytes of the key of an annotation, or of a CDI name
	maxAnnotation = 256 << 10
	maxPath       = 4095
)

// convertResponse converts a plugin's Allocate response for one container, and cleans its paths. It adds duplicate mounts,
// device nodes and CDI devices only once. It returns an error if the response has invalid, contradictory or too many values.
// Source: deviceRunContainerOptions in pkg/kubelet/cm/devicemanager/pod_devices.go.
func convertResponse(r *api.ContainerAllocateResponse) (out device.Response, err error) {
	counts := map[string]int{
		"env variables": len(r.GetEnvs()), "mounts": len(r.GetMounts()), "devices": len(r.GetDevices()),
		"annotations": len(r.GetAnnotations()), "CDI devices": len(r.GetCdiDevices()),
	}
	for kind, count := range counts {
		if count > maxEntries {
			return out, fmt.Errorf("%d %s, more than %d", count, kind, maxEntries)
		}
	}
	if out.Env, err = convertEnv(r.GetEnvs()); err != nil {
		return device.Response{}, err
	}
	if out.Mounts, err = convertMounts(r.GetMounts()); err != nil {
		return device.Response{}, err
	}
	if out.Devices, err = convertDeviceNodes(r.GetDevices()); err != nil {
		return device.Response{}, err
	}
	if out.Annotations, err = convertAnnotations(r.GetAnnotations()); err != nil {
		return device.Response{}, err
	}
	if out.CDIDevices, err = convertCDIDevices(r.GetCdiDevices()); err != nil {
		return device.Response{}, err
	}
	return out, nil
}

func convertEnv(env map[string]string) (map[string]string, error) {
	for name, value := range env {
		switch {
		case name == "" || strings.ContainsAny(name, "=\x00"):
			return nil, fmt.Errorf("env variable %.64q: the name is empty, or has an equals sign or a zero byte", name)
		case strings.ContainsRune(value, 0):
			return nil, fmt.Errorf("env variable %.64q: the value has a zero byte", name)
		case len(name)+1+len(value) > maxEnv:
			return nil, fmt.Errorf("env variable %.64q: %d bytes, more than %d", name, len(name)+1+len(value), maxEnv)
		}
	}
	return emptyToNil(env), nil
}

func convertAnnotations(annotations map[string]string) (map[string]string, error) {
	for key, value := range annotations {
		switch {
		case key == "" || len(key) > maxKey:
			return nil, fmt.Errorf("annotation %.64q: the key has %d bytes, not 1 to %d", key, len(key), maxKey)
		case len(value) > maxAnnotation:
			return nil, fmt.Errorf("annotation %.64q: the value has %d bytes, more than %d", key, len(value), maxAnnotation)
		}
	}
	return emptyToNil(annotations), nil
}

// emptyToNil returns m, or nil if it is empty.
func emptyToNil(m map[string]string) map[string]string {
	if len(m) == 0 {
		return nil
	}
	return m
}

func convertMounts(list []*api.Mount) ([]cri.Mount, error) {
	var mounts []cri.Mount
	index := map[string]int{} // of a container path in mounts
	for _, m := range list {
		containerPath, hostPath, err := cleanPaths(m.GetContainerPath(), m.GetHostPath())
		if err != nil {
			return nil, fmt.Errorf("mount: %w", err)
		}
		mount := cri.Mount{ContainerPath: containerPath, HostPath: hostPath, ReadOnly: m.GetReadOnly()}
		at, twice := index[containerPath]
		switch {
		case !twice:
			index[containerPath] = len(mounts)
			mounts = append(mounts, mount)
		case mounts[at].HostPath != hostPath || mounts[at].ReadOnly != mount.ReadOnly:
			return nil, fmt.Errorf("two mounts at container path %q contradict each other", containerPath)
		}
	}
	return mounts, nil
}

func convertDeviceNodes(list []*api.DeviceSpec) ([]cri.Device, error) {
	var devices []cri.Device
	index := map[string]int{} // of a container path in devices
	for _, d := range list {
		containerPath, hostPath, err := cleanPaths(d.GetContainerPath(), d.GetHostPath())
		if err == nil {
			err = checkPermissions(d.GetPermissions())
		}
		if err != nil {
			return nil, fmt.Errorf("device node %.64q: %w", d.GetContainerPath(), err)
		}
		node := cri.Device{ContainerPath: containerPath, HostPath: hostPath, Permissions: d.GetPermissions()}
		at, twice := index[containerPath]
		switch {
		case !twice:
			index[containerPath] = len(devices)
			devices = append(devices, node)
		case devices[at] != node:
			return nil, fmt.Errorf("two device nodes at container path %q contradict each other", containerPath)
		}
	}
	return devices, nil
}

// convertCDIDevices returns the device names in list without duplicates. A name has the form VENDOR/CLASS=NAME.
func convertCDIDevices(list []*api.CDIDevice) (names []string, err error) {
	for _, d := range list {
		name := d.GetName()
		kind, id, found := strings.Cut(name, "=")
		vendor, class, hasClass := strings.Cut(kind, "/")
		switch {
		case len(name) > maxKey:
			return nil, fmt.Errorf("CDI device %.64q...: %d bytes, more than %d", name, len(name), maxKey)
		case !found || !hasClass || vendor == "" || class == "" || id == "" || strings.ContainsAny(name, " \t\r\n\x00"):
			return nil, fmt.Errorf("CDI device %q: the name must have the form VENDOR/CLASS=NAME", name)
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// cleanPaths returns the cleaned paths of a mount or device node. A path that is not absolute, or contains "..", is an error.
func cleanPaths(containerPath, hostPath string) (cleanContainer, cleanHost string, err error) {
	if cleanContainer, err = cleanPath(containerPath); err != nil {
		return "", "", fmt.Errorf("container path %.128q: %w", containerPath, err)
	}
	if cleanHost, err = cleanPath(hostPath); err != nil {
		return "", "", fmt.Errorf("host path %.128q: %w", hostPath, err)
	}
	return cleanContainer, cleanHost, nil
}

// cleanPath returns p without trailing and duplicate slashes. A path that is relative, too long, or contains "..", is an error.
func cleanPath(p string) (string, error) {
	switch {
	case !strings.HasPrefix(p, "/"):
		return "", errors.New("not an absolute path")
	case len(p) > maxPath:
		return "", fmt.Errorf("%d bytes, more than %d", len(p), maxPath)
	case strings.ContainsRune(p, 0):
		return "", errors.New("has a zero byte")
	case slices.Contains(strings.Split(p, "/"), ".."):
		return "", errors.New("contains \"..\"")
	}
	return path.Clean(p), nil
}

// checkPermissions returns an error unless permissions consists of the letters r, w and m, each at most once.
func checkPermissions(permissions string) error {
	for i, letter := range permissions {
		if !strings.ContainsRune("rwm", letter) || strings.ContainsRune(permissions[:i], letter) {
			return fmt.Errorf("permissions %.16q: must consist of r, w and m", permissions)
		}
	}
	if permissions == "" {
		return errors.New("permissions are empty: must consist of r, w and m")
	}
	return nil
}
