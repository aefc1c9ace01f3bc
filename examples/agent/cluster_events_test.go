// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/exetest"
)

// eventPods are pods with one kind of event each.
const eventPods = `
apiVersion: v1
kind: Pod
metadata: {name: plain}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: nodeagent.test/busybox:1, command: [sleep, "1000000"]}]
---
apiVersion: v1
kind: Pod
metadata: {name: crashes}
spec:
  containers: [{name: main, image: nodeagent.test/busybox:1, command: ["false"]}]
---
apiVersion: v1
kind: Pod
metadata: {name: pulls}
spec:
  containers: [{name: main, image: "nodeagent.invalid/nothing:1"}]
---
apiVersion: v1
kind: Pod
metadata: {name: lacks}
spec:
  containers: [{name: main, image: "nodeagent.test/nothing:1", imagePullPolicy: Never}]
---
apiVersion: v1
kind: Pod
metadata: {name: misnamed}
spec:
  containers: [{name: main, image: "Nodeagent.test/UPPER:1"}]
---
apiVersion: v1
kind: Pod
metadata: {name: ill}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: nodeagent.test/busybox:1
    command: [sleep, "1000000"]
    readinessProbe: {exec: {command: [sh, -c, "echo no; exit 1"]}, periodSeconds: 1}
    livenessProbe: {exec: {command: [sh, -c, "echo bad; exit 2"]}, periodSeconds: 1, failureThreshold: 2}
---
apiVersion: v1
kind: Pod
metadata: {name: redirected}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: nodeagent.test/busybox:1
    command: [sh, -c, 'while :; do printf "HTTP/1.1 302 Found\r\nLocation: http://example.com/\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" | nc -l -p 8080; done']
    readinessProbe: {httpGet: {port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Pod
metadata: {name: hooked}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: nodeagent.test/busybox:1
    command: [sleep, "1000000"]
    lifecycle: {postStart: {exec: {command: [sh, -c, "echo secret; exit 3"]}}}
---
apiVersion: v1
kind: Pod
metadata: {name: mounts}
spec:
  containers:
  - name: main
    image: nodeagent.test/busybox:1
    volumeMounts: [{name: v, mountPath: /v}]
  volumes: [{name: v, secret: {secretName: none}}]
---
apiVersion: v1
kind: Pod
metadata: {name: misconfigured}
spec:
  containers:
  - name: main
    image: nodeagent.test/busybox:1
    env: [{name: X, valueFrom: {configMapKeyRef: {name: none, key: none}}}]
`

// wantEvents are the expected events of each pod: type, reason and the beginning of the message. The events of the kubelet
// for the same pods are equal, with two exceptions. They have no text after "Error: ErrImagePull", and do not name the field
// of a misconfigured pod.
var wantEvents = map[string][]string{
	"plain": {
		`Normal Pulled Container image "nodeagent.test/busybox:1" already present on machine and can be accessed by the pod`,
		"Normal Created Container created", "Normal Started Container started",
	},
	"crashes":       {"Warning BackOff Back-off restarting failed container main in pod crashes_default("},
	"pulls":         {`Normal Pulling Pulling image "nodeagent.invalid/nothing:1"`, `Warning Failed Failed to pull image "nodeagent.invalid/nothing:1": `, "Warning Failed Error: ErrImagePull", `Normal BackOff Back-off pulling image "nodeagent.invalid/nothing:1"`, "Warning Failed Error: ImagePullBackOff"},
	"lacks":         {`Warning ErrImageNeverPull Container image "nodeagent.test/nothing:1" is not present with pull policy of Never`, "Warning Failed Error: ErrImageNeverPull"},
	"misnamed":      {`Warning InspectFailed Failed to apply default image tag "Nodeagent.test/UPPER:1": `, "Warning Failed Error: InvalidImageName"},
	"ill":           {"Warning Unhealthy Readiness probe failed: no", "Warning Unhealthy Liveness probe failed: bad", "Normal Killing Container main failed liveness probe, will be restarted"},
	"redirected":    {"Warning ProbeWarning Readiness probe warning: "},
	"hooked":        {"Warning FailedPostStartHook PostStartHook failed", "Normal Killing FailedPostStartHook"},
	"mounts":        {`Warning FailedMount MountVolume.SetUp failed for volume "v" : secret "none" not found`},
	"misconfigured": {`Warning Failed Error: CreateContainerConfigError: spec.containers[0].env[0].valueFrom.configMapKeyRef.name: Not found: "none"`},
}

// The events of pods have the types, reasons and messages of the kubelet.
func TestClusterEvents(t *testing.T) {
	m := newMember(t, map[string]any{})
	m.apply(eventPods)
	for pod, wants := range wantEvents {
		exetest.Eventually(t, 2*timeout, func() error { return m.checkEvents(pod, wants) })
	}
	m.do("delete", "pod", "plain", "--timeout=20s")
	exetest.Eventually(t, timeout, func() error { return m.checkEvents("plain", []string{"Normal Killing Stopping container main"}) })
	for _, e := range m.agentEvents("plain") {
		require.Equal(t, corev1.EventSource{Component: "kubelet", Host: "n1"}, e.Source, "the event has the source that tools select by")
	}
	require.NotContains(t, m.do("get", "events", "-o", "json"), "echo secret", "the command and the output of a hook are in no event")
	m.do("delete", "pods", "--all", "--grace-period=1", "--timeout=25s")
}

// agentEvents returns the events of a pod that the agent has sent.
func (m *member) agentEvents(pod string) []corev1.Event {
	m.t.Helper()
	var list corev1.EventList
	require.NoError(m.t, json.Unmarshal([]byte(m.do("get", "events", "--field-selector", "involvedObject.name="+pod, "-o", "json")), &list))
	var sent []corev1.Event
	for _, e := range list.Items {
		if e.Source.Component != "default-scheduler" && e.ReportingController != "default-scheduler" {
			sent = append(sent, e)
		}
	}
	return sent
}

// checkEvents returns an error that names the missing events of a pod.
func (m *member) checkEvents(pod string, wants []string) error {
	var errs []error
	var all strings.Builder
	events := m.agentEvents(pod)
	for _, e := range events {
		fmt.Fprintf(&all, "\n%s %s %s", e.Type, e.Reason, e.Message)
	}
	for _, want := range wants {
		if !strings.Contains(all.String(), "\n"+want) {
			errs = append(errs, fmt.Errorf("no event %q", want))
		}
	}
	if len(errs) > 0 {
		errs = append(errs, fmt.Errorf("events of pod %s:%s", pod, all.String()))
	}
	return errors.Join(errs...)
}
