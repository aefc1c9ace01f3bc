// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/admission"
	"github.com/seed81659283/nodeagent/lifecycle/apisource"
	"github.com/seed81659283/nodeagent/lifecycle/lifecycletest"
	"github.com/seed81659283/nodeagent/nodestatus"
	"github.com/seed81659283/nodeagent/nodestatus/heartbeat"
	"github.com/seed81659283/nodeagent/nodestatus/machine"
	"github.com/seed81659283/nodeagent/pleg"
)

// exitCode is the annotation of pods whose containers exit with that code after the duration of the flag -jobs.
const exitCode = "virtualnode/exit-code"

// node is a virtual node.
type node struct {
	*flags
	name       string
	ip         netip.Addr
	log        *slog.Logger
	reconciler *lifecycle.Reconciler
}

// part is something of a node that runs until its context ends.
type part = func(context.Context) error

// parts makes the parts of a node and connects them: the API server says which pods are wanted, the reconciler runs them in memory,
// and the API server is told what becomes of them and that the node is alive.
func (n *node) parts(config *rest.Config, pods netip.Prefix) ([]part, error) {
	runtime := critest.New(critest.Options{Script: n.script, PodCIDR: pods})
	generator := pleg.New(runtime, pleg.Options{Logger: n.log})
	reporter, err := heartbeat.NewReporter(config, heartbeat.ReporterOptions{
		Config: nodestatus.Config{Name: n.name, NodeIPs: []netip.Addr{n.ip}, MaxPods: n.pods},
		Hosts:  n, Capacity: n, Runtime: runtime, Logger: n.log,
	})
	if err != nil {
		return nil, err
	}
	lease, err := heartbeat.NewLease(config, heartbeat.LeaseOptions{Reporter: reporter, Logger: n.log})
	if err != nil {
		return nil, err
	}
	source, err := apisource.New(config, apisource.Options{NodeName: n.name, WaitForNode: reporter.Registered, Logger: n.log})
	if err != nil {
		return nil, err
	}
	objects, err := source.Objects(apisource.ObjectsOptions{Logger: n.log})
	if err != nil {
		return nil, err
	}
	recorder := source.Recorder(apisource.RecorderOptions{Pod: n.pod, Logger: n.log})
	statuses, err := source.Statuses(apisource.StatusesOptions{
		Pods:   func() []lifecycle.PodState { return n.reconciler.Pods() },
		MayRun: func(uid string) bool { return n.reconciler.MayRun(uid) },
	})
	if err != nil {
		return nil, err
	}
	o := lifecycle.Options{Owner: n.name, Objects: objects, NoMounts: true, Admit: admission.Admit(reporter.Node), AdmitsByNode: true, Logger: n.log}
	o.Spec.HostIPs, o.Spec.RuntimeClasses = func() []netip.Addr { return []netip.Addr{n.ip} }, objects.RuntimeClass
	o.Hooks = lifecycle.Hooks{
		Status: statuses.Changed, Left: statuses.Left, Gone: statuses.Gone, Event: recorder.PodEvent, Refused: recorder.Refused,
	}
	n.reconciler, err = lifecycle.New(runtime, generator, o)
	watch := func(ctx context.Context) error { return source.Pods().Run(ctx, n.set) }
	return []part{
		generator.Run, n.reconciler.Run, objects.Run, recorder.Run, statuses.Run, reporter.Run, lease.Run, watch,
	}, err
}

// set hands the pods that are wanted to the reconciler, without what memory does not have.
func (n *node) set(u apisource.Update) {
	u.Pods = slices.Clone(u.Pods) // they are shared
	for i, pod := range u.Pods {
		u.Pods[i] = lifecycletest.Bare(pod)
	}
	if err := errors.Join(append(u.Errs, n.reconciler.Set(u.Set))...); err != nil {
		n.log.Error("pods of the API server", "error", err)
	}
}

// pod returns a pod of the node by its UID, or nil.
func (n *node) pod(uid string) *corev1.Pod {
	state, _ := n.reconciler.Pod(uid)
	return state.Spec
}

// script says what a container does.
func (n *node) script(c *cri.ContainerConfig) critest.Script {
	pod := n.pod(c.Labels[cri.LabelPodUID])
	if pod == nil {
		return critest.Script{} // until it is stopped
	}
	for i := range pod.Spec.InitContainers {
		if init := &pod.Spec.InitContainers[i]; init.Name == c.Name && init.RestartPolicy == nil {
			return critest.ExitAfter(0, 0)
		} else if init.Name == c.Name { // a sidecar
			return critest.Script{}
		}
	}
	code, err := strconv.ParseInt(pod.Annotations[exitCode], 10, 32)
	if err != nil && pod.Spec.RestartPolicy == corev1.RestartPolicyAlways {
		return critest.Script{}
	}
	return critest.ExitAfter(n.jobs, int32(code))
}

// Machine is what the node has.
func (n *node) Machine(context.Context) (machine.Info, error) {
	return machine.Info{
		MachineID: n.name, SystemUUID: n.name, BootID: n.name, KernelVersion: "none", OSImage: "Memory", CPUs: n.cpus,
		Memory: n.memory.Value(), RootFS: 100 << 30,
	}, nil
}

// Host is where the node is.
func (n *node) Host(context.Context, *nodestatus.Config) nodestatus.Host {
	return nodestatus.Host{Interfaces: []netip.Addr{n.ip}, Default: n.ip}
}
