// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podapi_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/seed81659283/nodeagent/internal/podtest"
	"github.com/seed81659283/nodeagent/lifecycle/podapi"
)

func TestDefaultProbesAndHooks(t *testing.T) {
	p := podtest.Pod(t, `initContainers: [{name: i, image: i, restartPolicy: Always, livenessProbe: {tcpSocket: {port: 1}}}]`, `{
		readinessProbe: {httpGet: {port: 80}, periodSeconds: 3, timeoutSeconds: 2, successThreshold: 2, failureThreshold: 1},
		startupProbe: {grpc: {port: 1}},
		lifecycle: {preStop: {httpGet: {port: http, scheme: HTTPS, path: /x}}, postStart: {httpGet: {port: 1}}}}`)
	c := p.Spec.Containers[0]
	assert.Equal(t, &corev1.Probe{
		ProbeHandler:     corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(1)}},
		TimeoutSeconds:   1,
		PeriodSeconds:    10,
		SuccessThreshold: 1,
		FailureThreshold: 3,
	}, p.Spec.InitContainers[0].LivenessProbe)
	assert.Equal(t, &corev1.Probe{
		ProbeHandler:     corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(80), Scheme: "HTTP"}},
		TimeoutSeconds:   2,
		PeriodSeconds:    3,
		SuccessThreshold: 2,
		FailureThreshold: 1,
	}, c.ReadinessProbe, "fields that are set keep their values")
	assert.Equal(t, "", *c.StartupProbe.GRPC.Service)
	assert.Equal(t, &corev1.HTTPGetAction{Path: "/x", Port: intstr.FromString("http"), Scheme: "HTTPS"}, c.Lifecycle.PreStop.HTTPGet)
	assert.Equal(t, &corev1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(1), Scheme: "HTTP"}, c.Lifecycle.PostStart.HTTPGet)
}

func TestValidateProbesAndHooks(t *testing.T) {
	for name, test := range map[string]struct{ container, want string }{
		"exec":                               {"livenessProbe: {exec: {command: [a]}}", ""},
		"http":                               {"readinessProbe: {httpGet: {port: 80, host: h, httpHeaders: [{name: X-A, value: b}]}}", ""},
		"tcp":                                {"startupProbe: {tcpSocket: {port: web}, terminationGracePeriodSeconds: 1}", ""},
		"grpc":                               {"livenessProbe: {grpc: {port: 1, mode: TLS}}", ""},
		"all thresholds":                     {"readinessProbe: {tcpSocket: {port: 1}, successThreshold: 3, failureThreshold: 1}", ""},
		"no handler":                         {"livenessProbe: {}", "livenessProbe: Required value: must have a handler"},
		"two handlers":                       {"readinessProbe: {exec: {command: [a]}, tcpSocket: {port: 1}}", "readinessProbe.tcpSocket: Forbidden: may not be set beside another handler"},
		"no command":                         {"livenessProbe: {exec: {}}", "livenessProbe.exec.command: Required value"},
		"port 0":                             {"livenessProbe: {tcpSocket: {port: 0}}", "livenessProbe.tcpSocket.port: Invalid value: 0: must be between 1 and 65535"},
		"port too high":                      {"livenessProbe: {httpGet: {port: 65536}}", "livenessProbe.httpGet.port: Invalid value: 65536"},
		"port name":                          {"livenessProbe: {httpGet: {port: '80'}}", `livenessProbe.httpGet.port: Invalid value: "80": must contain at least one letter`},
		"grpc port":                          {"livenessProbe: {grpc: {port: 0}}", "livenessProbe.grpc.port: Invalid value: 0"},
		"grpc mode":                          {"livenessProbe: {grpc: {port: 1, mode: X}}", `livenessProbe.grpc.mode: Unsupported value: "X"`},
		"scheme":                             {"livenessProbe: {httpGet: {port: 1, scheme: http}}", `livenessProbe.httpGet.scheme: Unsupported value: "http"`},
		"header":                             {"livenessProbe: {httpGet: {port: 1, httpHeaders: [{name: 'a b', value: c}]}}", `livenessProbe.httpGet.httpHeaders[0].name: Invalid value: "a b"`},
		"HTTP/2":                             {"livenessProbe: {httpGet: {port: 1, protocol: HTTP2}}", ""},
		"HTTP/2 over TLS":                    {"livenessProbe: {httpGet: {port: 1, protocol: HTTP2, scheme: HTTPS}}", `livenessProbe.httpGet.protocol: Invalid value: "HTTP2"`},
		"HTTP/2 to another host":             {"livenessProbe: {httpGet: {port: 1, protocol: HTTP2, host: h}}", `livenessProbe.httpGet.host: Invalid value: "h"`},
		"negative delay":                     {"livenessProbe: {tcpSocket: {port: 1}, initialDelaySeconds: -1}", "livenessProbe.initialDelaySeconds: Invalid value: -1"},
		"negative timeout":                   {"livenessProbe: {tcpSocket: {port: 1}, timeoutSeconds: -1}", "livenessProbe.timeoutSeconds: Invalid value: -1"},
		"negative period":                    {"livenessProbe: {tcpSocket: {port: 1}, periodSeconds: -1}", "livenessProbe.periodSeconds: Invalid value: -1"},
		"negative successes":                 {"readinessProbe: {tcpSocket: {port: 1}, successThreshold: -1}", "readinessProbe.successThreshold: Invalid value: -1"},
		"negative failures":                  {"livenessProbe: {tcpSocket: {port: 1}, failureThreshold: -1}", "livenessProbe.failureThreshold: Invalid value: -1"},
		"liveness, success threshold 2":      {"livenessProbe: {tcpSocket: {port: 1}, successThreshold: 2}", "livenessProbe.successThreshold: Invalid value: 2: must be 1"},
		"startup, success threshold 2":       {"startupProbe: {tcpSocket: {port: 1}, successThreshold: 2}", "startupProbe.successThreshold: Invalid value: 2: must be 1"},
		"readiness, grace period":            {"readinessProbe: {tcpSocket: {port: 1}, terminationGracePeriodSeconds: 5}", "readinessProbe.terminationGracePeriodSeconds: Invalid value: 5"},
		"grace period 0":                     {"livenessProbe: {tcpSocket: {port: 1}, terminationGracePeriodSeconds: 0}", "livenessProbe.terminationGracePeriodSeconds: Invalid value: 0: must be greater than 0"},
		"hooks":                              {"lifecycle: {postStart: {exec: {command: [a]}}, preStop: {sleep: {seconds: 30}}}", ""},
		"no hook":                            {"lifecycle: {postStart: {}}", "lifecycle.postStart: Required value"},
		"two hooks in one":                   {"lifecycle: {preStop: {sleep: {seconds: 1}, httpGet: {port: 1}}}", "lifecycle.preStop.sleep: Forbidden"},
		"sleep longer than the grace period": {"lifecycle: {preStop: {sleep: {seconds: 31}}}", "lifecycle.preStop.sleep: Invalid value: 31: must be from 0 to the pod's grace period of 30 s"},
		"negative sleep":                     {"lifecycle: {postStart: {sleep: {seconds: -1}}}", "lifecycle.postStart.sleep: Invalid value: -1"},
	} {
		t.Run(name, func(t *testing.T) {
			got := firstError(podapi.Validate(podtest.Pod(t, "", test.container)))
			if test.want == "" {
				assert.Empty(t, got)
				return
			}
			assert.True(t, strings.HasPrefix(got, "spec.containers[0]."+test.want), "got  %s\nwant %s", got, test.want)
		})
	}
}

