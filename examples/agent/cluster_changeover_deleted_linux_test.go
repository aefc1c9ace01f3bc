// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// Pods of a kubelet or of an agent are deleted while neither program runs. The containers of some pods are removed, too, as by a reboot. The program that
// starts removes the remaining containers, and the volumes of all pods, also those of claims and of CSI drivers.
func TestClusterChangeOverOfDeletedPods(t *testing.T) {
	n := newTurnNode(t)
	kinds := slices.DeleteFunc(podKinds(), func(k podKind) bool {
		return !slices.Contains([]string{"config", "memory", "inline", "claim", "attached", "block"}, k.name)
	})
	program := n.kubelet
	for range 2 {
		n.start(program)
		n.createKinds(kinds)
		n.stop(true)
		pods := n.standingPods()
		n.m.do("delete", "deployment", "--all")
		n.m.do("delete", "pod", "-l", "app", "--grace-period=0", "--force")
		n.removeHalf(pods)
		n.makePodDirsOld()
		n.start(n.other())
		n.requireNothingLeft()
		n.stop(false)
		require.Empty(t, errorsAboutPods(n.p), n.name())
		n.m.do("delete", "pvc", "--all")
		n.m.do("delete", "pv", "--all")
		program = n.ours
	}
}

// removeHalf removes the sandboxes of the pods whose names end with 0, with their containers.
func (n *turnNode) removeHalf(pods []corev1.Pod) {
	n.t.Helper()
	for i := range pods {
		if strings.HasSuffix(pods[i].Name, "-0") {
			n.removeSandboxes(pods[i].Name)
		}
	}
}
