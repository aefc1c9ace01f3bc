// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cpus_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups/cpus"
	"github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/internal/script"
)

// TestScripts executes the scripts in testdata. Their commands:
//
//	machine 2 sockets 2 nodes 8 cores     the hardware from now on; without CPUs 3,7 with "offline=3,7" at the end
//	agent static reserved=2000m OPTION... an agent starts with this policy, the millicores or CPUs (cpus=0,4) that are reserved, options of the policy,
//	                                      the policy of the topology manager (topology=restricted), its scope (scope=pod), and all differences from the
//	                                      kubelet off (kubelet). It continues with the record of the agent before it.
//	admit POD C=2000m init/C=1000m ...    a Guaranteed pod with these containers, or one with the words burstable or podlevel
//	again                                 all pods are admitted again, as after a restart
//	hints POD C, hints POD                the hints of a container or pod
//	release POD                           a pod is over
//	explain POD                           why its containers have these CPUs
//	pool                                  the shared pool
//	checkpoint                            what a kubelet would read
func TestScripts(t *testing.T) {
	script.Run(t, "testdata/*.txtar", func(t *testing.T, text string) string {
		w := &world{t: t, dir: t.TempDir(), pods: map[string]*cpus.Pod{}, admitted: map[string]bool{}}
		return script.Lines(text, "  ", w.do)
	})
}

// world is the state of a script.
type world struct {
	t        *testing.T
	dir      string
	machine  *topology.Machine
	config   cpus.Config
	podScope bool
	agent    *cpus.Allocator
	pods     map[string]*cpus.Pod // also those that were refused
	admitted map[string]bool
	events   []string
}

func (w *world) do(out *strings.Builder, words []string) {
	args := words[1:]
	var lines []string
	switch words[0] {
	case "machine":
		w.setMachine(args)
	case "agent":
		lines = w.startAgent(args)
	case "admit":
		w.addPod(args)
		lines = w.admit(args[0])
	case "again":
		for _, name := range slices.Sorted(maps.Keys(w.admitted)) {
			lines = append(lines, w.admit(name)...)
		}
	case "hints":
		lines = w.hints(args)
	case "release":
		require.NoError(w.t, w.agent.Release(args[0]))
		delete(w.admitted, args[0])
	case "explain":
		lines = strings.Split(w.agent.Policy().Explain(w.agent.State(), w.pods[args[0]]), "\n")
	case "pool":
		lines = []string{w.agent.State().Shared.String()}
	case "checkpoint":
		content, err := os.ReadFile(filepath.Join(w.dir, cpus.CheckpointName))
		require.NoError(w.t, err)
		lines = []string{string(content)}
	default:
		w.t.Fatal(words)
	}
	for _, line := range append(lines, w.events...) {
		fmt.Fprintln(out, "  "+strings.ReplaceAll(line, w.dir, "DIR"))
	}
	w.events = nil
}

func (w *world) setMachine(args []string) {
	var offline topology.CPUSet
	if text, ok := strings.CutPrefix(args[len(args)-1], "offline="); ok {
		set, err := topology.ParseCPUSet(text)
		require.NoError(w.t, err)
		offline, args = set, args[:len(args)-1]
	}
	machine, err := topology.Parse(strings.Join(args, " "))
	require.NoError(w.t, err)
	machine.CPUs = slices.DeleteFunc(machine.CPUs, func(c topology.CPU) bool { return offline.Has(c.ID) })
	w.machine = machine
}

func (w *world) startAgent(args []string) []string {
	w.config, w.podScope = cpus.Config{Policy: args[0], Gates: cpus.Gates{AlphaOptions: true}}, false
	for _, arg := range args[1:] {
		name, value, hasValue := strings.Cut(arg, "=")
		var err error
		switch name {
		case "reserved":
			w.config.ReservedMillis, err = strconv.ParseInt(strings.TrimSuffix(value, "m"), 10, 64)
		case "cpus":
			w.config.ReservedCPUs, err = topology.ParseCPUSet(value)
		case "topology":
			w.config.Topology, err = device.ParsePolicy(value)
		case "scope":
			w.podScope = value == "pod"
		case "kubelet":
			w.config.Kubelet = cpus.Kubelet{EmptyPool: true, RefuseChanged: true, RefuseRunning: true}
		case "podlevel":
			w.config.Gates.PodLevel = true
		case "stable":
			w.config.Gates = cpus.Gates{NoBetaOptions: true}
		default:
			if w.config.Options == nil {
				w.config.Options = map[string]string{}
			}
			if w.config.Options[name] = "true"; hasValue {
				w.config.Options[name] = value
			}
		}
		require.NoError(w.t, err)
	}
	policy, err := cpus.NewPolicy(w.machine, w.config)
	if err != nil {
		return []string{err.Error()}
	}
	checkpoint := filepath.Join(w.dir, cpus.CheckpointName)
	opts := cpus.AllocatorOptions{
		Record: filepath.Join(w.dir, "record"), Export: cpus.ExportTo(checkpoint),
		Previous: func() (cpus.State, error) { return policy.ReadCheckpoint(checkpoint) },
		Error:    func(err error) { w.events = append(w.events, "error: "+err.Error()) },
	}
	if w.config.Kubelet.RefuseChanged {
		opts.Record = "" // a kubelet has the checkpoint only
	}
	agent, err := cpus.NewAllocator(policy, opts)
	if err != nil {
		return []string{err.Error()}
	}
	w.agent = agent
	lines := []string{fmt.Sprintf("reserved %s, shared %s", policy.Reserved(), agent.State().Shared)}
	for _, notice := range agent.Notices() {
		lines = append(lines, notice.String())
	}
	return lines
}

