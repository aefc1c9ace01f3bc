// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Cpus prints which container has which CPUs of this machine exclusively, by socket, NUMA node and core. It asks the podresources API of an agent, or of a
// kubelet, with cpuManagerPolicy static.
//
//	cpus -socket /var/lib/nodeagent/pod-resources/kubelet.sock
//
// A pod with pod-level resources may have CPUs that its containers share. Other containers share the remaining CPUs, also the reserved ones unless
// strict-cpu-reservation is set. Init containers are not listed.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/seed81659283/nodeagent/cgroups/topology"
)

func main() {
	socket := flag.String("socket", "/var/lib/nodeagent/pod-resources/kubelet.sock", "unix socket of the podresources API")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := run(ctx, os.Stdout, os.DirFS("/"), *socket); err != nil {
		fmt.Fprintln(os.Stderr, "cpus:", err)
		os.Exit(1)
	}
}

// run prints the CPUs of the machine with this root directory.
func run(ctx context.Context, out io.Writer, root fs.FS, socket string) error {
	machine, err := topology.Read(root)
	if err != nil {
		return err
	}
	connection, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	client := podresourcesv1.NewPodResourcesListerClient(connection)
	free, err := client.GetAllocatableResources(ctx, &podresourcesv1.AllocatableResourcesRequest{})
	if err != nil {
		return fmt.Errorf("get the allocatable CPUs: %w", err)
	}
	pods, err := client.List(ctx, &podresourcesv1.ListPodResourcesRequest{})
	if err != nil {
		return fmt.Errorf("list the pods: %w", err)
	}
	if len(free.GetCpuIds()) == 0 {
		fmt.Fprintln(out, "no container can have exclusive CPUs: cpuManagerPolicy is none")
	}
	owners := listOwners(pods)
	printCPUs(out, machine, toSet(free.GetCpuIds()), owners)
	for _, o := range owners {
		fmt.Fprintln(out, o.describeCPUs(machine))
	}
	return nil
}

// owner is a container with exclusive CPUs, or a pod whose containers share some.
type owner struct {
	name string // namespace and pod, and for a container its name
	cpus topology.CPUSet
}

// listOwners returns the containers with exclusive CPUs, and after those of a pod the pod itself, if its containers share some of its CPUs.
func listOwners(pods *podresourcesv1.ListPodResourcesResponse) (owners []owner) {
	for _, pod := range pods.GetPodResources() {
		name, shared := pod.GetNamespace()+"/"+pod.GetName(), toSet(pod.GetCpuIds())
		for _, c := range pod.GetContainers() {
			if set := toSet(c.GetCpuIds()); !set.IsEmpty() {
				owners = append(owners, owner{name + "/" + c.GetName(), set})
				shared = shared.Minus(set)
			}
		}
		if !shared.IsEmpty() {
			owners = append(owners, owner{name, shared})
		}
	}
	return owners
}

// toSet returns the set of these CPUs, without IDs that no machine has.
func toSet(ids []int64) (set topology.CPUSet) {
	for _, id := range ids {
		if id >= 0 && id < topology.MaxCPUs {
			set.Add(int(id))
		}
	}
	return set
}

// printCPUs prints a line for each CPU.
func printCPUs(out io.Writer, machine *topology.Machine, allocatable topology.CPUSet, owners []owner) {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "SOCKET\tNODE\tCORE\tCPU\tCONTAINER")
	for _, cpu := range machine.CPUs {
		var names []string
		for _, o := range owners {
			if o.cpus.Has(cpu.ID) {
				names = append(names, o.name)
			}
		}
		switch {
		case len(names) > 0:
		case allocatable.Has(cpu.ID):
			names = []string{"shared"}
		default:
			names = []string{"shared, reserved"}
		}
		fmt.Fprintf(table, "%d\t%d\t%d\t%d\t%s\n", cpu.Socket, cpu.Node, cpu.Core, cpu.ID, strings.Join(names, ", "))
	}
	_ = table.Flush() // an error of out
}

// describeCPUs returns a line with the CPUs of the owner on each NUMA node, and the number of whole cores among them.
func (o *owner) describeCPUs(machine *topology.Machine) string {
	nodes, cores := map[int]topology.CPUSet{}, map[int]topology.CPUSet{}
	for _, cpu := range machine.CPUs {
		id := topology.NewCPUSet(cpu.ID)
		nodes[cpu.Node], cores[cpu.Core] = nodes[cpu.Node].Union(id), cores[cpu.Core].Union(id)
	}
	var parts []string
	for _, node := range machine.Nodes {
		if set := nodes[node.ID].Intersect(o.cpus); !set.IsEmpty() {
			parts = append(parts, fmt.Sprintf("%s of NUMA node %d", set, node.ID))
		}
	}
	whole := 0
	for _, core := range cores {
		if core.CountCommon(o.cpus) == core.Len() {
			whole++
		}
	}
	return fmt.Sprintf("%s has the CPUs %s; whole cores: %d", o.name, strings.Join(parts, " and "), whole)
}
