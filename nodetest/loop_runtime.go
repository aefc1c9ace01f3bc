// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/crilimits"
	"github.com/seed81659283/nodeagent/nodetest/machine"
)

// Exits of containers, as package critest has them.
const (
	codeStartError   = 128
	reasonStartError = "StartError"
	reasonOOMKilled  = "OOMKilled"
)

// killedExit is how a container exits that SIGKILL has killed.
var killedExit = critest.Exit{Code: 137} //nolint:gochecknoglobals // constant

// loopContainer is a container in the runtime of a Loop.
type loopContainer struct {
	cri.Container
	behavior Behavior
	began    time.Time // start in the time of the queue
	onExit   []func()  // called when it exits
}

// callRuntime simulates the runtime call op for the object id. After half of the latency it calls effect, which passes its error to done. After the
// other half it calls then with this error. A fault may delay, fail or hang the call.
func (p *loopPod) callRuntime(op, id string, effect func(done func(error)), then func(error)) {
	l, epoch := p.loop, p.epoch
	half := max(l.options.Latency(op, id), 0) / 2
	step := func(d time.Duration, run func()) {
		l.queue.after(d, func() {
			if p.epoch == epoch { // otherwise the sync of the pod was canceled
				run()
			}
		})
	}
	fail := func(err error) { step(0, func() { then(err) }) }
	f := l.faults.takeFault(op)
	if f == nil {
		f = &Fault{}
	}
	step(f.Delay, func() {
		if f.Hang {
			return
		}
		if err := cmp.Or(f.Err, l.options.Fault(l.ctx, op, id)); err != nil {
			fail(err)
			return
		}
		step(half, func() { effect(func(err error) { step(half, func() { then(err) }) }) })
	})
}

// callNow simulates a runtime call like callRuntime, with an effect that takes no time.
func (p *loopPod) callNow(op, id string, effect func() error, then func(error)) {
	p.callRuntime(op, id, func(done func(error)) { done(effect()) }, then)
}

// runSandbox creates a ready sandbox. It assigns an address, unless the sandbox is in the network of the node.
func (p *loopPod) runSandbox(config *cri.SandboxConfig) *cri.Sandbox {
	sb := &cri.Sandbox{
		ID: p.id.UID + "-" + strconv.FormatUint(uint64(config.Attempt), 10), Pod: p.id, Attempt: config.Attempt, CreatedAt: p.loop.wallClock(),
		Labels: config.Labels, Annotations: config.Annotations, RuntimeHandler: config.RuntimeHandler, Namespaces: config.Security.Namespaces,
	}
	if sb.Namespaces.Network != cri.NamespaceNode {
		sb.IPs = []string{p.loop.allocateAddr().String()}
	}
	p.sandboxes = append(p.sandboxes, sb)
	p.reportChange()
	return sb
}

// allocateAddr returns the next address in the range of pod addresses. After the last address it continues with the first.
func (l *Loop) allocateAddr() netip.Addr {
	l.created++
	prefix := l.setup.podCIDR.Masked()
	addr := prefix.Addr().As4()
	size := uint32(1) << (32 - prefix.Bits())
	n := uint32(l.created)%max(size-2, 1) + 1
	for i := range 4 {
		addr[3-i] |= byte(n >> (8 * i))
	}
	return netip.AddrFrom4(addr)
}

// stopSandbox kills the containers of a sandbox and makes it not ready.
func (p *loopPod) stopSandbox(id string) {
	i := slices.IndexFunc(p.sandboxes, func(s *cri.Sandbox) bool { return s.ID == id })
	if i < 0 {
		return
	}
	for _, c := range p.containers {
		if c.SandboxID == id {
			p.exitContainer(c, killedExit)
		}
	}
	if p.sandboxes[i].State == cri.SandboxReady {
		p.sandboxes[i].State = cri.SandboxNotReady
		p.reportChange()
	}
	p.sandboxes[i].IPs = nil
}

// removeSandbox stops and removes a sandbox with its containers.
func (p *loopPod) removeSandbox(id string) {
	p.stopSandbox(id)
	for _, c := range slices.Clone(p.containers) {
		if c.SandboxID == id {
			p.removeContainer(c.ID)
		}
	}
	p.sandboxes = slices.DeleteFunc(p.sandboxes, func(s *cri.Sandbox) bool { return s.ID == id })
	p.reportChange()
}

// createContainer creates a container in the sandbox with this ID. Its state is created.
func (p *loopPod) createContainer(sandbox string, config *cri.ContainerConfig) *loopContainer {
	c := &loopContainer{behavior: p.loop.options.behaviorOf(p.pod, config.Name), Container: cri.Container{
		ID:        p.id.UID + "-" + config.Name + "-" + strconv.FormatUint(uint64(config.Attempt), 10),
		SandboxID: sandbox, PodUID: p.id.UID, Name: config.Name, Attempt: config.Attempt, State: cri.ContainerCreated, CreatedAt: p.loop.wallClock(),
		Image: config.Image, ImageRef: "nodetest", ImageID: "nodetest", Labels: config.Labels, Annotations: config.Annotations, Mounts: config.Mounts,
		Resources: config.Resources, StopSignal: cmp.Or(config.StopSignal, "SIGTERM"),
	}}
	p.containers = append(p.containers, c)
	p.reportChange()
	return c
}

