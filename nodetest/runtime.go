// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest

import (
	"context"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/cgroupstest"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/crilimits"
	"github.com/seed81659283/nodeagent/nodetest/machine"
	"github.com/seed81659283/nodeagent/qos"
)

// simulatedRuntime is a container runtime in memory whose containers are processes of a kernel.
type simulatedRuntime struct {
	runtime *critest.Runtime
	kernel  *kernel
	ctx     context.Context                                          //nolint:containedctx // of the node: the hooks of containers have none
	pod     func(uid string) *corev1.Pod                             // the pod with this UID, or nil
	behave  func(pod *corev1.Pod, container string) Behavior         // of a container
	fault   func(ctx context.Context, op, id string) error           // error of a call, or nil; may block
	latency func(op, id string) time.Duration                        // of a call
	report  func(c *simulatedContainer, kill cgroupstest.KilledProc) // called for each process that the OOM killer has ended
	exited  func(pod cri.PodIdentity, container string, code int32)  // called for each container that has exited

	containers registry
}

// registry has the containers of a node that were started, until they are removed.
type registry struct {
	mu   sync.Mutex
	byID map[string]*simulatedContainer
}

// simulatedContainer is a container that was started.
type simulatedContainer struct {
	pod    cri.PodIdentity
	name   string
	cgroup cgroups.Path
}

// addContainer adds a container.
func (r *registry) addContainer(id string, c *simulatedContainer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byID == nil {
		r.byID = map[string]*simulatedContainer{}
	}
	r.byID[id] = c
}

// findContainer returns the started container with this ID, or nil.
func (r *registry) findContainer(id string) *simulatedContainer {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byID[id]
}

// removeContainer removes the container with this ID, if there is one.
func (r *registry) removeContainer(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byID, id)
}

// copyContainers returns the containers by ID.
func (r *registry) copyContainers() map[string]*simulatedContainer {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.byID)
}

// newRuntime returns a simulated runtime that assigns pod addresses from cidr. The caller must set the other fields, such as
// kernel, before a container starts.
func newRuntime(cidr netip.Prefix) *simulatedRuntime {
	s := &simulatedRuntime{}
	s.runtime = critest.New(critest.Options{Script: s.scriptFor, PodCIDR: cidr})
	return s
}

// intercepted returns the runtime for the agent. Its calls have latency and faults, and its lists contain no details, like
// the lists of containerd.
func (s *simulatedRuntime) intercepted() cri.Runtime {
	return &critest.Interceptor{Runtime: critest.SummaryRuntime{Runtime: s.runtime}, Latency: s.latency, Around: s.around}
}

// around runs call, the runtime call op, and then applies its effects to the machine. If a fault is injected for op, it
// returns the error of the fault instead.
func (s *simulatedRuntime) around(ctx context.Context, op, id string, call func(context.Context) error) error {
	if err := s.fault(ctx, op, id); err != nil {
		return err
	}
	if err := call(ctx); err != nil {
		return err
	}
	switch op {
	case "RemoveContainer", "RemovePodSandbox":
		s.forgetRemoved()
	case "UpdateContainerResources":
		return s.updateLimits(ctx, id)
	}
	return nil
}

// forgetRemoved removes the files and the records of all containers that no longer exist in the runtime.
func (s *simulatedRuntime) forgetRemoved() {
	for id := range s.containers.copyContainers() {
		if _, exists := s.runtime.Container(id); !exists {
			s.kernel.machine.RemoveFiles(id)
			s.containers.removeContainer(id)
		}
	}
}

// updateLimits applies the changed resources of the container with this ID to its cgroup. It does nothing if the container
// was not started.
func (s *simulatedRuntime) updateLimits(ctx context.Context, id string) error {
	c, ok := s.runtime.Container(id)
	started := s.containers.findContainer(id)
	if !ok || started == nil {
		return nil
	}
	limits, err := crilimits.Convert(c.Resources)
	if err != nil {
		return err
	}
	s.kernel.advance()
	return s.kernel.machine.Cgroups().Apply(ctx, started.cgroup, limits)
}

