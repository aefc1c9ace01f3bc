// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/cri"
)

// variables is an environment in the making: the container's own variables in the order in which the pod first names
// them, then those that the node adds.
type variables struct {
	names  []string
	values map[string]string
	node   []cri.EnvVar
}

// lookup finds a variable for [Expand].
func (v *variables) lookup(name string) (string, bool) {
	if value, ok := v.values[name]; ok {
		return value, true
	}
	for _, e := range v.node {
		if e.Name == name {
			return e.Value, true
		}
	}
	return "", false
}

func (v *variables) set(name, value string) {
	if _, ok := v.values[name]; !ok {
		v.names = append(v.names, name)
	}
	v.values[name] = value
}

func (v *variables) list() []cri.EnvVar {
	var list []cri.EnvVar
	for _, name := range v.names {
		list = append(list, cri.EnvVar{Name: name, Value: v.values[name]})
	}
	for _, e := range v.node {
		if _, ok := v.values[e.Name]; !ok {
			list = append(list, e)
		}
	}
	return list
}

// environment evaluates a container's variables from first to last, each with those before it: those of whole objects,
// then its own. Services come last (kubelet_pods.go, makeEnvironmentVariables).
func environment(pod *corev1.Pod, c *corev1.Container, path *field.Path, l Launch, o Options) (*variables, error) {
	v := &variables{values: make(map[string]string, len(c.Env)), node: append(slices.Clone(l.Env), serviceEnv(pod, l.References.Services)...)}
	for i := range c.EnvFrom {
		if err := v.setAll(&c.EnvFrom[i], path.Child("envFrom").Index(i), l.References); err != nil {
			return nil, err
		}
	}
	for i, e := range c.Env {
		value, set := Expand(e.Value, v.lookup), true
		if e.Value == "" && e.ValueFrom != nil {
			var err error
			if value, set, err = valueFrom(pod, c, e.ValueFrom, path.Child("env").Index(i).Child("valueFrom"), l, o); err != nil {
				return nil, err
			}
		}
		if set {
			v.set(e.Name, value)
		}
	}
	return v, nil
}

// setAll sets the variables of a whole config map or secret, in the order of their names.
func (v *variables) setAll(s *corev1.EnvFromSource, path *field.Path, r References) error {
	switch {
	case s.ConfigMapRef != nil:
		object, ok := r.ConfigMaps[s.ConfigMapRef.Name]
		if !ok {
			return missing(path.Child("configMapRef", "name"), s.ConfigMapRef.Name, s.ConfigMapRef.Optional)
		}
		for _, key := range sorted(object.Data) {
			v.set(s.Prefix+key, object.Data[key])
		}
	case s.SecretRef != nil:
		object, ok := r.Secrets[s.SecretRef.Name]
		if !ok {
			return missing(path.Child("secretRef", "name"), s.SecretRef.Name, s.SecretRef.Optional)
		}
		for _, key := range sorted(object.Data) {
			v.set(s.Prefix+key, string(object.Data[key]))
		}
	}
	return nil
}

// missing is the error of a reference to nothing, unless it is an optional one.
func missing(path *field.Path, name string, optional *bool) error {
	if isTrue(optional) {
		return nil
	}
	return field.NotFound(path, name)
}

// valueFrom returns the value that a source gives a variable, or that it stays unset, as an optional source lets it.
func valueFrom(
	pod *corev1.Pod, c *corev1.Container, s *corev1.EnvVarSource, path *field.Path, l Launch, o Options,
) (value string, set bool, err error) {
	switch {
	case s.FieldRef != nil:
		value, err = fieldValue(pod, s.FieldRef.FieldPath, path.Child("fieldRef", "fieldPath"), l, o)
		return value, true, err
	case s.ResourceFieldRef != nil:
		value, err = resourceValue(pod, c, s.ResourceFieldRef, path.Child("resourceFieldRef"), o)
		return value, true, err
	case s.ConfigMapKeyRef != nil:
		ref, path := s.ConfigMapKeyRef, path.Child("configMapKeyRef")
		object, ok := l.References.ConfigMaps[ref.Name]
		if !ok {
			return "", false, missing(path.Child("name"), ref.Name, ref.Optional)
		}
		if value, set = object.Data[ref.Key]; !set {
			err = missing(path.Child("key"), ref.Key, ref.Optional)
		}
		return value, set, err
	case s.SecretKeyRef != nil:
		ref, path := s.SecretKeyRef, path.Child("secretKeyRef")
		object, ok := l.References.Secrets[ref.Name]
		if !ok {
			return "", false, missing(path.Child("name"), ref.Name, ref.Optional)
		}
		data, set := object.Data[ref.Key]
		if !set {
			err = missing(path.Child("key"), ref.Key, ref.Optional)
		}
		return string(data), set, err
	case s.FileKeyRef != nil:
		return fileValue(s.FileKeyRef, path.Child("fileKeyRef"), l)
	default:
		return "", false, field.Required(path, "must have a source")
	}
}

// fileValue returns a variable of a file in a volume. An empty one counts as missing. The file itself has to be there
// even if the variable is optional.
func fileValue(ref *corev1.FileKeySelector, path *field.Path, l Launch) (value string, set bool, err error) {
	if _, ok := l.Volumes[ref.VolumeName]; !ok {
		return "", false, field.NotFound(path.Child("volumeName"), ref.VolumeName)
	}
	data, ok := l.References.EnvFiles[EnvFile{ref.VolumeName, ref.Path}]
	if !ok {
		return "", false, field.NotFound(path.Child("path"), ref.Path)
	}
	if value, err = ParseEnvFile(data, ref.Key); err != nil {
		return "", false, field.Invalid(path.Child("path"), ref.Path, err.Error())
	}
	if value == "" {
		return "", false, missing(path.Child("key"), ref.Key, ref.Optional)
	}
	return value, true, nil
}
