// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Virtualnode runs any number of nodes of a cluster, whose pods run in the memory of this program, for tests of schedulers, controllers and
// autoscalers. Node objects, leases, statuses and events are those of an agent; no container executes anything. A container starts at once and
// is ready. Init containers exit with 0, containers of pods that are not restarted after -jobs, and containers of a pod with the annotation
// virtualnode/exit-code with that code. Volumes, probes, hooks and resource claims of pods are left out.
//
//	virtualnode -kubeconfig admin.conf -cpu 8 -memory 16Gi n1 n2 n3
//
// The Node objects stay in the cluster when the program ends. Pods are started anew the next time.
package main

import (
	"context"
	"flag"
	"log"
	"log/slog"
	"net/netip"
	"os/signal"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/agent"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/lifecycletest"
	"github.com/seed81659283/nodeagent/nodestatus"
	"github.com/seed81659283/nodeagent/nodestatus/machine"
)

// node is a virtual node.
type node struct {
	jobs time.Duration // run time of a container that is not restarted
	pods sync.Map      // *corev1.Pod by UID
}

func main() {
	memory := resource.QuantityValue{Quantity: resource.MustParse("16Gi")}
	kubeconfig := flag.String("kubeconfig", "", "`file` of a user who may be all of these nodes: system:node:NAME, or an administrator")
	cpus, pods := flag.Int("cpu", 4, "processors of each node"), flag.Int("pods", nodestatus.DefaultMaxPods, "pods that each node may have")
	jobs, verbose := flag.Duration("jobs", 5*time.Second, "how long a container runs that is not restarted"), flag.Bool("v", false, "log the events of the nodes")
	flag.Var(&memory, "memory", "memory of each node")
	flag.Parse()
	if *kubeconfig == "" || flag.NArg() == 0 {
		log.Fatal("virtualnode: -kubeconfig and the names of nodes are required")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	var wg sync.WaitGroup
	for i, name := range flag.Args() {
		n, info := &node{jobs: *jobs}, machine.Info{MachineID: name, SystemUUID: name, BootID: name, OSImage: "Memory", CPUs: *cpus, Memory: memory.Value(), RootFS: 100 << 30}
		host := nodestatus.Fixed{Info: info, IPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 87, byte(i >> 8), byte(i)})}}
		c, o := agent.Config{}, agent.Options{Machine: host, Hosts: host, Transform: n.simplifyPod, Ephemeral: true, Logger: slog.New(slog.DiscardHandler)}
		c.Node.NodeName, c.Node.NodeIPs, c.Node.Kubeconfig = name, host.IPs, *kubeconfig
		c.Kubelet.EnableServer, c.Kubelet.MaxPods = new(bool), int32(*pods)
		if *verbose {
			o.Logger = slog.With("virtual", name)
		}
		o.Runtime = critest.New(critest.Options{Script: n.scriptFor, PodCIDR: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(128 + i/256), byte(i), 0}), 24)})
		o.Hooks.Lifecycle.PodRemoved = func(pod cri.PodIdentity) { n.pods.Delete(pod.UID) }
		a, err := agent.New(ctx, c, o)
		if err != nil {
			log.Fatal("virtualnode: ", err)
		}
		wg.Go(func() {
			if err := a.Run(ctx); err != nil {
				log.Fatal("virtualnode: ", err)
			}
		})
	}
	wg.Wait()
}

// simplifyPod returns a pod without the parts that the in-memory runtime does not implement. It stores the original pod for
// scriptFor.
func (n *node) simplifyPod(pod *corev1.Pod) *corev1.Pod {
	n.pods.Store(string(pod.UID), pod)
	return lifecycletest.SimplifyPod(pod)
}

// scriptFor returns the script of a container: the container runs until it is stopped, or exits by itself.
func (n *node) scriptFor(c *cri.ContainerConfig) critest.Script {
	found, _ := n.pods.Load(c.Labels[cri.LabelPodUID])
	pod, _ := found.(*corev1.Pod)
	i := slices.IndexFunc(pod.Spec.InitContainers, func(init corev1.Container) bool { return init.Name == c.Name })
	code, err := strconv.ParseInt(pod.Annotations["virtualnode/exit-code"], 10, 32)
	switch {
	case i >= 0 && pod.Spec.InitContainers[i].RestartPolicy == nil:
		return critest.ExitAfter(0, 0)
	case i >= 0, err != nil && pod.Spec.RestartPolicy == corev1.RestartPolicyAlways:
		return critest.Script{}
	}
	return critest.ExitAfter(n.jobs, int32(code))
}
