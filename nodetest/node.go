// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/agent"
	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/nodestatus"
	"github.com/seed81659283/nodeagent/nodetest/machine"
)

// Node is a simulated node: an agent on a simulated machine. Its methods may be called from any goroutine. While Close, RestartAgent or Reboot runs,
// no other goroutine may use the node.
type Node struct {
	ctx     context.Context //nolint:containedctx // of Open: the node ends with it
	options Options
	api     *apiservertest.Server // nil: Options.Kubeconfig has the API server
	kernel  *kernel
	runtime *simulatedRuntime
	log     recorder

	faults  faults
	pods    sync.Map           // *podPair by UID
	stop    context.CancelFunc // ends the kernel
	done    sync.WaitGroup     // the kernel
	boots   int                // reboots of the machine
	running *runningAgent      // nil: the agent is stopped
}

// New starts a node that stops at the end of the test. In a bubble of testing/synctest, it has the time of the bubble, and
// [Node.Advance] takes as long as the node computes. A failed test prints the log of the node.
func New(t testing.TB, options Options) *Node {
	t.Helper()
	n, err := Open(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := n.Close()
		if err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("log of node %s:\n%s", n.options.Name, n.Log())
		}
	})
	return n
}

// Open starts a node that runs until ctx ends or Close is called. It runs in real time, or in the time of a synctest bubble. The caller must always
// call Close. An error names the invalid option.
func Open(ctx context.Context, options Options) (*Node, error) {
	if err := errors.Join(options.checkSelected(), options.checkServer()); err != nil {
		return nil, err
	}
	n := &Node{ctx: ctx, options: options.withDefaults()}
	n.log.start(time.Now, n.options.LogLimit)
	if n.api = options.API; n.api == nil && options.Kubeconfig == "" {
		n.api = apiservertest.NewServer(apiservertest.Options{})
	}
	n.runtime = newRuntime(options.PodCIDR)
	var err error
	if n.kernel, err = newKernel(options.Machine, time.Now, n.options.Resolution, n.runtime.endContainer); err != nil {
		return nil, err
	}
	r := n.runtime
	r.ctx, r.kernel, r.pod, r.behave, r.fault, r.latency = ctx, n.kernel, n.pod, n.options.behaviorOf, n.applyFault, n.options.Latency
	r.report, r.exited = n.log.recordOOM, n.log.recordExit
	if err := startSystem(ctx, n.kernel, &n.options.System); err != nil {
		return nil, err
	}
	if err := n.startAgent(ctx); err != nil {
		return nil, err
	}
	n.runKernel(ctx)
	return n, nil
}

// runKernel starts a goroutine that simulates the machine until ctx ends or Close is called.
func (n *Node) runKernel(ctx context.Context) {
	ctx, n.stop = context.WithCancel(ctx)
	n.done.Go(func() { n.kernel.run(ctx) })
}

// runningAgent is an agent whose Run was called.
type runningAgent struct {
	agent  *agent.Agent
	cancel context.CancelFunc
	ended  chan struct{} // closed when Run has returned
	err    error         // result of Run, once ended is closed
}

// agentDelay is the time before the start of an agent, and agentPause the time after it. The sum is a whole number of milliseconds: tests act on the
// node at whole milliseconds, and timers of the agent fire between them. Otherwise the order of goroutines would decide which is first.
const (
	agentDelay = 3_700 * time.Microsecond
	agentPause = 300 * time.Microsecond
)

// startAgent creates an agent and runs it.
func (n *Node) startAgent(ctx context.Context) error {
	time.Sleep(agentDelay)
	config, o := n.agentOptions()
	if n.options.Adjust != nil {
		n.options.Adjust(&o)
	}
	a, err := agent.New(ctx, config, o)
	if err != nil {
		return err
	}
	running, cancel := context.WithCancel(ctx)
	n.running = &runningAgent{agent: a, cancel: cancel, ended: make(chan struct{})}
	go func(r *runningAgent) { defer close(r.ended); r.err = r.agent.Run(running) }(n.running)
	time.Sleep(agentPause)
	return nil
}

// stopAgent stops the agent and waits for it. It returns the error with which the agent failed, or nil. Containers keep
// running.
func (n *Node) stopAgent() error {
	if n.running == nil {
		return nil
	}
	n.running.cancel()
	err := n.Wait()
	n.running = nil
	return err
}

// startSystem starts the process of Options.System.
func startSystem(ctx context.Context, k *kernel, usage *Usage) error {
	const system = "system"
	return k.startProcess(ctx, "", machine.Process{Cgroup: system, Name: system, OOMScoreAdj: -999}, cgroups.Resources{}, usage)
}

// noLimit is a number of parallel starts and image pulls that no node reaches, so that no pod waits. Which pod waits would depend on the order of
// goroutines.
const noLimit = 10_000

// nodeIP derives an IP address from the name of the node, so that several nodes of one API server have different addresses.
func nodeIP(name string) netip.Addr {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(name))
	sum := hash.Sum32()
	return netip.AddrFrom4([4]byte{172, 16 | byte(sum>>16)&15, byte(sum >> 8), byte(sum)})
}

