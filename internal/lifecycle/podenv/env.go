// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podenv

import (
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/expand"
	"github.com/seed81659283/nodeagent/internal/fielderr"
	"github.com/seed81659283/nodeagent/internal/optional"
	"github.com/seed81659283/nodeagent/internal/podfield"
)

// Sources are the inputs for the variables of a container besides its pod.
type Sources struct {
	References References // from [Resolve]
	// Volumes are the host paths of the pod volumes, by volume name. A volume without host path has an empty one.
	Volumes map[string]string
	// Node are variables that the node adds, for example for devices. Variables of the container override them and can refer to
	// them.
	Node        []cri.EnvVar
	PodIPs      []string            // of the sandbox, in any order; empty for a host-network pod: HostIPs are used
	HostIPs     []netip.Addr        // of the node, the preferred one first; empty: status.hostIP is an error
	Allocatable corev1.ResourceList // allocatable amounts of the node, for a resourceFieldRef to a missing limit
}

// Environment is the environment of a container: its own variables in the order of the pod, followed by those of the node.
// Variables and arguments share one size limit.
type Environment struct {
	names  []string
	values map[string]string

	node       []cri.EnvVar
	nodeValues map[string]string // by name, from node; the first of each name

	files map[EnvFile]envFileValues // parsed environment files
	room  expand.Room
}

// New computes the variables of a container: those of envFrom, then those of env, whose values can refer to earlier
// variables. They override service variables. The error is a *field.Error. Source: makeEnvironmentVariables in
// pkg/kubelet/kubelet_pods.go.
func New(pod *corev1.Pod, container *corev1.Container, sources Sources) (*Environment, error) {
	e := newEnvironment(append(slices.Clone(sources.Node), serviceEnv(pod, sources.References.Services)...))
	if err := e.setVariables(pod, container, podfield.PathOf(&pod.Spec, container.Name), &sources); err != nil {
		return nil, fielderr.ShortOne(err)
	}
	return e, nil
}

// newEnvironment returns an environment without variables of the container. node contains the variables that every container
// on this node gets.
func newEnvironment(node []cri.EnvVar) *Environment {
	e := &Environment{
		values: make(map[string]string), node: node, nodeValues: make(map[string]string, len(node)),
		files: make(map[EnvFile]envFileValues), room: expand.MaxArguments,
	}
	for _, v := range node {
		if _, ok := e.nodeValues[v.Name]; !ok {
			e.nodeValues[v.Name] = v.Value
		}
	}
	return e
}

// Lookup returns the value of the variable with this name. ok is false if there is no such variable.
func (e *Environment) Lookup(name string) (value string, ok bool) {
	value, ok = e.values[name]
	if !ok {
		value, ok = e.nodeValues[name]
	}
	return value, ok
}

// Expand replaces variable references such as $(NAME) in words, a command or its arguments. path is the field path of words in
// the pod, for errors. The result counts towards the size limit [MaxArguments]. The error is a *field.Error.
func (e *Environment) Expand(words []string, path *field.Path) ([]string, error) {
	return e.room.Expand(words, path, e.Lookup)
}

// List returns all variables: first the variables of the container, then the variables of the node that the container does
// not override.
func (e *Environment) List() []cri.EnvVar {
	var list []cri.EnvVar
	for _, name := range e.names {
		list = append(list, cri.EnvVar{Name: name, Value: e.values[name]})
	}
	for _, v := range e.node {
		if _, ok := e.values[v.Name]; !ok {
			list = append(list, v)
		}
	}
	return list
}

// setVariables sets the variables in the fields envFrom and env of the container. path is the field path of the container in
// the pod, for errors.
func (e *Environment) setVariables(pod *corev1.Pod, container *corev1.Container, path *field.Path, sources *Sources) error {
	for i := range container.EnvFrom {
		if err := e.setFromObject(&container.EnvFrom[i], path.Child("envFrom").Index(i), &sources.References); err != nil {
			return err
		}
	}
	for i := range container.Env {
		if err := e.setVariable(pod, container, i, path.Child("env").Index(i), sources); err != nil {
			return err
		}
	}
	for _, v := range e.node {
		if _, ok := e.values[v.Name]; !ok {
			if err := e.reserveRoom(path.Child("env"), v.Name, len(v.Value)); err != nil {
				return err
			}
		}
	}
	return nil
}

