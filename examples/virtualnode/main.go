// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Virtualnode runs any number of simulated nodes of a cluster in one process, for tests of schedulers, controllers and autoscalers. They are a
// Fleet of package nodetest: the decisions of an agent on a model of a machine, with one watch for all nodes. No container executes anything.
// Node objects, leases and statuses are those of an agent, which also probes containers, restarts them with a back-off and evicts pods.
//
//	virtualnode -kubeconfig admin.conf -cpu 8 -memory 16Gi n1 n2 n3
//
// Pods use nothing, unless the annotation nodetest/usage has their usage, such as "memory=ramp(64Mi,20Gi,5m)". A node that runs out of memory
// or disk reports the pressure, and evicts pods.
//
// A container starts at once. Probes and lifecycle hooks succeed. Init containers exit with 0, and containers of pods that are not always restarted
// exit with 0 after -jobs. The annotation virtualnode/exit-code of a pod makes its containers exit after -jobs with this code. Resource
// claims of pods and the environment of containers are ignored. Of the events, only warnings are sent unless -events says otherwise.
//
// The Node objects stay in the cluster when the program ends. Pods are started anew the next time.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strconv"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/memreturn"
	"github.com/seed81659283/nodeagent/lifecycle/podevents"
	"github.com/seed81659283/nodeagent/nodestatus"
	"github.com/seed81659283/nodeagent/nodetest"
	"github.com/seed81659283/nodeagent/nodetest/machine"
)

// settings are the flags, which all nodes have in common.
type settings struct {
	kubeconfig string
	cpus, pods int
	memory     int64
	jobs       time.Duration // run time of a container that exits
	events     string
	verbose    bool
}

// gcPercent is the GOGC of the program, unless it is in the environment. Nodes and pods live long, so that less garbage between two collections
// costs little time and saves half of the memory.
const gcPercent = 30

func main() {
	var s settings
	memory := resource.QuantityValue{Quantity: resource.MustParse("16Gi")}
	flag.StringVar(&s.kubeconfig, "kubeconfig", "", "`file` of a user who may be all of these nodes: system:node:NAME, or an administrator")
	flag.IntVar(&s.cpus, "cpu", 4, "processors of each node")
	flag.IntVar(&s.pods, "pods", nodestatus.DefaultMaxPods, "pods that each node may have")
	flag.DurationVar(&s.jobs, "jobs", 5*time.Second, "how long a container runs that is not restarted")
	flag.StringVar(&s.events, "events", "warning", "`which` events are sent to the API server: warning, all or none")
	flag.BoolVar(&s.verbose, "v", false, "log the events of the pods")
	flag.Var(&memory, "memory", "memory of each node")
	flag.Parse()
	if s.memory = memory.Value(); s.kubeconfig == "" || flag.NArg() == 0 {
		log.Fatal("virtualnode: -kubeconfig and the names of nodes are required")
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := s.runNodes(ctx, flag.Args()); err != nil {
		log.Fatal("virtualnode: ", err)
	}
}

// runNodes runs the nodes until ctx ends.
func (s *settings) runNodes(ctx context.Context, names []string) error {
	o := nodetest.FleetOptions{Kubeconfig: s.kubeconfig, Logger: slog.Default(), Settled: func() {
		if err := memreturn.ReturnNow(); err != nil {
			slog.Debug("return memory", "error", err)
		}
	}}
	if s.verbose {
		o.EventRecorded = func(node string, pod cri.PodIdentity, e podevents.Event) {
			slog.Info("event", "node", node, "pod", pod.Namespace+"/"+pod.Name, "event", e)
		}
	}
	var err error
	if o.Events, err = parseEvents(s.events); err != nil {
		return err
	}
	for i, name := range names {
		o.Nodes = append(o.Nodes, s.newOptions(i, name))
	}
	fleet, err := nodetest.NewFleet(ctx, o)
	if err != nil {
		return err
	}
	return fleet.Run(ctx)
}

// newOptions returns the options of the node with this name and number.
func (s *settings) newOptions(i int, name string) nodetest.Options {
	o := nodetest.Options{
		Name: name, Machine: machine.Spec{CPUs: s.cpus, Memory: s.memory}, Behave: s.behave,
		PodCIDR: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(128 + i/256), byte(i), 0}), 24),
		Latency: func(string, string) time.Duration { return 0 },
	}
	o.Config.Node.NodeIPs = []netip.Addr{netip.AddrFrom4([4]byte{10, 87, byte(i >> 8), byte(i)})}
	o.Config.Kubelet.MaxPods = int32(s.pods)
	return o
}

// parseEvents returns the selection of events that the flag -events names.
func parseEvents(text string) (nodetest.EventSelection, error) {
	switch text {
	case "warning":
		return nodetest.EventsWarning, nil
	case "all":
		return nodetest.EventsAll, nil
	case "none":
		return nodetest.EventsNone, nil
	}
	return 0, fmt.Errorf("-events %q: want warning, all or none", text)
}

// behave returns the behavior of a container that exits, with the usage in the annotations of its pod. ok is false for a container that runs
// until it is stopped.
func (s *settings) behave(pod *corev1.Pod, container string) (b nodetest.Behavior, ok bool) {
	i := slices.IndexFunc(pod.Spec.InitContainers, func(init corev1.Container) bool { return init.Name == container })
	code, err := strconv.ParseInt(pod.Annotations["virtualnode/exit-code"], 10, 32)
	exit := &critest.Exit{After: s.jobs, Code: int32(code)}
	switch {
	case i >= 0 && pod.Spec.InitContainers[i].RestartPolicy == nil:
		exit = &critest.Exit{}
	case i >= 0, err != nil && pod.Spec.RestartPolicy == corev1.RestartPolicyAlways:
		return b, false
	}
	usage, named := pod.Annotations[nodetest.AnnotationUsage+"."+container]
	if !named {
		usage = pod.Annotations[nodetest.AnnotationUsage]
	}
	if b, err = nodetest.ParseBehavior(usage, 0); err != nil {
		return nodetest.Behavior{StartError: fmt.Errorf("annotation %s: %w", nodetest.AnnotationUsage, err)}, true
	}
	b.Exit = cmp.Or(b.Exit, exit)
	return b, true
}