func (w *world) addPod(args []string) {
	pod := &cpus.Pod{UID: args[0], Name: args[0], Namespace: "default", Guaranteed: true}
	for _, arg := range args[1:] {
		name, value, isContainer := strings.Cut(arg, "=")
		switch {
		case !isContainer:
			pod.Guaranteed = pod.Guaranteed && arg != "burstable"
			pod.PodLevel = pod.PodLevel || arg == "podlevel"
			continue
		}
		number, isElastic := strings.CutSuffix(value, "+") // the limit is above the request
		millis, err := strconv.ParseInt(strings.TrimSuffix(number, "m"), 10, 64)
		require.NoError(w.t, err)
		if name == "podlevel" {
			pod.PodLevel, pod.Millis = true, millis
			continue
		}
		c := cpus.Container{Name: name, Millis: millis, Guaranteed: millis > 0 && !isElastic}
		if kind, rest, ok := strings.Cut(name, "/"); ok {
			c.Name, c.Kind = rest, map[string]device.ContainerKind{"init": device.Init, "sidecar": device.Sidecar}[kind]
		}
		pod.Containers = append(pod.Containers, c)
	}
	w.pods[pod.UID] = pod
}

// admit merges the hints of the CPUs alone, as if the pod had no devices and no exclusive memory.
func (w *world) admit(name string) []string {
	pod := w.pods[name]
	r, err := w.agent.Begin(pod)
	require.NoError(w.t, err)
	err = w.reserve(pod, r)
	if err == nil {
		require.NoError(w.t, r.Commit())
		w.admitted[name] = true
		return w.describe(pod)
	}
	r.Undo(0)
	delete(w.admitted, name)
	var refusal *device.Refusal
	require.True(w.t, errors.As(err, &refusal), err)
	return []string{fmt.Sprintf("%s refused: %s: %s", name, refusal.Reason, refusal.Message)}
}

func (w *world) reserve(pod *cpus.Pod, r *cpus.Reservation) error {
	var best device.Hint
	for i := range pod.Containers {
		if i == 0 || !w.podScope {
			hints := r.PodHints()
			if !w.podScope {
				hints = r.Hints(i)
			}
			var admitted bool
			if best, admitted = w.config.Topology.Merge([][]device.Hint{hints}, w.nodes()); !admitted {
				return &device.Refusal{Reason: device.ReasonTopologyAffinityError, Message: "Resources cannot be allocated with Topology locality"}
			}
		}
		if w.podScope && w.agent.Policy().IsPodLevel(pod) {
			return r.TakePod(best.Nodes)
		}
		if err := r.Take(i, best.Nodes); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) nodes() (m device.Mask) {
	for _, n := range w.machine.Nodes {
		m |= 1 << n.ID
	}
	return m
}

func (w *world) describe(pod *cpus.Pod) []string {
	var parts []string
	for _, c := range pod.Containers {
		set, exclusive := w.agent.CPUs(pod.UID, c.Name)
		text := fmt.Sprintf("%s=%s", c.Name, set)
		if !exclusive {
			text = c.Name + " shares " + set.String()
		}
		parts = append(parts, text)
	}
	return []string{pod.Name + ": " + strings.Join(parts, ", ")}
}

func (w *world) hints(args []string) []string {
	pod := w.pods[args[0]]
	policy, state := w.agent.Policy(), w.agent.State()
	hints := policy.PodHints(state, pod)
	if len(args) > 1 {
		hints = policy.Hints(state, pod, slices.IndexFunc(pod.Containers, func(c cpus.Container) bool { return c.Name == args[1] }))
	}
	if hints == nil {
		return []string{"no preference"}
	}
	texts := []string{}
	for _, h := range hints {
		text := h.Nodes.String()
		if h.Preferred {
			text += " preferred"
		}
		texts = append(texts, text)
	}
	return []string{strings.Join(texts, ", ")}
}
