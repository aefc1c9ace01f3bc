// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podenv

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// valueFrom returns the value of a variable from its source, or nil if its optional object or key does not exist. path is the
// field path of from in the pod, for errors.
func (e *Environment) valueFrom(
	pod *corev1.Pod, container *corev1.Container, from *corev1.EnvVarSource, path *field.Path, sources *Sources,
) (*string, error) {
	switch {
	case from.FieldRef != nil:
		value, err := fieldValue(pod, from.FieldRef.FieldPath, path.Child("fieldRef", "fieldPath"), sources)
		return &value, err
	case from.ResourceFieldRef != nil:
		value, err := resourceValue(pod, container, from.ResourceFieldRef, path.Child("resourceFieldRef"), sources.Allocatable)
		return &value, err
	case from.ConfigMapKeyRef != nil:
		ref, path := from.ConfigMapKeyRef, path.Child("configMapKeyRef")
		object, ok := sources.References.ConfigMaps[ref.Name]
		if !ok {
			return nil, notFoundError(path.Child("name"), ref.Name, ref.Optional)
		}
		value, ok := object.Data[ref.Key]
		if !ok {
			return nil, notFoundError(path.Child("key"), ref.Key, ref.Optional)
		}
		return &value, nil
	case from.SecretKeyRef != nil:
		ref, path := from.SecretKeyRef, path.Child("secretKeyRef")
		object, ok := sources.References.Secrets[ref.Name]
		if !ok {
			return nil, notFoundError(path.Child("name"), ref.Name, ref.Optional)
		}
		data, ok := object.Data[ref.Key]
		if !ok {
			return nil, notFoundError(path.Child("key"), ref.Key, ref.Optional)
		}
		return new(string(data)), nil
	case from.FileKeyRef != nil:
		return e.fileValue(container, from.FileKeyRef, path.Child("fileKeyRef"), sources)
	default:
		return nil, field.Required(path, "must have a source")
	}
}

// fileValue returns the value of a variable in an environment file. If the value is empty and ref is optional, it returns nil.
// path is the field path of ref in the pod, for errors.
func (e *Environment) fileValue(container *corev1.Container, ref *corev1.FileKeySelector, path *field.Path, sources *Sources) (*string, error) {
	if _, ok := sources.Volumes[ref.VolumeName]; !ok {
		return nil, field.NotFound(path.Child("volumeName"), ref.VolumeName)
	}
	file := EnvFile{ref.VolumeName, ref.Path}
	data, ok := sources.References.EnvFiles[file]
	if !ok {
		return nil, field.NotFound(path.Child("path"), ref.Path)
	}
	if _, ok := e.files[file]; !ok {
		e.files[file] = parseEnvFile(data, keysFromFile(container, file))
	}
	value, err := e.files[file].lookupValue(ref.Key)
	if err != nil {
		return nil, field.Invalid(path.Child("path"), ref.Path, err.Error())
	}
	if value == "" {
		return nil, notFoundError(path.Child("key"), ref.Key, ref.Optional)
	}
	return &value, nil
}

// keysFromFile returns the names of the variables that the container reads from file, as a set.
func keysFromFile(container *corev1.Container, file EnvFile) map[string]bool {
	keys := make(map[string]bool)
	for _, e := range container.Env {
		if e.ValueFrom == nil || e.ValueFrom.FileKeyRef == nil {
			continue
		}
		if ref := e.ValueFrom.FileKeyRef; file == (EnvFile{ref.VolumeName, ref.Path}) {
			keys[ref.Key] = true
		}
	}
	return keys
}
