// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package podtest creates pods for tests from fragments of YAML.
package podtest

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/seed81659283/nodeagent/lifecycle/podapi"
)

// Pod returns a valid pod called web in the namespace default, with one container c and all defaults. The optional fragments
// are YAML that changes the pod spec, and YAML that changes the container.
func Pod(t testing.TB, fragments ...string) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{}
	p.Name, p.Namespace, p.UID = "web", "default", "u1"
	p.Spec.Containers = []corev1.Container{{Name: "c", Image: "nginx:1"}}
	for i, into := range []any{&p.Spec, &p.Spec.Containers[0]} {
		if i < len(fragments) {
			if err := yaml.UnmarshalStrict([]byte(fragments[i]), into); err != nil {
				t.Fatal(err)
			}
		}
	}
	podapi.Default(p)
	return p
}
