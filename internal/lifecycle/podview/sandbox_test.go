// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podview_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podview"
)

// sandbox returns a ready sandbox with an IP address, with changes applied.
func sandbox(id string, attempt uint32, changes ...func(s *cri.Sandbox)) cri.Sandbox {
	s := cri.Sandbox{ID: id, Attempt: attempt, State: cri.SandboxReady, IPs: []string{"10.0.0.7"}}
	for _, change := range changes {
		change(&s)
	}
	return s
}

func notReady(s *cri.Sandbox)            { s.State = cri.SandboxNotReady }
func withoutIPs(s *cri.Sandbox)          { s.IPs = nil }
func onHostNetwork(s *cri.Sandbox)       { s.Namespaces.Network = cri.NamespaceNode }
func requestedPodNetwork(s *cri.Sandbox) { setRequestedNetwork(s, cri.NamespacePod) }
func requestedHostNetwork(s *cri.Sandbox) {
	setRequestedNetwork(s, cri.NamespaceNode)
}

func setRequestedNetwork(s *cri.Sandbox, mode cri.NamespaceMode) {
	s.Annotations = map[string]string{podview.AnnotationNetwork: mode.String()}
}

func TestSandboxChange(t *testing.T) {
	tests := map[string]struct {
		hostNetwork bool
		sandboxes   []cri.Sandbox
		want        podview.SandboxChange
	}{
		"no sandbox":    {want: podview.SandboxChange{Create: true, Reason: "no pod sandbox exists"}},
		"ready sandbox": {sandboxes: []cri.Sandbox{sandbox("s0", 0)}, want: podview.SandboxChange{ID: "s0"}},
		"old and new sandbox": {
			sandboxes: []cri.Sandbox{sandbox("s1", 1), sandbox("s0", 0, notReady)}, want: podview.SandboxChange{ID: "s1", Attempt: 1},
		},
		"not ready": {
			sandboxes: []cri.Sandbox{sandbox("s4", 4, notReady)},
			want:      podview.SandboxChange{Create: true, Attempt: 5, Reason: "pod sandbox is not ready"},
		},
		"newest sandbox not ready": {
			sandboxes: []cri.Sandbox{sandbox("s0", 0), sandbox("s1", 1, notReady)},
			want:      podview.SandboxChange{Create: true, Attempt: 2, Reason: "pod sandbox is not ready"},
		},
		"two ready sandboxes": {
			sandboxes: []cri.Sandbox{sandbox("s0", 0), sandbox("s1", 1)},
			want:      podview.SandboxChange{Create: true, Attempt: 2, Reason: "multiple pod sandboxes are ready and need to be reconciled"},
		},
		"sandbox without IP address": {
			sandboxes: []cri.Sandbox{sandbox("s0", 0, withoutIPs)},
			want:      podview.SandboxChange{Create: true, Attempt: 1, Reason: "pod sandbox has no IP address"},
		},
		"host network": {
			hostNetwork: true, sandboxes: []cri.Sandbox{sandbox("s0", 0, withoutIPs, onHostNetwork)}, want: podview.SandboxChange{ID: "s0"},
		},
		"host network, pod network requested": {
			sandboxes: []cri.Sandbox{sandbox("s0", 0, onHostNetwork)},
			want:      podview.SandboxChange{Create: true, Attempt: 1, Reason: "network namespace mode changed and sandbox needs to be recreated"},
		},
		"pod network, host network requested": {
			hostNetwork: true, sandboxes: []cri.Sandbox{sandbox("s0", 0, requestedPodNetwork)},
			want: podview.SandboxChange{Create: true, Attempt: 1, Reason: "network namespace mode changed and sandbox needs to be recreated"},
		},
		"runtime without pod networks": {
			sandboxes: []cri.Sandbox{sandbox("s0", 0, withoutIPs, onHostNetwork, requestedPodNetwork)}, want: podview.SandboxChange{ID: "s0"},
		},
		"runtime without pod networks, mode changed": {
			sandboxes: []cri.Sandbox{sandbox("s0", 0, withoutIPs, onHostNetwork, requestedHostNetwork)},
			want:      podview.SandboxChange{Create: true, Attempt: 1, Reason: "network namespace mode changed and sandbox needs to be recreated"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			pod := podtest.Pod("a")
			pod.Spec.HostNetwork = tt.hostNetwork
			v := podview.New(pod, cri.Pod{Sandboxes: tt.sandboxes})
			require.Equal(t, tt.want, v.SandboxChange())
		})
	}
}