// findContainer returns the container with this ID, or nil.
func (p *loopPod) findContainer(id string) *loopContainer {
	i := slices.IndexFunc(p.containers, func(c *loopContainer) bool { return c.ID == id })
	if i < 0 {
		return nil
	}
	return p.containers[i]
}

// startContainer starts the created container c: it runs the behavior of c as a process of the simulated machine. If the
// behavior has a StartError, the state of c becomes exited.
func (p *loopPod) startContainer(c *loopContainer) error {
	if err := c.behavior.StartError; err != nil {
		c.failStart(p.loop.wallClock(), err)
		return err
	}
	c.State, c.StartedAt, c.began = cri.ContainerRunning, p.loop.wallClock(), p.loop.clock()
	if e := c.behavior.Exit; e != nil && e.After != critest.Never {
		p.loop.queue.after(e.After, func() { p.exitContainer(c, *e) })
	}
	p.reportChange()
	if err := p.startProcess(c); err != nil {
		p.exitContainer(c, critest.Exit{Code: codeStartError, Reason: reasonStartError, Message: err.Error()})
	}
	return nil
}

// failStart sets the state of a container to exited, because its start has failed with err.
func (c *loopContainer) failStart(now time.Time, err error) {
	c.State, c.FinishedAt = cri.ContainerExited, now
	c.ExitCode, c.Reason, c.Message = codeStartError, reasonStartError, err.Error()
}

// startProcess starts the process of a container.
func (p *loopPod) startProcess(c *loopContainer) error {
	limits, err := crilimits.Convert(c.Resources)
	if err != nil {
		return err
	}
	process := machine.Process{Cgroup: p.cgroupOf(c), Name: c.ID}
	if c.Resources != nil {
		process.OOMScoreAdj = int(c.Resources.OOMScoreAdj)
	}
	p.loop.containers.addContainer(c.ID, &simulatedContainer{pod: p.id, name: c.Name, cgroup: process.Cgroup})
	return p.loop.kernel.startProcess(p.loop.ctx, p.id.UID, process, limits, &c.behavior.Usage)
}

// cgroupOf returns the cgroup of a container.
func (p *loopPod) cgroupOf(c *loopContainer) cgroups.Path { return p.cgroup.Join(c.ID) }

// stopContainer makes the container exit as if it had received the stop signal, and kills it after the grace period. It
// calls done when the container has exited.
func (p *loopPod) stopContainer(id string, grace time.Duration, done func(error)) {
	c := p.findContainer(id)
	if c == nil || c.State != cri.ContainerRunning {
		done(nil)
		return
	}
	epoch := p.epoch
	c.onExit = append(c.onExit, func() { done(nil) })
	if grace <= 0 {
		p.exitContainer(c, killedExit)
		return
	}
	stop := critest.Exit{Code: 128 + 15}
	if c.behavior.Stop != nil {
		stop = *c.behavior.Stop
	}
	if stop.After != critest.Never {
		p.loop.queue.after(stop.After, func() { p.exitContainer(c, stop) })
	}
	p.loop.queue.after(grace, func() {
		if p.epoch == epoch { // else the call was cancelled
			p.exitContainer(c, killedExit)
		}
	})
}

// exitByID makes the running container with this ID exit.
func (p *loopPod) exitByID(id string, exit critest.Exit) {
	if c := p.findContainer(id); c != nil {
		p.exitContainer(c, exit)
	}
}

// exitContainer makes a running container exit with the given exit code and reason. It does nothing if the container is not running.
func (p *loopPod) exitContainer(c *loopContainer, exit critest.Exit) {
	if c.State != cri.ContainerRunning {
		return
	}
	c.State, c.FinishedAt = cri.ContainerExited, p.loop.wallClock()
	c.ExitCode, c.Message = exit.Code, exit.Message
	switch c.Reason = exit.Reason; {
	case c.Reason != "":
	case c.ExitCode == 0:
		c.Reason = "Completed"
	default:
		c.Reason = "Error"
	}
	p.loop.kernel.endProcess(p.loop.ctx, c.ID, p.cgroupOf(c))
	p.loop.log.recordExit(p.id, c.Name, c.ExitCode)
	p.reportChange()
	for _, f := range c.onExit {
		f()
	}
	c.onExit = nil
}

// removeContainer removes the container with this ID. It kills a running container first.
func (p *loopPod) removeContainer(id string) {
	c := p.findContainer(id)
	if c == nil {
		return
	}
	p.exitContainer(c, killedExit)
	p.containers = slices.DeleteFunc(p.containers, func(o *loopContainer) bool { return o == c })
	p.loop.kernel.machine.RemoveFiles(id)
	p.loop.containers.removeContainer(id)
	p.reportChange()
}

// snapshot returns the pod as the runtime lists it.
func (p *loopPod) snapshot() cri.Pod {
	s := cri.Pod{PodIdentity: p.id, Time: p.loop.clock(), Sandboxes: make([]cri.Sandbox, len(p.sandboxes)), Containers: make([]cri.Container, len(p.containers))}
	for i, sb := range p.sandboxes {
		s.Sandboxes[i] = *sb
	}
	for i, c := range p.containers {
		s.Containers[i] = c.Container
	}
	return s
}