// nodeConfig returns the configuration of the agent.
func (o *Options) nodeConfig() agent.Config {
	config := o.Config
	config.Node.NodeName, config.Node.Kubeconfig = o.Name, cmp.Or(o.Kubeconfig, config.Node.Kubeconfig)
	config.Node.ParallelStarts = cmp.Or(config.Node.ParallelStarts, noLimit) // the default depends on the CPUs of this computer
	if config.Kubelet.MaxParallelImagePulls == nil {
		config.Kubelet.MaxParallelImagePulls = new(int32(noLimit))
	}
	if len(config.Kubelet.ClusterDNS) == 0 {
		config.Kubelet.ClusterDNS = []string{"10.96.0.10"} // otherwise each pod gets a warning
	}
	return config
}

// agentOptions returns the configuration and the options with which the agent runs on the simulated machine.
func (n *Node) agentOptions() (agent.Config, agent.Options) {
	config := n.options.nodeConfig()
	info := hostInfo(n.options.Name, n.kernel.machine.Spec())
	info.BootID = fmt.Sprint(n.options.Name, "-", n.boots)
	host := nodestatus.Fixed{Info: info, IPs: config.Node.NodeIPs}
	if len(host.IPs) == 0 {
		host.IPs = []netip.Addr{nodeIP(n.options.Name)}
	}
	o := agent.Options{
		Logger: n.options.Logger, Runtime: n.runtime.intercepted(), Machine: host, Hosts: host, Ephemeral: true,
		Cgroups: cgroupDriver{Tree: n.kernel.machine.Cgroups(), kernel: n.kernel}, Volumes: &volumes{kernel: n.kernel},
		Measurer: &measurer{name: n.options.Name, kernel: n.kernel, containers: &n.runtime.containers}, Transform: n.transform,
		Rand: func() float64 { return 0.5 }, // any other number could depend on the order of its callers
	}
	if n.api == nil {
		o.Rand = nil // all nodes of a cluster would send their requests at the same time
	} else {
		o.API = n.api.Config()
	}
	o.Hooks.Event = n.log.recordEvent
	o.Hooks.Lifecycle = lifecycle.Hooks{
		StatusChanged: n.log.recordStatus,
		PodRemoved:    n.forgetPod,
	}
	o.Hooks.Eviction.ConditionsChanged = n.log.recordConditions
	return config, o
}

// Close stops the agent and the machine. It returns the error with which the agent failed, or nil. A second call does
// nothing.
func (n *Node) Close() error {
	err := n.stopAgent()
	n.stop()
	n.done.Wait()
	if n.options.API == nil && n.api != nil {
		n.api.Close()
	}
	return err
}

// API returns the API server in memory. It returns nil if Options.Kubeconfig selects a real API server.
func (n *Node) API() *apiservertest.Server { return n.api }

// Agent returns the running agent, or nil if it was stopped or a restart failed. [Node.RestartAgent] and [Node.Reboot]
// replace the agent.
func (n *Node) Agent() *agent.Agent {
	if n.running == nil {
		return nil
	}
	return n.running.agent
}

// Machine advances the machine to the current time and returns it. The caller may start processes on it.
func (n *Node) Machine() *machine.Machine {
	n.kernel.keepAwake() // the caller may start processes
	n.kernel.advance()
	return n.kernel.machine
}

// Add creates the pods on the API server in memory, bound to this node. A pod without a namespace gets the namespace
// default. Add does not wait until the pods run.
func (n *Node) Add(pods ...*corev1.Pod) error {
	if err := n.requireServer("Add"); err != nil {
		return err
	}
	for _, p := range pods {
		p = p.DeepCopy()
		p.Namespace, p.Spec.NodeName = cmp.Or(p.Namespace, corev1.NamespaceDefault), n.options.Name
		if err := n.api.Put(p); err != nil {
			return err
		}
	}
	return nil
}

// Delete deletes a pod of namespace default from the API server in memory, with its grace period. It does not wait until the pod has terminated.
func (n *Node) Delete(name string) error {
	if err := n.requireServer("Delete"); err != nil {
		return err
	}
	p, ok := n.Pod(name)
	if !ok {
		return fmt.Errorf("pod %s: not found", name)
	}
	return n.api.Delete(p, nil)
}

// Pod returns the named pod in the namespace default from the API server in memory, and false if it does not exist. For a
// real API server, it returns the version that the agent has received.
func (n *Node) Pod(name string) (*corev1.Pod, bool) {
	if n.api == nil {
		return n.receivedPod(corev1.NamespaceDefault, name)
	}
	return apiservertest.Get[*corev1.Pod](n.api, corev1.NamespaceDefault, name)
}

// Advance waits for the duration d, in the time of the node.
func (n *Node) Advance(d time.Duration) { time.Sleep(d) }

// Age returns the time since the start of the node.
func (n *Node) Age() time.Duration { return n.log.age() }

// Log returns all entries until now, ordered by time.
func (n *Node) Log() Log { return n.log.log() }

// Stats returns the usage of the cgroup of the named pod in the namespace default. Only CPU periods and throttling are sums
// over the cgroups of running containers, whose quotas are reached first.
func (n *Node) Stats(name string) (cgroups.Stats, error) {
	p, ok := n.Pod(name)
	if !ok {
		return cgroups.Stats{}, fmt.Errorf("pod %s: not found", name)
	}
	n.kernel.advance()
	return podUsage(n.ctx, n.kernel.machine.Cgroups(), p)
}

// pod returns the pod with this UID that the agent has received, or nil.
func (n *Node) pod(uid string) *corev1.Pod {
	found, ok := n.pods.Load(uid)
	if !ok {
		return nil
	}
	return found.(*podPair).listed
}
