// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package agentfile writes the configuration file of examples/agent from one map of fields, for tests and benchmarks that start
// the program.
package agentfile

import (
	"encoding/json"
	"reflect"
	"strings"

	"github.com/seed81659283/nodeagent/agent/kubeletconfig"
)

// Marshal returns the content of an agent's configuration file, which has two YAML documents: a KubeletConfiguration and a
// NodeConfiguration. fields maps JSON names of fields to their values. Marshal writes each field into the document whose
// type has a field of this name.
//
// Some defaults differ from those of the kubelet, because tests share their machine with other agents. Without cgroupRoot,
// pods get no cgroup. Without evictionHard and evictionSoft, no pod is evicted. healthzPort is 0.
func Marshal(fields map[string]any) ([]byte, error) {
	kubelet := map[string]any{"apiVersion": kubeletconfig.APIVersion, "kind": kubeletconfig.Kind, "healthzPort": 0}
	node := map[string]any{"apiVersion": kubeletconfig.NodeAPIVersion, "kind": kubeletconfig.NodeKind}
	if fields["cgroupRoot"] == nil {
		kubelet["cgroupsPerQOS"] = false
	}
	if fields["evictionHard"] == nil {
		kubelet["evictionHard"] = map[string]string{}
	}
	for name, value := range fields {
		if isKubeletField(name) {
			kubelet[name] = value
		} else {
			node[name] = value
		}
	}
	first, err := json.Marshal(kubelet) // JSON is valid YAML
	if err != nil {
		return nil, err
	}
	second, err := json.Marshal(node)
	return append(append(append(first, "\n---\n"...), second...), '\n'), err
}

// isKubeletField reports whether KubeletConfiguration has a field with this JSON name.
func isKubeletField(name string) bool {
	t := reflect.TypeFor[kubeletconfig.Configuration]()
	for field := range t.Fields() {
		if tag, _, _ := strings.Cut(field.Tag.Get("json"), ","); tag == name {
			return true
		}
	}
	return false
}