func TestValidateProbesOfInitAndEphemeralContainers(t *testing.T) {
	for name, test := range map[string]struct{ spec, want string }{
		"init and ephemeral":                     {"{initContainers: [{name: i, image: i}], ephemeralContainers: [{name: e, image: i, targetContainerName: c}]}", ""},
		"ephemeral of init":                      {"{initContainers: [{name: i, image: i}], ephemeralContainers: [{name: e, image: i, targetContainerName: i}]}", ""},
		"no regular container":                   {"{initContainers: [{name: i, image: i}], containers: []}", "spec.containers: Required value"},
		"init, name of a regular container":      {"initContainers: [{name: c, image: i}]", `spec.containers[0].name: Duplicate value: "c"`},
		"ephemeral, name of a regular container": {"ephemeralContainers: [{name: c, image: i}]", `spec.ephemeralContainers[0].name: Duplicate value: "c"`},
		"init, no image":                         {"initContainers: [{name: i}]", "spec.initContainers[0].image: Required value"},
		"init with probe": {
			"initContainers: [{name: i, image: i, startupProbe: {tcpSocket: {port: 1}}}]",
			"spec.initContainers[0].startupProbe: Forbidden: may not be set for init containers without restartPolicy Always",
		},
		"init with hook": {"initContainers: [{name: i, image: i, lifecycle: {}}]", "spec.initContainers[0].lifecycle: Forbidden"},
		"init, OnFailure with rules": {
			"initContainers: [{name: i, image: i, restartPolicy: OnFailure, restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [1]}}]}]", "",
		},
		"init, policy": {"initContainers: [{name: i, image: i, restartPolicy: Maybe}]", `spec.initContainers[0].restartPolicy: Unsupported value: "Maybe"`},
		"sidecar":      {"initContainers: [{name: i, image: i, restartPolicy: Always, startupProbe: {tcpSocket: {port: 1}}, lifecycle: {preStop: {exec: {command: [a]}}}}]", ""},
		"sidecar, probe": {
			"initContainers: [{name: i, image: i, restartPolicy: Always, startupProbe: {}}]", "spec.initContainers[0].startupProbe: Required value",
		},
		"ports of init":             {"initContainers: [{name: i, image: i, ports: [{containerPort: 1, hostPort: 5}]}, {name: j, image: i, ports: [{containerPort: 1, hostPort: 5}]}]", ""},
		"ports in init":             {"initContainers: [{name: i, image: i, ports: [{containerPort: 1, hostPort: 5}, {containerPort: 2, hostPort: 5}]}]", "spec.initContainers[0].ports[1].hostPort: Duplicate value"},
		"ephemeral, port":           {"ephemeralContainers: [{name: e, image: i, ports: [{containerPort: 1}]}]", "spec.ephemeralContainers[0].ports: Forbidden"},
		"ephemeral, probe":          {"ephemeralContainers: [{name: e, image: i, livenessProbe: {}}]", "spec.ephemeralContainers[0].livenessProbe: Forbidden"},
		"ephemeral, hook":           {"ephemeralContainers: [{name: e, image: i, lifecycle: {}}]", "spec.ephemeralContainers[0].lifecycle: Forbidden"},
		"ephemeral, limit":          {"ephemeralContainers: [{name: e, image: i, resources: {limits: {cpu: 1}}}]", "spec.ephemeralContainers[0].resources: Forbidden"},
		"ephemeral, restart policy": {"ephemeralContainers: [{name: e, image: i, restartPolicy: Always}]", "spec.ephemeralContainers[0].restartPolicy: Forbidden"},
		"ephemeral, no target": {
			"ephemeralContainers: [{name: e, image: i, targetContainerName: x}]", `spec.ephemeralContainers[0].targetContainerName: Not found: "x"`,
		},
		"ephemeral of ephemeral": {
			"ephemeralContainers: [{name: e, image: i}, {name: f, image: i, targetContainerName: e}]", `spec.ephemeralContainers[1].targetContainerName: Not found: "e"`,
		},
		"ephemeral, sub path": {
			"{volumes: [{name: v}], ephemeralContainers: [{name: e, image: i, volumeMounts: [{name: v, mountPath: /v, subPath: x}]}]}",
			"spec.ephemeralContainers[0].volumeMounts[0].subPath: Forbidden",
		},
		"resize": {"containers: [{name: c, image: i, resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}, {resourceName: memory, restartPolicy: RestartContainer}]}]", ""},
		"duplicate resize policy": {
			"containers: [{name: c, image: i, resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}, {resourceName: cpu, restartPolicy: NotRequired}]}]",
			`spec.containers[0].resizePolicy[1].resourceName: Duplicate value: "cpu"`,
		},
		"resize, RestartContainer with restart policy Never": {
			"{restartPolicy: Never, containers: [{name: c, image: i, resizePolicy: [{resourceName: cpu, restartPolicy: RestartContainer}]}]}",
			"spec.containers[0].resizePolicy[0].restartPolicy: Invalid value: \"RestartContainer\": must be NotRequired when",
		},
		"resize of an init container": {
			"initContainers: [{name: i, image: i, resizePolicy: [{resourceName: cpu, restartPolicy: RestartContainer}]}]",
			"spec.initContainers[0].resizePolicy[0].restartPolicy: Invalid value",
		},
		"host users":                {"hostUsers: false", ""},
		"host users, host network":  {"{hostUsers: false, hostNetwork: true}", "spec.hostNetwork: Forbidden: may not be set when hostUsers is false"},
		"host users, host PID":      {"{hostUsers: false, hostPID: true}", "spec.hostPID: Forbidden"},
		"host users, host IPC":      {"{hostUsers: false, hostIPC: true}", "spec.hostIPC: Forbidden"},
		"host users, block volumes": {"{hostUsers: false, containers: [{name: c, image: i, volumeDevices: [{name: v, devicePath: /v}]}]}", "spec.containers[0].volumeDevices: Forbidden"},
		"host alias":                {"hostAliases: [{ip: 1.2.3.4, hostnames: [a, b.c]}]", ""},
		"host alias, address":       {"hostAliases: [{ip: 1.2.3, hostnames: [a]}]", `spec.hostAliases[0].ip: Invalid value: "1.2.3"`},
		"host alias, leading zero":  {"hostAliases: [{ip: 1.2.3.04, hostnames: [a]}]", `spec.hostAliases[0].ip: Invalid value: "1.2.3.04"`},
		"host alias, name":          {"hostAliases: [{ip: 1.2.3.4, hostnames: [a, b_c]}]", `spec.hostAliases[0].hostnames[1]: Invalid value: "b_c"`},
	} {
		t.Run(name, func(t *testing.T) {
			got := firstError(podapi.Validate(podtest.Pod(t, test.spec)))
			if test.want == "" {
				assert.Empty(t, got)
				return
			}
			assert.True(t, strings.HasPrefix(got, test.want), "got  %s\nwant %s", got, test.want)
		})
	}
}
