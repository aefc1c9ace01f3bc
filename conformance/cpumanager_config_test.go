// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"testing"
	"time"

	cadvisorapi "github.com/google/cadvisor/lib/model"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"

	"github.com/seed81659283/nodeagent/cgroups/cpus"
	"github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/device"
)

// A configuration with which the kubelet's CPU manager cannot be created has the same error, with each setting of the feature gates.
func TestCPUManagerConfig(t *testing.T) {
	for name, gates := range map[string]cpus.Gates{
		"CPUManagerPolicyAlphaOptions=false,CPUManagerPolicyBetaOptions=true": {},
		"CPUManagerPolicyAlphaOptions=true,CPUManagerPolicyBetaOptions=true":  {AlphaOptions: true},
		"CPUManagerPolicyAlphaOptions=true,CPUManagerPolicyBetaOptions=false": {AlphaOptions: true, NoBetaOptions: true},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, utilfeature.DefaultMutableFeatureGate.Set(name))
			t.Cleanup(func() {
				require.NoError(t, utilfeature.DefaultMutableFeatureGate.Set("CPUManagerPolicyAlphaOptions=false,CPUManagerPolicyBetaOptions=true"))
			})
			cpuManagerConfig(gates).Run(t, flags.AtMost(flags.Inputs()/10))
		})
	}
}

// cpuConfigInput is a configuration of a machine.
type cpuConfigInput struct {
	Machine topology.Machine
	Config  cpus.Config
}

func makeCPUConfigInput(c *conformance.Choices, gates cpus.Gates) cpuConfigInput {
	in := cpuConfigInput{Config: cpus.Config{Policy: conformance.Pick(c, "static", "static", "static", "none", "Static", "x"), Gates: gates}}
	in.Machine = makeTakeMachine(c, true)
	in.Config.Topology = device.Policy(c.Int(4))
	if gates.AlphaOptions && !gates.NoBetaOptions && c.OneIn(2) { // otherwise the kubelet names any of several options whose gate is off
		in.Config.Options = makeCPUOptions(c)
		for name := range in.Config.Options {
			in.Config.Options[name] = "TRUE"
		}
	}
	if c.OneIn(2) {
		names := []string{"full-pcpus-only", "distribute-cpus-across-numa", "distribute-cpus-across-cores", "align-by-socket", "prefer-align-cpus-by-uncorecache", "x", ""}
		// one option or two: of several that are wrong, the kubelet names any one
		in.Config.Options = map[string]string{names[c.Int(len(names))]: conformance.Pick(c, "true", "false", "0", "maybe", "")}
		if gates.AlphaOptions && !gates.NoBetaOptions && c.OneIn(2) {
			in.Config.Options = map[string]string{names[c.Int(5)]: "1", names[c.Int(5)]: "t"}
		}
	}
	if in.Config.ReservedMillis = int64(c.Int(200)) * 50; c.OneIn(4) {
		for id := range in.Machine.Set().All() {
			if c.OneIn(4) {
				in.Config.ReservedCPUs.Add(id)
			}
		}
		if count := in.Config.ReservedCPUs.Len(); count > 0 && !c.OneIn(8) {
			in.Config.ReservedMillis = int64(count) * 1000
		}
	}
	return in
}

// machineInfo converts a machine to cAdvisor's type.
func machineInfo(machine *topology.Machine) *cadvisorapi.MachineInfo {
	info := &cadvisorapi.MachineInfo{NumCores: len(machine.CPUs), Topology: []cadvisorapi.Node{}}
	sockets, nodes, cores := map[int]bool{}, map[int]int{}, map[int]int{}
	for _, cpu := range machine.CPUs {
		sockets[cpu.Socket] = true
		at, ok := nodes[cpu.Node]
		if !ok {
			at = len(info.Topology)
			nodes[cpu.Node] = at
			info.Topology = append(info.Topology, cadvisorapi.Node{Id: cpu.Node})
		}
		node := &info.Topology[at]
		if _, ok := cores[cpu.Core]; !ok {
			cores[cpu.Core] = len(node.Cores)
			node.Cores = append(node.Cores, cadvisorapi.Core{Id: cpu.Core, SocketID: cpu.Socket, UncoreCaches: []cadvisorapi.Cache{{Id: cpu.Cache}}})
		}
		core := &node.Cores[cores[cpu.Core]]
		core.Threads = append(core.Threads, cpu.ID)
	}
	info.NumSockets = len(sockets)
	return info
}

func cpuManagerConfig(gates cpus.Gates) conformance.Comparison[cpuConfigInput, string] {
	return conformance.Comparison[cpuConfigInput, string]{
		Make: func(c *conformance.Choices) cpuConfigInput { return makeCPUConfigInput(c, gates) },
		Kubelet: func(in cpuConfigInput) string {
			reservation := corev1.ResourceList{}
			if in.Config.ReservedMillis > 0 || !in.Config.ReservedCPUs.IsEmpty() {
				millis := max(in.Config.ReservedMillis, 0)
				if millis == 0 {
					millis = int64(in.Config.ReservedCPUs.Len()) * 1000 // cmd/kubelet/app/server.go
				}
				reservation[corev1.ResourceCPU] = *resource.NewMilliQuantity(millis, resource.DecimalSI)
			}
			store := &kubeletCPUs{topology: newTopologyPolicy(in.Config.Topology)}
			_, err := cpumanager.NewManager(klog.Logger{}, in.Config.Policy, in.Config.Options, time.Second, machineInfo(&in.Machine),
				toKubeletSet(in.Config.ReservedCPUs), reservation, "", store)
			return describeError(err)
		},
		Ours: func(in cpuConfigInput) string {
			_, err := cpus.NewPolicy(&in.Machine, in.Config)
			return describeError(err)
		},
	}
}

func describeError(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
