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

// unsupportedMount describes the part of mount i that cannot be implemented, or returns "". mounted means that Options.Mounts is
// set.
func unsupportedMount(i int, m *cri.Mount, mounted bool) string {
	at := fmt.Sprintf("mounts[%d]: container_path %q", i, m.ContainerPath)
	options := slices.DeleteFunc(slices.Clone(m.Options), isSupportedOption)
	switch {
	case m.Image != nil:
		return fmt.Sprintf("%s of image %q", at, m.Image.Image)
	case !mounted && filepath.Clean(m.HostPath) != filepath.Clean(m.ContainerPath):
		return fmt.Sprintf("%s with host_path %q", at, m.HostPath)
	case len(m.UIDMappings)+len(m.GIDMappings) > 0:
		return at + " with ID mappings"
	case !mounted:
		return ""
	case len(options) > 0:
		return fmt.Sprintf("%s with options %q", at, options)
	case unsupportedPaths(at, m.HostPath, m.ContainerPath) != "":
		return unsupportedPaths(at, m.HostPath, m.ContainerPath)
	case m.RecursiveReadOnly && (!m.ReadOnly || m.Propagation != cri.PropagationPrivate):
		return at + " is read-only recursively, which it must be without that too, and with private propagation"
	}
	return ""
}

// unsupportedDevice describes the part of device i that cannot be implemented, or returns "".
func unsupportedDevice(i int, d cri.Device, mounted bool) string {
	at := fmt.Sprintf("devices[%d]: container_path %q", i, d.ContainerPath)
	switch {
	case mounted:
		return unsupportedPaths(at, d.HostPath, d.ContainerPath)
	case filepath.Clean(d.HostPath) != filepath.Clean(d.ContainerPath):
		return fmt.Sprintf("%s with host_path %q", at, d.HostPath)
	}
	return ""
}

// unsupportedPaths describes why nothing can be mounted from path host to path container, or returns "".
func unsupportedPaths(at, host, container string) string {
	switch {
	case !filepath.IsAbs(container) || filepath.Clean(container) == "/":
		return at + ": it must be absolute and below /"
	case !filepath.IsAbs(host):
		return fmt.Sprintf("%s with host_path %q, which must be absolute", at, host)
	}
	return ""
}

func isSupportedOption(o string) bool { return o == "noexec" || o == "nodev" || o == "nosuid" }

// addMounts adds to the spec the mounts and devices of a container and the DNS settings of its sandbox.
func (r *Runtime) addMounts(c *cri.ContainerConfig, s *sandbox, spec *shim.Spec) {
	if !r.options.Mounts {
		return
	}
	spec.MountNamespace = true
	if s.ResolvConf {
		spec.Mounts = append(spec.Mounts, mountns.Mount{Source: filepath.Join(s.dir, resolvConfFile), Target: resolvConf})
	}
	for i, d := range c.Devices {
		from, to := filepath.Clean(d.HostPath), filepath.Clean(d.ContainerPath)
		if from != to && unsupportedDevice(i, d, true) == "" { // else it is ignored
			spec.Mounts = append(spec.Mounts, mountns.Mount{Source: from, Target: to, MustExist: true})
		}
	}
	for i := range c.Mounts {
		if m := &c.Mounts[i]; unsupportedMount(i, m, true) == "" { // else it is ignored
			spec.Mounts = append(spec.Mounts, encodeMount(m))
		}
	}
	// Of several mounts at a path, the last one applies: that of the config.
	at := make(map[string]int)
	for i, m := range spec.Mounts {
		at[m.Target] = i
	}
	i := -1
	spec.Mounts = slices.DeleteFunc(spec.Mounts, func(m mountns.Mount) bool { i++; return at[m.Target] != i })
}

func encodeMount(m *cri.Mount) mountns.Mount {
	return mountns.Mount{
		Source:    filepath.Clean(m.HostPath),
		Target:    filepath.Clean(m.ContainerPath),
		ReadOnly:  m.ReadOnly,
		Recursive: m.RecursiveReadOnly,
		NoExec:    slices.Contains(m.Options, "noexec"),
		NoDev:     slices.Contains(m.Options, "nodev"),
		NoSuid:    slices.Contains(m.Options, "nosuid"),
		Propagation: map[cri.Propagation]mountns.Propagation{
			cri.PropagationHostToContainer: mountns.Slave,
			cri.PropagationBidirectional:   mountns.Shared,
		}[m.Propagation],
	}
}
