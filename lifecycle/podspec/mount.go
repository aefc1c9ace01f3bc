// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/expand"
	"github.com/seed81659283/nodeagent/internal/fielderr"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podenv"
	"github.com/seed81659283/nodeagent/internal/optional"
	"github.com/seed81659283/nodeagent/internal/podfield"
)

// Volume is a volume of a pod on the node: a host path, an image or a block device.
type Volume struct {
	HostPath       string         // path of the directory or file on the host
	Image          *cri.ImageSpec // image that the runtime mounts read-only in place of HostPath; nil: the volume is no image
	Device         string         // path of the block device on the host, for volumeDevices
	ReadOnly       bool           // the volume is read-only even if its mounts are not
	SELinuxRelabel bool           // the runtime relabels the volume with the SELinux label of the container
}

// hostPaths returns the host path of each volume by name, "" for an image or block volume, for [podenv.Resolve].
func hostPaths(volumes map[string]Volume) map[string]string {
	paths := make(map[string]string, len(volumes))
	for name, v := range volumes {
		paths[name] = v.HostPath
	}
	return paths
}

// containerMounts returns the mounts of a container: launch.Mounts, volume mounts, hosts file, termination message file.
// Source: kubelet_pods.go in pkg/kubelet, and makeMounts in pkg/kubelet/kuberuntime/kuberuntime_container.go.
func containerMounts(pod *corev1.Pod, container *corev1.Container, path *field.Path, env *podenv.Environment, launch Launch, opts Options) ([]cri.Mount, error) {
	all := slices.Clone(launch.Mounts)
	for i := range container.VolumeMounts {
		m, err := volumeMount(pod, container, i, path.Child("volumeMounts").Index(i), env, launch, opts)
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	if hosts, ok := hostsMount(pod, container, launch, opts); ok {
		switch {
		case launch.HostsPath != "":
			all = append(all, hosts)
		case len(pod.Spec.HostAliases) > 0:
			return nil, field.Forbidden(field.NewPath("spec", "hostAliases"), "there is no hosts file to add them to")
		}
	}
	if launch.TerminationLogPath != "" && container.TerminationMessagePath != "" {
		all = append(all, cri.Mount{
			ContainerPath:  toAbsolute(container.TerminationMessagePath),
			HostPath:       launch.TerminationLogPath,
			SELinuxRelabel: opts.SELinux,
		})
	}
	return all, nil
}

// setIDMappings copies the ID mappings of a user namespace to each mount, so that file owners are equal inside and outside.
func setIDMappings(mounts []cri.Mount, user *cri.UserNamespace) {
	for i := range mounts {
		mounts[i].UIDMappings, mounts[i].GIDMappings = user.UIDs, user.GIDs
	}
}

// volumeMount returns the CRI mount for container.VolumeMounts[index]. Its host path includes the subPath. Errors start with
// path, the field path of the volume mount.
func volumeMount(pod *corev1.Pod, container *corev1.Container, index int, path *field.Path, env *podenv.Environment, launch Launch, opts Options) (cri.Mount, error) {
	m := &container.VolumeMounts[index]
	v, ok := launch.Volumes[m.Name]
	if !ok || v.HostPath == "" && v.Image == nil {
		return cri.Mount{}, field.NotFound(path.Child("name"), m.Name)
	}
	sub, err := resolveSubPath(m, path, env)
	if err != nil {
		return cri.Mount{}, err
	}
	mount := cri.Mount{
		ContainerPath:  toAbsolute(m.MountPath),
		HostPath:       v.HostPath,
		ReadOnly:       m.ReadOnly || v.ReadOnly,
		SELinuxRelabel: v.SELinuxRelabel && opts.SELinux,
		Options:        m.BindMountOptions,
	}
	switch {
	case v.Image != nil:
		mount.HostPath, mount.Image, mount.ImageSubPath, mount.ReadOnly = "", v.Image, sub, true
	case sub != "" && launch.SubPath == nil:
		return cri.Mount{}, field.Forbidden(path.Child("subPath"), "paths within volumes are not supported on this node")
	case sub != "":
		if mount.HostPath, err = launch.SubPath(index, v, sub); err != nil {
			return cri.Mount{}, field.Invalid(path.Child("subPath"), sub, err.Error())
		}
	}
	if mount.Propagation, err = convertPropagation(m, path.Child("mountPropagation")); err != nil {
		return cri.Mount{}, err
	}
	mount.RecursiveReadOnly, err = resolveRecursiveReadOnly(pod, m, path.Child("recursiveReadOnly"), opts)
	return mount, err
}

// resolveSubPath returns the path below the volume's root that is mounted, with the variables in subPathExpr expanded.
func resolveSubPath(mount *corev1.VolumeMount, path *field.Path, env *podenv.Environment) (string, error) {
	if mount.SubPathExpr == "" {
		return mount.SubPath, checkValue(path.Child("subPath"), mount.SubPath, podfield.CheckRelative)
	}
	path = path.Child("subPathExpr")
	var missing []string
	sub, fits := expand.String(mount.SubPathExpr, podfield.MaxPath-1, func(name string) (string, bool) {
		value, _ := env.Lookup(name)
		if value == "" {
			// Without a value, a wrong path would be mounted.
			missing = append(missing, name)
		}
		return value, true
	})
	if !fits {
		return "", fielderr.TooLong(path, "may not be more than %d bytes once it is expanded", podfield.MaxPath-1)
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return "", field.Invalid(path, mount.SubPathExpr, "has no value for "+strings.Join(slices.Compact(missing), ", "))
	}
	return sub, checkValue(path, sub, podfield.CheckRelative)
}

// convertPropagation returns the CRI value for the propagation of the mount; the default is private.
func convertPropagation(mount *corev1.VolumeMount, path *field.Path) (cri.Propagation, error) {
	switch mode := *optional.First(mount.MountPropagation, new(corev1.MountPropagationNone)); mode {
	case corev1.MountPropagationNone:
		return cri.PropagationPrivate, nil
	case corev1.MountPropagationHostToContainer:
		return cri.PropagationHostToContainer, nil
	case corev1.MountPropagationBidirectional:
		return cri.PropagationBidirectional, nil
	default:
		return 0, field.NotSupported(path, mode, podfield.PropagationModes())
	}
}

// resolveRecursiveReadOnly reports whether a mount and all mounts below it must be read-only (KEP-3857). It returns an error
// if the runtime does not support this.
func resolveRecursiveReadOnly(pod *corev1.Pod, mount *corev1.VolumeMount, path *field.Path, opts Options) (bool, error) {
	mode := *optional.First(mount.RecursiveReadOnly, new(corev1.RecursiveReadOnlyDisabled))
	if mode == corev1.RecursiveReadOnlyDisabled {
		return false, nil
	}
	if p := mount.MountPropagation; !mount.ReadOnly || p != nil && *p != corev1.MountPropagationNone {
		return false, field.Invalid(path, mode, "needs readOnly and mountPropagation None")
	}
	h, err := opts.runtimeHandlerOf(pod)
	able := err == nil && h.RecursiveReadOnlyMounts
	switch mode {
	case corev1.RecursiveReadOnlyIfPossible:
		return able, nil
	case corev1.RecursiveReadOnlyEnabled:
		if !able {
			return false, field.Invalid(path, mode, "is not supported by the runtime")
		}
		return true, nil
	default:
		return false, field.NotSupported(path, mode, podfield.RecursiveModes())
	}
}

// containerDevices returns the devices of a container: those in launch.Devices, followed by its block volumes.
func containerDevices(container *corev1.Container, path *field.Path, launch Launch) ([]cri.Device, error) {
	all := slices.Clone(launch.Devices)
	for i, d := range container.VolumeDevices {
		path := path.Child("volumeDevices").Index(i)
		v := launch.Volumes[d.Name]
		switch {
		case v.Device == "":
			return nil, field.NotFound(path.Child("name"), d.Name)
		case !strings.HasPrefix(d.DevicePath, "/"):
			return nil, field.Invalid(path.Child("devicePath"), d.DevicePath, "must be an absolute path")
		}
		permissions := "mrw"
		if v.ReadOnly {
			permissions = "r"
		}
		all = append(all, cri.Device{ContainerPath: d.DevicePath, HostPath: v.Device, Permissions: permissions})
	}
	return all, nil
}

// toAbsolute returns p as an absolute path in the container.
func toAbsolute(mountPath string) string {
	if path.IsAbs(mountPath) {
		return mountPath
	}
	return "/" + mountPath
}
