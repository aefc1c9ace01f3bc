// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podapi_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/seed81659283/nodeagent/internal/podtest"
	"github.com/seed81659283/nodeagent/lifecycle/podapi"
)

// Metadata that the API server rejects is rejected for a static pod too.
func TestValidateAnnotations(t *testing.T) {
	const (
		cost      = "controller.kubernetes.io/pod-deletion-cost"
		pod       = "seccomp.security.alpha.kubernetes.io/pod"
		container = "container.seccomp.security.alpha.kubernetes.io/main"
		field     = "securityContext: {seccompProfile: {type: RuntimeDefault}}"
	)
	for name, row := range map[string]struct{ spec, key, value, want string }{
		"cost":                               {"", cost, "-10", ""},
		"no cost":                            {"", cost, "0", ""},
		"cost, largest":                      {"", cost, "2147483647", ""},
		"cost, too large":                    {"", cost, "2147483648", `metadata.annotations[` + cost + `]: Invalid value: "2147483648": must be a 32bit integer`},
		"cost with plus":                     {"", cost, "+1", `Invalid value: "+1"`},
		"cost with zeros":                    {"", cost, "008", `Invalid value: "008"`},
		"cost, empty":                        {"", cost, "", `Invalid value: ""`},
		"seccomp":                            {"", pod, "runtime/default", ""},
		"seccomp docker/default":             {"", pod, "docker/default", ""},
		"seccomp file":                       {"", pod, "localhost/a/b.json", ""},
		"seccomp file with ..":               {"", pod, "localhost/../b.json", `Invalid value: "../b.json": must not contain '..'`},
		"seccomp, unknown":                   {"", pod, "strict", `metadata.annotations[` + pod + `]: Invalid value: "strict": must be a valid seccomp profile`},
		"seccomp of a container":             {"", container, "unconfined", ""},
		"empty seccomp of a container":       {"", container, "", `metadata.annotations[` + container + `]: Invalid value: ""`},
		"unknown seccomp, no such container": {"", container + "-b", "x", `Invalid value: "x"`},
		"seccomp equal to the field":         {field, pod, "docker/default", ""},
		"seccomp differs from the field":     {field, pod, "unconfined", "spec.securityContext.seccompProfile: Forbidden: must not contradict the annotation " + pod},
		"seccomp of a container differs from the pod": {field, container, "unconfined", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := podtest.Pod(t, row.spec)
			p.Annotations = map[string]string{row.key: row.value}
			requireRefused(t, podapi.Validate(p).ToAggregate(), row.want)
		})
	}
}

func requireRefused(t *testing.T, err error, want string) {
	t.Helper()
	if want == "" {
		assert.NoError(t, err)
		return
	}
	assert.ErrorContains(t, err, want)
}

func TestValidateNodeSelectorAndCreatedClaims(t *testing.T) {
	const ephemeral = "{name: v, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}"
	for name, row := range map[string]struct{ spec, want string }{
		"node selector":        {"nodeSelector: {kubernetes.io/os: linux, zone: ''}", ""},
		"node selector, value": {"nodeSelector: {zone: a b}", `spec.nodeSelector[zone]: Invalid value: "a b"`},
		"node selector, key":   {"nodeSelector: {a b: c}", `spec.nodeSelector: Invalid value: "a b"`},
		"claim":                {"volumes: [" + ephemeral + ", {name: w, persistentVolumeClaim: {claimName: w}}]", ""},
		"claim with the name of a generated claim": {
			"volumes: [{name: w, persistentVolumeClaim: {claimName: POD-v}}, " + ephemeral + "]",
			"spec.volumes[0].persistentVolumeClaim.claimName: Invalid value: ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := podtest.Pod(t, row.spec)
			for i := range p.Spec.Volumes {
				if c := p.Spec.Volumes[i].PersistentVolumeClaim; c != nil && c.ClaimName == "POD-v" {
					c.ClaimName = p.Name + "-v"
				}
			}
			requireRefused(t, podapi.Validate(p).ToAggregate(), row.want)
		})
	}
}
