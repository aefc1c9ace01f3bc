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

// initProgress is how far the init containers of a pod are.
type initProgress uint8

const (
	initDone    initProgress = iota // the regular containers may run
	initPending                     // they may not yet
	initFailed                      // they never will
)

// planInit starts the init container whose turn it is, and keeps sidecars running. It goes from the last one to the
// first, because the runtime may have lost early ones that have exited: what comes later proves that they did. Source:
// computeInitContainerActions in pkg/kubelet/kuberuntime/kuberuntime_container.go.
func (p *planner) planInit() initProgress {
	specs := p.state.Pod.Spec.InitContainers
	if len(specs) == 0 {
		return initDone
	}
	progress := initPending
	passed := p.view.Initialized(p.out.SandboxID) // all that come before the container that is looked at have had their turn
	if passed {
		progress = initDone
	}
	var turns []int
	for i := len(specs) - 1; i >= 0; i-- {
		c := &specs[i]
		last := p.view.InSandbox(c.Name, p.out.SandboxID)
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

// initStep is the decision about one init container that the runtime has. The zero value lets it run on, and the next one wait.
type initStep struct {
	restart  bool // it is started again
	complete bool // the next init container, or the regular containers, may start
	failed   bool // the pod has failed
}

// planInitContainer decides about the instance last of init container c.
func (p *planner) planInitContainer(c *corev1.Container, last *cri.Container) initStep {
	switch last.State {
	case cri.ContainerCreated:
		return initStep{restart: true}
	case cri.ContainerRunning:
		if !containers.IsSidecar(c) {
			p.planResize(last)
			return initStep{}
		}
		return p.planSidecar(c, last)
	case cri.ContainerExited:
		switch {
		case containers.IsSidecar(c):
			return initStep{restart: true}
		case last.ExitCode == 0 && last.Reason != reasonOOMKilled:
			return initStep{complete: true}
		}
		restart := podview.ShouldRestart(&p.state.Pod.Spec, c, last.ExitCode)
		return initStep{restart: restart, failed: !restart}
	}
	// It may run after all. Its exit code is not known, so no rule can say what follows.
	if !containers.IsSidecar(c) && !shouldRestartAfterUnknownExit(&p.state.Pod.Spec, c) {
		return initStep{failed: true}
	}
	p.addKill(last, "the runtime lost track of it", `Init container is in "unknown" state, try killing it before restart`)
	return initStep{restart: true}
}

// reasonOOMKilled is the reason of a container that the kernel ended for its memory. An init container that lost a
// process that way has failed, whatever it exits with.
const reasonOOMKilled = "OOMKilled"

// planSidecar decides about a running sidecar. The next init container waits for its startup probe, not for its liveness.
func (p *planner) planSidecar(c *corev1.Container, live *cri.Container) initStep {
	started := c.StartupProbe == nil || p.hasProbeResult(c.StartupProbe, live, probe.Startup, probe.Success)
	failed, must := p.failedProbe(c, live)
	switch {
	case must && failed.Kind == probe.Startup:
		p.addProbeKill(live, failed)
		return initStep{restart: true}
	case !started:
		return initStep{}
	case isChanged(c, live):
		p.addKill(live, "its definition changed", "Init container "+c.Name+" definition changed")
		return initStep{restart: true, complete: true}
	case must:
		p.addProbeKill(live, failed)
		return initStep{restart: true, complete: true}
	}
	if !p.planResize(live) {
		return initStep{restart: true, complete: true}
	}
	if slices.Contains(p.state.PostStartPending, live.ID) {
		p.planPostStart(c, live)
		return initStep{}
	}
	return initStep{complete: true}
}

// restartsUnseen reports whether a container is started again when nobody saw how it exited.
func shouldRestartAfterUnknownExit(pod *corev1.PodSpec, c *corev1.Container) bool {
	if c.RestartPolicy != nil {
		return *c.RestartPolicy != corev1.ContainerRestartPolicyNever
	}
	return pod.RestartPolicy != corev1.RestartPolicyNever
}
