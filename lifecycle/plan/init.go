// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/containers"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podview"
	"github.com/seed81659283/nodeagent/probe"
)

// initProgress is the progress of the init containers of a pod.
type initProgress uint8

const (
	initDone    initProgress = iota // all have completed: the regular containers may run
	initPending                     // the regular containers must wait
	initFailed                      // an init container failed for good: the pod fails
)

// planInit plans to start the next init container and to restart exited sidecars. Source: computeInitContainerActions in
// pkg/kubelet/kuberuntime/kuberuntime_container.go.
func (p *planner) planInit() initProgress {
	specs := p.state.Pod.Spec.InitContainers
	if len(specs) == 0 {
		return initDone
	}
	progress := initPending
	passed := p.view.HasInitialized(p.out.SandboxID) // the containers before index i have completed
	if passed {
		progress = initDone
	}
	var turns []int
	for i := len(specs) - 1; i >= 0; i-- {
		// The last init container is examined first: the runtime may have removed exited containers, and the existence of a later
		// container proves that the earlier ones have completed.
		c := &specs[i]
		last := p.view.NewestInSandbox(c.Name, p.out.SandboxID)
		if last == nil {
			if passed && containers.IsSidecar(c) {
				turns = append(turns, i)
			}
			continue
		}
		if passed && !containers.IsSidecar(c) {
			continue
		}
		step := p.planInitContainer(c, last)
		if step.failed {
			return initFailed
		}
		if step.complete && i == len(specs)-1 {
			progress = initDone
		} else if step.complete && !passed {
			turns = append(turns, i+1)
		}
		if step.restart {
			turns = append(turns, i)
		}
		passed = true
	}
	if !passed {
		turns = append(turns, 0)
	}
	for _, i := range slices.Backward(turns) {
		p.planStart(&specs[i])
	}
	return progress
}

// initStep is the decision about one init container. The zero value means that the container continues, and that the next init
// container waits.
type initStep struct {
	restart  bool // the container is started again
	complete bool // the next init container may start, or the regular containers if there is none
	failed   bool // the pod fails
}

// planInitContainer plans the actions for the newest instance of an init container. For the result see initStep.
func (p *planner) planInitContainer(container *corev1.Container, last *cri.Container) initStep {
	switch last.State {
	case cri.ContainerCreated:
		return initStep{restart: true}
	case cri.ContainerRunning:
		if !containers.IsSidecar(container) {
			p.planResize(last)
			return initStep{}
		}
		return p.planSidecar(container, last)
	case cri.ContainerExited:
		switch {
		case containers.IsSidecar(container):
			return initStep{restart: true}
		case last.ExitCode == 0 && last.Reason != reasonOOMKilled:
			return initStep{complete: true}
		}
		restart := podview.ShouldRestart(&p.state.Pod.Spec, container, last.ExitCode)
		return initStep{restart: restart, failed: !restart}
	}
	// The container may still run. Its exit code is unknown, so restart rules cannot be evaluated.
	if !containers.IsSidecar(container) && !shouldRestartAfterUnknownExit(&p.state.Pod.Spec, container) {
		return initStep{failed: true}
	}
	p.addKill(last, "the runtime lost track of it", `Init container is in "unknown" state, try killing it before restart`)
	return initStep{restart: true}
}

// reasonOOMKilled is the termination reason of a container in which the kernel killed a process for lack of memory. An init
// container with this reason has failed, even if its exit code is 0.
const reasonOOMKilled = "OOMKilled"

// planSidecar plans the actions for a running instance of a sidecar (restartable init container). For the result see
// initStep.
func (p *planner) planSidecar(container *corev1.Container, live *cri.Container) initStep {
	started := container.StartupProbe == nil || p.hasProbeResult(container.StartupProbe, live, probe.Startup, probe.Success)
	failed, must := p.failedProbe(container, live)
	switch {
	case must && failed.Kind == probe.Startup:
		p.addProbeKill(live, failed)
		return initStep{restart: true}
	// The next init container waits for the startup probe and the postStart hook, not for the liveness probe.
	case !started:
		return initStep{}
	case isChanged(container, live):
		p.addKill(live, "its definition changed", "Init container "+container.Name+" definition changed")
		return initStep{restart: true, complete: true}
	case must:
		p.addProbeKill(live, failed)
		return initStep{restart: true, complete: true}
	case p.hasFailedDevice(live):
		p.addDeviceKill(live)
		return initStep{restart: true, complete: true}
	}
	if !p.planResize(live) {
		return initStep{restart: true, complete: true}
	}
	if slices.Contains(p.state.PostStartPending, live.ID) {
		p.planPostStart(container, live)
		return initStep{}
	}
	return initStep{complete: true}
}

// shouldRestartAfterUnknownExit reports whether a container is restarted if its exit code is unknown, or not yet known.
func shouldRestartAfterUnknownExit(pod *corev1.PodSpec, container *corev1.Container) bool {
	// Restart rules need the exit code.
	if container.RestartPolicy != nil {
		return *container.RestartPolicy != corev1.ContainerRestartPolicyNever
	}
	return pod.RestartPolicy != corev1.RestartPolicyNever
}
