// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/seed81659283/nodeagent/internal/exetest"
)

// rejectedPods are pods that a kubelet rejects, by the cause: the text of metadata after the name, and the text of spec.
func rejectedPods() map[string][2]string {
	return map[string][2]string{
		"sysctl":     {"", "securityContext: {sysctls: [{name: kernel.msgmax, value: \"65536\"}]}"},
		"windows":    {"", "os: {name: windows}"},
		"apparmor":   {"", "securityContext: {appArmorProfile: {type: RuntimeDefault}}"},
		"annotation": {", annotations: {container.apparmor.security.beta.kubernetes.io/main: runtime/default}", "enableServiceLinks: false"},
		"label":      {", labels: {kubernetes.io/os: windows}", "enableServiceLinks: false"},
		"selector":   {"", "nodeSelector: {zone: moon}"},
		"cpu":        {"", "resources: {requests: {cpu: \"1000\"}}"},
	}
}

// A pod that kubelet 1.37.1 rejects is rejected by the agent with the same status and the same event.
func TestClusterRejectionsBesideKubelet(t *testing.T) {
	m := newMember(t, map[string]any{})
	address := m.lab.Subnet().Addr().Next().String()
	m.apply(fmt.Sprintf(podOnNodeYAML, "n1"))
	m.eventually(timeout, "get", "pod", "pod-of-n1", "-o", "jsonpath={.status.phase}")("Running") // and the bridge has its address
	m.startPeer(address, map[string]any{})
	m.eventually(clusterTimeout, "get", "node", "n2", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)("True")
	m.do("delete", "pod", "pod-of-n1", "--timeout=60s")

	for name, pod := range rejectedPods() {
		for _, node := range []string{"n1", "n2"} {
			m.apply(fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s-%s%s}
spec:
  nodeName: %s
  %s
  containers: [{name: main, image: nodeagent.test/busybox:1, command: [sleep, "1000"]}]
`, name, node, pod[0], node, pod[1]))
		}
	}

	for name := range rejectedPods() {
		statusAndEvents := func(node string) (text string) {
			exetest.Eventually(t, clusterTimeout, func() (err error) {
				pod := name + "-" + node
				status, err := m.try("", "get", "pod", pod, "-o", "jsonpath={.status.phase}: {.status.reason}: {.status.message}, {.status.qosClass} "+
					"{.status.observedGeneration} {.status.conditions} {.status.containerStatuses}")
				if err != nil || !strings.HasPrefix(status, "Failed") {
					return fmt.Errorf("pod %s: %s: %w", pod, status, err)
				}
				events, err := m.try("", "get", "events", "--field-selector", "involvedObject.name="+pod, "-o", `jsonpath={range .items[*]}{.type} {.reason} {.message}{"\n"}{end}`)
				if err == nil && events == "" {
					err = fmt.Errorf("pod %s: no event", pod)
				}
				text = status + "\n" + events
				return err
			})
			return text
		}
		assert.Equal(t, statusAndEvents("n2"), statusAndEvents("n1"), name)
	}
}
