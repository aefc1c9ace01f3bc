// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podapi

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/internal/fielderr"
	"github.com/seed81659283/nodeagent/internal/optional"
	"github.com/seed81659283/nodeagent/internal/podfield"
)

func validateMounts(container podfield.Container, index nameIndex) field.ErrorList {
	var errs field.ErrorList
	paths := make(map[string]bool)
	for i, m := range container.VolumeMounts {
		if len(errs) > fielderr.MaxErrors {
			break
		}
		path := container.Path.Child("volumeMounts").Index(i)
		v := index.volumes[m.Name]
		switch {
		case m.Name == "":
			errs = append(errs, field.Required(path.Child("name"), ""))
		case v == nil:
			errs = append(errs, field.NotFound(path.Child("name"), m.Name))
		}
		switch {
		case m.MountPath == "":
			errs = append(errs, field.Required(path.Child("mountPath"), ""))
		case paths[m.MountPath]:
			errs = append(errs, field.Invalid(path.Child("mountPath"), m.MountPath, "must be unique"))
		}
		paths[m.MountPath] = true
		errs = append(errs, validateSubPath(m, path)...)
		errs = append(errs, validateMountModes(m, path, container.IsPrivileged())...)
		errs = append(errs, validateMountOptions(m, v, path.Child("bindMountOptions"))...)
	}
	return errs
}

func validateSubPath(mount corev1.VolumeMount, path *field.Path) field.ErrorList {
	errs := validateWith(path.Child("subPath"), mount.SubPath, podfield.CheckRelative)
	errs = append(errs, validateWith(path.Child("subPathExpr"), mount.SubPathExpr, podfield.CheckRelative)...)
	if mount.SubPath != "" && mount.SubPathExpr != "" {
		errs = append(errs, field.Invalid(path.Child("subPathExpr"), mount.SubPathExpr, "may not be set beside subPath"))
	}
	return errs
}

func validateMountModes(mount corev1.VolumeMount, path *field.Path, privileged bool) field.ErrorList {
	var errs field.ErrorList
	propagation := *optional.First(mount.MountPropagation, new(corev1.MountPropagationNone))
	errs = append(errs, validateOneOf(path.Child("mountPropagation"), propagation, podfield.PropagationModes()...)...)
	if propagation == corev1.MountPropagationBidirectional && !privileged {
		errs = append(errs, field.Forbidden(path.Child("mountPropagation"), "Bidirectional needs a privileged container"))
	}
	path = path.Child("recursiveReadOnly")
	mode := *optional.First(mount.RecursiveReadOnly, new(corev1.RecursiveReadOnlyDisabled))
	errs = append(errs, validateOneOf(path, mode, podfield.RecursiveModes()...)...)
	if mode == corev1.RecursiveReadOnlyEnabled || mode == corev1.RecursiveReadOnlyIfPossible {
		if !mount.ReadOnly {
			errs = append(errs, field.Forbidden(path, "needs readOnly"))
		}
		if propagation != corev1.MountPropagationNone {
			errs = append(errs, field.Forbidden(path, "needs mountPropagation None"))
		}
	}
	return errs
}

func validateMountOptions(mount corev1.VolumeMount, volume *corev1.Volume, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := make(map[string]bool)
	for i, option := range mount.BindMountOptions {
		errs = append(errs, validateOneOf(path.Index(i), corev1.BindMountOption(option),
			corev1.BindMountOptionNoDev, corev1.BindMountOptionNoExec, corev1.BindMountOptionNoSUID)...)
		if seen[option] {
			errs = append(errs, field.Duplicate(path.Index(i), option))
		}
		seen[option] = true
	}
	if len(mount.BindMountOptions) > 0 && volume != nil && volume.Image != nil {
		errs = append(errs, field.Invalid(path, mount.BindMountOptions, "may not be set for an image"))
	}
	return errs
}

// validateDevices checks the block volumes of a container, whose names and paths must differ from those of its other
// volumes.
func validateDevices(container podfield.Container, index nameIndex) field.ErrorList {
	var errs field.ErrorList
	names, paths := make(map[string]bool), make(map[string]bool)
	for _, m := range container.VolumeMounts {
		names[m.Name], paths[m.MountPath] = true, true
	}
	for i, d := range container.VolumeDevices {
		path := container.Path.Child("volumeDevices").Index(i)
		switch v := index.volumes[d.Name]; {
		case d.Name == "":
			errs = append(errs, field.Required(path.Child("name"), ""))
		case v == nil:
			errs = append(errs, field.NotFound(path.Child("name"), d.Name))
		case v.PersistentVolumeClaim == nil && v.Ephemeral == nil:
			errs = append(errs, field.Invalid(path.Child("name"), d.Name, "must be of type persistentVolumeClaim or ephemeral"))
		case names[d.Name]:
			errs = append(errs, field.Invalid(path.Child("name"), d.Name, "must be unique among volumeMounts and volumeDevices"))
		}
		switch {
		case d.DevicePath == "":
			errs = append(errs, field.Required(path.Child("devicePath"), ""))
		case paths[d.DevicePath]:
			errs = append(errs, field.Invalid(path.Child("devicePath"), d.DevicePath, "must be unique among volumeMounts and volumeDevices"))
		default:
			errs = append(errs, validateWith(path.Child("devicePath"), d.DevicePath, podfield.CheckNoBacksteps)...)
		}
		names[d.Name], paths[d.DevicePath] = true, true
	}
	return errs
}