// addVariable sets a variable. If the variable exceeds a size limit, it returns an error about the field at path.
func (e *Environment) addVariable(path *field.Path, name, value string) error {
	if err := e.reserveRoom(path, name, len(value)); err != nil {
		return err
	}
	e.setValue(name, value)
	return nil
}

// reserveRoom adds the size of a variable to the total size of the environment. If a size limit is exceeded, it returns an
// error about the field at path.
func (e *Environment) reserveRoom(path *field.Path, name string, valueSize int) error {
	switch total := len(name) + len("=") + valueSize; {
	case total >= MaxArgument:
		return fielderr.TooLong(path, "variable %s may not be more than %d bytes with its name", fielderr.Quote(name), MaxArgument-1)
	case !e.room.Reserve(total):
		return fielderr.TooLong(path, "arguments and environment may not be more than %d bytes in all", MaxArguments)
	}
	return nil
}

// setValue sets the variable with this name. A variable that was set before keeps its position in the list.
func (e *Environment) setValue(name, value string) {
	if _, ok := e.values[name]; !ok {
		e.names = append(e.names, name)
	}
	e.values[name] = value
}

// setVariable sets the variable container.Env[i]. It skips a variable whose optional object does not exist. path is the field
// path of the variable in the pod, for errors.
func (e *Environment) setVariable(pod *corev1.Pod, container *corev1.Container, i int, path *field.Path, sources *Sources) error {
	v := &container.Env[i]
	if v.Value == "" && v.ValueFrom != nil {
		path = path.Child("valueFrom")
		value, err := e.valueFrom(pod, container, v.ValueFrom, path, sources)
		if err != nil || value == nil {
			return err
		}
		return e.addVariable(path, v.Name, *value)
	}
	path = path.Child("value")
	value, ok := expand.String(v.Value, MaxArgument, e.Lookup)
	if !ok {
		return e.reserveRoom(path, v.Name, MaxArgument)
	}
	return e.addVariable(path, v.Name, value)
}

// setFromObject sets a variable for each key of the config map or secret that from names. refs contains these objects. path is
// the field path of from in the pod, for errors.
func (e *Environment) setFromObject(from *corev1.EnvFromSource, path *field.Path, refs *References) error {
	switch {
	case from.ConfigMapRef != nil:
		object, ok := refs.ConfigMaps[from.ConfigMapRef.Name]
		if !ok {
			return notFoundError(path.Child("configMapRef", "name"), from.ConfigMapRef.Name, from.ConfigMapRef.Optional)
		}
		return addObjectData(e, path.Child("configMapRef"), from.Prefix, object.Data)
	case from.SecretRef != nil:
		object, ok := refs.Secrets[from.SecretRef.Name]
		if !ok {
			return notFoundError(path.Child("secretRef", "name"), from.SecretRef.Name, from.SecretRef.Optional)
		}
		return addObjectData(e, path.Child("secretRef"), from.Prefix, object.Data)
	}
	return nil
}

// addObjectData sets a variable for each key in data, the data of a config map or secret. The variable name is prefix plus the
// key. path is the field path of the reference in the pod, for errors.
func addObjectData[T ~string | ~[]byte](e *Environment, path *field.Path, prefix string, data map[string]T) error {
	for _, key := range slices.Sorted(maps.Keys(data)) {
		if err := e.reserveRoom(path, prefix+key, len(data[key])); err != nil {
			return err
		}
		e.setValue(prefix+key, string(data[key]))
	}
	return nil
}

// notFoundError returns an error for a missing object or key, or nil if the reference is optional.
func notFoundError(path *field.Path, name string, isOptional *bool) error {
	if optional.IsTrue(isOptional) {
		return nil
	}
	return field.NotFound(path, name)
}
