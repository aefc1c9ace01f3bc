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

	node       []cri.EnvVar
	nodeValues map[string]string // of node; the first of each name

	files map[EnvFile]envFileValues // those that were parsed
	room  room
}

// newVariables returns an environment with only what the node adds.
func newVariables(node []cri.EnvVar) *variables {
	v := &variables{
		values: make(map[string]string), node: node, nodeValues: make(map[string]string, len(node)),
		files: make(map[EnvFile]envFileValues), room: MaxArguments,
	}
	for _, e := range node {
		if _, ok := v.nodeValues[e.Name]; !ok {
			v.nodeValues[e.Name] = e.Value
		}
	}
	return v
}

// lookup finds a variable for [Expand].
func (v *variables) lookup(name string) (string, bool) {
	value, ok := v.values[name]
	if !ok {
		value, ok = v.nodeValues[name]
	}
	return value, ok
}

// add sets a variable that stands at path, unless it is more than a process can be given.
func (v *variables) add(path *field.Path, name, value string) error {
	if err := v.take(path, name, len(value)); err != nil {
		return err
	}
	v.set(name, value)
	return nil
}

// take makes room for a variable whose value has so many bytes.
func (v *variables) take(path *field.Path, name string, size int) error {
	switch whole := len(name) + len("=") + size; {
	case whole >= MaxArgument:
		return tooLong(path, "variable %s may not be more than %d bytes with its name", quote(name), MaxArgument-1)
	case !v.room.take(whole):
		return tooLong(path, "arguments and environment may not be more than %d bytes in all", MaxArguments)
	}
	return nil
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
	v := newVariables(append(slices.Clone(l.Env), serviceEnv(pod, l.References.Services)...))
	for i := range c.EnvFrom {
		if err := v.setAll(&c.EnvFrom[i], path.Child("envFrom").Index(i), l.References); err != nil {
			return nil, err
		}
	}
	for i := range c.Env {
		if err := v.setOne(pod, c, i, path.Child("env").Index(i), l, o); err != nil {
			return nil, err
		}
	}
	for _, e := range v.node {
		if _, ok := v.values[e.Name]; !ok {
			if err := v.take(path.Child("env"), e.Name, len(e.Value)); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}

// setOne sets the variable of the container with an index.
func (v *variables) setOne(pod *corev1.Pod, c *corev1.Container, i int, path *field.Path, l Launch, o Options) error {
	e := &c.Env[i]
	if e.Value == "" && e.ValueFrom != nil {
		path = path.Child("valueFrom")
		value, set, err := v.valueFrom(pod, c, e.ValueFrom, path, l, o)
		if err != nil || !set {
			return err
		}
		return v.add(path, e.Name, value)
	}
	path = path.Child("value")
	value, ok := expand(e.Value, MaxArgument, v.lookup)
	if !ok {
		return v.take(path, e.Name, MaxArgument)
	}
	return v.add(path, e.Name, value)
}

// setAll sets the variables of a whole config map or secret, in the order of their names.
func (v *variables) setAll(s *corev1.EnvFromSource, path *field.Path, r References) error {
	switch {
	case s.ConfigMapRef != nil:
		object, ok := r.ConfigMaps[s.ConfigMapRef.Name]
		if !ok {
			return missing(path.Child("configMapRef", "name"), s.ConfigMapRef.Name, s.ConfigMapRef.Optional)
		}
		return addAll(v, path.Child("configMapRef"), s.Prefix, object.Data)
	case s.SecretRef != nil:
		object, ok := r.Secrets[s.SecretRef.Name]
		if !ok {
			return missing(path.Child("secretRef", "name"), s.SecretRef.Name, s.SecretRef.Optional)
		}
		return addAll(v, path.Child("secretRef"), s.Prefix, object.Data)
	}
	return nil
}

// addAll sets the variables of a config map or secret at path.
func addAll[T ~string | ~[]byte](v *variables, path *field.Path, prefix string, data map[string]T) error {
	for _, key := range sorted(data) {
		if err := v.take(path, prefix+key, len(data[key])); err != nil {
			return err
		}
		v.set(prefix+key, string(data[key]))
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
func (v *variables) valueFrom(
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
		return v.fileValue(c, s.FileKeyRef, path.Child("fileKeyRef"), l)
	default:
		return "", false, field.Required(path, "must have a source")
	}
}

// fileValue returns a variable of a file in a volume. An empty one counts as missing. The file itself has to be there
// even if the variable is optional.
func (v *variables) fileValue(c *corev1.Container, ref *corev1.FileKeySelector, path *field.Path, l Launch) (value string, set bool, err error) {
	if _, ok := l.Volumes[ref.VolumeName]; !ok {
		return "", false, field.NotFound(path.Child("volumeName"), ref.VolumeName)
	}
	file := EnvFile{ref.VolumeName, ref.Path}
	data, ok := l.References.EnvFiles[file]
	if !ok {
		return "", false, field.NotFound(path.Child("path"), ref.Path)
	}
	if _, ok := v.files[file]; !ok {
		v.files[file] = parseEnvFile(data, keysOf(c, file))
	}
	if value, err = v.files[file].value(ref.Key); err != nil {
		return "", false, field.Invalid(path.Child("path"), ref.Path, err.Error())
	}
	if value == "" {
		return "", false, missing(path.Child("key"), ref.Key, ref.Optional)
	}
	return value, true, nil
}

// keysOf returns the variables that a container takes from a file.
func keysOf(c *corev1.Container, file EnvFile) map[string]bool {
	keys := make(map[string]bool)
	for _, e := range c.Env {
		if e.ValueFrom == nil || e.ValueFrom.FileKeyRef == nil {
			continue
		}
		if ref := e.ValueFrom.FileKeyRef; file == (EnvFile{ref.VolumeName, ref.Path}) {
			keys[ref.Key] = true
		}
	}
	return keys
}