// scriptFor returns the script by which the runtime simulates a container: the start creates a process in the kernel, and
// the exit ends that process.
func (s *simulatedRuntime) scriptFor(config *cri.ContainerConfig) critest.Script {
	uid, name := config.Labels[cri.LabelPodUID], config.Name
	pod := s.pod(uid)
	if pod == nil {
		return critest.Script{}
	}
	b := s.behave(pod, name)
	identity := cri.PodIdentity{Namespace: pod.Namespace, Name: pod.Name, UID: uid}
	script := critest.Script{Exit: b.Exit, Stop: b.Stop, StartError: b.StartError}
	var started atomic.Int64 // time of the start in nanoseconds; a probe may run before the hook returns
	script.Started = func(c cri.Container) {
		started.Store(c.StartedAt.UnixNano())
		s.startProcess(pod, identity, c, &b)
	}
	script.Exited = func(c cri.Container) {
		if found := s.containers.findContainer(c.ID); found != nil {
			s.kernel.endProcess(s.ctx, c.ID, found.cgroup)
		}
		s.exited(identity, name, c.ExitCode)
	}
	if b.Probe != nil {
		script.Exec = func(ctx context.Context, command []string) (cri.ExecResult, error) {
			if err := b.Probe(ctx, time.Since(time.Unix(0, started.Load())), command); err != nil {
				return cri.ExecResult{Stdout: []byte(err.Error()), ExitCode: 1}, nil
			}
			return cri.ExecResult{}, nil
		}
	}
	return script
}

// startProcess creates the simulated process of container c, after the runtime has changed the container to the state running.
// If the process cannot be created, it makes the container exit.
func (s *simulatedRuntime) startProcess(pod *corev1.Pod, identity cri.PodIdentity, c cri.Container, b *Behavior) {
	cgroup := cgroups.PodPath("", cgroups.QOS(qos.StatusClass(pod)), identity.UID).Join(c.ID)
	s.containers.addContainer(c.ID, &simulatedContainer{pod: identity, name: c.Name, cgroup: cgroup})
	limits, err := crilimits.Convert(c.Resources)
	if err == nil {
		p := machine.Process{Cgroup: cgroup, Name: c.ID}
		if c.Resources != nil {
			p.OOMScoreAdj = int(c.Resources.OOMScoreAdj)
		}
		err = s.kernel.startProcess(s.ctx, identity.UID, p, limits, &b.Usage)
	}
	if err != nil {
		_ = s.runtime.KillWith(c.ID, critest.Exit{Code: 128, Reason: "StartError", Message: err.Error()}) // fails if it has exited
	}
	if now, exists := s.runtime.Container(c.ID); !exists || now.State != cri.ContainerRunning {
		// The container has exited meanwhile.
		s.kernel.endProcess(s.ctx, c.ID, cgroup)
	}
}

// endContainer makes the container of a killed process exit.
func (s *simulatedRuntime) endContainer(p cgroupstest.KilledProc) {
	c := s.containers.findContainer(p.Name)
	if c == nil {
		return // a process of the system
	}
	exit := critest.Exit{Code: 137}
	if p.Cause != cgroupstest.CauseKill {
		s.report(c, p)
		exit.Reason = "OOMKilled"
	}
	_ = s.runtime.KillWith(p.Name, exit) // fails if the container has exited
}

// defaultLatency returns the latency of a runtime call, as measured with containerd on two CPUs. Equal arguments yield equal
// latencies.
func defaultLatency(seed uint64, op, id string) time.Duration {
	mean := 3 * time.Millisecond
	switch op {
	case "RunPodSandbox":
		mean = 250 * time.Millisecond
	case "CreateContainer", "StartContainer":
		mean = 60 * time.Millisecond
	case "StopContainer", "StopPodSandbox", "RemoveContainer", "RemovePodSandbox":
		mean = 20 * time.Millisecond
	default:
		return mean
	}
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(op + "\x00" + id))
	random := rand.New(rand.NewPCG(seed, hash.Sum64()))
	return time.Duration(float64(mean) * (0.8 + 0.4*random.Float64())) // up to a fifth more or less
}
