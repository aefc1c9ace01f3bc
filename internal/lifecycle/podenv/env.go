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

// Sources is what the variables of a container come from, beside its pod.
type Sources struct {
	References References // the objects that the container refers to, and services, from [Resolve]
	// Volumes are the paths of the pod's volumes on the host, by name; empty where a volume has none.
	Volumes map[string]string
	// Node are variables that the node adds, such as those of devices. Those of the container win, and can refer to them.
	Node        []cri.EnvVar
	PodIPs      []string            // of the sandbox, in any order; on the host's network, none are those of the node
	HostIPs     []netip.Addr        // of the node, the preferred one first; none: status.hostIP is an error
	Allocatable corev1.ResourceList // stands in for limits that a resourceFieldRef asks for and the container lacks
}

// Environment is the environment of a container: its own variables in the order in which the pod first names them, then
// those that the node adds. What a process can be given is bounded, and shared by variables and arguments.
type Environment struct {
	names  []string
	values map[string]string

	node       []cri.EnvVar
	nodeValues map[string]string // of node; the first of each name

	files map[EnvFile]envFileValues // those that were parsed
	room  expand.Room
}

// New evaluates a container's variables from first to last, each with those before it: those of whole objects, then its
// own. Services come last (kubelet_pods.go, makeEnvironmentVariables). The error is a *field.Error.
func New(pod *corev1.Pod, c *corev1.Container, s Sources) (*Environment, error) {
	e := newEnvironment(append(slices.Clone(s.Node), serviceEnv(pod, s.References.Services)...))
	if err := e.fill(pod, c, podfield.PathOf(&pod.Spec, c.Name), &s); err != nil {
		return nil, fielderr.ShortOne(err)
	}
	return e, nil
}

// newEnvironment returns an environment with only what the node adds.
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

// Lookup returns the value of a variable, if there is one of that name.
func (e *Environment) Lookup(name string) (string, bool) {
	value, ok := e.values[name]
	if !ok {
		value, ok = e.nodeValues[name]
	}
	return value, ok
}

// Expand replaces the references in a command or arguments that are at path. The result counts towards what the process
// is given, and the error is a *field.Error.
func (e *Environment) Expand(words []string, path *field.Path) ([]string, error) {
	return e.room.Expand(words, path, e.Lookup)
}

// List returns the variables.
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

// fill sets the variables of a container that is at path.
func (e *Environment) fill(pod *corev1.Pod, c *corev1.Container, path *field.Path, s *Sources) error {
	for i := range c.EnvFrom {
		if err := e.setAll(&c.EnvFrom[i], path.Child("envFrom").Index(i), &s.References); err != nil {
			return err
		}
	}
	for i := range c.Env {
		if err := e.setOne(pod, c, i, path.Child("env").Index(i), s); err != nil {
			return err
		}
	}
	for _, v := range e.node {
		if _, ok := e.values[v.Name]; !ok {
			if err := e.take(path.Child("env"), v.Name, len(v.Value)); err != nil {
				return err
			}
		}
	}
	return nil
}

// add sets a variable that stands at path, unless it is more than a process can be given.
func (e *Environment) add(path *field.Path, name, value string) error {
	if err := e.take(path, name, len(value)); err != nil {
		return err
	}
	e.set(name, value)
	return nil
}

// take makes room for a variable whose value has so many bytes.
func (e *Environment) take(path *field.Path, name string, size int) error {
	switch whole := len(name) + len("=") + size; {
	case whole >= MaxArgument:
		return fielderr.TooLong(path, "variable %s may not be more than %d bytes with its name", fielderr.Quote(name), MaxArgument-1)
	case !e.room.Take(whole):
		return fielderr.TooLong(path, "arguments and environment may not be more than %d bytes in all", MaxArguments)
	}
	return nil
}

func (e *Environment) set(name, value string) {
	if _, ok := e.values[name]; !ok {
		e.names = append(e.names, name)
	}
	e.values[name] = value
}

// setOne sets the variable of the container with an index.
func (e *Environment) setOne(pod *corev1.Pod, c *corev1.Container, i int, path *field.Path, s *Sources) error {
	v := &c.Env[i]
	if v.Value == "" && v.ValueFrom != nil {
		path = path.Child("valueFrom")
		value, err := e.valueFrom(pod, c, v.ValueFrom, path, s)
		if err != nil || value == nil {
			return err
		}
		return e.add(path, v.Name, *value)
	}
	path = path.Child("value")
	value, ok := expand.String(v.Value, MaxArgument, e.Lookup)
	if !ok {
		return e.take(path, v.Name, MaxArgument)
	}
	return e.add(path, v.Name, value)
}

// setAll sets the variables of a whole config map or secret, in the order of their names.
func (e *Environment) setAll(from *corev1.EnvFromSource, path *field.Path, r *References) error {
	switch {
	case from.ConfigMapRef != nil:
		object, ok := r.ConfigMaps[from.ConfigMapRef.Name]
		if !ok {
			return missing(path.Child("configMapRef", "name"), from.ConfigMapRef.Name, from.ConfigMapRef.Optional)
		}
		return addAll(e, path.Child("configMapRef"), from.Prefix, object.Data)
	case from.SecretRef != nil:
		object, ok := r.Secrets[from.SecretRef.Name]
		if !ok {
			return missing(path.Child("secretRef", "name"), from.SecretRef.Name, from.SecretRef.Optional)
		}
		return addAll(e, path.Child("secretRef"), from.Prefix, object.Data)
	}
	return nil
}

// addAll sets the variables of a config map or secret at path.
func addAll[T ~string | ~[]byte](e *Environment, path *field.Path, prefix string, data map[string]T) error {
	for _, key := range slices.Sorted(maps.Keys(data)) {
		if err := e.take(path, prefix+key, len(data[key])); err != nil {
			return err
		}
		e.set(prefix+key, string(data[key]))
	}
	return nil
}

// missing is the error of a reference to nothing, unless it is an optional one.
func missing(path *field.Path, name string, ifMissing *bool) error {
	if optional.IsTrue(ifMissing) {
		return nil
	}
	return field.NotFound(path, name)
}
