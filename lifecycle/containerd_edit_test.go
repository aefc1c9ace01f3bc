// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/remote"
)

// busyRuntime delays the state of a container, like a runtime with many pods.
type busyRuntime struct{ *remote.Client }

func (b busyRuntime) ContainerStatus(ctx context.Context, id string) (cri.Container, error) {
	select {
	case <-time.After(500 * time.Millisecond):
		return b.Client.ContainerStatus(ctx, id)
	case <-ctx.Done():
		return cri.Container{}, ctx.Err()
	}
}

// editedScenario is a static pod whose manifest changes while no agent runs. Its two versions never run at the same time.
func editedScenario() podScenario {
	return podScenario{
		name: "manifest changes while no agent runs",
		via:  func(c *remote.Client) execRuntime { return busyRuntime{c} },
		pod: func(h *host) *corev1.Pod {
			return h.newPod(h.sh("old", `trap 'sleep 2; echo gone; exit 0' TERM; echo up; while :; do sleep 3600 & wait $!; done`))
		},
		act: func(h *host) {
			h.awaitUp("old")
			pod := h.newPod(h.sh("new", exitOnTerm+"echo up; "+sleepForever))
			pod.UID += "-edited"
			h.running.Lock()
			defer h.running.Unlock()
			h.stop()
			h.set(pod)
			h.startAgent()
		},
		end:    "Running, new: ready",
		logged: []string{"old: up", "old: gone", "new: up"},
	}
}
