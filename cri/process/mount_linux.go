// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/process/internal/mountns"
	"github.com/seed81659283/nodeagent/cri/process/internal/shim"
)

// resolvConfFile is the file name of a sandbox's DNS settings in its directory, and resolvConf its path in containers.
const (
	resolvConfFile = "resolv.conf"
	resolvConf     = "/etc/resolv.conf"
)

// unsupportedMount returns why this runtime cannot implement the mount with this index, or "" if it can.
func unsupportedMount(i int, mnt *cri.Mount, hasMounts bool) string {
	at := fmt.Sprintf("mounts[%d]: container_path %q", i, mnt.ContainerPath)
	options := slices.DeleteFunc(slices.Clone(mnt.Options), isSupportedOption)
	switch {
	case mnt.Image != nil:
		return fmt.Sprintf("%s of image %q", at, mnt.Image.Image)
	case !hasMounts && filepath.Clean(mnt.HostPath) != filepath.Clean(mnt.ContainerPath):
		return fmt.Sprintf("%s with host_path %q", at, mnt.HostPath)
	case len(mnt.UIDMappings)+len(mnt.GIDMappings) > 0:
		return at + " with ID mappings"
	case !hasMounts:
		return ""
	case len(options) > 0:
		return fmt.Sprintf("%s with options %q", at, options)
	case unsupportedPaths(at, mnt.HostPath, mnt.ContainerPath) != "":
		return unsupportedPaths(at, mnt.HostPath, mnt.ContainerPath)
	case mnt.RecursiveReadOnly && (!mnt.ReadOnly || mnt.Propagation != cri.PropagationPrivate):
		return at + " is read-only recursively, which it must be without that too, and with private propagation"
	}
	return ""
}

// unsupportedDevice returns why this runtime cannot implement the device with this index, or "" if it can.
func unsupportedDevice(i int, device cri.Device, hasMounts bool) string {
	at := fmt.Sprintf("devices[%d]: container_path %q", i, device.ContainerPath)
	switch {
	case hasMounts:
		return unsupportedPaths(at, device.HostPath, device.ContainerPath)
	case filepath.Clean(device.HostPath) != filepath.Clean(device.ContainerPath):
		return fmt.Sprintf("%s with host_path %q", at, device.HostPath)
	}
	return ""
}

// unsupportedPaths returns "" if the host path can be mounted at the container path. Otherwise it returns the reason, as a
// text that starts with prefix.
func unsupportedPaths(prefix, hostPath, containerPath string) string {
	switch {
	case !filepath.IsAbs(containerPath) || filepath.Clean(containerPath) == "/":
		return prefix + ": it must be absolute and below /"
	case !filepath.IsAbs(hostPath):
		return fmt.Sprintf("%s with host_path %q, which must be absolute", prefix, hostPath)
	}
	return ""
}

func isSupportedOption(o string) bool { return o == "noexec" || o == "nodev" || o == "nosuid" }

// addMounts adds the mounts and devices of config and the resolv.conf of the sandbox to the spec of a shim.
func (r *Runtime) addMounts(config *cri.ContainerConfig, sb *sandbox, spec *shim.Spec) {
	if !r.options.Mounts {
		return
	}
	spec.MountNamespace = true
	if sb.ResolvConf {
		spec.Mounts = append(spec.Mounts, mountns.Mount{Source: filepath.Join(sb.dir, resolvConfFile), Target: resolvConf})
	}
	for i, d := range config.Devices {
		from, to := filepath.Clean(d.HostPath), filepath.Clean(d.ContainerPath)
		if from != to && unsupportedDevice(i, d, true) == "" { // else it is ignored
			spec.Mounts = append(spec.Mounts, mountns.Mount{Source: from, Target: to, MustExist: true})
		}
	}
	for i := range config.Mounts {
		if m := &config.Mounts[i]; unsupportedMount(i, m, true) == "" { // else it is ignored
			spec.Mounts = append(spec.Mounts, encodeMount(m))
		}
	}
	// Of several mounts at a path, the last one applies. The mounts of the config come last.
	at := make(map[string]int)
	for i, m := range spec.Mounts {
		at[m.Target] = i
	}
	i := -1
	spec.Mounts = slices.DeleteFunc(spec.Mounts, func(m mountns.Mount) bool { i++; return at[m.Target] != i })
}

func encodeMount(mnt *cri.Mount) mountns.Mount {
	return mountns.Mount{
		Source:    filepath.Clean(mnt.HostPath),
		Target:    filepath.Clean(mnt.ContainerPath),
		ReadOnly:  mnt.ReadOnly,
		Recursive: mnt.RecursiveReadOnly,
		NoExec:    slices.Contains(mnt.Options, "noexec"),
		NoDev:     slices.Contains(mnt.Options, "nodev"),
		NoSuid:    slices.Contains(mnt.Options, "nosuid"),
		Propagation: map[cri.Propagation]mountns.Propagation{
			cri.PropagationHostToContainer: mountns.Slave,
			cri.PropagationBidirectional:   mountns.Shared,
		}[mnt.Propagation],
	}
}
